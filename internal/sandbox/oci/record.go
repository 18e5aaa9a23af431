package oci

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// record is handle.json: all that is needed to find and remove what Start makes. It is on
// disk before the first mount.
type record struct {
	sandbox.Handle
	Mounts string `json:"mounts"`  // directory of all mounts
	Cgroup string `json:"cgroup"`  // path in every hierarchy
	IDBase uint32 `json:"id_base"` // first host id of the range
	Kept   []kept `json:"kept"`    // host directories that receive writes
}

var validID = regexp.MustCompile(`^[0-9a-f]{32}$`)

func (r *Runtime) recordDir(id string) string { return filepath.Join(r.cfg.Dir, "sandboxes", id) }

// newRecord makes a sandbox's directory. It appears with handle.json in it or not at all,
// but for a power cut; see [errCut].
func (r *Runtime) newRecord(rec record) error {
	all := filepath.Join(r.cfg.Dir, "sandboxes")
	tmp := filepath.Join(all, "new-"+rec.ID)
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return err
	}
	err := writeHandle(tmp, rec)
	if err == nil {
		err = os.Rename(tmp, r.recordDir(rec.ID))
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(tmp))
	}
	return syncDir(all, rec)
}

// writeRecord replaces handle.json.
func (r *Runtime) writeRecord(rec record) error {
	return writeHandle(r.recordDir(rec.ID), rec)
}

func writeHandle(dir string, rec record) error {
	b, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, "handle.json.new")
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil && rec.outlives() {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp, filepath.Join(dir, "handle.json")); err != nil {
		return err
	}
	return syncDir(dir, rec)
}

// outlives reports whether something of the sandbox is still there after a power cut: mounts,
// groups, processes and memory are not, and an empty record of them says as much; see [errCut].
func (r record) outlives() bool { return len(r.Kept) > 0 }

// syncDir makes a record's directory durable where the record has to be.
func syncDir(dir string, rec record) error {
	if !rec.outlives() {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// errCut says that a record has no content: it was not synced, and a power cut took the rest of the
// sandbox as well.
var errCut = errors.New("its record is empty since a power cut")

func (r *Runtime) readRecord(id string) (record, error) {
	var rec record
	if !validID.MatchString(id) {
		return rec, &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("%q is no sandbox id", id)}
	}
	b, err := os.ReadFile(filepath.Join(r.recordDir(id), "handle.json"))
	if errors.Is(err, os.ErrNotExist) {
		return rec, &task.Error{Class: task.NotFound, Msg: "no sandbox " + id}
	}
	if err != nil {
		return rec, err
	}
	if len(bytes.Trim(b, "\x00")) == 0 {
		return rec, &task.Error{Class: task.NotFound, Msg: "no sandbox " + id, Err: errCut}
	}
	if err := json.Unmarshal(b, &rec); err != nil || rec.ID != id {
		return rec, &task.Error{Class: task.Internal, Msg: "handle of sandbox " + id + " is damaged", Err: err}
	}
	return rec, nil
}
