package web

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/access"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/story"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/web/render"
)

// textLines is how many lines of a whole text are on one page.
const textLines = 2000

// textView is one page of a whole text.
type textView struct {
	ID         task.ID
	Title      string
	What       string
	Body       render.HTML
	From, To   int // lines, from 1
	Lines      int
	Bytes      int
	Prev, Next string
	Raw        string
}

// text shows the whole text of one record.
func (s *Site) text(w http.ResponseWriter, r *http.Request) error {
	t, err := s.open(r, access.Read)
	if err != nil {
		return err
	}
	seq, err := strconv.ParseInt(r.PathValue("seq"), 10, 64)
	if err != nil || seq < 1 {
		return access.Gone()
	}
	events, err := s.cfg.Source.Events(r.Context(), t.ID, seq-1, 1)
	if err != nil {
		return err
	}
	if len(events) != 1 || events[0].Seq != seq {
		return access.Gone()
	}
	p, err := event.Decode(events[0])
	if err != nil {
		return err
	}
	what, text := wholeText(p, r.URL.Query().Get("of"))
	if what == "" {
		return access.Gone()
	}
	body, err := s.shelf.load(r.Context(), text)
	if err != nil {
		return err
	}
	if m, ok := p.(*event.ModelResponded); ok && m != nil {
		said, thinking := story.Said(body)
		body = strings.TrimSpace(thinking + "\n\n" + said)
	}
	return s.whole(w, r, t.Title, what, body)
}

// wholeText is the text that an event is about.
func wholeText(p event.Payload, of string) (what string, t event.Text) {
	switch p := p.(type) {
	case *event.TaskCreated:
		if of == "raw" {
			return "issue as it arrived", p.IssueRaw
		}
		return "issue as the model saw it", p.Issue
	case *event.ToolStarted:
		return "arguments of " + p.Name, p.Args
	case *event.ToolFinished:
		return "result of " + p.Name, p.Result
	case *event.ModelResponded:
		return "what the model said", p.Message
	case *event.VerificationFinished:
		return "verdict", p.Document
	case *event.BaselineFinished:
		return "baseline", p.Document
	}
	if l := story.Say(p); l.Body.Bytes > 0 {
		return l.What, l.Body
	}
	return "", event.Text{}
}

// log shows the output of a command of the verification or of the baseline.
func (s *Site) log(w http.ResponseWriter, r *http.Request) error {
	t, err := s.open(r, access.Read)
	if err != nil {
		return err
	}
	digest := r.PathValue("digest")
	named := false
	err = s.shelf.with(r.Context(), t.ID, 0, func(b *book) error {
		v, err := s.view(r, t, b)
		if err == nil && v.Docs.verdict != nil {
			for _, p := range v.Docs.verdict.Phases {
				for _, run := range p.Runs {
					named = named || run.Log == digest && digest != ""
				}
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	if !named && !s.named(r.Context(), t.ID, digest) {
		return access.Gone()
	}
	body, err := s.cfg.Source.Blob(r.Context(), digest)
	if err != nil {
		return err
	}
	return s.whole(w, r, t.Title, "output of a run", string(body))
}

// named reports whether a verdict of the task, an earlier one as well, names the output of a run.
func (s *Site) named(ctx context.Context, id task.ID, digest string) bool {
	var docs []event.Text
	err := s.shelf.with(ctx, id, 0, func(b *book) error {
		for _, it := range b.story.Items {
			if it.Moment != nil {
				if p, ok := it.Moment.Payload.(*event.VerificationFinished); ok {
					docs = append(docs, p.Document)
				}
			}
		}
		return nil
	})
	for _, d := range docs {
		var v task.Verdict
		text, lerr := s.shelf.load(ctx, d)
		if err != nil || lerr != nil || json.Unmarshal([]byte(text), &v) != nil {
			continue
		}
		for _, p := range v.Phases {
			if slices.ContainsFunc(p.Runs, func(r task.RunRecord) bool { return r.Log == digest && digest != "" }) {
				return true
			}
		}
	}
	return false
}

// whole answers with a page of a text, or with its bytes as an attachment that acts nowhere.
func (s *Site) whole(w http.ResponseWriter, r *http.Request, title, what, body string) error {
	if r.URL.Query().Get("raw") != "" {
		access.Artifact(w.Header(), "daybreak.txt")
		_, _ = w.Write([]byte(body))
		return nil
	}
	all := strings.SplitAfter(body, "\n")
	if n := len(all); n > 1 && all[n-1] == "" {
		all = all[:n-1]
	}
	from, err := strconv.Atoi(r.URL.Query().Get("from"))
	if err != nil || from < 1 || from > len(all) {
		from = 1
	}
	to := min(from+textLines-1, len(all))
	v := textView{ID: task.ID(r.PathValue("id")), Title: title, What: what, From: from, To: to, Lines: len(all), Bytes: len(body)}
	v.Body = render.Terminal(strings.Join(all[from-1:to], ""))
	q := r.URL.Query()
	link := func(key, value string) string {
		q.Del("from")
		q.Del("raw")
		q.Set(key, value)
		return r.URL.Path + "?" + q.Encode()
	}
	if from > 1 {
		v.Prev = link("from", strconv.Itoa(max(1, from-textLines)))
	}
	if to < len(all) {
		v.Next = link("from", strconv.Itoa(to+1))
	}
	v.Raw = link("raw", "1")
	s.write(w, r, http.StatusOK, textPage(s.head(r, what, "tasks"), v))
	return nil
}

// diff shows one file of the change, as much as a page holds.
func (s *Site) diff(w http.ResponseWriter, r *http.Request) error {
	t, err := s.open(r, access.Read)
	if err != nil {
		return err
	}
	i, err := strconv.Atoi(r.URL.Query().Get("file"))
	if err != nil {
		return access.Gone()
	}
	var f render.File
	err = s.shelf.with(r.Context(), t.ID, 0, func(b *book) error {
		v, err := s.view(r, t, b)
		if err != nil {
			return err
		}
		if i < 0 || i >= len(v.Docs.files) {
			return access.Gone()
		}
		f = v.Docs.files[i]
		return nil
	})
	if err != nil {
		return err
	}
	body, left := s.marks.Hunks(f, fileWhole)
	s.write(w, r, http.StatusOK, diffPage(s.head(r, f.Name(), "tasks"), t.ID, t.Title, f, i, body, left))
	return nil
}
