package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/mirror"
)

// processArg makes this test's own program the mirror's process.
const processArg = "mirror-process"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == processArg {
		if err := Run(context.Background(), os.Args[2:], os.Stderr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// registry is npm's, on loopback, with any package one asks for.
type registry struct {
	*httptest.Server
	mu   sync.Mutex
	seen []string
}

func newRegistry(t testing.TB) *registry {
	r := &registry{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		r.seen = append(r.seen, q.URL.Path)
		r.mu.Unlock()
		name := strings.TrimPrefix(q.URL.Path, "/")
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"name":%q,"dist-tags":{},"versions":{}}`, name)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *registry) requests() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string{}, r.seen...)
}

type rig struct {
	t      testing.TB
	k      *Keeper
	up     *registry
	dir    string
	stderr *syncWriter
}

type syncWriter struct {
	mu sync.Mutex
	b  strings.Builder
}

func (w *syncWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

const testUID = 61107

func newRig(t testing.TB, edit func(*Settings)) *rig {
	t.Helper()
	bin, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	run, err := os.MkdirTemp("", "dbm") // sockets have short names
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	r := &rig{t: t, up: newRegistry(t), dir: t.TempDir(), stderr: &syncWriter{}}
	set := Settings{NPM: &mirror.Upstream{Origin: mirror.Origin{URL: r.up.URL, Internal: true}, StandsFor: []string{"https://reg.test"}}}
	if edit != nil {
		edit(&set)
	}
	uid := 0
	if os.Geteuid() == 0 {
		uid = testUID
	}
	r.k = New(Config{
		Command: []string{bin, processArg}, Store: filepath.Join(r.dir, "mirror"), RunDir: run, UID: uid,
		Settings: func(context.Context) (Settings, error) { return set, nil },
		Logger:   slog.New(slog.NewTextHandler(r.stderr, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	t.Cleanup(func() {
		if err := r.k.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if t.Failed() {
			r.stderr.mu.Lock()
			t.Log(r.stderr.b.String())
			r.stderr.mu.Unlock()
		}
	})
	return r
}

type record struct {
	mu      sync.Mutex
	entries []mirror.Entry
	fail    error
}

func (r *record) add(_ context.Context, es []mirror.Entry) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil && len(es) > 0 && es[0].New {
		return r.fail
	}
	r.entries = append(r.entries, es...)
	return nil
}

func (r *record) all() []mirror.Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]mirror.Entry{}, r.entries...)
}

func (r *rig) open(edit func(*Request)) (*Session, *record) {
	r.t.Helper()
	rec := &record{}
	q := Request{About: Description{Task: "t_1", Base: "http://127.0.0.1:4873"}, Record: rec.add}
	if edit != nil {
		edit(&q)
	}
	s, err := r.k.Open(r.t.Context(), q)
	if err != nil {
		r.t.Fatal(err)
	}
	return s, rec
}

func get(t testing.TB, socket, path string) (int, string) {
	t.Helper()
	tr := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}}
	res, err := (&http.Client{Transport: tr, Timeout: 30 * time.Second}).Get("http://mirror" + path)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(res.Body) // what came so far is compared
	return res.StatusCode, string(b)
}

// TestNET22ProcessIsConfined: the process has a user of its own, no capability, no way to gain
// one, and reaches nothing of its caller's: not a file, not the environment, not another process.
func TestNET22ProcessIsConfined(t *testing.T) {
	t.Setenv("DAYBREAK_CANARY", "canary-in-the-environment")
	r := newRig(t, nil)
	canary := filepath.Join(r.dir, "secret")
	if err := os.WriteFile(canary, []byte("canary"), 0o644); err != nil { // its mode would let anybody read it
		t.Fatal(err)
	}
	s, _ := r.open(nil)
	defer s.Close(t.Context())
	pid := r.k.p.pid
	proc := func(name string) string {
		b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	status := proc("status")
	for _, want := range []string{"CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "CapInh:\t0000000000000000", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1"} {
		if !strings.Contains(status, want) {
			t.Errorf("%q is missing in\n%s", want, status)
		}
	}
	if os.Geteuid() == 0 && !strings.Contains(status, fmt.Sprintf("Uid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d", testUID)) {
		t.Errorf("it has another user:\n%s", status)
	}
	if env := proc("environ"); strings.Contains(env, "canary") {
		t.Errorf("the environment reached it: %q", env)
	}
	if args := proc("cmdline"); strings.Contains(args, r.dir) {
		t.Errorf("its arguments name a host path: %q", args)
	}
	root := filepath.Join("/proc", strconv.Itoa(pid), "root")
	if _, err := os.Stat(filepath.Join(root, canary)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its file system holds the canary: %v", err)
	}
	for _, gone := range []string{"proc", "root", "home", "var", "tmp", "dev", "run", "etc/shadow", "etc/passwd", "etc/ssl/private"} {
		if _, err := os.Lstat(filepath.Join(root, gone)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("it sees /%s: %v", gone, err)
		}
	}
	mounts := proc("mountinfo")
	for line := range strings.Lines(mounts) {
		f := strings.Fields(line)
		if f[4] != insideStore && !strings.HasPrefix(f[5], "ro") {
			t.Errorf("a place that it can write: %s", line)
		}
	}
	for _, ns := range []string{"mnt", "pid", "ipc", "uts"} {
		mine, err := os.Readlink("/proc/self/ns/" + ns)
		if err != nil {
			t.Fatal(err)
		}
		if its, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "ns", ns)); err != nil || its == mine {
			t.Errorf("it shares the %s namespace: %s %v", ns, its, err)
		}
	}
	for line := range strings.Lines(proc("limits")) {
		if strings.HasPrefix(line, "Max core file size") && strings.Fields(line)[4] != "0" {
			t.Error(line)
		}
	}
}

// TestNewNamesWaitForTheRecord: the registry hears of a name only after the caller stored it.
func TestNewNamesWaitForTheRecord(t *testing.T) {
	r := newRig(t, nil)
	var atRecord []string
	s, rec := r.open(func(q *Request) {
		add := q.Record
		q.About.Known = map[mirror.Ecosystem][]string{mirror.NPM: {"known"}}
		q.Record = func(ctx context.Context, es []mirror.Entry) error {
			if es[0].New {
				atRecord = append(atRecord, strings.Join(r.up.requests(), " "))
			}
			return add(ctx, es)
		}
	})
	if code, body := get(t, s.Socket, "/npm/fresh"); code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	if len(atRecord) != 1 || atRecord[0] != "" {
		t.Errorf("the registry knew %q when the name was stored", atRecord)
	}
	rec.mu.Lock()
	rec.fail = errors.New("the disk is full")
	rec.mu.Unlock()
	if code, body := get(t, s.Socket, "/npm/unstored"); code != 503 || !strings.Contains(body, "record") {
		t.Errorf("%d %s", code, body)
	}
	rec.mu.Lock()
	rec.fail = &mirror.Denial{Reason: mirror.ReasonCanary, Detail: "it carries a token"}
	rec.mu.Unlock()
	if code, body := get(t, s.Socket, "/npm/canary"); code != 403 || !strings.Contains(body, "egress.canary") {
		t.Errorf("%d %s", code, body)
	}
	if code, body := get(t, s.Socket, "/npm/known"); code != 200 {
		t.Errorf("a known name: %d %s", code, body)
	}
	if got := strings.Join(r.up.requests(), " "); got != "/fresh /known" {
		t.Errorf("the registry saw %q", got)
	}
	if code, body := get(t, s.Socket, "/npm/known"); code != 200 {
		t.Errorf("a second time: %d %s", code, body)
	}
	n, ok := r.k.Counts(t.Context())
	if !ok || n.Served != 3 || n.Stored != 1 || n.Refused != 2 || n.Fetches != 2 || n.BytesOut == 0 || n.BytesIn == 0 {
		t.Errorf("counted: %+v, %v", n, ok)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	var reasons []string
	for _, e := range rec.all() {
		reasons = append(reasons, e.Name+" "+string(e.Refused))
	}
	if got := strings.Join(reasons, ", "); got != "fresh , unstored record,  egress.canary, known " {
		t.Errorf("recorded: %s", got)
	}
}

// TestNET19SocketsAreASandboxes: a session's socket is gone with it, and another session's does
// not lead to it.
func TestNET19SocketsAreASandboxes(t *testing.T) {
	r := newRig(t, nil)
	a, recA := r.open(nil)
	b, recB := r.open(func(q *Request) { q.About.Task = "t_2"; q.Front = true })
	if len(b.Authority) == 0 || b.Front == "" || len(a.Authority) != 0 {
		t.Errorf("fronts: %q %q", a.Front, b.Front)
	}
	if code, _ := get(t, a.Socket, "/npm/one"); code != 200 {
		t.Errorf("a: %d", code)
	}
	if st, err := os.Stat(filepath.Dir(a.Socket)); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("others may enter the sockets' directory: %v %v", st, err)
	}
	held, err := net.Dial("unix", a.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := a.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(a.Socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
	_ = held.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(held, "GET /npm/two HTTP/1.1\r\nHost: x\r\n\r\n"); err == nil {
		if b, _ := io.ReadAll(held); len(b) != 0 {
			t.Errorf("a connection from before was answered: %q", b)
		}
	}
	if code, _ := get(t, b.Socket, "/npm/three"); code != 200 {
		t.Errorf("b: %d", code)
	}
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if len(recA.all()) != 1 || len(recB.all()) != 1 || recB.all()[0].Task != "t_2" {
		t.Errorf("%+v %+v", recA.all(), recB.all())
	}
}

// TestProcessIsStartedAgain: when it dies, open sessions go on in the next one, with the budget
// that is left.
func TestProcessIsStartedAgain(t *testing.T) {
	r := newRig(t, nil)
	s, _ := r.open(func(q *Request) { q.About.Limits.NewNames = 2 })
	defer s.Close(t.Context())
	if code, body := get(t, s.Socket, "/npm/one"); code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	r.k.mu.Lock()
	p := r.k.p
	r.k.mu.Unlock()
	if n, ok := r.k.Counts(t.Context()); !ok || n.Served != 1 {
		t.Errorf("counted: %+v, %v", n, ok)
	}
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.done
	if code, body := get(t, s.Socket, "/npm/two"); code != 200 {
		t.Errorf("after the process died: %d %s", code, body)
	}
	if code, body := get(t, s.Socket, "/npm/three"); code != 403 || !strings.Contains(body, "name.budget") {
		t.Errorf("the budget came back: %d %s", code, body)
	}
}

// TestProcessEndsWithItsCaller: closing the channel, which is what the caller's death does, ends
// the process.
func TestProcessEndsWithItsCaller(t *testing.T) {
	r := newRig(t, nil)
	s, _ := r.open(nil)
	p := r.k.p
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := p.c.conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.done:
	case <-time.After(20 * time.Second):
		t.Fatal("it goes on without its caller")
	}
}

// TestRefusesWhatCannotBeSetUp: an upstream that no mirror takes is said in one line.
func TestRefusesWhatCannotBeSetUp(t *testing.T) {
	r := newRig(t, func(s *Settings) { s.NPM.Origin = mirror.Origin{URL: "http://plain.test"} })
	_, err := r.k.Open(t.Context(), Request{Record: (&record{}).add})
	if err == nil || !strings.Contains(err.Error(), "plain HTTP") || !strings.Contains(err.Error(), "network: offline") || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
}

// TestSweep: what a caller left that died is removed, what another holds or just made is not.
func TestSweep(t *testing.T) {
	run := t.TempDir()
	for _, n := range []string{"m-dead", "m-held", "other"} {
		if err := os.Mkdir(filepath.Join(run, n), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	held, err := os.Open(filepath.Join(run, "m-held"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := unix.Flock(int(held.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	names := func(now time.Time) string {
		if err := sweep(run, now); err != nil {
			t.Fatal(err)
		}
		var out []string
		left, err := os.ReadDir(run)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range left {
			out = append(out, d.Name())
		}
		return strings.Join(out, " ")
	}
	if got := names(time.Now()); got != "m-dead m-held other" {
		t.Errorf("at once: %s", got)
	}
	if got := names(time.Now().Add(time.Hour)); got != "m-held other" {
		t.Errorf("later: %s", got)
	}
	if err := sweep(filepath.Join(run, "none"), time.Now()); err != nil {
		t.Error(err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{"asked":{"session":1,"n":2,"waits":true,"entry":{"name":"x"}}}`, `{"open":{"session":1,"about":{"task":"t"}}}`, `{"answer":{}}`, `{"count":{}}`, `{"counted":{"served":1}}`, `{}`, `{"ready":{},"closed":{}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decode(b)
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%q", err)
		}
		if err == nil && m.Asked == nil && m.Open == nil && m.Answer == nil && m.Close == nil && m.Closed == nil && m.Ready == nil && m.Opened == nil && m.Confine == nil && m.Configure == nil && m.Count == nil && m.Counted == nil {
			t.Error("a message that says nothing was taken")
		}
	})
}

// TestChannelIsBounded: a length over the limit, and descriptors nobody asked for, end it.
func TestChannelIsBounded(t *testing.T) {
	pair := func() (*channel, *net.UnixConn) {
		dir := t.TempDir()
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		c, err := net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr))
		if err != nil {
			t.Fatal(err)
		}
		a, err := l.AcceptUnix()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { a.Close(); c.Close() })
		return &channel{conn: a}, c
	}
	c, raw := pair()
	if _, err := raw.Write([]byte{0xff, 0xff, 0xff, 0xff}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.receive(maxTale); err == nil || !strings.Contains(err.Error(), "most") {
		t.Errorf("%v", err)
	}
	c, raw = pair()
	three := []*os.File{os.Stdin, os.Stdin, os.Stdin}
	if err := (&channel{conn: raw}).send(message{Closed: &sessionName{1}}, three...); err != nil {
		t.Fatal(err)
	}
	if _, files, err := c.receive(maxTale); err == nil || len(files) != 0 {
		t.Errorf("three descriptors were taken: %v", err)
	}
	c, raw = pair()
	big := make([]string, 5000)
	for i := range big {
		big[i] = "name" + strconv.Itoa(i)
	}
	go func() {
		_ = (&channel{conn: raw}).send(message{Open: &opening{7, Description{SpentNames: big}}}, os.Stdin, os.Stdin)
	}()
	m, files, err := c.receive(maxOrder)
	closeAll(files)
	if err != nil || m.Open == nil || len(m.Open.About.SpentNames) != 5000 || len(files) != 2 {
		t.Errorf("%v, %d files", err, len(files))
	}
}
