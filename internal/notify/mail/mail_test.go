package mail

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"fmt"
	"io"
	"math/big"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/notify"
	"github.com/daybreak-agent/daybreak/internal/task"
)

var note = notify.Note{
	Key: "held:1", About: notify.Waiting, Task: "t_1", Repo: "/srv/git/cart.git",
	Title: "Gutscheine über\r\nBcc: everybody@example.com", Fact: "a verified change of 2 files waits for an approval",
	Page: "https://daybreak.example/tasks/t_1", Link: "https://git.example.com/shop/cart/issues/3",
}

// server is a mail server on loopback that speaks SMTP, with STARTTLS and AUTH PLAIN.
type server struct {
	l        net.Listener
	pool     *x509.CertPool
	cert     tls.Certificate
	plain    bool              // it does not offer STARTTLS
	answer   map[string]string // verb → what it says instead
	commands []string          // "tls " before what came encrypted
	data     string
	ended    chan struct{}
}

func start(t *testing.T, change func(*server)) *server {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "mail"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{pool: x509.NewCertPool(), cert: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, answer: map[string]string{}, ended: make(chan struct{})}
	s.pool.AddCert(ca)
	if change != nil {
		change(s)
	}
	if s.l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	go s.serve()
	t.Cleanup(func() { _ = s.l.Close(); <-s.ended })
	return s
}

func (s *server) serve() {
	defer close(s.ended)
	conn, err := s.l.Accept()
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	in, mark := textproto.NewReader(bufio.NewReader(conn)), ""
	say := func(line string) { _, _ = io.WriteString(conn, line+"\r\n") }
	say("220 mail.example.com")
	for {
		line, err := in.ReadLine()
		if err != nil {
			return
		}
		s.commands = append(s.commands, mark+line)
		verb, _, _ := strings.Cut(strings.ToUpper(line), " ")
		if a := s.answer[verb]; a != "" {
			say(a)
			continue
		}
		switch verb {
		case "EHLO":
			say("250-mail.example.com")
			switch {
			case mark == "" && !s.plain:
				say("250 STARTTLS")
			case mark != "":
				say("250 AUTH PLAIN")
			default:
				say("250 8BITMIME")
			}
		case "STARTTLS":
			say("220 go on")
			enc := tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{s.cert}, MinVersion: tls.VersionTLS12})
			if enc.Handshake() != nil {
				return
			}
			conn, in, mark = enc, textproto.NewReader(bufio.NewReader(enc)), "tls "
		case "AUTH":
			say("235 welcome")
		case "DATA":
			say("354 go on")
			b, err := in.ReadDotBytes()
			if err != nil {
				return
			}
			s.data = string(b)
			say("250 taken")
		case "QUIT":
			say("221 bye")
			return
		default:
			say("250 ok")
		}
	}
}

func (s *server) sender(change func(*Config)) *Sender {
	cfg := Config{
		Server: s.l.Addr().String(), From: "daybreak@example.com", To: []string{"team@example.com", "lead@example.com"}, User: "daybreak", Password: "secret-password",
		Roots: s.pool, Now: func() time.Time { return time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC) },
	}
	if change != nil {
		change(&cfg)
	}
	return New(cfg)
}

func TestSend(t *testing.T) {
	s := start(t, nil)
	if err := s.sender(nil).Send(t.Context(), note); err != nil {
		t.Fatal(err)
	}
	<-s.ended
	auth := base64.StdEncoding.EncodeToString([]byte("\x00daybreak\x00secret-password"))
	want := "EHLO localhost\nSTARTTLS\ntls EHLO localhost\ntls AUTH PLAIN " + auth +
		"\ntls MAIL FROM:<daybreak@example.com>\ntls RCPT TO:<team@example.com>\ntls RCPT TO:<lead@example.com>\ntls DATA\ntls QUIT"
	if got := strings.Join(s.commands, "\n"); got != want {
		t.Errorf("it was told\n%s\nwant\n%s", got, want)
	}
	m, err := mail.ReadMessage(strings.NewReader(s.data))
	if err != nil {
		t.Fatal(err)
	}
	subject, err := new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject"))
	if err != nil || subject != "Waiting for you: cart: Gutscheine über Bcc: everybody@example.com" {
		t.Errorf("subject %q, %v", subject, err)
	}
	if m.Header.Get("Bcc") != "" || len(m.Header["Subject"]) != 1 || m.Header.Get("Date") != "Mon, 04 May 2026 03:02:01 +0000" || m.Header.Get("Auto-Submitted") != "auto-generated" {
		t.Errorf("%v", m.Header)
	}
	if id := m.Header.Get("Message-ID"); !strings.HasSuffix(id, "@example.com>") || len(id) != 38 {
		t.Errorf("id %s", id)
	}
	body, err := io.ReadAll(quotedprintable.NewReader(m.Body))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a verified change of 2 files waits for an approval\n", "Issue: https://git.example.com/shop/cart/issues/3\n", "Record: https://daybreak.example/tasks/t_1\n", "Task: t_1\n"} {
		if !strings.Contains(strings.ReplaceAll(string(body), "\r\n", "\n"), want) {
			t.Errorf("%q is not in %q", want, body)
		}
	}
}

// What goes wrong has its class, nothing is said in the clear, and no error has the password.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		server func(*server)
		sender func(*Config)
		want   task.Class
	}{
		"no STARTTLS":          {func(s *server) { s.plain = true }, nil, task.Invalid},
		"STARTTLS stripped":    {func(s *server) { s.answer["STARTTLS"] = "454 not now" }, nil, task.Transient},
		"an unknown authority": {nil, func(c *Config) { c.Roots = x509.NewCertPool() }, task.Auth},
		"a wrong password":     {func(s *server) { s.answer["AUTH"] = "535 secret-password is wrong" }, nil, task.Auth},
		"greylisted":           {func(s *server) { s.answer["RCPT"] = "450 later" }, nil, task.Transient},
		"no such person":       {func(s *server) { s.answer["RCPT"] = "550 nobody" }, nil, task.Invalid},
		"full":                 {func(s *server) { s.answer["DATA"] = "452 full" }, nil, task.Transient},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, c.server)
			err := s.sender(c.sender).Send(t.Context(), note)
			if task.ClassOf(err) != c.want || err == nil || strings.Contains(err.Error(), "secret-password") {
				t.Errorf("%v of class %s, want %s", err, task.ClassOf(err), c.want)
			}
			<-s.ended
			for _, line := range s.commands {
				if !strings.HasPrefix(line, "tls ") && !strings.HasPrefix(line, "EHLO") && line != "STARTTLS" && line != "QUIT" {
					t.Errorf("said in the clear: %s", line)
				}
			}
			if s.data != "" {
				t.Error("the mail went out")
			}
		})
	}
	away := start(t, nil)
	sender := away.sender(nil)
	_ = away.l.Close()
	if err := sender.Send(t.Context(), note); task.ClassOf(err) != task.Transient {
		t.Errorf("away: %v", err)
	}
	once, again := fmt.Sprint(sender.message(note)), fmt.Sprint(sender.message(note))
	if once != again {
		t.Error("the same note is another mail")
	}
}
