package web

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"

	"github.com/daybreak-agent/daybreak/internal/access"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/story"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// verificationView is a verdict with all that it rests on.
type verificationView struct {
	ID       task.ID
	Title    string
	Repo     string
	Attempt  int
	Attempts []attempt
	At       string
	Took     string
	Doc      *task.Verdict
	Problem  string
	Matrix   *matrixView
	Tests    []testRow // that the matrix does not have
	More     int       // tests that are not listed
	Root     string
	Seq      int64
	Signed   *signedView // of this verdict
}

type attempt struct {
	N    int
	Seq  int64
	Kind task.VerdictKind
}

// testRow is one test over all runs.
type testRow struct {
	Name       string
	Base, Head task.TestStatus
	Note       string
}

// maxTests is how many tests the table has; failing and changed ones come first.
const maxTests = 1000

// verification shows a verdict of the task, the newest unless the query names one.
func (s *Site) verification(w http.ResponseWriter, r *http.Request) error {
	t, err := s.open(r, access.Read)
	if err != nil {
		return err
	}
	v := verificationView{ID: t.ID, Title: t.Title, Repo: t.Repo}
	want, _ := strconv.ParseInt(r.URL.Query().Get("seq"), 10, 64)
	var found *event.VerificationFinished
	var base *event.BaselineFinished
	err = s.shelf.with(r.Context(), t.ID, 0, func(b *book) error {
		base = b.story.Sum.Baseline
		for _, it := range b.story.Items {
			if it.Moment == nil {
				continue
			}
			p, ok := it.Moment.Payload.(*event.VerificationFinished)
			if !ok {
				continue
			}
			v.Attempts = append(v.Attempts, attempt{p.Attempt, it.Seq, p.Kind})
			if want == 0 || want == it.Seq {
				found, v.Seq, v.Attempt = p, it.Seq, p.Attempt
				v.At, v.Took = it.At.UTC().Format("2 Jan 2006, 15:04:05 UTC"), story.Took(p.Millis)
			}
		}
		if b.story.Sum.VerifiedSeq == v.Seq {
			v.Root = b.story.Sum.VerifiedHash
		}
		if e := b.story.Sum.Signed; e != nil && e.Verification == v.Seq {
			v.Signed = s.signed(t.ID, e)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if found == nil {
		return access.Gone()
	}
	text, err := s.shelf.load(r.Context(), found.Document)
	if err != nil {
		return err
	}
	v.Doc = &task.Verdict{}
	if err := json.Unmarshal([]byte(text), v.Doc); err != nil {
		v.Doc, v.Problem = &task.Verdict{Kind: found.Kind, Reason: found.Reason}, "the document of this verdict cannot be read"
	}
	ledger := ""
	if base != nil {
		ledger, _ = s.shelf.load(r.Context(), base.Document) // without it the table has fewer rows
	}
	v.Matrix = matrixOf(v.Doc.Table)
	v.tests(ledger)
	s.write(w, r, http.StatusOK, verificationPage(s.head(r, "Verification", "tasks"), v))
	return nil
}

// tests lists the declared tests, those that changed, and the rest of the baseline.
func (v *verificationView) tests(ledger string) {
	var b struct {
		Tests map[string]task.TestStatus `json:"tests"`
	}
	_ = json.Unmarshal([]byte(ledger), &b) // an unreadable one lists nothing
	seen := map[string]bool{}
	add := func(r testRow) {
		if !seen[r.Name] && !v.Matrix.named(r.Name) {
			seen[r.Name] = true
			v.Tests = append(v.Tests, r)
		}
	}
	for _, r := range v.Doc.Reproduction {
		add(testRow{r.Test, r.Base, r.Head, "shows the bug"})
	}
	for _, name := range v.Doc.Suite.NewlyFailing {
		add(testRow{name, b.Tests[name], task.Fail, "newly failing"})
	}
	for _, name := range v.Doc.Suite.Lost {
		add(testRow{name, b.Tests[name], task.Missing, "lost"})
	}
	for _, name := range v.Doc.Suite.Flaky {
		add(testRow{name, b.Tests[name], task.Flaky, "runs disagree"})
	}
	rest := make([]string, 0, len(b.Tests))
	for name := range b.Tests {
		rest = append(rest, name)
	}
	slices.Sort(rest)
	slices.SortStableFunc(rest, func(a, c string) int { return rank(b.Tests[a]) - rank(b.Tests[c]) })
	ran := v.Doc.Suite.Command != ""
	for _, name := range rest {
		if len(v.Tests) >= maxTests {
			v.More++
			continue
		}
		r := testRow{Name: name, Base: b.Tests[name]}
		if ran { // what is not named as changed came out as on the base
			r.Head = r.Base
		}
		add(r)
	}
}

// rank puts tests that do not pass first.
func rank(s task.TestStatus) int {
	switch s {
	case task.Pass:
		return 2
	case task.Skip, task.XFail:
		return 1
	}
	return 0
}
