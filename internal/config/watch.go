package config

import (
	"errors"
	"fmt"
	"net"
	"net/mail"
	"net/url"
	"slices"
	"strings"
)

// Telemetry is how an installation is watched from outside.
type Telemetry struct {
	OTLPEndpoint string `yaml:"otlp_endpoint"` // base URL of a collector for traces, over OTLP/HTTP; empty: what the OTEL_EXPORTER_OTLP_* variables say
	Listen       string `yaml:"listen"`        // address of a listener for /metrics alone; `daybreak serve` has them at its own as well
}

// Notify is whom Daybreak tells when people should look.
type Notify struct {
	On      []string `yaml:"on"` // "pull_request", "waiting", "exhausted"
	Webhook *Webhook `yaml:"webhook"`
	Mail    *Mail    `yaml:"mail"`
}

// Webhook is an incoming webhook as Slack, Mattermost and others have it. Its address is a secret.
type Webhook struct {
	URLEnv  string `yaml:"url_env"`
	URLFile string `yaml:"url_file"`
	CAFile  string `yaml:"ca_file"` // PEM, instead of the system's authorities
}

// Mail is a server that takes mail in, with STARTTLS.
type Mail struct {
	Server       string   `yaml:"server"` // host:port
	From         string   `yaml:"from"`
	To           []string `yaml:"to"`
	User         string   `yaml:"user"` // empty: no sign-in
	PasswordEnv  string   `yaml:"password_env"`
	PasswordFile string   `yaml:"password_file"`
	CAFile       string   `yaml:"ca_file"`
}

// Address reads the webhook's address.
func (w Webhook) Address(getenv func(string) string) (string, error) {
	return secret("the address of the webhook", w.URLEnv, w.URLFile, "notify.webhook.url_file", getenv)
}

// Password reads the password of the mail server; "" when nobody signs in.
func (m Mail) Password(getenv func(string) string) (string, error) {
	if m.User == "" {
		return "", nil
	}
	return secret("the password of the mail server", m.PasswordEnv, m.PasswordFile, "notify.mail.password_file", getenv)
}

// NotifyAbout lists what people can be told of.
func NotifyAbout() []string { return []string{"pull_request", "waiting", "exhausted"} }

func (t Telemetry) check() error {
	if e := t.OTLPEndpoint; e != "" {
		if u, err := url.Parse(e); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
			return errors.New("telemetry.otlp_endpoint is no http or https address without credentials; headers with them go into OTEL_EXPORTER_OTLP_HEADERS")
		}
	}
	if t.Listen != "" {
		if _, _, err := net.SplitHostPort(t.Listen); err != nil {
			return fmt.Errorf("telemetry.listen is %q; write an address such as 127.0.0.1:9484", t.Listen)
		}
	}
	return nil
}

func (n Notify) check() error {
	for _, o := range n.On {
		if !slices.Contains(NotifyAbout(), o) {
			return fmt.Errorf("notify.on has %q; use %s", o, strings.Join(NotifyAbout(), ", "))
		}
	}
	if w := n.Webhook; w != nil && w.URLEnv == "" && w.URLFile == "" {
		return errors.New("notify.webhook needs url_env or url_file")
	}
	m := n.Mail
	if m == nil {
		return nil
	}
	if _, _, err := net.SplitHostPort(m.Server); err != nil {
		return fmt.Errorf("notify.mail.server is %q; write host:port, such as smtp.example.com:587", m.Server)
	}
	if len(m.To) == 0 {
		return errors.New("notify.mail.to is empty")
	}
	for _, a := range append([]string{m.From}, m.To...) {
		if p, err := mail.ParseAddress(a); err != nil || p.Address != a || strings.ContainsFunc(a, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return fmt.Errorf("notify.mail: %q is no plain mail address", a)
		}
	}
	if m.User != "" && m.PasswordEnv == "" && m.PasswordFile == "" {
		return errors.New("notify.mail.user needs password_env or password_file")
	}
	return nil
}
