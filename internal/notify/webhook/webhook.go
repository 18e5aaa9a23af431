// Package webhook sends notes to an incoming webhook as Slack has it, and others after it.
//
// Invariants: the address is a secret and in no error; no redirect is followed; what a person
// wrote cannot make a mention, a link or a format; at most a little of the answer is read.
package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/notify"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// timeout bounds one attempt.
const timeout = 10 * time.Second

// Sender implements notify.Sender.
type Sender struct {
	address string
	http    *http.Client
}

// New returns a sender to the address. roots may be nil: the system's authorities.
func New(address string, roots *x509.CertPool) (*Sender, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return nil, &task.Error{Class: task.Invalid, Msg: "the webhook's address is no http or https address"}
	}
	return &Sender{address, &http.Client{
		Timeout:       timeout,
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Name implements notify.Sender.
func (s *Sender) Name() string { return "webhook" }

// Send implements notify.Sender.
func (s *Sender) Send(ctx context.Context, n notify.Note) error {
	body, err := json.Marshal(map[string]any{"text": Text(n), "unfurl_links": false, "unfurl_media": false})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.address, bytes.NewReader(body))
	if err != nil {
		return &task.Error{Class: task.Invalid, Msg: "the webhook's address cannot be used"}
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := s.http.Do(req)
	if err != nil {
		var told *url.Error
		if errors.As(err, &told) { // its text has the address
			err = told.Err
		}
		return &task.Error{Class: task.Transient, Msg: "the webhook could not be reached", Err: err}
	}
	defer func() { _ = res.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 4<<10)) // so that the connection can be used again
	return refusal(res)
}

// refusal is the error that an answer stands for. What the answer says is not repeated: it may
// hold the address.
func refusal(res *http.Response) error {
	e := &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("the webhook answered %d", res.StatusCode), Fix: "check its address"}
	switch code := res.StatusCode; {
	case code >= 200 && code < 300:
		return nil
	case code == http.StatusTooManyRequests:
		e.Class, e.Fix = task.RateLimited, ""
		if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && s > 0 {
			e.RetryAfter = time.Duration(s) * time.Second
		}
	case code >= 500:
		e.Class, e.Fix = task.Overloaded, ""
	case code == http.StatusNotFound || code == http.StatusGone:
		e.Class = task.NotFound
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		e.Class = task.Auth
	}
	return e
}

// Text is the note in Slack's form.
func Text(n notify.Note) string {
	var b strings.Builder
	b.WriteString(escape(n.Subject()))
	if n.Fact != "" {
		b.WriteString("\n" + escape(notify.Line(n.Fact)))
	}
	var links []string
	for _, l := range []struct{ address, text string }{{n.Link, linkText(n.About)}, {n.Page, "the record"}} {
		switch {
		case notify.Web(l.address):
			links = append(links, "<"+address(l.address)+"|"+l.text+">")
		case l.address != "":
			links = append(links, escape(notify.Line(l.address)))
		}
	}
	if len(links) == 0 {
		links = append(links, escape(string(n.Task)))
	}
	b.WriteString("\n" + strings.Join(links, " · "))
	return b.String()
}

func linkText(a notify.About) string {
	if a == notify.PullRequest {
		return "the pull request"
	}
	return "the issue"
}

// escape replaces the three characters that Slack names, and keeps marks of format, mentions and
// addresses from being taken for what they look like.
func escape(s string) string {
	const stop = "\u2060" // word joiner: it is not seen, and no mark works across it
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;",
		"*", "*"+stop, "_", "_"+stop, "~", "~"+stop, "`", "`"+stop, "@", "@"+stop, "://", ":"+stop+"//").Replace(s)
}

// address keeps an address from ending its link early.
func address(s string) string {
	return strings.NewReplacer("|", "%7C", ">", "%3E", "<", "%3C", " ", "%20", "\n", "%0A", "\r", "%0D").Replace(s)
}
