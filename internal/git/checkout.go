package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// checkoutTime is the time stamp of every file and of the only commit of a checkout, so that
// two checkouts of a tree are the same and no file is as young as the index: git would read
// such a file again on every status. It is 2000-01-01 00:00:00 UTC.
const checkoutTime = 946684800

// checkoutConfig is the whole configuration of a checkout. checkStat and trustctime keep the
// index valid when the tree is seen through an overlay or by another user.
const checkoutConfig = `[core]
	repositoryformatversion = 0
	filemode = true
	bare = false
	symlinks = true
	autocrlf = false
	logallrefupdates = false
	checkStat = minimal
	trustctime = false
[user]
	name = Daybreak
	email = daybreak@localhost
[commit]
	gpgSign = false
[gc]
	auto = 0
`

// rawAttributes turns every conversion off: a file's bytes are its blob's bytes.
const rawAttributes = "* -text !eol !crlf !filter !ident !working-tree-encoding !diff !merge\n"

// Laid tells what a checkout holds.
type Laid struct {
	Commit string // the one commit in it; depends on the tree alone
	Tree   string
	Files  int   // links included, submodules not
	Bytes  int64 // of file content

	Entries []Entry // of the tree, in git's order
}

// Checkout makes dest, which must not exist or be empty, a work tree whose own repository
// holds exactly one parentless commit of neutral author, date and message with the tree of
// rev: no other object, no other ref, no reflog. File bytes are the blobs' bytes: no line
// ending, encoding or filter is applied, so LFS pointers stay pointers; submodules are empty
// directories. The index is ready: status is clean without reading a file.
func (g *Git) Checkout(ctx context.Context, gitdir, rev, dest string) (Laid, error) {
	var l Laid
	var err error
	if l.Entries, err = g.ListTree(ctx, gitdir, rev); err != nil {
		return l, err
	}
	if l.Tree, err = g.TreeID(ctx, gitdir, rev); err != nil {
		return l, err
	}
	if l.Commit, err = g.Commit(ctx, gitdir, l.Tree, "", neutral()); err != nil {
		return l, err
	}
	if err := layEmpty(l.Commit, dest); err != nil {
		return l, err
	}
	if err := g.layPack(ctx, gitdir, l.Commit, dest, packSize(content(l.Entries))); err != nil {
		return l, err
	}
	if err := g.inTree(ctx, dest, nil, "read-tree", l.Commit); err != nil {
		return l, &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("commit %s cannot be checked out", rev), Err: err}
	}
	if err := g.layFiles(ctx, dest, paths(l.Entries)); err != nil {
		return l, err
	}
	if l.Files, l.Bytes, err = settle(dest); err != nil {
		return l, err
	}
	return l, g.refresh(ctx, dest)
}

// content is how many bytes all the files have.
func content(entries []Entry) (n int64) {
	for _, e := range entries {
		n += e.Size
	}
	return n
}

// inTree runs git on a checkout that no sandbox has seen.
func (g *Git) inTree(ctx context.Context, dest string, stdin io.Reader, args ...string) error {
	own := filepath.Join(dest, ".git")
	_, err := g.run(ctx, call{dir: dest, stdin: stdin, args: append([]string{"--git-dir=" + own, "--work-tree=" + dest}, args...), max: 1 << 20})
	return err
}

// quoteAlternate is a path as one element of a list that git separates at colons.
func quoteAlternate(p string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(p) + `"`
}

// layFiles writes the index's entries of these paths into the work tree.
func (g *Git) layFiles(ctx context.Context, dest string, paths []string) error {
	if len(paths) == 0 {
		return nil
	}
	return noRoom(dest, g.inTree(ctx, dest, &counted{paths: paths, total: len(paths), tell: g.cfg.progress}, "checkout-index", "-z", "--stdin", "--quiet", "--force"))
}

// noRoom is err as that of a full disk, where git could not write and does not say why.
func noRoom(dest string, err error) error {
	var f *failure
	if !errors.As(err, &f) || !strings.Contains(f.stderr, "unable to write") {
		return err
	}
	const next = 1 << 20 // what is left of a disk that a file did not fit on
	if st := (unix.Statfs_t{}); unix.Statfs(dest, &st) == nil && (int64(st.Bavail)*st.Bsize < next || st.Files > 0 && st.Ffree == 0) {
		return fmt.Errorf("%w: %w", err, unix.ENOSPC)
	}
	return err
}

// refresh makes the index agree with the files: those it knows by size and time are not read.
func (g *Git) refresh(ctx context.Context, dest string) error {
	// Two minimal-stat settings apply here too, or the refresh would store other fields.
	return g.inTree(ctx, dest, nil, "-c", "core.checkStat=minimal", "-c", "core.trustctime=false", "update-index", "-q", "--refresh")
}

func paths(entries []Entry) []string {
	out := make([]string, len(entries))
	for i, e := range entries {
		out[i] = e.Path
	}
	return out
}

// counted is a list of paths for git's standard input that says how far it was read.
type counted struct {
	paths []string
	rest  []byte
	total int
	tell  Progress
}

// Read implements io.Reader.
func (c *counted) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if len(c.rest) == 0 {
			if len(c.paths) == 0 {
				break
			}
			c.rest = append(append(c.rest[:0], c.paths[0]...), 0)
			c.paths = c.paths[1:]
		}
		m := copy(p[n:], c.rest)
		c.rest = c.rest[m:]
		n += m
	}
	c.tell.tell(StageCheckout, c.total-len(c.paths), c.total)
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// layEmpty writes dest/.git by hand: a repository without its objects.
func layEmpty(commit, dest string) error {
	own := filepath.Join(dest, ".git")
	for _, d := range []string{"objects/pack", "objects/info", "refs/heads", "refs/tags", "info"} {
		if err := os.MkdirAll(filepath.Join(own, d), 0o755); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{
		"HEAD":            "ref: refs/heads/main\n",
		"config":          checkoutConfig,
		"info/attributes": rawAttributes,
		"refs/heads/main": commit + "\n",
	} {
		if err := os.WriteFile(filepath.Join(own, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// layPack packs everything that a commit has.
func (g *Git) layPack(ctx context.Context, gitdir, commit, dest string, size int64) error {
	return g.packInto(ctx, gitdir, dest, strings.NewReader(commit+"\n"), size, "--revs")
}

func (g *Git) packInto(ctx context.Context, gitdir, dest string, in io.Reader, size int64, more ...string) error {
	args := []string{
		"--git-dir=" + gitdir, "pack-objects", "--quiet", "--delta-base-offset", "--window=0", "--threads=2", fmt.Sprintf("--max-pack-size=%d", size),
	}
	own := filepath.Join(dest, ".git", "objects")
	// git checks the sums of what it copies out of the packs of gitdir. What it writes is in dest from
	// the first byte: a full disk leaves nothing in gitdir.
	_, err := g.run(ctx, call{
		args: append(append(args, more...), filepath.Join(own, "pack", "pack")), stdin: in, max: 1 << 20,
		env: []string{"GIT_OBJECT_DIRECTORY=" + own, "GIT_ALTERNATE_OBJECT_DIRECTORIES=" + quoteAlternate(filepath.Join(gitdir, "objects"))},
	})
	return err
}

// settle gives every file and directory below dest the same time and counts the files.
func settle(dest string) (files int, size int64, err error) {
	when := []unix.Timespec{{Sec: checkoutTime}, {Sec: checkoutTime}}
	err = filepath.WalkDir(dest, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if p == filepath.Join(dest, ".git") {
			return filepath.SkipDir
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		if !d.IsDir() {
			files++
		}
		if fi.Mode().IsRegular() {
			size += fi.Size()
		}
		if fi.Mode()&fs.ModeSymlink == 0 {
			if err := openUp(p, fi); err != nil {
				return err
			}
		}
		if err := unix.UtimesNanoAt(unix.AT_FDCWD, p, when, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return fmt.Errorf("set the time of %s: %w", p, err)
		}
		return nil
	})
	return files, size, err
}

// openUp undoes a strict umask of this process: others, such as the sandbox's user, read the
// checkout.
func openUp(p string, fi fs.FileInfo) error {
	want := fi.Mode().Perm() | 0o444
	if want&0o100 != 0 {
		want |= 0o111
	}
	if want == fi.Mode().Perm() {
		return nil
	}
	return os.Chmod(p, want)
}

// Ignored returns those of paths that the .gitignore files of the base ignore and that the
// base does not track. treeDir is a clean checkout of the base that no sandbox wrote.
func (g *Git) Ignored(ctx context.Context, gitdir, base, treeDir string, paths []string) ([]string, error) {
	entries, err := g.ListTree(ctx, gitdir, base)
	if err != nil {
		return nil, err
	}
	tracked := make(map[string]uint32, len(entries))
	for _, e := range entries {
		tracked[e.Path] = e.Mode
	}
	var in bytes.Buffer
	for _, p := range paths {
		if _, ok := tracked[p]; ok || !plain(p) || belowEntry(tracked, p) {
			continue
		}
		in.WriteString("./" + p + "\x00") // the prefix keeps a leading ":" from being pathspec magic
	}
	if in.Len() == 0 {
		return nil, nil
	}
	out, err := g.run(ctx, call{
		dir: treeDir, stdin: &in, env: []string{"GIT_LITERAL_PATHSPECS=0"},
		args: []string{"--git-dir=" + gitdir, "--work-tree=" + treeDir, "check-ignore", "-z", "--stdin", "--no-index"},
	})
	if f, ok := err.(*failure); ok && f.code == 1 { // none is ignored
		err = nil
	}
	if err != nil {
		return nil, err
	}
	var ignored []string
	for p := range strings.SplitSeq(string(out), "\x00") {
		if p != "" {
			ignored = append(ignored, strings.TrimPrefix(p, "./"))
		}
	}
	return ignored, nil
}

// belowEntry reports whether a parent of p is a file, link or submodule in the tree: git
// refuses to look beyond those, and no rule of the base can speak of them.
func belowEntry(tracked map[string]uint32, p string) bool {
	for i, c := range p {
		if c == '/' {
			if _, ok := tracked[p[:i]]; ok {
				return true
			}
		}
	}
	return false
}

// plain reports whether p is a relative path of ordinary components; a slash at the end marks a
// directory.
func plain(p string) bool {
	p = strings.TrimSuffix(p, "/")
	if p == "" || strings.ContainsRune(p, 0) {
		return false
	}
	for c := range strings.SplitSeq(p, "/") {
		if c == "" || c == "." || c == ".." {
			return false
		}
	}
	return true
}
