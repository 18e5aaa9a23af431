package oci

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/task"
)

var _ sandbox.Ready = (*box)(nil)

// Adopt implements [sandbox.Ready].
func (s *box) Adopt(ctx context.Context, a sandbox.Adoption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.destroyed || s.guest == nil || s.guest.Err() != nil {
		return &task.Error{Class: task.NotFound, Msg: "sandbox " + s.rec.ID + " is not alive"}
	}
	if s.given {
		return &task.Error{Class: task.Invalid, Msg: "sandbox " + s.rec.ID + " was handed over already"}
	}
	if err := s.give(ctx, a.Files); err != nil {
		return err
	}
	rec := s.rec
	rec.Task, rec.Purpose = a.Task, a.Purpose
	if err := s.r.writeRecord(rec); err != nil {
		return refused("state directory", "check that "+s.r.cfg.Dir+" can be written", err)
	}
	s.rec = rec
	return nil
}

// give fills the files that were left empty, which must be the very ones.
func (s *box) give(ctx context.Context, files []sandbox.File) error {
	wrong := len(files) != len(s.late)
	for i := 0; i < len(files) && !wrong; i++ {
		wrong = files[i].Path != s.late[i].Path
	}
	err := checkFiles(sandbox.Spec{Files: files})
	if wrong {
		err = fmt.Errorf("%d files that it was not started for", len(files))
	}
	if err != nil {
		return &task.Error{Class: task.Invalid, Msg: "sandbox " + s.rec.ID + " cannot be given " + err.Error()}
	}
	s.given = true // whatever comes of it: it is done once
	if len(files) == 0 {
		return nil
	}
	_, err = s.r.do(ctx, order{Do: doGive, Rec: s.rec, Spec: sandbox.Spec{Files: files}})
	return refused("files", "", err)
}

// Held implements [sandbox.Ready].
func (s *box) Held() (int64, error) {
	for _, d := range s.group().dirs() {
		for _, name := range []string{"memory.current", "memory.usage_in_bytes"} { // cgroup v2 and v1
			b, err := os.ReadFile(filepath.Join(d, name))
			if err == nil {
				return strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
			}
		}
	}
	return 0, errors.New("no memory controller counts sandbox " + s.rec.ID)
}
