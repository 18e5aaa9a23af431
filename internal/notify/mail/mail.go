// Package mail sends notes by SMTP.
//
// Invariants: nothing is said before the connection is encrypted (STARTTLS), but for the greeting;
// a header is one line whatever a title holds; the password is in no error.
package mail

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/smtp"
	"net/textproto"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/notify"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Config says how mail is sent. All but User, Password and Roots are required.
type Config struct {
	Server   string // host:port
	From     string
	To       []string
	User     string // "": nobody signs in
	Password string
	Roots    *x509.CertPool // nil: the system's authorities
	Now      func() time.Time
}

// timeout bounds one attempt.
const timeout = 20 * time.Second

// Sender implements notify.Sender.
type Sender struct{ cfg Config }

// New returns a sender.
func New(cfg Config) *Sender { return &Sender{cfg} }

// Name implements notify.Sender.
func (s *Sender) Name() string { return "mail" }

// Send implements notify.Sender.
func (s *Sender) Send(ctx context.Context, n notify.Note) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	host, _, err := net.SplitHostPort(s.cfg.Server)
	if err != nil {
		return &task.Error{Class: task.Invalid, Msg: "the mail server's address is not host:port"}
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.cfg.Server)
	if err != nil {
		return &task.Error{Class: task.Transient, Msg: "the mail server could not be reached", Err: err}
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	c, err := smtp.NewClient(conn, host)
	if err != nil {
		return errors.Join(refused("greeted", err), conn.Close())
	}
	defer func() { _ = c.Close() }()
	return s.talk(c, host, n)
}

func (s *Sender) talk(c *smtp.Client, host string, n notify.Note) error {
	if ok, _ := c.Extension("STARTTLS"); !ok {
		return &task.Error{Class: task.Invalid, Msg: "the mail server does not offer STARTTLS", Fix: "use its submission port, often 587"}
	}
	if err := c.StartTLS(&tls.Config{ServerName: host, RootCAs: s.cfg.Roots, MinVersion: tls.VersionTLS12}); err != nil {
		return refused("encrypted the connection", err)
	}
	if s.cfg.User != "" {
		if err := c.Auth(smtp.PlainAuth("", s.cfg.User, s.cfg.Password, host)); err != nil {
			return refused("let "+s.cfg.User+" in", err)
		}
	}
	if err := c.Mail(s.cfg.From); err != nil {
		return refused("took the sender", err)
	}
	for _, to := range s.cfg.To {
		if err := c.Rcpt(to); err != nil {
			return refused("took the recipient "+to, err)
		}
	}
	w, err := c.Data()
	if err != nil {
		return refused("took the mail", err)
	}
	if _, err := w.Write(s.message(n)); err != nil {
		return refused("took the mail", err)
	}
	if err := w.Close(); err != nil {
		return refused("took the mail", err)
	}
	_ = c.Quit() // the mail is taken
	return nil
}

// refused classes an error by the server's code: 4xx is for now, 5xx for good.
func refused(what string, err error) error {
	e := &task.Error{Class: task.Transient, Msg: "the mail server has not " + what, Err: err}
	var code *textproto.Error
	var cert *tls.CertificateVerificationError
	switch {
	case errors.As(err, &code) && (code.Code == 535 || code.Code == 530):
		e.Class, e.Err = task.Auth, fmt.Errorf("code %d", code.Code)
	case errors.As(err, &code) && code.Code >= 500:
		e.Class = task.Invalid
	case errors.As(err, &cert):
		e.Class, e.Fix = task.Auth, "set notify.mail.ca_file"
	}
	return e
}

// message is the note as RFC 5322 wants it. Its Message-ID follows from the note, so that a mail
// that was sent twice after all is seen once.
func (s *Sender) message(n notify.Note) []byte {
	sum := sha256.Sum256([]byte(n.Key + "\x00" + string(n.Task)))
	_, domain, _ := strings.Cut(s.cfg.From, "@")
	var b bytes.Buffer
	for _, h := range [][2]string{
		{"From", s.cfg.From},
		{"To", strings.Join(s.cfg.To, ", ")},
		{"Subject", mime.QEncoding.Encode("utf-8", n.Subject())},
		{"Date", s.cfg.Now().UTC().Format(time.RFC1123Z)},
		{"Message-ID", "<" + hex.EncodeToString(sum[:12]) + "@" + domain + ">"},
		{"Auto-Submitted", "auto-generated"},
		{"MIME-Version", "1.0"},
		{"Content-Type", "text/plain; charset=utf-8"},
		{"Content-Transfer-Encoding", "quoted-printable"},
	} {
		fmt.Fprintf(&b, "%s: %s\r\n", h[0], h[1])
	}
	b.WriteString("\r\n")
	q := quotedprintable.NewWriter(&b)
	lines := []string{n.Subject(), ""}
	for _, l := range []struct{ name, text string }{{"", n.Fact}, {linkName(n.About), n.Link}, {"Record", n.Page}, {"Task", string(n.Task)}} {
		switch {
		case l.text == "":
		case l.name == "":
			lines = append(lines, notify.Line(l.text))
		default:
			lines = append(lines, l.name+": "+strings.Join(strings.Fields(l.text), " "))
		}
	}
	_, _ = q.Write([]byte(strings.Join(lines, "\r\n") + "\r\n")) // into memory
	_ = q.Close()
	return b.Bytes()
}

func linkName(a notify.About) string {
	if a == notify.PullRequest {
		return "Pull request"
	}
	return "Issue"
}
