package live

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/event"
)

func stream(h *Hub) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		after, err := Position(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s, err := h.Subscribe(r.Context(), Watcher{Name: r.RemoteAddr}, theTask, after)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		defer s.Close()
		out, err := NewSender(w)
		if err != nil {
			return
		}
		_ = Send(r.Context(), out, s.Next, func(out *Sender, e event.Event) error {
			out.Event(itoa(e.Seq), "", e.Payload)
			return nil
		})
	})
}

// TestResume: a viewer whose connection is cut again and again gets every event once.
func TestResume(t *testing.T) {
	m := newMemory()
	m.append(900, 20)
	h := newHub(t, m, 10, 10)
	srv := httptest.NewServer(stream(h))
	defer srv.Close()
	last := ""
	seen := 0
	for seen < 900 {
		ctx, cut := context.WithCancel(t.Context())
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL, nil)
		if last != "" {
			r.Header.Set("Last-Event-ID", last)
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("%d %v", res.StatusCode, res.Header)
		}
		in := bufio.NewScanner(res.Body)
		for n := 0; n < 101 && in.Scan(); {
			id, ok := strings.CutPrefix(in.Text(), "id: ")
			if !ok {
				continue
			}
			n++
			if seen++; id != itoa(int64(seen)) {
				t.Fatalf("event %s is the %dth", id, seen)
			}
			if last = id; seen == 900 {
				break
			}
		}
		cut()
		_ = res.Body.Close()
	}
	for _, bad := range []string{"x", "-1", "9999999", "1e3", "99999999999999999999"} {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL, nil)
		r.Header.Set("Last-Event-ID", bad)
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if _ = res.Body.Close(); res.StatusCode < 400 {
			t.Errorf("position %q: %d", bad, res.StatusCode)
		}
	}
}

// FuzzSender: whatever the data is, a reader of the format gets it back as it was, with its line
// ends normalised, and no second event.
func FuzzSender(f *testing.F) {
	f.Add("7", "a\r\nb\rid: 9\n\n\ndata: x\n: y")
	f.Fuzz(func(t *testing.T, id, data string) {
		if strings.ContainsAny(id, "\r\n\x00") || id == "" {
			return
		}
		w := httptest.NewRecorder()
		s := &Sender{w: w}
		s.Event(id, "", []byte(data))
		var got []string
		blocks := 0
		for line := range strings.SplitSeq(s.buf.String(), "\n") {
			switch {
			case line == "":
				blocks++
			case strings.HasPrefix(line, "data: "):
				got = append(got, line[len("data: "):])
			case line != "id: "+id:
				t.Fatalf("a line %q", line)
			}
		}
		want := strings.ReplaceAll(strings.ReplaceAll(data, "\r\n", "\n"), "\r", "\n")
		if strings.Join(got, "\n") != want || blocks != 2 {
			t.Fatalf("%q became %q in %d blocks", data, got, blocks)
		}
	})
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
