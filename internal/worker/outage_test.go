package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/git/gittest"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// shaky is a forge whose every call that changes something goes wrong once: before it does
// anything, or when it has done it and the answer is lost.
type shaky struct {
	forge.Forge
	err    error
	after  bool
	failed map[string]bool
	opened int
}

func (s *shaky) once(what string, do func() error) error {
	if s.failed[what] {
		return do()
	}
	s.failed[what] = true
	if s.after {
		if err := do(); err != nil {
			return err
		}
	}
	return s.err
}

func (s *shaky) Push(ctx context.Context, p forge.Push) (found bool, err error) {
	err = s.once("push", func() error { found, err = s.Forge.Push(ctx, p); return err })
	return found, err
}

func (s *shaky) OpenPullRequest(ctx context.Context, pr forge.PullRequest) (got forge.PullRequest, found bool, err error) {
	err = s.once("open", func() error {
		got, found, err = s.Forge.OpenPullRequest(ctx, pr)
		if !found {
			s.opened++
		}
		return err
	})
	return got, found, err
}

// TestShakyForge: whatever goes wrong at the forge, before or after an effect, the task waits with
// the reason and the next run makes one branch and one pull request of it.
func TestShakyForge(t *testing.T) {
	for name, trouble := range map[string]error{
		"500":     &task.Error{Class: task.Transient, Msg: "the forge answered 500"},
		"429":     &task.Error{Class: task.RateLimited, Msg: "too many requests", RetryAfter: time.Minute},
		"timeout": &task.Error{Class: task.Transient, Msg: "no answer", Err: context.DeadlineExceeded},
		"401":     &task.Error{Class: task.Auth, Msg: "the token is not good any more"},
	} {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, done %v", name, after), func(t *testing.T) {
				r := newRig(t, task.Limits{})
				f := &shaky{Forge: r.cfg.Forge, err: trouble, after: after, failed: map[string]bool{}}
				r.cfg.Forge = f
				r.verified(t)
				r.release(t)
				for n := range 2 { // the push, the pull request
					sum, err := r.Run(t.Context(), r.id)
					var e *task.Error
					if !errors.Is(err, ErrPaused) || !errors.As(err, &e) || e.RetryAfter != trouble.(*task.Error).RetryAfter || sum.State != task.Publishing {
						t.Fatalf("run %d: %s %v", n+1, sum.State, err)
					}
				}
				sum, err := r.Run(t.Context(), r.id)
				if err != nil || sum.State != task.InReview || f.opened != 1 {
					t.Fatalf("%s, %d pull requests opened: %v", sum.State, f.opened, err)
				}
				if got := strings.Fields(gittest.Run(t, r.repo, "for-each-ref", "--format=%(objectname)", "refs/heads/daybreak/")); len(got) != 1 || got[0] != sum.PullRequest.Head {
					t.Errorf("branches at %v, the pull request's head is %s", got, sum.PullRequest.Head)
				}
			})
		}
	}
}
