package worker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/policy"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Request asks for a task.
type Request struct {
	Repo        string // path or URL
	Ref         string // base: commit, branch or tag; "" is the default branch
	Issue       []byte // as it arrived
	Model       string // "provider/model"
	Limits      task.Limits
	RequestedBy string
	Settings    string // digest of the operator's configuration
	Attempts    int    // independent ones that may be made; 0 is 1
	Fresh       bool   // never go on with an unfinished task

	// Of a task that comes from a forge: Key is the fingerprint of the issue there, whatever its
	// text; the scheduler orders its runs.
	Origin   *event.Origin
	Key      string
	Author   string // whom the scheduler's caps count it for
	Priority int
	Dispatch bool // the scheduler orders its runs, wherever it comes from
}

// maxIssue is how many bytes of an issue the model sees; the whole is kept in the log.
const maxIssue = 64 << 10

// Create stores a new task, or finds the one for the same repository, ref and issue that is
// unfinished or waits for review: it keeps the base it began on, and the repository is not
// asked. Trouble with the input is recorded as the end of a task of its own, so that nothing
// that was asked for vanishes; the error says what is wrong all the same.
func (w *Worker) Create(ctx context.Context, q Request) (store.Task, bool, error) {
	id, err := newID(w.cfg.Rand, w.cfg.Now())
	if err != nil {
		return store.Task{}, false, err
	}
	source := git.RedactURL(q.Repo)
	key := taskKey(source, orDefault(q.Ref, "HEAD"), q.Issue)
	if q.Key != "" {
		key = q.Key
	}
	if q.Fresh {
		key += "-" + string(id)
	} else if t, ok, err := w.open(ctx, key); ok || err != nil {
		return t, false, err
	}
	title, text, hidden, issueErr := policy.NormaliseIssue(q.Issue, maxIssue)
	commit, target, repoErr := "", "", error(nil)
	if issueErr == nil {
		commit, target, repoErr = w.cfg.Snapshots.Resolve(ctx, q.Repo, q.Ref)
	}
	if commit != "" && repoErr == nil {
		if err := w.cfg.Snapshots.PinBase(id, q.Repo, commit); err != nil {
			return store.Task{}, false, err
		}
	}
	raw := sha256.Sum256(q.Issue)
	payload := event.TaskCreated{
		Repo: source, Base: commit, BaseRef: orDefault(q.Ref, "HEAD"), Target: target, IssueTitle: title,
		IssueHash: hex.EncodeToString(raw[:]), Hidden: policy.HiddenBytes(hidden), Model: q.Model, Limits: q.Limits,
		RequestedBy: q.RequestedBy, Settings: q.Settings,
		Key: key, Origin: q.Origin, Attempts: q.Attempts,
	}
	if payload.Issue, err = store.Spill(ctx, w.cfg.Store, text); err != nil {
		return store.Task{}, false, err
	}
	// Raw bytes may be anything; as a blob they stay what they were.
	if payload.IssueRaw.Blob, err = w.cfg.Store.PutBlob(ctx, q.Issue); err != nil {
		return store.Task{}, false, err
	}
	payload.IssueRaw.Bytes = len(q.Issue)
	created, err := event.New(payload)
	if err != nil {
		return store.Task{}, false, err
	}
	first := []event.Draft{created}
	for _, h := range hidden {
		d, err := event.New(event.PolicyFound{Finding: task.Finding{
			Kind: "hidden_text", Severity: "warn", Path: "issue",
			Detail: fmt.Sprintf("hidden text removed (%d bytes): %s", h.Bytes, h.What),
		}})
		if err != nil {
			return store.Task{}, false, err
		}
		first = append(first, d)
	}
	bad := issueErr
	if bad == nil {
		bad = repoErr
	}
	if bad != nil {
		d, err := event.New(event.StateChanged{From: task.Queued, To: task.Failed, Reason: bad.Error()})
		if err != nil {
			return store.Task{}, false, err
		}
		first = append(first, d)
	}
	t, isNew, err := w.cfg.Store.Create(ctx, store.Task{
		ID: id, Key: payload.Key, Repo: source, Title: title, Dispatch: q.Dispatch || q.Origin != nil, Author: q.Author, Priority: q.Priority,
	}, first)
	if err != nil {
		return t, isNew, err
	}
	return t, isNew, bad
}

// open finds the task for the same work that a worker or a reviewer is not done with: asking
// again must neither pay for it twice nor open a second pull request.
func (w *Worker) open(ctx context.Context, key string) (store.Task, bool, error) {
	ts, err := w.cfg.Store.Tasks(ctx, store.Filter{Key: key, Limit: 1, States: []task.State{
		task.Queued, task.Preparing, task.Working, task.Verifying, task.Publishing, task.InReview,
	}})
	if err != nil || len(ts) == 0 {
		return store.Task{}, false, err
	}
	return ts[0], true, nil
}

// taskKey is one string for one piece of work: asking twice finds the same task.
func taskKey(repo, ref string, issue []byte) string {
	h := sha256.New()
	for _, s := range []string{repo, ref, string(issue)} {
		fmt.Fprintf(h, "%d:%s", len(s), s)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

func orDefault(s, d string) string {
	if s == "" {
		return d
	}
	return s
}

// newID makes a task id from the time and 80 random bits.
func newID(rand io.Reader, now interface{ UnixMilli() int64 }) (task.ID, error) {
	u, err := newULID(uint64(now.UnixMilli()), rand)
	if err != nil {
		return "", fmt.Errorf("read randomness: %w", err)
	}
	return task.ID("t_" + strings.ToLower(u)), nil
}
