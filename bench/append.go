package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/store/sqlite"
	"github.com/daybreak-agent/daybreak/internal/task"
)

func measureAppend(ctx context.Context, w *world, t *table) error {
	dir := filepath.Join(w.dir, "append")
	s, err := sqlite.Open(ctx, filepath.Join(dir, "daybreak.db"), sqlite.Options{})
	if err != nil {
		return err
	}
	appends, err := timeAppends(ctx, s, 400)
	if err = errors.Join(err, s.Close()); err != nil {
		return err
	}
	plain, err := timeSyncs(filepath.Join(dir, "plain"), 400)
	if err != nil {
		return err
	}
	t.durations("one event of 2 KB appended and fsynced", appends, 0, 0,
		fmt.Sprintf("write + fsync of 2 KB to a file %s: %s", millis(percentile(plain, 50)), times(percentile(appends, 50), percentile(plain, 50))))
	return nil
}

func timeAppends(ctx context.Context, s store.Store, n int) ([]time.Duration, error) {
	created, err := event.New(event.TaskCreated{Repo: "r", Base: "b"})
	if err != nil {
		return nil, err
	}
	id := task.ID("t_00000000000000000000000001")
	if _, _, err := s.Create(ctx, store.Task{ID: id, Key: "k", Repo: "r"}, []event.Draft{created}); err != nil {
		return nil, err
	}
	lease, err := s.Acquire(ctx, id, "bench", time.Hour, nil)
	if err != nil {
		return nil, err
	}
	d, err := event.New(event.Noticed{Text: strings.Repeat("x", 2000)})
	if err != nil {
		return nil, err
	}
	var took []time.Duration
	for range n {
		begin := time.Now()
		if _, err := s.Append(ctx, lease, d); err != nil {
			return nil, err
		}
		took = append(took, time.Since(begin))
	}
	return took, nil
}

// timeSyncs appends to a plain file, synced each time: the least a durable record costs here.
func timeSyncs(path string, n int) ([]time.Duration, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	data := bytes.Repeat([]byte("x"), 2000)
	var took []time.Duration
	for range n {
		begin := time.Now()
		if _, err = f.Write(data); err == nil {
			err = f.Sync()
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		took = append(took, time.Since(begin))
	}
	return took, f.Close()
}
