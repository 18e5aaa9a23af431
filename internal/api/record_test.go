package api

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/access"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store/storetest"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// TestRecord_WEB08: the log comes in pages that fit each other, its texts are given out as files, and
// only those that it names.
func TestRecord_WEB08(t *testing.T) {
	l := newLab(t)
	ctx := t.Context()
	put := func(s string) string {
		t.Helper()
		d, err := l.st.PutBlob(ctx, []byte(s))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	log, diff, other := put("the output of a run\x00"), put("--- a\n+++ b\n"), put("of another task")
	doc := fmt.Sprintf(`{"kind":"verified","runs":[{"log":%q}]}`, log)
	id := l.record(t, 1, "https://hub/open/x", "ann",
		event.ToolFinished{Result: event.Text{Inline: `{"blob": "` + other + `"}`}}, // a text that looks like a name
		event.WorkspaceSaved{Diff: event.Text{Blob: diff, Bytes: 12}},
		event.VerificationFinished{Document: event.Text{Inline: doc, Bytes: len(doc)}},
	)
	l.record(t, 2, "https://hub/secret/x", "ann", event.ToolFinished{Result: event.Text{Blob: other}})
	base := "/api/tasks/" + string(id)

	var events []event.Event
	for after := int64(0); ; {
		p := decodeInto[EventPage](t, l.call(t, operator, "GET", fmt.Sprintf("%s/events?limit=3&after=%d", base, after), ""))
		events = append(events, p.Events...)
		if p.LastSeq != 4 {
			t.Errorf("the log has %d events", p.LastSeq)
		}
		if after = p.Next; after == 0 {
			break
		}
	}
	if err := event.VerifyChain(id, events); err != nil || len(events) != 4 {
		t.Errorf("%d events, %v", len(events), err)
	}
	for digest, want := range map[string]string{log: "the output of a run\x00", diff: "--- a\n+++ b\n"} {
		w := l.call(t, operator, "GET", base+"/blobs/"+digest, "")
		if w.Code != 200 || w.Body.String() != want || !strings.HasPrefix(w.Header().Get("Content-Disposition"), "attachment") || !strings.HasPrefix(w.Header().Get("Content-Security-Policy"), "sandbox") {
			t.Errorf("%d %q %v", w.Code, w.Body, w.Header())
		}
	}
	for _, digest := range []string{other, strings.ToUpper(log), log[:63]} {
		if w := l.call(t, operator, "GET", base+"/blobs/"+digest, ""); w.Code != 404 {
			t.Errorf("blob %s: %d", digest, w.Code)
		}
	}
	if w := l.call(t, operator, "GET", base+"/diff", ""); w.Code != 200 || w.Body.String() != "--- a\n+++ b\n" {
		t.Errorf("%d %q", w.Code, w.Body)
	}
	v := decodeInto[Verification](t, l.call(t, operator, "GET", base+"/verification", ""))
	if string(v.Verdict) != doc || v.Seq != 4 || v.Root != events[3].Hash {
		t.Errorf("%+v", v)
	}
	if w := l.call(t, operator, "GET", base, ""); w.Code != 200 {
		t.Errorf("%d", w.Code)
	}
}

// TestUnreadable_WEB06: every address of a task that somebody may not read answers like one of a task
// that is not there, whatever they ask for; a token reaches no further than its repositories
// .
func TestUnreadable_WEB06(t *testing.T) {
	l := newLab(t)
	diff := event.Text{Inline: "d", Bytes: 1}
	there := l.record(t, 1, "https://hub/secret/x", "ann", event.WorkspaceSaved{Diff: diff}, event.ToolFinished{Result: event.Text{Blob: strings.Repeat("a", 64)}})
	missing := storetest.ID(2)
	tried := 0
	for _, v := range []access.Viewer{person("writer"), person("stranger"), ci, {}} {
		for _, r := range l.Routes() {
			method, path, _ := strings.Cut(r.Pattern, " ")
			if !strings.Contains(path, "{id}") {
				continue
			}
			for _, headers := range [][]string{nil, {"Accept", "text/event-stream"}} {
				tried++
				ask := func(id task.ID) (int, string) {
					p := strings.NewReplacer("{id}", string(id), "{digest}", strings.Repeat("a", 64)).Replace(path)
					w := l.call(t, v, method, p, map[string]string{"POST": `{"text": "x"}`}[method], headers...)
					return w.Code, w.Body.String()
				}
				code, body := ask(there)
				code2, body2 := ask(missing)
				if code != http.StatusNotFound || code != code2 || body != body2 {
					t.Errorf("%s as %q: %d %s; for what is not there %d %s", r.Pattern, v.Name, code, body, code2, body2)
				}
			}
		}
	}
	if tried < 80 || len(l.desk.said) > 0 {
		t.Errorf("%d addresses were tried; said %q", tried, l.desk.said)
	}
}

// follow opens a stream and returns its lines.
func follow(t *testing.T, url, last string) (*bufio.Scanner, *http.Response, context.CancelFunc) {
	t.Helper()
	ctx, cut := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close(); cut() })
	return bufio.NewScanner(res.Body), res, cut
}

// nextEvent reads up to the next event of a stream; ok is false at its end.
func nextEvent(in *bufio.Scanner) (id string, data string, ok bool) {
	for in.Scan() {
		line := in.Text()
		if v, is := strings.CutPrefix(line, "id: "); is {
			id = v
		}
		if v, is := strings.CutPrefix(line, "data: "); is {
			data = v
		}
		if line == "" && data != "" {
			return id, data, true
		}
	}
	return "", "", false
}

// TestStream: a log is followed while it grows, through a cut, under another lease, in order.
func TestStream(t *testing.T) {
	l := newLab(t)
	id := l.record(t, 1, "https://hub/open/x", "ann", event.Noticed{What: "a"})
	srv := httptest.NewServer(l.as(person("reader")))
	t.Cleanup(srv.Close)
	url := srv.URL + "/api/tasks/" + string(id) + "/events"
	seq, last := int64(0), ""
	for round := range 3 {
		in, res, cut := follow(t, url, last)
		if res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("%d %v", res.StatusCode, res.Header)
		}
		lease := storetest.Lease(t, l.st, id)
		if _, err := l.st.Append(t.Context(), lease, storetest.Draft(t, event.Noticed{What: "b"}), storetest.Draft(t, event.Noticed{What: "c"})); err != nil {
			t.Fatal(err)
		}
		if err := l.st.Release(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		for until := int64(2 + 2*(round+1)); seq < until; {
			got, data, ok := nextEvent(in)
			var e event.Event
			if err := json.Unmarshal([]byte(data), &e); !ok || err != nil || e.Seq != seq+1 || got != strconv.FormatInt(e.Seq, 10) {
				t.Fatalf("after %d comes %q %s", seq, got, data)
			}
			seq, last = e.Seq, got
		}
		cut()
	}
	if _, res, _ := follow(t, url, "999"); res.StatusCode != 422 {
		t.Errorf("a position beyond the end: %d", res.StatusCode)
	}
}

// TestStreamsEnd_WEB06: a stream ends when the permission does, and when the server stops.
func TestStreamsEnd_WEB06(t *testing.T) {
	l := newLab(t)
	id := l.record(t, 1, "https://hub/open/x", "ann", event.Noticed{What: "a"})
	srv := httptest.NewServer(l.as(person("reader")))
	t.Cleanup(srv.Close)
	url := srv.URL + "/api/tasks/" + string(id) + "/events"
	in, _, _ := follow(t, url, "")
	for range 2 {
		if _, _, ok := nextEvent(in); !ok {
			t.Fatal("the stream ended")
		}
	}
	l.hub.mu.Lock()
	l.hub.gone = true
	l.hub.mu.Unlock()
	l.pass(time.Minute)
	lease := storetest.Lease(t, l.st, id)
	if _, err := l.st.Append(t.Context(), lease, storetest.Draft(t, event.Noticed{What: "secret"})); err != nil {
		t.Fatal(err)
	}
	if _, data, ok := nextEvent(in); ok && strings.Contains(data, "secret") {
		t.Logf("one batch that was on its way: %s", data)
		if _, data, ok := nextEvent(in); ok {
			t.Errorf("the stream goes on: %s", data)
		}
	}
	l.hub.mu.Lock()
	l.hub.gone = false
	l.hub.mu.Unlock()
	l.pass(time.Minute)
	in, _, _ = follow(t, url, "3")
	go l.live.Close()
	if _, data, ok := nextEvent(in); ok {
		t.Errorf("after the server stopped: %s", data)
	}
}

// TestStreamCaps_WEB10: one viewer cannot open streams without end, nor can all.
func TestStreamCaps_WEB10(t *testing.T) {
	l := newLab(t)
	id := l.record(t, 1, "https://hub/open/x", "ann", event.Noticed{What: "a"})
	open := func(v access.Viewer, path string) int {
		srv := httptest.NewServer(l.as(v))
		t.Cleanup(srv.Close)
		in, res, _ := follow(t, srv.URL+path, "")
		if res.StatusCode == 200 {
			in.Scan() // it has begun
		}
		return res.StatusCode
	}
	log := "/api/tasks/" + string(id) + "/events"
	for i, tt := range []struct {
		v    access.Viewer
		path string
		code int
	}{
		{person("reader"), log, 200}, {person("reader"), "/api/tasks", 200}, {person("reader"), log, 503}, {person("writer"), log, 200}, {operator, log, 200}, {ci, log, 503},
	} {
		if code := open(tt.v, tt.path); code != tt.code {
			t.Errorf("stream %d, of %s: %d, want %d", i+1, tt.v.Name, code, tt.code)
		}
	}
}

// TestListStream: the list is followed by who may read it.
func TestListStream(t *testing.T) {
	l := newLab(t)
	srv := httptest.NewServer(l.as(person("reader")))
	t.Cleanup(srv.Close)
	in, _, _ := follow(t, srv.URL+"/api/tasks?state=queued", "")
	in.Scan()
	l.record(t, 1, "https://hub/secret/x", "ann")
	l.record(t, 2, "https://hub/open/x", "ann", event.StateChanged{From: task.Queued, To: task.Failed})
	want := l.record(t, 3, "https://hub/open/x", "ann")
	for {
		_, data, ok := nextEvent(in)
		var r Row
		if err := json.Unmarshal([]byte(data), &r); !ok || err != nil || r.State != task.Queued || r.Repo != "https://hub/open/x" {
			t.Fatalf("%s %v", data, err)
		}
		if r.Task == want {
			return
		}
	}
}
