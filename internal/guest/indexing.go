package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/codesearch"
	"github.com/daybreak-agent/daybreak/internal/codesearch/symbols"
)

// SymbolsFile is the name of the file of symbols beside the index's own.
const SymbolsFile = "symbols"

// noSymbols says that the tree has more symbols than a file of them may have: ctags is not asked
// again until the index is built anew.
const noSymbols = SymbolsFile + ".none"

// IndexOptions of [BuildIndex].
type IndexOptions struct {
	Root string // the work tree
	Out  string // where to; empty or absent
	From string // the index of an earlier state of the tree; "" for none
	// Changed are all files that are another than when From was made. nil: everything is read.
	Changed []IndexChange
	// Progress is told now and then how far the work is, by several at once; may be nil.
	Progress func(stage string, done, total int)
}

// The stages of building an index.
const (
	StageText    = "indexing files"
	StageSymbols = "finding symbols"
)

// ReadProgress reads a line that [WriteProgress] wrote. Whoever says it is not to be trusted: ok is
// false for anything but a stage and two numbers that go together.
func ReadProgress(line string) (stage string, done, total int, ok bool) {
	for _, stage := range []string{StageText, StageSymbols} {
		rest, found := strings.CutPrefix(line, stage+": ")
		low, high, both := strings.Cut(rest, " of ")
		done, err := strconv.Atoi(low)
		total, err2 := strconv.Atoi(high)
		if found && both && err == nil && err2 == nil && 0 <= done && done <= total && total <= maxPaths {
			return stage, done, total, true
		}
	}
	return "", 0, 0, false
}

// WriteProgress makes an [IndexOptions.Progress] that writes lines.
func WriteProgress(w io.Writer) func(stage string, done, total int) {
	var mu sync.Mutex
	return func(stage string, done, total int) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(w, "%s: %d of %d\n", stage, done, total)
	}
}

// tell makes the progress of one stage.
func (o IndexOptions) tell(stage string) func(done, total int) {
	return func(done, total int) {
		if o.Progress != nil {
			o.Progress(stage, done, total)
		}
	}
}

// Indexed says what was built.
type Indexed struct {
	Files   []IndexedFile    `json:"files"`
	Stats   codesearch.Stats `json:"stats"`
	Symbols int              `json:"symbols"`
	Slow    []string         `json:"slow,omitempty"`    // files that ctags did not get through, at most [maxSlow]
	Problem string           `json:"problem,omitempty"` // why there are no symbols
	// Kept are files of the earlier index that belong to this one as they are. They are not
	// where the others are.
	Kept     []IndexedFile `json:"kept,omitempty"`
	Advanced bool          `json:"advanced"` // most was taken from the earlier index
}

// IndexedFile is one file of an index.
type IndexedFile struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
}

const (
	maxSlow       = 20
	maxIndexFile  = 1 << 30
	maxIndexFiles = 10_000
	maxIndexBytes = 16 << 30
)

// ReadIndexed reads what [BuildIndex] said, behind whatever else was: its last line. What is for
// people comes as short lines of plain text, whoever said it.
func ReadIndexed(out []byte) (done Indexed, err error) {
	if err := json.Unmarshal(LastLine(out), &done); err != nil {
		return done, errors.New("what the sandbox says is not what this version speaks")
	}
	done.Slow = done.Slow[:min(len(done.Slow), maxSlow)]
	for i, name := range done.Slow {
		done.Slow[i] = oneLine(name)
	}
	done.Problem = oneLine(done.Problem)
	return done, done.Check()
}

// LastLine is the last line that has its end.
func LastLine(out []byte) []byte {
	end := bytes.LastIndexByte(out, '\n')
	if end < 0 {
		return nil
	}
	return out[bytes.LastIndexByte(out[:end], '\n')+1 : end]
}

// Check refuses what no [BuildIndex] says.
func (x Indexed) Check() error {
	seen, total := map[string]bool{}, int64(0)
	for _, f := range slices.Concat(x.Files, x.Kept) {
		if !indexName().MatchString(f.Name) || seen[f.Name] || f.Size < 0 || f.Size > maxIndexFile {
			return fmt.Errorf("an index has no file %.40q of %d bytes", f.Name, f.Size)
		}
		seen[f.Name] = true
		total += f.Size
	}
	if !seen[codesearch.ManifestName] || len(x.Files)+len(x.Kept) > maxIndexFiles || total > maxIndexBytes {
		return fmt.Errorf("%d files of %d bytes are no index", len(x.Files), total)
	}
	return nil
}

func indexName() *regexp.Regexp {
	return regexp.MustCompile(`^(index\.json|symbols(\.since|\.gone|\.none)?|\d{4,6}\.seg)$`)
}

// BuildIndex writes the search index and the symbols of a work tree, and says on out what it
// wrote, as one line of JSON. It is run by a command of the sandbox.
func BuildIndex(ctx context.Context, o IndexOptions, out io.Writer) error {
	var done Indexed
	var old *codesearch.Index
	var err error
	if o.From != "" && o.Changed != nil {
		if old, err = codesearch.Open(o.From); err == nil {
			defer old.Close()
			err = old.Verify()
		}
		if err != nil {
			old = nil // built from nothing
		}
	}
	var kept []string        // names of files of the earlier index
	var again, gone []string // to be read again; no longer there
	var names *symbols.File  // of before
	var scan scanned         // of again, by ctags
	beside, cancel := context.WithCancel(ctx)
	stop := func() {
		if cancel(); scan != nil {
			_, _, _ = scan() // what it said is of no use, but its programs must be gone
		}
	}
	defer stop()
	if old != nil {
		if again, gone, err = since(ctx, old, o.Root, o.Changed); err != nil {
			return err
		}
		if names, err = symbols.Open(filepath.Join(o.From, SymbolsFile)); err == nil {
			defer names.Close()
			scan = o.scan(beside, again)
		}
		if done.Stats, kept, err = codesearch.Advance(ctx, o.Out, old, o.Root, again, gone, codesearch.BuildOptions{Progress: o.tell(StageText)}); err != nil {
			return err
		}
		done.Advanced = kept != nil
	}
	tooMany := false
	if done.Advanced {
		_, err = os.Lstat(filepath.Join(o.From, noSymbols))
		tooMany = err == nil
	} else {
		stop()
		names = nil
	}
	if names == nil && !tooMany {
		if again, err = listed(ctx, o.Root); err != nil {
			return err
		}
	}
	if !done.Advanced {
		if done.Stats, err = codesearch.Build(ctx, o.Out, o.Root, again, codesearch.BuildOptions{Progress: o.tell(StageText)}); err != nil {
			return err
		}
	}
	alsoOld := false // the symbols of before belong to the result
	if tooMany {
		done.Problem, err = symbols.ErrTooMany.Error(), os.WriteFile(filepath.Join(o.Out, noSymbols), nil, 0o644)
	} else {
		if names == nil {
			scan = o.scan(ctx, again)
		}
		alsoOld, err = writeSymbols(ctx, o.Out, &done, names, scan, slices.Concat(again, gone))
	}
	if err != nil {
		return err
	}
	if alsoOld {
		kept = append(kept, SymbolsFile)
	}
	if done.Files, err = sizes(o.Out); err != nil {
		return err
	}
	for _, name := range kept {
		st, err := os.Stat(filepath.Join(o.From, name))
		if err != nil {
			return err
		}
		done.Kept = append(done.Kept, IndexedFile{name, st.Size()})
	}
	return json.NewEncoder(out).Encode(done)
}

// scanned waits for what ctags says.
type scanned func() (tags []symbols.Tag, slow []string, err error)

// scan begins to ask ctags about files.
func (o IndexOptions) scan(ctx context.Context, files []string) scanned {
	var tags []symbols.Tag
	var slow []string
	var err error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tags, slow, err = symbols.Scan(ctx, files, symbols.Options{Start: command(o.Root), Progress: o.tell(StageSymbols)})
	}()
	return func() ([]symbols.Tag, []string, error) {
		<-ended
		return tags, slow, err
	}
}

// writeSymbols writes what ctags says about files; beside says that the file of before belongs to
// the result. again are the files of which what was known does not hold. A search needs no symbols:
// why there are none is a problem that is told.
func writeSymbols(ctx context.Context, out string, done *Indexed, names *symbols.File, scan scanned, again []string) (beside bool, err error) {
	fresh, slow, err := scan()
	if err != nil && ctx.Err() == nil {
		if done.Problem = err.Error(); errors.Is(err, symbols.ErrTooMany) {
			return false, os.WriteFile(filepath.Join(out, noSymbols), nil, 0o644)
		}
		return false, nil
	}
	if err != nil {
		return false, err
	}
	done.Slow = slow[:min(len(slow), maxSlow)]
	at := filepath.Join(out, SymbolsFile)
	switch {
	case names == nil:
		done.Symbols, err = len(fresh), symbols.Write(at, fresh)
	case names.Stale():
		done.Symbols, err = names.WriteWhole(at, fresh, again)
	default:
		beside = true
		done.Symbols, err = names.WriteSince(at, fresh, again)
	}
	return beside, err
}

func sizes(dir string) (files []IndexedFile, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		st, err := e.Info()
		if err != nil {
			return nil, err
		}
		files = append(files, IndexedFile{e.Name(), st.Size()})
	}
	return files, nil
}

// listed are the files that a search of the whole tree looks at, but for what a glob rules out.
func listed(ctx context.Context, root string, without ...string) ([]string, error) {
	args := []string{"--no-config", "--hidden", "--glob", "!.git", "--color", "never", "--files", "--null"}
	for _, g := range without {
		args = append(args, "--glob", "!"+g)
	}
	cmd := exec.CommandContext(ctx, "rg", append(args, "./")...)
	cmd.Dir = root
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		return nil, nil // there is none
	}
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 2 || len(out) == 0) { // 2: some cannot be read
		return nil, fmt.Errorf("list the files of %s: %w", root, err)
	}
	var files []string
	for name := range bytes.SplitSeq(bytes.TrimSuffix(out, []byte{0}), []byte{0}) {
		files = append(files, filepath.Clean(string(name)))
	}
	slices.Sort(files)
	return files, nil
}

// command runs programs in dir, each in a process group of its own that ends with it.
func command(dir string) symbols.Start {
	return func(ctx context.Context, argv []string, read func(io.Reader) error) error {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Dir = dir
		cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
		cmd.WaitDelay = time.Second
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			return symbols.ErrNoProgram
		} else if err != nil {
			return err
		}
		err = read(stdout)
		stdout.Close()
		return errors.Join(err, cmd.Wait())
	}
}
