package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// PathDiff is one path that differs between two trees. Renames are a deletion and an addition.
type PathDiff struct {
	Path    string
	OldMode uint32 // 0 when added
	NewMode uint32 // 0 when deleted
	OldID   string // blob, "" when added
	NewID   string // blob, "" when deleted
}

// ChangedPaths lists the difference of two tree-ishes, sorted by path.
func (g *Git) ChangedPaths(ctx context.Context, gitdir, a, b string) ([]PathDiff, error) {
	return g.changed(ctx, gitdir, a, b)
}

func (g *Git) changed(ctx context.Context, gitdir, a, b string, more ...string) ([]PathDiff, error) {
	if err := errors.Join(checkRev(a), checkRev(b)); err != nil {
		return nil, err
	}
	args := append([]string{"diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames"}, more...)
	out, err := g.in(ctx, gitdir, append(args, "--end-of-options", a, b)...)
	if err != nil {
		return nil, err
	}
	var diffs []PathDiff
	fields := strings.Split(string(out), "\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		d, err := parseRaw(fields[i], fields[i+1])
		if err != nil {
			return nil, err
		}
		diffs = append(diffs, d)
	}
	return diffs, nil
}

// parseRaw reads ":100644 100755 <old> <new> M".
func parseRaw(meta, path string) (PathDiff, error) {
	f := strings.Fields(strings.TrimPrefix(meta, ":"))
	if len(f) != 5 || path == "" {
		return PathDiff{}, fmt.Errorf("unreadable line of git diff-tree: %q", meta)
	}
	oldMode, err1 := strconv.ParseUint(f[0], 8, 32)
	newMode, err2 := strconv.ParseUint(f[1], 8, 32)
	if err := errors.Join(err1, err2); err != nil {
		return PathDiff{}, err
	}
	d := PathDiff{Path: path, OldMode: uint32(oldMode), NewMode: uint32(newMode)}
	if d.OldMode != 0 {
		d.OldID = f[2]
	}
	if d.NewMode != 0 {
		d.NewID = f[3]
	}
	return d, nil
}

// DiffOptions bound a diff.
type DiffOptions struct {
	Context  int      // lines around a change; 0 is 3
	MaxBytes int64    // 0 is 4 MiB
	Paths    []string // literal paths; empty is all
}

// Diff returns the unified diff of two tree-ishes, without renames, external programs, text
// conversion or colour. cut says that it was ended at MaxBytes.
func (g *Git) Diff(ctx context.Context, gitdir, a, b string, o DiffOptions) (text string, cut bool, err error) {
	if err := errors.Join(checkRev(a), checkRev(b)); err != nil {
		return "", false, err
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = 4 << 20
	}
	if o.Context <= 0 {
		o.Context = 3
	}
	args := []string{
		"--git-dir=" + gitdir, "diff-tree", "-r", "-p", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color",
		"--diff-algorithm=histogram", "-U" + strconv.Itoa(o.Context), "--end-of-options", a, b, "--",
	}
	out, err := g.run(ctx, call{args: append(args, o.Paths...), max: o.MaxBytes, cut: true})
	if errors.Is(err, errCut) {
		return string(out), true, nil
	}
	return string(out), false, err
}

// FileStat counts the lines a path's change adds and removes.
type FileStat struct {
	Path    string
	Added   int
	Removed int
	Binary  bool // no line counts
}

// Stat counts changed lines per path between two tree-ishes.
func (g *Git) Stat(ctx context.Context, gitdir, a, b string) ([]FileStat, error) {
	if err := errors.Join(checkRev(a), checkRev(b)); err != nil {
		return nil, err
	}
	out, err := g.in(ctx, gitdir, "diff-tree", "-r", "-z", "--numstat", "--no-renames", "--no-ext-diff", "--no-textconv", "--end-of-options", a, b)
	if err != nil {
		return nil, err
	}
	var stats []FileStat
	for line := range strings.SplitSeq(string(out), "\x00") {
		f := strings.SplitN(line, "\t", 3)
		if len(f) != 3 {
			continue
		}
		s := FileStat{Path: f[2], Binary: f[0] == "-"}
		if !s.Binary {
			added, err1 := strconv.Atoi(f[0])
			removed, err2 := strconv.Atoi(f[1])
			if err := errors.Join(err1, err2); err != nil {
				return nil, fmt.Errorf("unreadable line of git diff-tree: %q", line)
			}
			s.Added, s.Removed = added, removed
		}
		stats = append(stats, s)
	}
	return stats, nil
}

// Entry is one file, link or submodule of a tree.
type Entry struct {
	Path string
	Mode uint32
	ID   string
	Size int64 // bytes; 0 for a submodule
}

// ListTree lists every entry below rev, directories excluded, in git's order.
func (g *Git) ListTree(ctx context.Context, gitdir, rev string) ([]Entry, error) {
	return g.list(ctx, gitdir, rev, "-r")
}

func (g *Git) list(ctx context.Context, gitdir, rev string, args ...string) ([]Entry, error) {
	if err := checkRev(rev); err != nil {
		return nil, err
	}
	cmd := []string{"ls-tree", "-z", "-l", "--full-tree"}
	var paths []string
	for _, a := range args {
		if strings.HasPrefix(a, "-") {
			cmd = append(cmd, a)
		} else {
			paths = append(paths, a)
		}
	}
	ls := func(treeish string) ([]byte, error) {
		return g.in(ctx, gitdir, append(append(cmd[:len(cmd):len(cmd)], treeish, "--"), paths...)...)
	}
	var (
		out []byte
		err error
	)
	if IsID(rev) { // nothing to resolve: one command instead of two
		out, err = ls(rev)
	}
	if !IsID(rev) || err != nil { // whose errors say what is wrong with rev
		tree, terr := g.TreeID(ctx, gitdir, rev)
		if terr != nil {
			return nil, terr
		}
		if out, err = ls(tree); err != nil {
			return nil, err
		}
	}
	entries := make([]Entry, 0, bytes.Count(out, []byte{0}))
	for line := range strings.SplitSeq(string(out), "\x00") {
		if line == "" {
			continue
		}
		meta, path, _ := strings.Cut(line, "\t")
		f := strings.Fields(meta)
		if len(f) != 4 || path == "" {
			return nil, fmt.Errorf("unreadable line of git ls-tree: %q", line)
		}
		mode, err := strconv.ParseUint(f[0], 8, 32)
		if err != nil {
			return nil, err
		}
		size, _ := strconv.ParseInt(f[3], 10, 64) // "-" for a submodule
		entries = append(entries, Entry{Path: path, Mode: uint32(mode), ID: f[2], Size: size})
	}
	return entries, nil
}

// Blobs reads whole objects by id in one command. Those larger than max bytes (0: 16 MiB) are
// left out of the result.
func (g *Git) Blobs(ctx context.Context, gitdir string, entries []Entry, max int64) (map[string][]byte, error) {
	if max <= 0 {
		max = 16 << 20
	}
	var ask strings.Builder
	total, wanted := int64(0), map[string]int64{}
	for _, e := range entries {
		if !IsID(e.ID) {
			return nil, &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("%q is not an object id", e.ID)}
		}
		if _, twice := wanted[e.ID]; twice || e.Size > max || e.Mode == ModeSubmodule || e.Mode == ModeTree {
			continue
		}
		wanted[e.ID] = e.Size
		total += e.Size + 128
		ask.WriteString(e.ID + "\n")
	}
	out := make(map[string][]byte, len(wanted))
	if len(wanted) == 0 {
		return out, nil
	}
	b, err := g.run(ctx, call{args: []string{"--git-dir=" + gitdir, "cat-file", "--batch"}, stdin: strings.NewReader(ask.String()), max: total + 4096})
	if err != nil {
		return nil, err
	}
	for len(b) > 0 {
		head, rest, _ := bytes.Cut(b, []byte("\n"))
		f := strings.Fields(string(head))
		if len(f) != 3 || f[1] != "blob" {
			return nil, fmt.Errorf("unreadable line of git cat-file: %q", head)
		}
		size, err := strconv.Atoi(f[2])
		if err != nil || size < 0 || size+1 > len(rest) {
			return nil, fmt.Errorf("unreadable line of git cat-file: %q", head)
		}
		out[f[0]], b = rest[:size:size], rest[size+1:]
	}
	return out, nil
}

// File returns the content (of a link: its text) and the mode of one path at rev, at most
// max bytes (0: 16 MiB). Classes: NotFound when there is no file there, Invalid when larger.
func (g *Git) File(ctx context.Context, gitdir, rev, path string, max int64) ([]byte, uint32, error) {
	if max <= 0 {
		max = 16 << 20
	}
	if !plain(path) || strings.HasPrefix(path, "-") {
		return nil, 0, badPath(path, "is not a path of a tree")
	}
	entries, err := g.list(ctx, gitdir, rev, path)
	if err != nil {
		return nil, 0, err
	}
	for _, e := range entries {
		if e.Path != path || e.Mode == ModeTree || e.Mode == ModeSubmodule {
			continue
		}
		if e.Size > max {
			return nil, 0, badPath(path, fmt.Sprintf("has %d bytes, more than the limit of %d", e.Size, max))
		}
		out, err := g.in(ctx, gitdir, "cat-file", "blob", e.ID)
		return out, e.Mode, err
	}
	return nil, 0, &task.Error{Class: task.NotFound, Msg: fmt.Sprintf("no file %q at %s", path, rev)}
}
