package verify

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/snapshot"
)

// localLab gives benches that are the real guest on a copy of the tree, without a wall around
// it: the runners, the wire and the files are real, the isolation is another package's test.
type localLab struct {
	t    testing.TB
	root string // every bench's place, one at a time
	kept string // what benches leave of their HOME
	// leaks has every run leave its HOME to the next ones, which no lab may do.
	leaks bool
	mu    sync.Mutex
	runs  []string // purposes, in order
	logs  map[string][]byte
}

// layer copies a directory over another with the times of its files.
func layer(from, to string) error {
	if _, err := os.Stat(from); err != nil {
		return nil //nolint // there is none
	}
	if out, err := exec.Command("cp", "-a", from+"/.", to).CombinedOutput(); err != nil {
		return fmt.Errorf("cp: %w: %s", err, out)
	}
	return nil
}

// over lays what was built over a HOME, in place of what the base's run left there.
func over(built, home string) error {
	if built == "" {
		return nil
	}
	return errors.Join(os.RemoveAll(filepath.Join(home, BuildHome)), layer(built, home))
}

// aged gives the files of a checkout the time that a snapshot's have.
func aged(dir string) error {
	old := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	return filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		return os.Chtimes(p, old, old)
	})
}

func (l *localLab) BuildBench(ctx context.Context, s snapshot.Snapshot) (sandbox.Sandbox, snapshot.Snapshot, func() error, error) {
	dir, err := os.MkdirTemp(l.kept, "built-")
	if err != nil {
		return nil, s, nil, err
	}
	box, err := l.start(ctx, "build", s, dir)
	if err != nil {
		return nil, s, nil, err
	}
	box.only, s.Built = BuildHome, dir
	return box, s, func() error { return os.RemoveAll(dir) }, nil
}

func (l *localLab) Bench(ctx context.Context, purpose string, s snapshot.Snapshot, keepHome bool) (sandbox.Sandbox, error) {
	keep := ""
	if keepHome {
		keep = l.homeOf(s)
	}
	box, err := l.start(ctx, purpose, s, keep)
	if err != nil {
		return nil, err
	}
	return box, nil
}

// homeOf is where the base's own run leaves its HOME.
func (l *localLab) homeOf(s snapshot.Snapshot) string { return filepath.Join(l.kept, s.Base) }

func (l *localLab) start(ctx context.Context, purpose string, s snapshot.Snapshot, keep string) (*localBox, error) {
	dir := l.root
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err // two at once, or one that was not ended
	}
	if l.leaks && keep == "" {
		keep = cmp.Or(s.Built, l.homeOf(s))
	}
	work, home := filepath.Join(dir, "work"), filepath.Join(dir, "home")
	if err := errors.Join(os.Mkdir(home, 0o755), os.CopyFS(work, os.DirFS(s.Tree)), aged(work), layer(l.homeOf(s), home), over(s.Built, home)); err != nil {
		return nil, err
	}
	here, there := net.Pipe()
	done := make(chan error, 1)
	serveCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		done <- guest.Serve(serveCtx, there, there, guest.ServerOptions{Root: work, LogDir: filepath.Join(dir, "log")})
	}()
	c, err := guest.NewClient(ctx, here)
	if err != nil {
		stop()
		return nil, err
	}
	l.mu.Lock()
	l.runs = append(l.runs, purpose)
	l.mu.Unlock()
	return &localBox{dir: dir, keep: keep, client: c, stop: stop, done: done}, nil
}

func (l *localLab) Log(_ context.Context, data []byte) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	digest := treeDigest(string(data), nil)
	if l.logs == nil {
		l.logs = map[string][]byte{}
	}
	l.logs[digest] = data
	return digest, nil
}

type localBox struct {
	dir    string
	keep   string // receives HOME at the end
	only   string // what of it; "" for all
	client *guest.Client
	stop   context.CancelFunc
	done   chan error
	once   sync.Once
}

func (b *localBox) Handle() sandbox.Handle { return sandbox.Handle{} }
func (b *localBox) Info() sandbox.Info     { return sandbox.Info{Runtime: "local", Isolation: "none"} }
func (b *localBox) Guest() *guest.Client   { return b.client }
func (b *localBox) Export(context.Context, sandbox.ExportLimits) (sandbox.Manifest, error) {
	return sandbox.Manifest{}, errors.New("no export from a local bench")
}

func (b *localBox) Destroy(context.Context) error {
	var err error
	b.once.Do(func() {
		b.client.Close()
		b.stop()
		<-b.done
		if b.keep != "" {
			err = errors.Join(os.MkdirAll(b.keep, 0o755), layer(filepath.Join(b.dir, "home"), b.keep))
		}
		if b.only != "" {
			err = errors.Join(err, snapshot.Only(b.keep, b.only))
		}
		err = errors.Join(err, os.RemoveAll(b.dir))
	})
	return err
}

// sample is a txtar whose top directories are layers.
type sample struct{ layers map[string]map[string]string }

func loadSample(t testing.TB, name string) sample {
	t.Helper()
	a, err := txtar.ParseFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	s := sample{map[string]map[string]string{}}
	for _, f := range a.Files {
		layer, path, ok := strings.Cut(f.Name, "/")
		if !ok {
			t.Fatalf("%s: %q is in no layer", name, f.Name)
		}
		if s.layers[layer] == nil {
			s.layers[layer] = map[string]string{}
		}
		s.layers[layer][path] = string(f.Data)
	}
	return s
}

// snapshot lays the layers out as a base checkout.
func (s sample) snapshot(t testing.TB, layers ...string) snapshot.Snapshot {
	t.Helper()
	dir := t.TempDir()
	for _, layer := range layers {
		files, ok := s.layers[layer]
		if !ok {
			t.Fatalf("no layer %q", layer)
		}
		for name, text := range files {
			full := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return snapshot.Snapshot{Tree: dir, Base: strings.Repeat("b", 40), Digest: "env-1"}
}

// changes stacks layers into one change. "-path" deletes.
func (s sample) changes(t testing.TB, layers ...string) []git.Change {
	t.Helper()
	byPath := map[string]git.Change{}
	for _, layer := range layers {
		if gone, ok := strings.CutPrefix(layer, "-"); ok {
			byPath[gone] = git.Change{Path: gone, Deleted: true}
			continue
		}
		files, ok := s.layers[layer]
		if !ok {
			t.Fatalf("no layer %q", layer)
		}
		for name, text := range files {
			byPath[name] = git.Change{Path: name, Mode: 0o100644, Content: []byte(text)}
		}
	}
	var out []git.Change
	for _, p := range sortedKeys(byPath) {
		out = append(out, byPath[p])
	}
	return out
}

// reportNames is randomness whose first bytes the test knows, to sweep up afterwards.
type reportNames struct{ mark []byte }

func (r reportNames) Read(p []byte) (int, error) {
	n, err := rand.Read(p)
	copy(p, r.mark)
	return n, err
}

func newVerifier(t testing.TB, s Settings) (*Verifier, *localLab) {
	t.Helper()
	goroot, err := exec.Command("go", "env", "GOROOT", "GOCACHE", "GOMODCACHE").Output()
	if err != nil {
		need(t, "go")
	}
	dirs := strings.Fields(string(goroot))
	if tt, ok := t.(*testing.T); ok {
		tt.Setenv("PATH", filepath.Join(dirs[0], "bin")+":/usr/bin:/bin:"+rustBin())
		tt.Setenv("GOCACHE", dirs[1])
		tt.Setenv("GOMODCACHE", dirs[2])
		tt.Setenv("GOFLAGS", "")
		tt.Setenv("HOME", t.TempDir())
	}
	mark := make([]byte, 8)
	if _, err := rand.Read(mark); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		left, err := filepath.Glob("/tmp/r" + hex.EncodeToString(mark) + "*")
		if err != nil {
			t.Error(err)
		}
		for _, f := range left {
			os.Remove(f)
		}
	})
	lab := &localLab{t: t}
	v := &Verifier{Lab: lab, Settings: s, Rand: reportNames{mark}, Now: time.Now}
	moveTo(v, lab, t.TempDir())
	return v, lab
}

// moveTo has all benches in a directory: verifications that are to share what the base's run left
// in HOME share it, since build tools remember paths.
func moveTo(v *Verifier, lab *localLab, dir string) {
	lab.root, lab.kept, v.workDir = filepath.Join(dir, "bench"), dir, filepath.Join(dir, "bench", "work")
	v.Env = append(Offline(), "HOME="+filepath.Join(lab.root, "home"))
}

func homeOf() string {
	u, err := user.Current()
	if err != nil {
		return ""
	}
	return u.HomeDir
}

// need fails where every tool must be there, and skips elsewhere.
func need(t testing.TB, tool string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s is not installed", tool)
	}
	t.Skipf("%s is not installed", tool)
}

func needCommand(t testing.TB, argv ...string) {
	t.Helper()
	if err := exec.Command(argv[0], argv[1:]...).Run(); err != nil {
		need(t, strings.Join(argv, " "))
	}
}
