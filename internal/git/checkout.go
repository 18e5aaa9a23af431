package git

import (
	"bytes"
	"context"
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
}

// Checkout makes dest, which must not exist or be empty, a work tree whose own repository
// holds exactly one parentless commit of neutral author, date and message with the tree of
// rev: no other object, no other ref, no reflog. File bytes are the blobs' bytes: no line
// ending, encoding or filter is applied, so LFS pointers stay pointers; submodules are empty
// directories. The index is ready: status is clean without reading a file.
func (g *Git) Checkout(ctx context.Context, gitdir, rev, dest string) (Laid, error) {
	var l Laid
	var err error
	if l.Tree, err = g.TreeID(ctx, gitdir, rev); err != nil {
		return l, err
	}
	if l.Commit, err = g.Commit(ctx, gitdir, l.Tree, "", neutral()); err != nil {
		return l, err
	}
	if err := g.layRepository(ctx, gitdir, l.Commit, dest); err != nil {
		return l, err
	}
	own := filepath.Join(dest, ".git")
	at := func(args ...string) error {
		_, err := g.run(ctx, call{dir: dest, args: append([]string{"--git-dir=" + own, "--work-tree=" + dest}, args...), max: 1 << 20})
		return err
	}
	if err := at("read-tree", l.Commit); err != nil {
		return l, &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("commit %s cannot be checked out", rev), Err: err}
	}
	if err := at("checkout-index", "--all", "--quiet", "--force"); err != nil {
		return l, err
	}
	if l.Files, l.Bytes, err = settle(dest); err != nil {
		return l, err
	}
	// Two minimal-stat settings apply here too, or the refresh would store other fields.
	if err := at("-c", "core.checkStat=minimal", "-c", "core.trustctime=false", "update-index", "-q", "--refresh"); err != nil {
		return l, err
	}
	return l, nil
}

// layRepository writes dest/.git by hand around one pack with the commit's objects.
func (g *Git) layRepository(ctx context.Context, gitdir, commit, dest string) error {
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
	pr, pw := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		_, err := g.run(ctx, call{
			args:  []string{"--git-dir=" + gitdir, "pack-objects", "--quiet", "--revs", "--stdout", "--delta-base-offset", "--window=0", "--threads=2"},
			stdin: strings.NewReader(commit + "\n"), out: pw, max: 1 << 40,
		})
		pw.CloseWithError(err)
		packed <- err
	}()
	_, err := g.run(ctx, call{dir: dest, args: []string{"--git-dir=" + own, "index-pack", "--stdin"}, stdin: pr, max: 1 << 20})
	pr.CloseWithError(io.ErrClosedPipe)
	if perr := <-packed; perr != nil && err == nil {
		err = perr
	}
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
