package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// Note returns a document kept beside a snapshot, class NotFound when there is none.
func (s *Store) Note(snap Snapshot, name string) ([]byte, error) {
	p, err := s.note(snap, name)
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(p)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &task.Error{Class: task.NotFound, Msg: fmt.Sprintf("snapshot %s has no %s", snap.Digest, name)}
	}
	return b, err
}

// SetNote keeps a document beside a snapshot, replacing one of that name at once.
func (s *Store) SetNote(snap Snapshot, name string, data []byte) error {
	p, err := s.note(snap, name)
	if err != nil {
		return err
	}
	return replace(p, data)
}

func (s *Store) note(snap Snapshot, name string) (string, error) {
	if !noteName(name) || !validDigest(snap.Digest) {
		return "", &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("%q is not a name for a note", name)}
	}
	return filepath.Join(s.dir(snap.Digest), "notes", name), nil
}

// RepoNote returns a document kept beside the mirror of the snapshot's repository, class
// NotFound when there is none.
func (s *Store) RepoNote(snap Snapshot, name string) ([]byte, error) {
	p, err := s.repoNote(snap, name)
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(p)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &task.Error{Class: task.NotFound, Msg: "the repository has no " + name}
	}
	return b, err
}

// ChangeRepoNote replaces a document beside the mirror by what change makes of it (nil when
// there is none), while nobody else does.
func (s *Store) ChangeRepoNote(ctx context.Context, snap Snapshot, name string, change func(old []byte) ([]byte, error)) error {
	p, err := s.repoNote(snap, name)
	if err != nil {
		return err
	}
	unlock, err := s.lock(ctx, strings.TrimSuffix(filepath.Base(snap.GitDir), ".git"))
	if err != nil {
		return err
	}
	defer unlock()
	old, err := os.ReadFile(p)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	b, err := change(old)
	if err != nil {
		return err
	}
	return replace(p, b)
}

func (s *Store) repoNote(snap Snapshot, name string) (string, error) {
	mirror, ok := strings.CutSuffix(filepath.Base(snap.GitDir), ".git")
	if !noteName(name) || !ok || !validDigest(mirror) {
		return "", &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("%q is not a name for a note", name)}
	}
	return filepath.Join(s.cfg.Dir, "repos", mirror+".notes", name), nil
}

func noteName(name string) bool {
	return name != "" && name[0] != '.' && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789.-_") == ""
}

// replace writes a file aside and puts it in place at once, for good.
func replace(p string, data []byte) error { return put(p, data, (*os.File).Sync) }

// jot is replace for what may be lost, or unreadable, after a power cut.
func jot(p string, data []byte) error {
	return put(p, data, func(*os.File) error { return nil })
}

func put(p string, data []byte, keep func(*os.File) error) error {
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(p), ".tmp-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err = errors.Join(err, keep(f), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(p), err)
	}
	return os.Rename(f.Name(), p)
}
