package snapshot

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// pin is what a task needs for as long as it is unfinished, whether somebody works on it or not:
// its base in the mirror, and what its sandbox stands on, should a worker die.
type pin struct {
	Mirror   string `json:"mirror"`
	Base     string `json:"base"`
	Snapshot string `json:"snapshot,omitempty"`
	Layers   string `json:"layers,omitempty"`
}

// PinBase keeps a commit that [Store.Resolve] returned for the task, which is not prepared yet,
// until [Policy.Need] says that nothing is needed for it.
func (s *Store) PinBase(owner task.ID, repo, base string) error {
	return s.pin(owner, pin{Mirror: mirrorName(repo), Base: base})
}

// Pin keeps the snapshot, its layers and its base for the task until [Policy.Need] says that less
// or nothing is needed for it.
func (s *Store) Pin(owner task.ID, snap Snapshot) error {
	return s.pin(owner, pin{Mirror: mirrorOf(snap), Base: snap.Base, Snapshot: snap.Digest, Layers: snap.Layers.Digest})
}

func (s *Store) pin(owner task.ID, p pin) error {
	name := string(owner)
	if name == "" || name[0] == '.' || strings.ContainsAny(name, "/\x00") {
		return &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("%q is no task", name)}
	}
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := replace(filepath.Join(s.cfg.Dir, "pins", name), b); err != nil {
		return fmt.Errorf("keep the base commit of task %s: %w", name, err)
	}
	return nil
}

// Need is what must be kept for a task.
type Need int

// The needs, from the least to the most.
const (
	Nothing Need = iota
	Base         // its commit: it may go on some day
	All          // what its sandboxes stand on as well
)

// tasks reads what is kept for tasks. With prune it forgets those that need nothing. One that cannot
// be read is an error: it may name anything.
func (s *Store) tasks(need func(task.ID) Need, prune bool) (map[task.ID]pin, error) {
	dir := filepath.Join(s.cfg.Dir, "pins")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	out := map[task.ID]pin{}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		p, id := filepath.Join(dir, e.Name()), task.ID(e.Name())
		most := All
		if need != nil {
			most = need(id)
		}
		if fi, err := e.Info(); prune && err == nil && s.cfg.Now().Sub(fi.ModTime()) < unpinAfter {
			most = max(most, Base) // its task may be about to be stored
		}
		if most == Nothing {
			if prune {
				if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return nil, err
				}
			}
			continue
		}
		b, err := os.ReadFile(p)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var n pin
		if err == nil {
			err = json.Unmarshal(b, &n)
		}
		if err != nil {
			return nil, fmt.Errorf("what task %s needs cannot be read: %w", id, err)
		}
		if most == Base {
			n.Snapshot, n.Layers = "", ""
		}
		out[id] = n
	}
	return out, nil
}
