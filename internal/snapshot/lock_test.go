package snapshot

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// A lock's file may be removed at any time: no two ever have the lock.
func TestSweptLocksLetNobodyIn(t *testing.T) {
	s := newStore(t)
	stop := make(chan struct{})
	var users, sweeper sync.WaitGroup
	sweeper.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				s.sweepLocks()
			}
		}
	})
	var inside, count int // held together by the lock alone
	const rounds = 300
	for range 3 {
		users.Go(func() {
			for range rounds {
				unlock, err := s.lock(t.Context(), "one")
				if err != nil {
					t.Error(err)
					return
				}
				if inside++; inside != 1 {
					t.Error("two have the lock")
				}
				count++
				inside--
				unlock()
			}
		})
	}
	users.Wait()
	close(stop)
	sweeper.Wait()
	if count != 3*rounds {
		t.Errorf("%d of %d", count, 3*rounds)
	}
}

// With what they are for, locks go: also those of an index and of what never came to be.
func TestLocksGoWithTheirThings(t *testing.T) {
	s, repo := newStore(t), repository(t)
	snap := preparedMany(t, s, repo, 1)[0]
	keepIndex(t, s, snap, "postings")
	if _, err := s.Layers(t.Context(), snap, "none"); task.ClassOf(err) != task.NotFound {
		t.Fatal(err)
	}
	held, err := s.lock(t.Context(), "held")
	if err != nil {
		t.Fatal(err)
	}
	defer held()
	if _, err := s.Forget(t.Context(), repo, "", nil); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(filepath.Join(s.cfg.Dir, "locks"))
	if err != nil || len(left) != 1 || left[0].Name() != "held.lock" {
		t.Errorf("%v %v", left, err)
	}
}
