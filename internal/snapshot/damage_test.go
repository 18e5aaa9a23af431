package snapshot

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// records are the ways in which a meta.json can be unreadable.
var records = map[string]func(at string) error{
	"empty":     func(at string) error { return os.Truncate(at, 0) },
	"cut":       func(at string) error { return os.Truncate(at, 20) },
	"another's": func(at string) error { return os.WriteFile(at, []byte(`{"repo":7}`), 0o644) },
	"hollow":    func(at string) error { return os.WriteFile(at, []byte("{}\n"), 0o644) },
	"gone":      os.Remove,
}

// A snapshot whose record is damaged stops nothing: it counts as absent and is made anew.
func TestDamagedRecordIsMadeAnew(t *testing.T) {
	for name, damage := range records {
		t.Run(name, func(t *testing.T) {
			s, repo, apart := newStore(t), repository(t), repository(t)
			snap := preparedMany(t, s, repo, 1)[0]
			if err := damage(filepath.Join(s.dir(snap.Digest), "meta.json")); err != nil {
				t.Fatal(err)
			}
			if got, err := s.Prepare(t.Context(), Source{Repo: apart}); err != nil || got.Rebuilt != "" {
				t.Fatalf("another repository: %+v %v", got, err)
			} else {
				s.Done(got)
			}
			if got := there(t, s); slices.Contains(got, "snapshot "+snap.Digest) || len(got) != 3 {
				t.Errorf("listed: %q", got)
			}
			if _, err := s.Forget(t.Context(), apart, "", nil); err != nil {
				t.Errorf("forget: %v", err)
			}
			if _, err := s.Collect(t.Context(), Policy{}); err != nil {
				t.Errorf("collect: %v", err)
			}
			got, err := s.Prepare(t.Context(), Source{Repo: repo, Ref: snap.Base})
			if err != nil || got.Digest != snap.Digest || got.Cached {
				t.Fatalf("%+v %v", got, err)
			}
			asked(t, got.Tree)
			s.Done(got)
			if got, err := s.Prepare(t.Context(), Source{Repo: repo, Ref: snap.Base}); err != nil || !got.Cached || got.Rebuilt != "" {
				t.Errorf("again: %+v %v", got, err)
			}
			s.Release()
			if _, err := s.Collect(t.Context(), Policy{}); err != nil {
				t.Error(err)
			}
			noneAside(t, s)
		})
	}
}

func noneAside(t *testing.T, s *Store) {
	t.Helper()
	if left, _ := filepath.Glob(filepath.Join(s.cfg.Dir, "*", asidePrefix+"*")); len(left) > 0 {
		t.Errorf("left aside: %q", left)
	}
}

// What can be told cheaply of a damaged checkout is found when a task takes it, whoever else uses
// it, and the task says so.
func TestDamagedTreeIsMadeAnew(t *testing.T) {
	in := func(name string, do func(string) error) func(string) error {
		return func(tree string) error { return do(filepath.Join(tree, name)) }
	}
	packs := func(tree string) error {
		found, err := filepath.Glob(filepath.Join(tree, ".git/objects/pack/*.pack"))
		if err == nil && len(found) > 0 {
			err = os.Remove(found[0])
		}
		return err
	}
	for name, damage := range map[string]func(tree string) error{
		"all is gone":    os.RemoveAll,
		"a file instead": func(tree string) error { return errors.Join(os.RemoveAll(tree), os.WriteFile(tree, nil, 0o644)) },
		"no repository":  in(".git", os.RemoveAll),
		"no HEAD":        in(".git/HEAD", os.Remove),
		"an empty HEAD":  in(".git/refs/heads/main", func(p string) error { return os.Truncate(p, 0) }),
		"no index":       in(".git/index", os.Remove),
		"a cut index":    in(".git/index", func(p string) error { return os.Truncate(p, 100) }),
		"no packs":       packs,
		"a name is gone": in("crlf", os.Remove),
		"a name more":    in("more", func(p string) error { return os.WriteFile(p, nil, 0o644) }),
		"another kind":   in("crlf", func(p string) error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o755)) }),
		"no record":      in("../meta.json", os.Remove),
	} {
		t.Run(name, func(t *testing.T) {
			s, repo := newStore(t), repository(t)
			snap := preparedMany(t, s, repo, 1)[0]
			other, err := New(s.cfg)
			if err != nil {
				t.Fatal(err)
			}
			release, ok := other.HoldPaths(t.Context(), []string{snap.Tree})
			if !ok {
				t.Fatal("not held")
			}
			defer release()
			if err := damage(snap.Tree); err != nil {
				t.Fatal(err)
			}
			got, err := s.Prepare(t.Context(), Source{Repo: repo, Ref: snap.Base})
			if err != nil || got.Cached || !strings.Contains(got.Rebuilt, "the snapshot was damaged: ") {
				t.Fatalf("%+v %v", got, err)
			}
			asked(t, got.Tree)
			if _, err := s.Collect(t.Context(), Policy{}); err != nil {
				t.Fatal(err)
			}
			if left, _ := filepath.Glob(filepath.Join(s.cfg.Dir, "snapshots", asidePrefix+"*")); len(left) != 1 {
				t.Errorf("what somebody stands on is gone: %q", left)
			}
			if got, err := s.Prepare(t.Context(), Source{Repo: repo, Ref: snap.Base}); err != nil || !got.Cached || got.Rebuilt != "" {
				t.Errorf("again: %+v %v", got, err)
			}
			release()
			s.Release()
			if _, err := s.Collect(t.Context(), Policy{}); err != nil {
				t.Fatal(err)
			}
			noneAside(t, s)
		})
	}
}

// Damaged dependencies are made anew, by their next user and with a word for it.
func TestDamagedLayersAreMadeAnew(t *testing.T) {
	damages := map[string]func(at string) error{
		"a directory is gone": func(at string) error { return os.RemoveAll(filepath.Join(filepath.Dir(at), "home")) },
	}
	for name, damage := range records {
		damages[name] = damage
	}
	for name, damage := range damages {
		for _, listed := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				s := newStore(t)
				snap, entries := preparedTree(t, s)
				install := func() Layers {
					m, _, err := s.BeginLayers(t.Context(), snap, "key")
					if err != nil || m == nil {
						t.Fatal(m, err)
					}
					write(t, m.Home, map[string]string{"cache": "x"})
					l, err := m.Commit(t.Context(), snap.Tree, entries, []byte(`{"a":1}`))
					if err != nil {
						t.Fatal(err)
					}
					s.letGo(l.Digest)
					return l
				}
				l := install()
				if err := damage(filepath.Join(s.layersDir(l.Digest), "meta.json")); err != nil {
					t.Fatal(err)
				}
				if listed { // the first to meet it is somebody who only looks
					if got := there(t, s); slices.Contains(got, "layers "+l.Digest) {
						t.Errorf("listed: %q", got)
					}
				}
				if _, err := s.Layers(t.Context(), snap, "key"); task.ClassOf(err) != task.NotFound {
					t.Fatal(err)
				}
				if l := install(); !strings.Contains(l.Rebuilt, "the prepared dependencies were damaged: ") {
					t.Errorf("%+v", l)
				}
				if l, err := s.Layers(t.Context(), snap, "key"); err != nil || l.Rebuilt != "" || l.Home == "" {
					t.Errorf("%+v %v", l, err)
				}
				s.Release()
				if _, err := s.Forget(t.Context(), "/elsewhere", "", nil); err != nil {
					t.Error(err)
				}
				noneAside(t, s)
			})
		}
	}
}
