package symbols

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"
)

// Program is universal-ctags with JSON output.
const Program = "ctags"

const (
	groupFiles = 400      // that one run of ctags is given
	groupBytes = 48 << 10 // of their names
	maxLine    = 64 << 10 // of its output
	maxName    = 256      // bytes of a symbol
	maxScope   = 256
	maxKind    = 32
	maxTags    = 4 << 20 // of one tree
	perFile    = 20_000  // of one file: a generated table is not navigated
)

// ErrNoProgram says that there is no ctags to ask.
var ErrNoProgram = errors.New("ctags is not installed; install universal-ctags")

// Start runs a program with the tree as its directory and hands its standard output to read. Its
// error says that the program did not end well, or is read's; [ErrNoProgram], that there is none.
type Start func(ctx context.Context, argv []string, read func(io.Reader) error) error

// ErrTooMany says that the symbols are more than a file of them may have.
var ErrTooMany = errors.New("the tree has more than 4 million symbols")

// Options of a run over files.
type Options struct {
	Start   Start
	Workers int           // runs of ctags at once; default: as many as processors
	Group   time.Duration // time of a run over several files, default 20 s
	One     time.Duration // and over a single one, default 5 s
	// Progress is called with the number of files that ctags was asked about, and of all; may be nil.
	Progress func(done, total int)
}

// Scan asks ctags about files below the tree. slow are files that it did not get through, or not in
// time.
// The order of tags is by file as given, then as ctags finds them.
func Scan(ctx context.Context, files []string, o Options) (tags []Tag, slow []string, err error) {
	if o.Workers <= 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.Group <= 0 {
		o.Group = 20 * time.Second
	}
	if o.One <= 0 {
		o.One = 5 * time.Second
	}
	groups := split(files)
	found := make([]result, len(groups))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	var total atomic.Int64
	next := make(chan int)
	for range min(o.Workers, len(groups)) {
		wg.Go(func() {
			for i := range next {
				if found[i] = scan(ctx, groups[i], o); found[i].err != nil {
					cancel(found[i].err)
				}
				if total.Add(int64(len(found[i].tags))) > maxTags {
					cancel(ErrTooMany)
				}
			}
		})
	}
	asked := 0
	for i := range groups {
		select {
		case next <- i:
		case <-ctx.Done():
		}
		if asked += len(groups[i]); o.Progress != nil {
			o.Progress(asked, len(files))
		}
	}
	close(next)
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, nil, err
	}
	for _, r := range found {
		tags, slow = append(tags, r.tags...), append(slow, r.slow...)
	}
	return tags, slow, nil
}

type result struct {
	tags []Tag
	slow []string
	err  error
}

// split makes groups of the files that ctags can be asked about by name.
func split(files []string) (groups [][]string) {
	size := 0
	for _, f := range files {
		if !askable(f) {
			continue
		}
		n := len(groups)
		if n == 0 || len(groups[n-1]) >= groupFiles || size+len(f) > groupBytes {
			groups, size = append(groups, nil), 0
			n++
		}
		groups[n-1] = append(groups[n-1], f)
		size += len(f)
	}
	return groups
}

// askable reports whether the path comes back from ctags as it is.
func askable(p string) bool {
	return p != "" && len(p) < 4096 && path.Clean(p) == p && !path.IsAbs(p) && printable(p)
}

// scan asks about one group; one that takes too long, or on which ctags breaks down, is asked
// about in halves.
func scan(ctx context.Context, files []string, o Options) result {
	limit := o.Group
	if len(files) == 1 {
		limit = o.One
	}
	in, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var tags []Tag
	err := o.Start(in, argv(files), func(r io.Reader) (err error) {
		tags, err = Read(r, files)
		return err
	})
	switch {
	case ctx.Err() != nil:
		return result{err: context.Cause(ctx)}
	case errors.Is(err, ErrNoProgram) || errors.Is(err, ErrTooMany):
		return result{err: err}
	case err == nil && in.Err() == nil:
		return result{tags: tags}
	case len(files) == 1:
		return result{slow: files}
	}
	half := len(files) / 2
	a, b := scan(ctx, files[:half], o), result{}
	if a.err == nil {
		b = scan(ctx, files[half:], o)
	}
	return result{append(a.tags, b.tags...), append(a.slow, b.slow...), errors.Join(a.err, b.err)}
}

// argv asks for what a [Tag] has. Options in files are not read: a repository may hold some.
func argv(files []string) []string {
	args := []string{
		Program, "--options=NONE", "--quiet=yes", "--output-format=json", "--fields=FNnKsZl", "--extras=-p", "--sort=no", "--links=no", "--recurse=no",
		"--languages=-JSON,-Tex,-BibTeX", "-f", "-",
	}
	for _, f := range files {
		args = append(args, "./"+f) // which is no option, whatever its name
	}
	return args
}

// Read reads ctags' JSON lines. What is no definition in one of the files is passed over.
func Read(r io.Reader, files []string) ([]Tag, error) {
	b := bufio.NewReaderSize(r, maxLine)
	asked := make(map[string]string, len(files))
	for _, f := range files {
		asked[f] = f
	}
	var out []Tag
	counts := map[string]int{}
	for {
		line, err := b.ReadSlice('\n')
		for errors.Is(err, bufio.ErrBufferFull) { // a line that is too long, to its end
			line = nil
			_, err = b.ReadSlice('\n')
		}
		if t, ok := readTag(line, asked); ok {
			if counts[t.Path]++; counts[t.Path] <= perFile {
				out = append(out, t)
			}
		}
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		if len(out) > maxTags {
			return nil, ErrTooMany
		}
	}
}

func readTag(line []byte, asked map[string]string) (Tag, bool) {
	var t struct {
		Type      string `json:"_type"`
		Name      string `json:"name"`
		Path      string `json:"path"`
		Language  string `json:"language"`
		Line      int64  `json:"line"`
		Kind      string `json:"kind"`
		Scope     string `json:"scope"`
		ScopeKind string `json:"scopeKind"`
	}
	if len(line) == 0 || json.Unmarshal(line, &t) != nil || t.Type != "tag" {
		return Tag{}, false
	}
	p, ok := asked[strings.TrimPrefix(t.Path, "./")]
	switch {
	case !ok, t.Line < 1, t.Line > 1<<31-1:
		return Tag{}, false
	case t.Name == "" || len(t.Name) > maxName || !printable(t.Name) || strings.HasPrefix(t.Name, "__anon"):
		return Tag{}, false
	case len(t.Kind) > maxKind || !printable(t.Kind) || slices.Contains(passedOver, t.Kind):
		return Tag{}, false
	case local(t.Kind, t.ScopeKind):
		return Tag{}, false
	}
	if len(t.Scope) > maxScope || !printable(t.Scope) || strings.Contains(t.Scope, "__anon") {
		t.Scope = ""
	}
	return Tag{Name: t.Name, Path: p, Line: int(t.Line), Kind: t.Kind, Scope: t.Scope}, true
}

// passedOver are kinds that define nothing that is looked for by name.
var passedOver = []string{"package", "packageName", "unknown", "heredoc", "nsprefix", "anonMember", "local", "parameter", "label", "id", "header", "namespace", "module_import"}

// local reports whether a variable is one of a function's own.
func local(kind, scopeKind string) bool {
	switch scopeKind {
	case "func", "function", "method", "generator", "getter", "setter":
		return slices.Contains([]string{"variable", "constant", "var", "const", "property"}, kind)
	}
	return false
}

func printable(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}
