package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/codesearch"
)

// rules is what decides, outside the files of the work tree, what is ignored.
type rules struct {
	repository bool   // the tree is one: else no .gitignore counts
	exclude    string // its own rules
	foreign    bool   // there may be rules from elsewhere
}

const maxRules = 1 << 20 // bytes of a file of rules

// rulesNow reads them as ripgrep does, which knows of git's configuration only the person's own and
// of that only the file that it names.
func (s *server) rulesNow() rules {
	var r rules
	_, err := os.Lstat(filepath.Join(s.opts.Root, ".git"))
	r.repository = err == nil
	r.exclude = string(startOf(filepath.Join(s.opts.Root, ".git/info/exclude")))
	home, _ := os.UserHomeDir()
	config := os.Getenv("XDG_CONFIG_HOME")
	if config == "" && home != "" {
		config = filepath.Join(home, ".config")
	}
	named := func(file string) bool {
		return bytes.Contains(bytes.ToLower(startOf(file)), []byte("excludesfile"))
	}
	r.foreign = home != "" && named(filepath.Join(home, ".gitconfig")) ||
		config != "" && (named(filepath.Join(config, "git/config")) || len(startOf(filepath.Join(config, "git/ignore"))) > 0)
	for dir := filepath.Dir(s.opts.Root); !r.foreign; dir = filepath.Dir(dir) {
		for _, name := range []string{".ignore", ".rgignore"} {
			_, err := os.Lstat(filepath.Join(dir, name))
			r.foreign = r.foreign || err == nil
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	return r
}

// startOf is the text of a file, empty when it cannot be read. A pipe in its place is not waited for.
func startOf(name string) []byte {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil
	}
	b, err := io.ReadAll(io.LimitReader(f, maxRules))
	if err != nil {
		return nil
	}
	return b
}

// rulesTouched reports whether there may be rules about ignored files outside the work tree's own
// that the index was not made by.
func (s *server) rulesTouched() bool {
	now := s.rulesNow()
	return now.foreign || now != s.rules
}

// verdicts remembers what git said about files and directories that the index does not know.
type verdicts struct {
	mu    sync.Mutex
	rules rules                       // by which
	known map[codesearch.Unknown]bool // true: ignored
}

const maxVerdicts = 100_000

// ignored is a [codesearch.Ignored].
func (s *server) ignored(ctx context.Context, list []codesearch.Unknown) ([]bool, error) {
	if s.index.ForeignRules() {
		return nil, codesearch.ErrAsk
	}
	out := make([]bool, len(list))
	now := s.rulesNow()
	if !now.repository {
		return out, nil
	}
	v := &s.verdicts
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.known == nil || v.rules != now || len(v.known) > maxVerdicts {
		v.rules, v.known = now, make(map[codesearch.Unknown]bool)
	}
	var ask []string
	for _, u := range list {
		if _, ok := v.known[u]; !ok {
			ask = append(ask, u.Path)
		}
	}
	said, err := s.checkIgnore(ctx, ask)
	if err != nil {
		return nil, err
	}
	for i, u := range list {
		ignored, ok := v.known[u]
		if !ok {
			ignored = said[u.Path]
			v.known[u] = ignored
		}
		out[i] = ignored
	}
	return out, nil
}

// checkIgnore asks git which of the paths it ignores, by the rules that ripgrep goes by.
func (s *server) checkIgnore(ctx context.Context, paths []string) (map[string]bool, error) {
	if len(paths) == 0 {
		return nil, nil
	}
	var in bytes.Buffer
	const here = "./" // with it a colon at the beginning of a name means nothing
	for _, p := range paths {
		in.WriteString(here + p)
		in.WriteByte(0)
	}
	argv := []string{
		"git", "-c", "safe.directory=*", "-c", "core.excludesFile=/dev/null", "-c", "core.ignoreCase=false",
		"check-ignore", "--no-index", "-z", "--stdin",
	}
	said := make(map[string]bool)
	res, err := s.helperFed(ctx, argv, in.Bytes(), func(out io.Reader) error {
		b, err := io.ReadAll(io.LimitReader(out, int64(in.Len())+1))
		for _, p := range bytes.Split(b, []byte{0}) {
			said[strings.TrimPrefix(string(p), here)] = true
		}
		return ignoreEOF(err)
	})
	if err == nil && res.ExitCode > 1 {
		err = fmt.Errorf("git check-ignore: %s", oneLine(string(res.Head)))
	}
	return said, errors.Join(err, context.Cause(ctx))
}
