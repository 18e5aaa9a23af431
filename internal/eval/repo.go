package eval

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// maxFile is the largest file that a transcript carries, in bytes.
const maxFile = 4 << 20

// repo reads files of commits from a checkout or a bare repository.
type repo struct{ dir string }

// file is a path's content at a commit.
type file struct {
	path       string
	content    []byte
	executable bool
	absent     bool // the commit has no such path
}

// read returns the file at the commit. Links and submodules are refused.
func (r repo) read(ctx context.Context, commit, path string) (file, error) {
	out, err := r.git(ctx, "ls-tree", "-z", "--full-tree", commit, "--", path)
	if err != nil {
		return file{}, err
	}
	if len(out) == 0 {
		return file{path: path, absent: true}, nil
	}
	meta, _, _ := strings.Cut(string(out), "\t")
	fields := strings.Fields(meta)
	if len(fields) != 3 || (fields[0] != "100644" && fields[0] != "100755") {
		return file{}, &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("%s at %.12s is no regular file (%s)", path, commit, meta)}
	}
	content, err := r.git(ctx, "cat-file", "blob", fields[2])
	if err != nil {
		return file{}, err
	}
	if len(content) > maxFile {
		return file{}, &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("%s at %.12s has %d bytes, more than a transcript carries (%d)", path, commit, len(content), maxFile)}
	}
	return file{path: path, content: content, executable: fields[0] == "100755"}, nil
}

func (r repo) readAll(ctx context.Context, commit string, paths []string) ([]file, error) {
	files := make([]file, 0, len(paths))
	for _, p := range paths {
		f, err := r.read(ctx, commit, p)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// list names the files directly in a folder at the commit; "." is the top.
func (r repo) list(ctx context.Context, commit, dir string) ([]string, error) {
	args := []string{"ls-tree", "-z", "--full-tree", "--name-only", commit}
	if dir != "." {
		args = append(args, "--", dir+"/")
	}
	out, err := r.git(ctx, args...)
	if err != nil {
		return nil, err
	}
	return strings.FieldsFunc(string(out), func(c rune) bool { return c == 0 }), nil
}

// check makes sure that the commits are there.
func (r repo) check(ctx context.Context, commits ...string) error {
	for _, c := range commits {
		if _, err := r.git(ctx, "cat-file", "-e", c+"^{commit}"); err != nil {
			return &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("%s has no commit %.12s", r.dir, c), Fix: "fetch the whole repository", Err: err}
		}
	}
	return nil
}

func (r repo) git(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"--no-pager", "--literal-pathspecs"}, args...)...)
	cmd.Dir = r.dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.DevNull, "LC_ALL=C",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_TERMINAL_PROMPT=0",
		"GIT_CEILING_DIRECTORIES=" + filepath.Dir(r.dir), "GIT_OPTIONAL_LOCKS=0", "GIT_NO_LAZY_FETCH=1", "GIT_NO_REPLACE_OBJECTS=1",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		first, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n")
		return nil, &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("git %s in %s: %s", args[0], r.dir, first), Err: err}
	}
	return stdout.Bytes(), nil
}
