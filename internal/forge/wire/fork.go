package wire

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Fork is where the branches of a forge's repositories go, when not into the repositories
// themselves.
type Fork struct {
	Owner string // whose forks; "" for none
	Token string // pushes to them and opens pull requests from them
}

// WriteAccess says what a user without write access lacks. Where branches go to forks it pushes
// nothing, but forges tell who may write, and take a status, from those alone who may write.
func WriteAccess(forks bool) string {
	if forks {
		return "write access, without which the forge does not tell it who may write and takes no status from it"
	}
	return "write access to the code"
}

// Forks finds the forks of one owner, and makes those that are missing. A repository that is no
// fork of the one that is meant is never pushed to.
type Forks struct {
	Owner string
	// Ask reads a repository by its path, and the number of the one that it is a fork of, "" for none.
	Ask func(ctx context.Context, path string) (r forge.Repository, parent string, err error)
	// Make makes the owner's fork of a repository; it may be there only a while later.
	Make func(ctx context.Context, of forge.Repository) error
	Now  func() time.Time

	mu   sync.Mutex
	seen map[string]pin
}

// Of returns the fork of a repository. Class Transient while it is being made, Conflict when its
// name is taken by something else.
func (f *Forks) Of(ctx context.Context, of forge.Repository) (forge.Repository, error) {
	path := f.Owner + of.Path[strings.LastIndexByte(of.Path, '/'):]
	f.mu.Lock()
	got, ok := f.seen[of.ID]
	f.mu.Unlock()
	if ok && f.Now().Sub(got.at) < pinFor {
		return got.repo, nil
	}
	r, parent, err := f.Ask(ctx, path)
	if task.ClassOf(err) == task.NotFound {
		if err := f.Make(ctx, of); err != nil {
			return r, err
		}
		if r, parent, err = f.Ask(ctx, path); task.ClassOf(err) == task.NotFound {
			return r, &task.Error{Class: task.Transient, Msg: fmt.Sprintf("the fork %s is being made", path), RetryAfter: 10 * time.Second}
		}
	}
	if err != nil {
		return r, err
	}
	if parent != of.ID {
		return r, &task.Error{Class: task.Conflict, Msg: fmt.Sprintf("%s is there and is no fork of %s", path, of.Path), Fix: "rename it, or name another owner for forks"}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen == nil {
		f.seen = map[string]pin{}
	}
	f.seen[of.ID] = pin{r, f.Now()}
	return r, nil
}
