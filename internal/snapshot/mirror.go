package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Resolve brings the commit that ref names into our mirror, and says which branch of the
// source a pull request for it would aim at ("" for none).
func (s *Store) Resolve(ctx context.Context, repo, ref string) (commit, target string, err error) {
	if commit, err = s.bring(ctx, repo, ref); err != nil {
		return "", "", err
	}
	if target, err = s.cfg.Git.TargetBranch(ctx, repo, ref); err != nil {
		return "", "", err
	}
	return commit, target, nil
}

func (s *Store) bring(ctx context.Context, repo, ref string) (commit string, err error) {
	err = s.withRoom(ctx, repo, func() error {
		commit, err = s.fetch(ctx, Source{Repo: repo, Progress: s.cfg.progress}, ref)
		return err
	})
	return commit, err
}

// Fetch brings the commit that ref names into our mirror, for reading. The mirror is held until
// release, and the commit stays in it for an hour.
func (s *Store) Fetch(ctx context.Context, repo, ref string) (gitdir, commit string, release func(), err error) {
	if err := s.hold(ctx, mirrorName(repo)); err != nil {
		return "", "", nil, err
	}
	if commit, err = s.bring(ctx, repo, ref); err != nil {
		s.letGo(mirrorName(repo))
		return "", "", nil, err
	}
	return s.mirror(repo), commit, func() { s.letGo(mirrorName(repo)) }, nil
}

// fetched says what a reference of the source was, and when it was asked for.
type fetched struct {
	Ref   string    `json:"ref"`
	ID    string    `json:"id"`
	Began time.Time `json:"began"`
	Repo  string    `json:"repo,omitempty"` // without credentials
}

// fetch brings the commit into the mirror, of which one process at a time changes anything.
// Those who waited while another asked for the same reference take its answer: it was asked for
// after they wanted it. A damaged mirror is made anew.
func (s *Store) fetch(ctx context.Context, src Source, ref string) (id string, err error) {
	asked := s.cfg.Now()
	name := mirrorName(src.Repo)
	unlock, err := s.lock(ctx, name)
	if err != nil {
		return "", err
	}
	defer unlock()
	note := s.fetchNote(src.Repo)
	if last, err := readFetched(note); err == nil && last.Ref == ref && !last.Began.Before(asked) && pinned(s.mirror(src.Repo), last.ID) {
		return last.ID, nil
	}
	began, rebuilt := s.cfg.Now(), ""
	if _, serr := os.Stat(s.damaged(name)); serr == nil {
		rebuilt = "the mirror of the repository was damaged"
		id, err = s.renew(ctx, src, ref)
	} else if id, err = s.fetchInto(ctx, src, ref); err != nil && task.ClassOf(err) != task.NotFound && s.suspect(ctx, src.Repo, err) {
		rebuilt = damageOf(err)
		id, err = s.renew(ctx, src, ref)
	}
	if err != nil {
		return "", err
	}
	if rebuilt != "" { // the next task says so, whoever met it
		if err := replace(s.rebuiltNote(src.Repo), []byte(rebuilt)); err != nil {
			return "", err
		}
	}
	// Who collects sees by it that the commit is wanted.
	if err := os.Chtimes(filepath.Join(s.mirror(src.Repo), pinsDir, id), began, began); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	b, err := json.Marshal(fetched{Ref: ref, ID: id, Began: began, Repo: git.RedactURL(src.Repo)})
	if err == nil {
		err = jot(note, b)
	}
	return id, err
}

func (s *Store) fetchNote(repo string) string {
	return filepath.Join(s.cfg.Dir, "repos", mirrorName(repo)+".fetched")
}

func (s *Store) rebuiltNote(repo string) string {
	return filepath.Join(s.cfg.Dir, "repos", mirrorName(repo)+".rebuilt")
}

// rebuilt takes the word that the mirror was made anew, "" when nobody left one.
func (s *Store) rebuilt(repo string) string {
	b, err := os.ReadFile(s.rebuiltNote(repo))
	if err != nil || os.Remove(s.rebuiltNote(repo)) != nil { // another process took it
		return ""
	}
	return string(b)
}

func readFetched(p string) (f fetched, err error) {
	b, err := os.ReadFile(p)
	if err == nil {
		err = json.Unmarshal(b, &f)
	}
	return f, err
}

func (s *Store) fetchInto(ctx context.Context, src Source, ref string) (string, error) {
	dir := s.mirror(src.Repo)
	if err := s.cfg.Git.EnsureBare(ctx, dir); err != nil {
		return "", err
	}
	known := ref // a commit that must be there, if any
	if last, err := readFetched(s.fetchNote(src.Repo)); err == nil && !git.IsID(ref) {
		known = last.ID
	}
	if git.IsID(known) && pinned(dir, known) {
		if _, err := s.cfg.Git.Resolve(ctx, dir, known); err != nil {
			return "", fmt.Errorf("read a commit that was fetched before: %w", errors.New(oneLine(err)))
		}
		if known == ref {
			return ref, nil
		}
	}
	id, err := s.cfg.Git.Telling(src.Progress).FetchCommit(ctx, dir, src.Repo, ref)
	if full(err) || ctx.Err() != nil {
		s.sweepObjects(dir, 0)
	}
	return id, err
}

// sweepObjects removes what git left in a mirror when it was killed or the disk was full, if it is
// as old.
func (s *Store) sweepObjects(gitdir string, age time.Duration) {
	for _, pattern := range []string{"pack/tmp_*", "??/tmp_obj_*"} {
		left, _ := filepath.Glob(filepath.Join(gitdir, "objects", pattern)) // the pattern is well-formed
		for _, p := range left {
			if fi, err := os.Lstat(p); err == nil && s.cfg.Now().Sub(fi.ModTime()) >= age {
				_ = os.Remove(p) // the next look finds it again
			}
		}
	}
}

// suspect reports whether the mirror itself is why git failed.
func (s *Store) suspect(ctx context.Context, repo string, err error) bool {
	switch task.ClassOf(err) {
	case task.Transient, task.RateLimited, task.Auth, task.Unavailable:
		return false
	}
	return ctx.Err() == nil && s.cfg.Git.Damaged(ctx, s.mirror(repo))
}

// damaged is where a mirror is put that must be made anew, until that is done.
func (s *Store) damaged(name string) string {
	return filepath.Join(s.cfg.Dir, "repos", name+".damaged")
}

// renew puts a new mirror in the place of a damaged one, with the commits that the old one had
// pinned, as far as the source or the old mirror still has them. The mirror's lock is held. What
// is interrupted goes on at the next fetch.
func (s *Store) renew(ctx context.Context, src Source, ref string) (string, error) {
	dir, old := s.mirror(src.Repo), s.damaged(mirrorName(src.Repo))
	if _, err := os.Stat(old); errors.Is(err, fs.ErrNotExist) {
		err = os.Rename(dir, old)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	s.cfg.Logger.WarnContext(ctx, "a damaged mirror is made anew", "repo", git.RedactURL(src.Repo))
	bring := func(ref string) (id string, err error) {
		if id, err = s.fetchInto(ctx, src, ref); err != nil && git.IsID(ref) && ctx.Err() == nil {
			id, err = s.cfg.Git.FetchCommit(ctx, dir, old, ref)
		}
		return id, err
	}
	id, err := bring(ref)
	if err != nil {
		return "", err
	}
	for _, pin := range pins(old) {
		if _, err := bring(pin); err != nil {
			s.cfg.Logger.WarnContext(ctx, "a commit of a damaged mirror is lost", "commit", pin, "err", err)
		}
	}
	return id, os.RemoveAll(old)
}

// heal makes a mirror anew that turned out to be damaged while a snapshot was built from it, and
// reports whether the build is worth another try.
func (s *Store) heal(ctx context.Context, src Source, base string, broken error) (again bool, why string) {
	unlock, err := s.lock(ctx, mirrorName(src.Repo))
	if err != nil {
		return false, ""
	}
	defer unlock()
	if !s.suspect(ctx, src.Repo, broken) {
		return false, ""
	}
	if _, err := s.renew(ctx, src, base); err != nil {
		s.cfg.Logger.WarnContext(ctx, "a damaged mirror cannot be made anew", "err", err)
		return false, ""
	}
	return true, damageOf(broken)
}

func damageOf(err error) string {
	return "the mirror of the repository was damaged: " + oneLine(err)
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

const pinsDir = "refs/daybreak/base"

// pinned reports whether the mirror was told to keep the commit.
func pinned(gitdir, commit string) bool {
	if _, err := os.Stat(filepath.Join(gitdir, "HEAD")); err != nil {
		return false
	}
	if _, err := os.Stat(filepath.Join(gitdir, pinsDir, commit)); err == nil {
		return true
	}
	packed, err := os.ReadFile(filepath.Join(gitdir, "packed-refs"))
	return err == nil && strings.Contains(string(packed), " "+pinsDir+"/"+commit+"\n")
}

// pins are the commits that the mirror was told to keep, as far as it can be read.
func pins(gitdir string) []string {
	var out []string
	entries, _ := os.ReadDir(filepath.Join(gitdir, pinsDir))
	for _, e := range entries {
		if git.IsID(e.Name()) {
			out = append(out, e.Name())
		}
	}
	return out
}

// Notes reads what the commits on a branch of the source say, newest first, none from before
// since. Classes are those of [git.Git.Notes].
func (s *Store) Notes(ctx context.Context, repo, branch string, since time.Time) ([]git.Note, error) {
	name := mirrorName(repo)
	unlock, err := s.lock(ctx, name+"-history")
	if err != nil {
		return nil, err
	}
	defer unlock()
	return s.cfg.Git.Notes(ctx, filepath.Join(s.cfg.Dir, "history", name+".git"), repo, branch, since)
}
