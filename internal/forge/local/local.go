// Package local is the forge for people without one: branches go to a plain git repository,
// pull requests are documents in a directory.
//
// Invariants: of the target repository only objects and the task's own branch change, and no
// hook of it runs; a pull request is found again by its branch; its directory appears at once
// and whole, and its meta.json is always the last file to change.
package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Config is what the forge needs; every field is required.
type Config struct {
	Dir string // pull requests go to Dir/pull-requests/<branch without "daybreak/">/
	Git *git.Git
}

// Forge implements [forge.Forge].
type Forge struct{ cfg Config }

// New makes the directory.
func New(cfg Config) (*Forge, error) {
	if !filepath.IsAbs(cfg.Dir) {
		return nil, &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("directory %q for pull requests is not absolute", cfg.Dir)}
	}
	if err := os.MkdirAll(filepath.Join(cfg.Dir, "pull-requests"), 0o755); err != nil {
		return nil, fmt.Errorf("make the directory for pull requests: %w", err)
	}
	return &Forge{cfg}, nil
}

// Name implements [forge.Forge].
func (f *Forge) Name() string { return "local" }

// Push implements [forge.Forge]. A target that does not let us write (this forge has no
// credentials) loses nothing: the branch is kept in our own repository, and the pull request
// says how to fetch it from there.
func (f *Forge) Push(ctx context.Context, p forge.Push) (bool, error) {
	found, err := f.cfg.Git.Push(ctx, p.GitDir, p.Repo, p.Commit, p.Branch, p.Old)
	if task.ClassOf(err) != task.Auth {
		return found, err
	}
	dir, derr := f.dir(p.Branch)
	if derr != nil {
		return false, derr
	}
	if found, err = f.cfg.Git.Push(ctx, p.GitDir, p.GitDir, p.Commit, p.Branch, p.Old); err != nil {
		return false, err
	}
	return found, writeFile(filepath.Dir(dir), keptName(dir), []byte(p.GitDir))
}

// keptName is the note that a branch lies in our own repository.
func keptName(dir string) string { return ".kept-" + filepath.Base(dir) }

// where the branch of a pull request lies: the repository, or, with kept set, ours.
func where(dir string, pr forge.PullRequest) (repo string, kept bool, err error) {
	b, err := os.ReadFile(filepath.Join(filepath.Dir(dir), keptName(dir)))
	if errors.Is(err, fs.ErrNotExist) {
		return pr.Repo, false, nil
	}
	return string(b), err == nil, err
}

// Home implements [forge.Forge].
func (f *Forge) Home(_ context.Context, repo, branch string) (string, error) {
	dir, err := f.dir(branch)
	if err != nil {
		return "", err
	}
	home, _, err := where(dir, forge.PullRequest{Repo: repo})
	return home, err
}

// The files of a pull request.
const (
	document = "pull-request.md"
	metaFile = "meta.json"
)

// meta is the machine's copy of a pull request.
type meta struct {
	Task   string   `json:"task"`
	Repo   string   `json:"repo"`
	Base   string   `json:"base"`
	Branch string   `json:"branch"`
	Head   string   `json:"head"`
	Title  string   `json:"title"`
	Body   string   `json:"body"`
	Draft  bool     `json:"draft"`
	Files  []string `json:"files"`
}

// FindPullRequest implements [forge.Forge]. Files are filled.
func (f *Forge) FindPullRequest(_ context.Context, repo, branch string) (*forge.PullRequest, error) {
	dir, err := f.dir(branch)
	if err != nil {
		return nil, err
	}
	m, err := readMeta(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && m.Repo != repo {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	pr := &forge.PullRequest{
		Task: m.Task, Repo: m.Repo, Base: m.Base, Branch: m.Branch, Head: m.Head, Title: m.Title, Body: m.Body,
		Draft: m.Draft, URL: filepath.Join(dir, document), Files: map[string][]byte{},
	}
	for _, name := range m.Files {
		if err := checkName(name); err != nil {
			return nil, err
		}
		if pr.Files[name], err = os.ReadFile(filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	return pr, nil
}

// OpenPullRequest implements [forge.Forge]. The branch must be at the head already; class
// Conflict otherwise.
func (f *Forge) OpenPullRequest(ctx context.Context, pr forge.PullRequest) (forge.PullRequest, bool, error) {
	dir, err := f.dir(pr.Branch)
	if err != nil {
		return pr, false, err
	}
	for name := range pr.Files {
		if err := checkName(name); err != nil {
			return pr, false, err
		}
	}
	repo, kept, err := where(dir, pr)
	if err != nil {
		return pr, false, err
	}
	at, err := f.cfg.Git.RemoteBranch(ctx, repo, pr.Branch)
	if err != nil {
		return pr, false, err
	}
	if kept {
		pr.Body = fmt.Sprintf("> The branch could not be pushed: the repository wants credentials that Daybreak does not have. It is kept here; fetch it in a clone with\n>\n> `git fetch %s %s:%s`\n\n%s", repo, pr.Branch, pr.Branch, pr.Body)
	}
	if at != pr.Head {
		return pr, false, &task.Error{Class: task.Conflict, Msg: fmt.Sprintf("branch %s is not at the pull request's head %s", pr.Branch, pr.Head), Fix: "push the branch first"}
	}
	unlock, err := f.lock()
	if err != nil {
		return pr, false, err
	}
	defer unlock()
	old, err := readMeta(dir)
	switch {
	case err == nil && old.Repo != pr.Repo:
		return pr, false, &task.Error{Class: task.Conflict, Msg: fmt.Sprintf("branch %s has a pull request for another repository", pr.Branch)}
	case err == nil:
		err = f.update(dir, old, pr)
	case errors.Is(err, fs.ErrNotExist):
		pr.URL = filepath.Join(dir, document)
		return pr, false, f.create(dir, pr)
	}
	pr.URL = filepath.Join(dir, document)
	return pr, err == nil, err
}

// Keep writes a pull request that lives on another forge as a document beside those that live
// here, with what goes with it.
func (f *Forge) Keep(pr forge.PullRequest) error {
	dir, err := f.dir(pr.Branch)
	if err != nil {
		return err
	}
	for name := range pr.Files {
		if err := checkName(name); err != nil {
			return err
		}
	}
	unlock, err := f.lock()
	if err != nil {
		return err
	}
	defer unlock()
	switch old, err := readMeta(dir); {
	case err == nil:
		return f.update(dir, old, pr)
	case errors.Is(err, fs.ErrNotExist):
		return f.create(dir, pr)
	default:
		return err
	}
}

// create builds the directory aside and renames it into place, under the lock. What a process left
// aside that died over it goes.
func (f *Forge) create(dir string, pr forge.PullRequest) error {
	tmp := filepath.Join(filepath.Dir(dir), ".tmp-"+filepath.Base(dir))
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	if err := os.Mkdir(tmp, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := writeAll(tmp, pr); err != nil {
		return err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return fmt.Errorf("put the pull request in place: %w", err)
	}
	return syncDir(filepath.Dir(dir))
}

func (f *Forge) update(dir string, old meta, pr forge.PullRequest) error {
	if err := writeAll(dir, pr); err != nil {
		return err
	}
	for _, name := range old.Files {
		if _, still := pr.Files[name]; still || checkName(name) != nil {
			continue
		}
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func writeAll(dir string, pr forge.PullRequest) error {
	m := meta{Task: pr.Task, Repo: pr.Repo, Base: pr.Base, Branch: pr.Branch, Head: pr.Head, Title: pr.Title, Body: pr.Body, Draft: pr.Draft, Files: []string{}}
	for name := range pr.Files {
		m.Files = append(m.Files, name)
	}
	slices.Sort(m.Files)
	for _, name := range m.Files {
		if err := writeFile(dir, name, pr.Files[name]); err != nil {
			return err
		}
	}
	if err := writeFile(dir, document, []byte(page(pr))); err != nil {
		return err
	}
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(dir, metaFile, append(b, '\n'))
}

// page is the document a person opens.
func page(pr forge.PullRequest) string {
	kind := "Pull request"
	if pr.Draft {
		kind = "Draft pull request"
	}
	into := ""
	if pr.Base != "" {
		into = fmt.Sprintf(" into `%s`", pr.Base)
	}
	title := strings.Join(strings.Fields(pr.Title), " ")
	return fmt.Sprintf("# %s\n\n%s: branch `%s`%s, head `%s`\n\n%s\n", title, kind, pr.Branch, into, pr.Head, strings.TrimRight(pr.Body, "\n"))
}

// writeFile replaces a file at once.
func writeFile(dir, name string, data []byte) error {
	tmp, err := os.CreateTemp(dir, ".tmp-")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(data)
	if err = errors.Join(err, tmp.Chmod(0o644), tmp.Sync(), tmp.Close()); err != nil {
		return fmt.Errorf("write %s of the pull request: %w", name, err)
	}
	return os.Rename(tmp.Name(), filepath.Join(dir, name))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

func readMeta(dir string) (meta, error) {
	var m meta
	b, err := os.ReadFile(filepath.Join(dir, metaFile))
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("%s: %w", filepath.Join(dir, metaFile), err)
	}
	return m, nil
}

// dir is where a branch's pull request lives. A dot is in no branch name, so that two
// branches never share a directory.
func (f *Forge) dir(branch string) (string, error) {
	if err := git.CheckBranch(branch); err != nil {
		return "", err
	}
	name := strings.ReplaceAll(strings.TrimPrefix(branch, git.BranchPrefix), "/", ".")
	return filepath.Join(f.cfg.Dir, "pull-requests", name), nil
}

func checkName(name string) error {
	bad := name == "" || name[0] == '.' || name == document || name == metaFile || len(name) > 100 ||
		strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != ""
	if bad {
		return &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("%q is not a name for a document of a pull request", name)}
	}
	return nil
}

func (f *Forge) lock() (func(), error) {
	l, err := os.OpenFile(filepath.Join(f.cfg.Dir, "pull-requests", ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(l.Fd()), unix.LOCK_EX)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			l.Close()
			return nil, fmt.Errorf("lock the pull requests: %w", err)
		}
		return func() { l.Close() }, nil
	}
}
