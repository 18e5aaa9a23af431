package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/daybreak-agent/daybreak/internal/access"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/live"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// EventPage is an answer of GET /api/tasks/{id}/events.
type EventPage struct {
	Task    task.ID       `json:"task"`
	Events  []event.Event `json:"events"` // in order
	LastSeq int64         `json:"last_seq"`
	Next    int64         `json:"next,omitempty"` // give it as after for what follows; 0: that was all for now
}

const maxEvents = 500

// streams reports whether a caller wants server-sent events.
func streams(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "text/event-stream")
}

func (a *API) events(w http.ResponseWriter, r *http.Request) error {
	t, err := a.open(r, access.Read)
	if err != nil {
		return err
	}
	after, err := live.Position(r)
	if err != nil {
		return refusal{http.StatusBadRequest, err.Error()}
	}
	if streams(r) {
		return a.watch(w, r, t, after)
	}
	limit := maxEvents
	if s := r.URL.Query().Get("limit"); s != "" {
		if limit, err = strconv.Atoi(s); err != nil || limit < 1 || limit > maxEvents {
			return refusal{http.StatusBadRequest, "limit is 1 to 500"}
		}
	}
	events, err := a.cfg.Records.Events(r.Context(), t.ID, after, limit)
	if err != nil {
		return err
	}
	page := EventPage{Task: t.ID, Events: events, LastSeq: t.LastSeq}
	if n := len(events); n == 0 {
		page.Events = []event.Event{}
	} else if last := events[n-1].Seq; last < t.LastSeq {
		page.Next = last
	} else {
		page.LastSeq = last
	}
	return answer(w, http.StatusOK, page)
}

// watch streams a log: one event of the stream for each, whose id is its number. A comment names
// the epoch of the lease under which the log is written, and shows that the connection lives.
func (a *API) watch(w http.ResponseWriter, r *http.Request, t store.Task, after int64) error {
	name, may := a.cfg.Gate.Watcher(viewer(r), t.Repo)
	s, err := a.cfg.Hub.Subscribe(r.Context(), live.Watcher{Name: name, May: may}, t.ID, after)
	if err != nil {
		return err
	}
	defer s.Close()
	out, err := live.NewSender(w)
	if err != nil {
		return err
	}
	epoch := t.Epoch
	out.Comment("epoch " + strconv.FormatInt(epoch, 10))
	return quiet(live.Send(r.Context(), out, s.Next, func(out *live.Sender, e event.Event) error {
		if e.Epoch > epoch {
			epoch = e.Epoch
			out.Comment("epoch " + strconv.FormatInt(epoch, 10))
		}
		b, err := json.Marshal(e)
		out.Event(strconv.FormatInt(e.Seq, 10), "", b)
		return err
	}))
}

// quiet is the end of a stream: its answer has begun, so that nothing more can be said.
func quiet(error) error { return nil }

// blob gives out a text or a document that the log of the task names, as a file.
func (a *API) blob(w http.ResponseWriter, r *http.Request) error {
	t, err := a.open(r, access.Read)
	if err != nil {
		return err
	}
	digest := r.PathValue("digest")
	ok, err := a.named.by(r.Context(), t, digest)
	if err != nil {
		return err
	}
	if !ok {
		return &task.Error{Class: task.NotFound, Msg: "the log of the task names no such blob"}
	}
	b, err := a.cfg.Records.Blob(r.Context(), digest)
	if err != nil {
		return err
	}
	access.Artifact(w.Header(), digest[:16]+".bin")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	_, _ = w.Write(b) // a caller that left cannot be told
	return nil
}

// diff gives out the change of a task as far as it is known.
func (a *API) diff(w http.ResponseWriter, r *http.Request) error {
	_, sum, err := a.fold(r)
	if err != nil {
		return err
	}
	text, ok := sum.Change()
	if !ok {
		return &task.Error{Class: task.NotFound, Msg: "the task has made no change"}
	}
	s, err := a.load(r.Context(), text)
	if err != nil {
		return err
	}
	access.Artifact(w.Header(), string(sum.Task)+".diff")
	w.Header().Set("Content-Length", strconv.Itoa(len(s)))
	_, _ = w.Write([]byte(s)) // a caller that left cannot be told
	return nil
}

// Verification is the newest verdict on a task's change.
type Verification struct {
	Task    task.ID         `json:"task"`
	Verdict json.RawMessage `json:"verdict"` // the whole ledger; logs are named by their digests
	At      time.Time       `json:"at"`
	Seq     int64           `json:"seq"`  // of the record
	Root    string          `json:"root"` // of the log there
}

func (a *API) verification(w http.ResponseWriter, r *http.Request) error {
	_, sum, err := a.fold(r)
	if err != nil {
		return err
	}
	if sum.Verification == nil {
		return &task.Error{Class: task.NotFound, Msg: "the change of the task was not verified yet"}
	}
	doc, err := a.load(r.Context(), sum.Verification.Document)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, Verification{sum.Task, json.RawMessage(doc), sum.VerifiedAt, sum.VerifiedSeq, sum.VerifiedHash})
}

// typeEnvelope is the media type of a DSSE envelope.
const typeEnvelope = "application/vnd.dsse.envelope.v1+json"

// evidence gives out the newest signed account of a verification, as a file: the whole bundle, which
// `daybreak verify-evidence` checks, or the envelope in it alone for programs that know DSSE.
func (a *API) evidence(w http.ResponseWriter, r *http.Request) error {
	_, sum, err := a.fold(r)
	if err != nil {
		return err
	}
	if sum.Signed == nil {
		return &task.Error{Class: task.NotFound, Msg: sum.Unsigned()}
	}
	s, err := a.load(r.Context(), sum.Signed.Bundle)
	if err != nil {
		return err
	}
	kind, name := "application/json", string(sum.Task)+".evidence.json"
	if strings.Contains(r.Header.Get("Accept"), typeEnvelope) {
		var bundle struct {
			Attestation json.RawMessage `json:"attestation"`
		}
		if err := json.Unmarshal([]byte(s), &bundle); err != nil {
			return fmt.Errorf("recorded evidence: %w", err)
		}
		s, kind, name = string(bundle.Attestation), typeEnvelope, string(sum.Task)+".dsse.json"
	}
	h := w.Header()
	access.Artifact(h, name)
	h.Set("Content-Type", kind)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Vary", "Accept")
	h.Set("Content-Length", strconv.Itoa(len(s)))
	_, _ = w.Write([]byte(s)) // a caller that left cannot be told
	return nil
}

func (a *API) fold(r *http.Request) (store.Task, *event.Summary, error) {
	t, err := a.open(r, access.Read)
	if err != nil {
		return t, nil, err
	}
	events, err := a.cfg.Records.Events(r.Context(), t.ID, 0, 0)
	if err != nil {
		return t, nil, err
	}
	sum, err := event.Fold(events)
	return t, &sum, err
}

func (a *API) load(ctx context.Context, t event.Text) (string, error) {
	if t.Blob == "" {
		return t.Inline, nil
	}
	b, err := a.cfg.Records.Blob(ctx, t.Blob)
	return string(b), err
}

// named knows which blobs the logs of tasks name that were asked about last.
type named struct {
	records Records

	mu    sync.Mutex
	tasks map[task.ID]blobs
}

type blobs struct {
	upTo int64
	set  map[string]bool
}

const maxNamed = 32 // tasks

func newNamed(r Records) *named { return &named{records: r, tasks: map[task.ID]blobs{}} }

// by reports whether the log of a task names a blob.
func (n *named) by(ctx context.Context, t store.Task, digest string) (bool, error) {
	n.mu.Lock()
	known, ok := n.tasks[t.ID]
	n.mu.Unlock()
	if ok && known.set[digest] {
		return true, nil // a log only grows
	}
	if ok && known.upTo >= t.LastSeq {
		return false, nil
	}
	events, err := n.records.Events(ctx, t.ID, 0, 0)
	if err != nil {
		return false, err
	}
	list, err := event.Blobs(events, func(x event.Text) (string, error) {
		if x.Blob == "" {
			return x.Inline, nil
		}
		b, err := n.records.Blob(ctx, x.Blob)
		return string(b), err
	})
	if err != nil {
		return false, err
	}
	now := blobs{int64(len(events)), make(map[string]bool, len(list))}
	for _, d := range list {
		now.set[d] = true
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.tasks) >= maxNamed {
		clear(n.tasks)
	}
	n.tasks[t.ID] = now
	return now.set[digest], nil
}
