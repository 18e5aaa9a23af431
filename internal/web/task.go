package web

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"

	"github.com/daybreak-agent/daybreak/internal/access"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/policy"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/story"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/web/render"
)

// window is how many rows of the story a page holds; older ones come on demand.
const window = 60

// may is what a viewer may do with a task.
type may struct{ Steer, Approve, Create bool }

// docs are the documents that the story names, read and parsed once.
type docs struct {
	verdictSeq int64
	verdict    *task.Verdict
	green      string // output of the first green run, when the verdict does not quote it
	diffSeq    int64
	files      []render.File
	diffErr    string
	hidden     []policy.Hidden
	hiddenRead bool
	issue      string
	bodyOf     string // head of the pull request whose text body is
	body       string
}

// taskView is one task as one viewer sees it.
type taskView struct {
	ID      task.ID
	Row     store.Task
	Story   *story.Story
	Docs    docs
	May     may
	Now     time.Time
	Signed  *signedView
	Said    string // what came of the viewer's last word
	Rows    []stepRow
	Earlier int   // rows that are not shown
	Before  int64 // they are before this record
	Window  bool  // not the newest rows
}

// Sum is the fold of the log.
func (v *taskView) Sum() *event.Summary { return &v.Story.Sum }

func (s *Site) task(w http.ResponseWriter, r *http.Request) error {
	t, err := s.open(r, access.Read)
	if err != nil {
		return err
	}
	before, _ := strconv.ParseInt(r.URL.Query().Get("before"), 10, 64)
	var page strings.Builder
	err = s.shelf.with(r.Context(), t.ID, 0, func(b *book) error {
		v, err := s.view(r, t, b)
		if err != nil {
			return err
		}
		v.cut(before)
		v.Said = said(r.URL.Query().Get("said"))
		h := s.head(r, v.Sum().Created.IssueTitle, "tasks")
		if !v.Window && !s.book.Has(t.ID) {
			h.Live = "/tasks/" + string(t.ID) + "/live?after=" + strconv.FormatInt(v.Sum().LastSeq, 10)
		}
		return s.taskPage(h, v, b).Render(r.Context(), &page)
	})
	if err != nil {
		return err
	}
	s.send(w, r, http.StatusOK, "text/html; charset=utf-8", []byte(page.String()))
	return nil
}

// view is what the page of a task is made of. It holds the story, so it is good while b is.
func (s *Site) view(r *http.Request, t store.Task, b *book) (*taskView, error) {
	if b.story.Sum.LastSeq == 0 {
		return nil, access.Gone()
	}
	v := &taskView{ID: t.ID, Row: t, Story: b.story, Now: s.cfg.Now(), Signed: s.signed(t.ID, b.story.Sum.Signed)}
	switch {
	case s.book.Has(t.ID): // the forms are shown; they lead nowhere
		v.May = may{true, true, true}
	case s.cfg.Desk != nil:
		ctx, who := r.Context(), viewer(r)
		v.May.Steer = s.cfg.Gate.MayAct(ctx, who, t.Repo, access.Steer) == nil
		v.May.Approve = s.cfg.Gate.MayAct(ctx, who, t.Repo, access.Approve) == nil
		v.May.Create = s.cfg.Gate.MayAct(ctx, who, t.Repo, access.Create) == nil
	}
	s.read(r.Context(), b)
	v.Docs = b.docs
	return v, nil
}

// read loads the documents that the story names now. One that cannot be read leaves its place
// empty: the rest of the page is still true.
func (s *Site) read(ctx context.Context, b *book) {
	sum, d := &b.story.Sum, &b.docs
	if v := sum.Verification; v == nil {
		d.verdict, d.verdictSeq, d.green = nil, 0, ""
	} else if d.verdictSeq != sum.VerifiedSeq {
		d.verdict, d.verdictSeq, d.green = nil, sum.VerifiedSeq, ""
		if text, err := s.shelf.load(ctx, v.Document); err == nil {
			var doc task.Verdict
			if json.Unmarshal([]byte(text), &doc) == nil {
				d.verdict = &doc
				d.green = s.green(ctx, &doc)
			}
		}
	}
	if seq, text := change(sum); seq != d.diffSeq {
		d.diffSeq, d.files, d.diffErr = seq, nil, ""
		if diff, err := s.shelf.load(ctx, text); err != nil {
			d.diffErr = "the change is in the record, but its text cannot be read now"
		} else {
			d.files = render.ParseDiff(diff)
		}
	}
	if pr := sum.PullRequest; pr != nil && d.bodyOf != pr.Head {
		d.bodyOf = pr.Head
		d.body, _ = s.shelf.load(ctx, pr.Body)
	}
	if !d.hiddenRead {
		d.hiddenRead = true
		d.issue, _ = s.shelf.load(ctx, sum.Created.Issue)
		if rawIssue, err := s.shelf.load(ctx, sum.Created.IssueRaw); err == nil {
			_, _, d.hidden, _ = policy.NormaliseIssue([]byte(rawIssue), 0)
		}
	}
}

// change is the newest form of what the task changed, and a number that tells it from others.
func change(sum *event.Summary) (seq int64, text event.Text) {
	switch {
	case sum.Exported != nil:
		return int64(sum.Exported.Diff.Bytes)<<20 ^ sumOf(sum.Exported.Tree), sum.Exported.Diff
	case sum.Workspace != nil:
		return int64(sum.Workspace.Diff.Bytes)<<20 ^ int64(sum.Workspace.Step) ^ 1, sum.Workspace.Diff
	}
	return 0, event.Text{}
}

func sumOf(s string) int64 {
	var n int64
	for _, c := range []byte(s) {
		n = n*31 + int64(c)
	}
	return n
}

// maxOutput is how much of a run's output the evidence quotes.
const maxOutput = 8 << 10

// green is what the first run with the fix wrote.
func (s *Site) green(ctx context.Context, v *task.Verdict) string {
	for _, p := range v.Phases {
		for _, r := range p.Runs {
			if p.Phase != "P4" || r.Log == "" || r.Built() {
				continue
			}
			b, err := s.cfg.Source.Blob(ctx, r.Log)
			if err != nil {
				return ""
			}
			return string(b[:min(len(b), maxOutput)])
		}
	}
	return ""
}

// stepRow is one row of the story: a step, a moment, or moments of interest to few in one.
type stepRow struct {
	Seq, Last int64
	Item      *story.Item
	Group     []*story.Item
}

// rows groups neighbouring minor moments. The same items give the same rows, so that a row that
// grew replaces the one that was there.
func rows(items []*story.Item) []stepRow {
	var out []stepRow
	for _, it := range items {
		minor := it.Moment != nil && it.Moment.Line.Tone == story.Minor
		if n := len(out); minor && n > 0 && out[n-1].Group != nil {
			out[n-1].Group = append(out[n-1].Group, it)
			out[n-1].Last = it.Last
			continue
		}
		row := stepRow{Seq: it.Seq, Last: it.Last, Item: it}
		if minor {
			row.Item, row.Group = nil, []*story.Item{it}
		}
		out = append(out, row)
	}
	return out
}

// cut keeps the newest rows, or those before a record.
func (v *taskView) cut(before int64) {
	all := rows(v.Story.Items)
	end := len(all)
	if before > 0 {
		for end > 0 && all[end-1].Seq >= before {
			end--
		}
		v.Window = end < len(all)
	}
	from := max(0, end-window)
	v.Rows, v.Earlier = all[from:end], from
	if from > 0 && from < len(all) {
		v.Before = all[from].Seq
	}
}

// steps answers with rows of the story before a record, for a page that has the later ones.
func (s *Site) steps(w http.ResponseWriter, r *http.Request) error {
	t, err := s.open(r, access.Read)
	if err != nil {
		return err
	}
	before, err := strconv.ParseInt(r.URL.Query().Get("before"), 10, 64)
	if err != nil || before < 1 {
		return &task.Error{Class: task.Invalid, Msg: "before is the number of a record"}
	}
	var part strings.Builder
	err = s.shelf.with(r.Context(), t.ID, 0, func(b *book) error {
		v, err := s.view(r, t, b)
		if err != nil {
			return err
		}
		v.cut(before)
		return s.rowsOf(v, v.Rows, true).Render(r.Context(), &part)
	})
	if err != nil {
		return err
	}
	s.send(w, r, http.StatusOK, "text/html; charset=utf-8", []byte(part.String()))
	return nil
}

// taskPage is the whole page. Pieces that are the same for all viewers are rendered once.
func (s *Site) taskPage(h head, v *taskView, b *book) templ.Component {
	return taskPage(h, v, s.regions(v, b), s.rowsOf(v, v.Rows, true))
}

// regions are the pieces above the steps, by their element's id.
func (s *Site) regions(v *taskView, b *book) regions {
	piece := func(name string, c func() templ.Component) templ.Component {
		return templ.ComponentFunc(func(ctx context.Context, w ioWriter) error {
			html, err := b.piece(name, func() (string, error) {
				var out strings.Builder
				err := c().Render(ctx, &out)
				return out.String(), err
			})
			if err != nil {
				return err
			}
			_, err = w.Write([]byte(html))
			return err
		})
	}
	return regions{
		Status:   piece("status", func() templ.Component { return statusRegion(v) }),
		Verdict:  piece("verdict", func() templ.Component { return verdictRegion(v) }),
		Time:     piece("time", func() templ.Component { return timeRegion(v) }),
		Evidence: piece("evidence", func() templ.Component { return evidenceRegion(v) }),
		Change:   piece("change", func() templ.Component { return s.changeRegion(v) }),
		Findings: piece("findings", func() templ.Component { return findingsRegion(v) }),
		Proposal: piece("proposal", func() templ.Component { return s.proposalRegion(v, v.Docs.body) }),
		Budget:   piece("budget", func() templ.Component { return budgetRegion(v) }),
		Facts:    piece("facts", func() templ.Component { return factsRegion(v) }),
		Actions:  actionsRegion(v),
	}
}

// regions are the parts of a task's page that change while it runs.
type regions struct {
	Status, Verdict, Time, Evidence, Change, Findings, Proposal, Budget, Facts, Actions templ.Component
}
