package eval

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// Locate finds the instance's repository below dir: a checkout or a bare repository called
// owner+name, owner/name or name, with or without ".git", or in the folder "repo" of one.
func (i Instance) Locate(dir string) (string, error) {
	owner, name := path.Split(i.Repo)
	owner = path.Clean(owner)
	for _, base := range []string{owner + "+" + name, filepath.Join(owner, name), name} {
		for _, p := range []string{base, base + ".git", filepath.Join(base, "repo")} {
			full := filepath.Join(dir, p)
			for _, mark := range []string{".git", "HEAD"} {
				if _, err := os.Stat(filepath.Join(full, mark)); err == nil {
					return full, nil
				}
			}
		}
	}
	return "", &task.Error{
		Class: task.NotFound, Msg: fmt.Sprintf("no repository for %s below %s", i.Repo, dir),
		Fix: fmt.Sprintf("git clone --mirror it to %s", filepath.Join(dir, owner+"+"+name)),
	}
}

// Copy makes a bare repository at dst that has the instance's base, from the one at src, so that a
// replay pushes its branches there and leaves src alone. The base comes without its history: a
// source need not have all of that. A copy that is there is kept.
func (i Instance) Copy(ctx context.Context, src, dst string) error {
	from := repo{dir: src}
	if err := from.check(ctx, i.Base, i.Fix); err != nil {
		return err
	}
	if _, err := os.Stat(dst); err == nil {
		return repo{dir: dst}.check(ctx, i.Base)
	}
	if err := os.MkdirAll(filepath.Dir(dst), 0o755); err != nil {
		return &task.Error{Class: task.Unavailable, Msg: "cannot make the folder for copies of repositories", Err: err}
	}
	part, err := os.MkdirTemp(filepath.Dir(dst), ".part-")
	if err != nil {
		return &task.Error{Class: task.Unavailable, Msg: "cannot make the folder for copies of repositories", Err: err}
	}
	defer func() { _ = os.RemoveAll(part) }()
	to := repo{dir: part}
	if _, err := to.git(ctx, "init", "--quiet", "--bare", "--template=", "--initial-branch=main", "."); err != nil {
		return err
	}
	if _, err := to.git(ctx, "fetch", "--quiet", "--no-tags", "--depth=1", "--", src, "+"+i.Base+":refs/heads/main"); err != nil {
		return err
	}
	if err := os.Rename(part, dst); err != nil && !errors.Is(err, fs.ErrExist) {
		return &task.Error{Class: task.Unavailable, Msg: "cannot put the copy of a repository in place", Err: err}
	}
	return repo{dir: dst}.check(ctx, i.Base)
}
