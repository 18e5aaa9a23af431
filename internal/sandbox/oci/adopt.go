package oci

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/task"
)

var _ sandbox.Ready = (*box)(nil)

// Adopt implements [sandbox.Ready].
func (s *box) Adopt(_ context.Context, owner, purpose string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.destroyed || s.guest == nil || s.guest.Err() != nil {
		return &task.Error{Class: task.NotFound, Msg: "sandbox " + s.rec.ID + " is not alive"}
	}
	rec := s.rec
	rec.Task, rec.Purpose = owner, purpose
	if err := s.r.writeRecord(rec); err != nil {
		return refused("state directory", "check that "+s.r.cfg.Dir+" can be written", err)
	}
	s.rec = rec
	return nil
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
