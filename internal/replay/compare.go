package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/daybreak-agent/daybreak/internal/agent"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/model"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/tool"
)

// comparison holds one attempt of the record beside its replay.
type comparison struct {
	cfg    Config
	log    *record
	a      attempt
	st     *overlay
	rep    *Report
	norm   *normaliser
	cancel context.CancelCauseFunc
	conv   *agent.Conversation // fold of the record up to folded
	folded int

	mu      sync.Mutex
	expect  []int         // indices of events that the replay has to bring about, in order
	request int           // index of the request under way; -1: none
	over    bool          // nothing more is compared
	ends    bool          // the record's run came to an end of its own
	failure error         // of the replay's own
	guest   *guest.Client // of the newest call
}

func newComparison(ctx context.Context, cfg Config, log *record, a attempt, st *overlay, rep *Report, cancel context.CancelCauseFunc) (*comparison, error) {
	c := &comparison{
		cfg: cfg, log: log, a: a, st: st, rep: rep, norm: &normaliser{Rules(), rep.Normalised}, cancel: cancel,
		conv: agent.NewConversation(), request: -1,
	}
	for i := a.from; i < a.to && !c.ends; i++ {
		e := log.all[i]
		if s, ok := e.p.(*event.StateChanged); ok && (s.To.Done() || endsWork(s)) {
			c.ends = true
		}
		if compared(e.p) && !log.given(i) {
			c.expect = append(c.expect, i)
		}
		if _, stopped := e.p.(*event.StopRequested); stopped {
			break // a person's stop falls where it falls
		}
	}
	return c, c.deliver(ctx, a.from)
}

func endsWork(s *event.StateChanged) bool { return s.To == "publishing" }

// compared reports whether the replay has to bring the event about.
func compared(p event.Payload) bool {
	switch p := p.(type) {
	case *event.BaselineFinished, *event.PromptFrozen, *event.ModelRequested, *event.ModelFailed, *event.ToolStarted, *event.ToolFinished,
		*event.Compacted, *event.WorkspaceSaved, *event.ReproductionChecked, *event.Submitted, *event.Exported, *event.VerificationFinished,
		*event.Declined, *event.StateChanged, *event.PolicyFound, *event.QuestionAsked,
		*event.AttemptStarted, *event.AttemptFinished, *event.AttemptJudged, *event.AttemptChosen:
		return true
	case *event.Noticed:
		return p.Meter != "wall"
	}
	return false
}

// observe compares what the replay recorded with what is next in the record.
func (c *comparison) observe(e event.Event, p event.Payload) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || !compared(p) {
		return
	}
	now := entry{e.Seq, e, p, 0}
	if len(c.expect) == 0 {
		if c.ends {
			c.divergeLocked(Divergence{Kind: Course, What: "the record ends, the replay goes on with " + now.name()})
			return
		}
		c.endLocked(errCut)
		return
	}
	i := c.expect[0]
	want := c.log.all[i]
	if want.e.Kind != e.Kind {
		if w, ok := p.(*event.WorkspaceSaved); ok && w.Why == "paused" {
			return // something failed, and the run's end says what
		}
		c.divergeLocked(Divergence{Kind: Course, Seq: want.seq, Step: want.step, What: fmt.Sprintf("recorded is %s, the replay has %s", want.name(), now.name())})
		return
	}
	c.expect = c.expect[1:]
	if d, ok := c.differs(want, p); ok {
		d.Seq, d.Step = want.seq, want.step
		if d.Kind == Prompt && c.cfg.IgnorePrompt {
			c.rep.Notes = append(c.rep.Notes, "the prompt is another one than the recorded; it was passed over")
		} else {
			c.divergeLocked(d)
			return
		}
	}
	c.count(i, p)
	if len(c.expect) == 0 && c.ends {
		c.endLocked(errCut)
	}
}

// count keeps what was equal, and where the replay stands.
func (c *comparison) count(i int, p event.Payload) {
	switch p := p.(type) {
	case *event.ModelRequested:
		c.request = i
	case *event.ToolFinished:
		c.rep.Calls++
	case *event.ReproductionChecked, *event.VerificationFinished:
		c.rep.Verdicts++
	case *event.Exported:
		c.rep.Tree = p.Tree
	}
}

// differs compares two payloads of one kind.
func (c *comparison) differs(want entry, now event.Payload) (Divergence, bool) {
	var d Divergence
	var err error
	switch w := want.p.(type) {
	case *event.PromptFrozen:
		d, err = c.prompt(w, now.(*event.PromptFrozen))
	case *event.ModelRequested:
		n := now.(*event.ModelRequested)
		if w.Step == n.Step && w.Messages == n.Messages && (w.MaxOutput == n.MaxOutput || !c.cfg.Info.Priced) {
			return d, false
		}
		d = plain(Request, "the request differs", w, n)
	case *event.ModelFailed:
		if n := now.(*event.ModelFailed); w.Step != n.Step || w.Class != n.Class {
			d = plain(Course, "a model call failed otherwise", w, n)
		}
	case *event.ToolStarted:
		if n := now.(*event.ToolStarted); w.Name != n.Name || w.Step != n.Step {
			d = plain(Course, "another tool is called", w, n)
		}
	case *event.ToolFinished:
		d, err = c.result(w, now.(*event.ToolFinished))
		d.Call, d.Tool = w.Call, w.Name
	case *event.WorkspaceSaved:
		if n := now.(*event.WorkspaceSaved); w.Why != n.Why {
			d = plain(Course, "the change was kept for another reason", w.Why, n.Why)
		} else if d, err = c.text(Change, "the agent's change differs", w.Change, n.Change); d.Kind != "" && err == nil {
			diff, derr := c.text(Change, d.What, w.Diff, n.Diff)
			if err = derr; diff.Kind != "" {
				d = diff
			}
		}
	case *event.Exported:
		if n := now.(*event.Exported); w.Tree != n.Tree || !slices.Equal(w.Paths, n.Paths) {
			d = plain(Change, "the final tree differs", []any{w.Tree, w.Paths}, []any{n.Tree, n.Paths})
		}
	case *event.ReproductionChecked:
		n := now.(*event.ReproductionChecked)
		if w.Kind != n.Kind {
			d = Divergence{Kind: Verdict, What: fmt.Sprintf("the reproduction is judged otherwise: recorded %s, now %s", w.Kind, n.Kind)}
		} else {
			d, err = c.text(Verdict, "the reproduction's account differs", w.Detail, n.Detail)
		}
	case *event.VerificationFinished:
		d, err = c.verdict(w, now.(*event.VerificationFinished))
	case *event.BaselineFinished:
		n := now.(*event.BaselineFinished)
		d = plain(Baseline, "the suite on the base commit differs: "+n.Problem,
			[]any{w.Runner, w.Command, w.Passed, w.Failed, w.Skipped, w.Flaky, w.Problem != ""},
			[]any{n.Runner, n.Command, n.Passed, n.Failed, n.Skipped, n.Flaky, n.Problem != ""})
	case *event.Compacted:
		if n := now.(*event.Compacted); w.Step != n.Step || w.Dropped != n.Dropped {
			d = plain(Request, "the conversation was shortened otherwise", w, n)
		}
	case *event.StateChanged:
		if n := now.(*event.StateChanged); w.From != n.From || w.To != n.To {
			d = plain(Course, "the task goes another way", w, n)
		} else {
			d = c.line(Course, "the task's state has another reason", w.Reason, n.Reason)
		}
	case *event.Noticed:
		n := now.(*event.Noticed)
		d = c.line(Course, "the notice differs", w.What+": "+w.Text, n.What+": "+n.Text)
	case *event.AttemptJudged:
		n := now.(*event.AttemptJudged)
		if d = c.line(Verdict, "an attempt is judged otherwise", w.Reason, n.Reason); w.Source != n.Source || w.Tests != n.Tests || w.Passed != n.Passed {
			d = plain(Verdict, "an attempt is judged otherwise", []any{w.Source, w.Tests, w.Passed}, []any{n.Source, n.Tests, n.Passed})
		}
	case *event.QuestionAsked:
		d = c.line(Course, "another question is asked", w.Question, now.(*event.QuestionAsked).Question)
	default:
		d = plain(Course, "what was recorded differs", want.p, now)
	}
	if err != nil {
		return Divergence{Kind: Failed, What: "a recorded text cannot be read: " + err.Error()}, true
	}
	return d, d.Kind != ""
}

// prompt compares the prompts byte for byte: what is sent again with every request must not differ
// at all.
func (c *comparison) prompt(w, n *event.PromptFrozen) (Divergence, error) {
	a, err := c.log.load(context.Background(), w.Prefix)
	if err != nil {
		return Divergence{}, err
	}
	b, err := c.own().load(context.Background(), n.Prefix)
	if err != nil || a == b && w.Hash == n.Hash {
		return Divergence{}, err
	}
	lines := strings.NewReplacer(`\n`, "\n", `},{`, "},\n{")
	return Divergence{Kind: Prompt, What: "the prompt differs", Diff: shortDiff(lines.Replace(a), lines.Replace(b))}, nil
}

// result compares what came back from a tool.
func (c *comparison) result(w, n *event.ToolFinished) (Divergence, error) {
	switch {
	case w.Name != n.Name:
		return plain(Course, "another tool answers", w.Name, n.Name), nil
	case w.IsError != n.IsError:
		d, err := c.text(Result, "", w.Result, n.Result)
		d.Kind, d.What = Result, fmt.Sprintf("the result of %s is an error in only one of the two (recorded: %t)", w.Name, w.IsError)
		return d, err
	case !reflect.DeepEqual(w.ExitCode, n.ExitCode):
		d, err := c.text(Result, "", w.Result, n.Result)
		d.Kind, d.What = Result, fmt.Sprintf("the exit code of %s differs: recorded %s, now %s", w.Name, code(w.ExitCode), code(n.ExitCode))
		return d, err
	}
	return c.text(Result, "the result of "+w.Name+" differs", w.Result, n.Result)
}

func code(c *int) string {
	if c == nil {
		return "none"
	}
	return fmt.Sprint(*c)
}

// own is the replay's own record.
func (c *comparison) own() *record { return &record{blob: c.st.Blob} }

// text compares two recorded texts.
func (c *comparison) text(kind Kind, what string, recorded, now event.Text) (Divergence, error) {
	a, err := c.log.load(context.Background(), recorded)
	if err != nil {
		return Divergence{}, err
	}
	b, err := c.own().load(context.Background(), now)
	if err != nil {
		return Divergence{}, err
	}
	return c.line(kind, what, a, b), nil
}

func (c *comparison) line(kind Kind, what, recorded, now string) Divergence {
	diff, ok := c.norm.equal(recorded, now)
	if ok {
		return Divergence{}
	}
	return Divergence{Kind: kind, What: what, Diff: diff}
}

// plain compares two values of ours by their JSON.
func plain(kind Kind, what string, recorded, now any) Divergence {
	a, _ := json.Marshal(recorded)
	b, _ := json.Marshal(now)
	if string(a) == string(b) {
		return Divergence{}
	}
	return Divergence{Kind: kind, What: what, Diff: shortDiff(string(a), string(b))}
}

func (c *comparison) next() (entry, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.expect) == 0 || c.over {
		return entry{}, false
	}
	return c.log.all[c.expect[0]], true
}

func (c *comparison) diverge(d Divergence) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.divergeLocked(d)
}

func (c *comparison) divergeLocked(d Divergence) {
	if c.over {
		return
	}
	c.rep.Divergence = &d
	c.endLocked(errDiverged)
}

func (c *comparison) end(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endLocked(cause)
}

func (c *comparison) endLocked(cause error) {
	c.over = true
	c.cancel(cause)
}

func (c *comparison) fail(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failure = errors.Join(c.failure, err)
	c.endLocked(err)
	return err
}

// stopsBefore reports whether the event comes after the one that the replay is to stop at.
func (c *comparison) stopsBefore(seq int64) bool { return c.cfg.To > 0 && seq > c.cfg.To }

// callsAfter reports whether a tool was called between the reply i and the next request.
func (c *comparison) callsAfter(i int) bool {
	for i++; i < c.a.to; i++ {
		switch c.log.all[i].p.(type) {
		case *event.ToolStarted:
			return true
		case *event.ModelRequested:
			return false
		}
	}
	return false
}

// reached stops the replay and shows the sandbox as it is.
func (c *comparison) reached(ctx context.Context) error {
	c.mu.Lock()
	g := c.guest
	c.rep.Reached, c.over = true, true
	c.mu.Unlock()
	if g == nil {
		return c.fail(&task.Error{Class: task.Invalid, Msg: "no tool was called in that run, so the sandbox is as the run found it", Fix: "use `daybreak sandbox exec --repo REPO --base COMMIT`"})
	}
	if err := c.cfg.At(ctx, g); err != nil {
		return c.fail(err)
	}
	c.end(errReached)
	return errReached
}

// tools wraps the agent's tools: a call whose end is not on record is not made, nor is one
// that ended after the event to stop at.
func (c *comparison) tools(in []tool.Tool) []tool.Tool {
	out := make([]tool.Tool, len(in))
	for i, t := range in {
		out[i] = watched{t, c}
	}
	return out
}

type watched struct {
	tool.Tool
	c *comparison
}

// Call implements tool.Tool.
func (w watched) Call(ctx context.Context, env *tool.Env, input json.RawMessage) (tool.Result, error) {
	c := w.c
	c.mu.Lock()
	c.guest = env.Guest
	over, end := c.over, c.endOfCall()
	c.mu.Unlock()
	if over {
		return tool.Result{}, errDiverged
	}
	switch {
	case end < 0 && c.cfg.To == 0:
		return tool.Result{}, c.cut()
	case end < 0, c.stopsBefore(c.log.all[end].seq):
		return tool.Result{}, c.reached(ctx)
	}
	res, err := w.Tool.Call(ctx, env, input)
	if err == nil && c.cfg.To > 0 && !c.more(end) {
		return tool.Result{}, c.reached(ctx)
	}
	return res, err
}

// endOfCall is the index of the event that ended the call which is about to be made: calls are
// made one after the other, so it is the next result, or the question at which the task rested;
// -1 where the record has neither. c.mu is held.
func (c *comparison) endOfCall() int {
	asked := -1
	for _, i := range c.expect {
		switch c.log.all[i].p.(type) {
		case *event.ToolFinished:
			return i
		case *event.QuestionAsked:
			asked = i
		case *event.ModelRequested:
			return asked
		}
	}
	return asked
}

// cut ends the attempt where the record's run was cut off. A record that goes on all the same was
// not followed.
func (c *comparison) cut() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, i := range c.expect {
		switch e := c.log.all[i]; e.p.(type) {
		case *event.ToolFinished, *event.ModelRequested:
			c.divergeLocked(Divergence{Kind: Failed, Seq: e.seq, Step: e.step, What: "the replay lost its place before " + e.name()})
			return errDiverged
		}
	}
	c.endLocked(errCut)
	return errCut
}

// more reports whether the record has another call or reply after event i.
func (c *comparison) more(i int) bool {
	for i++; i < c.a.to; i++ {
		switch c.log.all[i].p.(type) {
		case *event.ToolStarted, *event.ModelResponded, *event.ModelFailed:
			return true
		}
	}
	return false
}

// compareRequest holds the request to the recorded digest, with the recorded texts in place of
// those that differ only in what may differ.
func (c *comparison) compareRequest(ctx context.Context, at int, req model.Request) bool {
	want := c.log.all[at]
	recorded := want.p.(*event.ModelRequested)
	for ; c.folded < at; c.folded++ {
		if err := c.conv.Apply(c.log.all[c.folded].e, func(t event.Text) (string, error) { return c.log.load(ctx, t) }); err != nil {
			_ = c.fail(err)
			return false
		}
	}
	expected := c.conv.Request(recorded.MaxOutput, req.Thinking, req.CacheKey)
	got := alike(c.norm, req, expected, c.cfg.IgnorePrompt)
	got.MaxOutput = recorded.MaxOutput
	body, err := json.Marshal(got)
	if err != nil {
		_ = c.fail(err)
		return false
	}
	if digest(body) == recorded.Hash {
		c.mu.Lock()
		c.rep.Requests++
		c.mu.Unlock()
		return true
	}
	d := Divergence{Kind: Request, Seq: want.seq, Step: want.step, What: "the request differs from the recorded one"}
	if eb, err := json.Marshal(expected); err == nil && digest(eb) != recorded.Hash {
		d.What = "the record's events make another request now than they did (or reply.thinking was set otherwise)"
	} else {
		d.Diff = shortDiff(pretty(expected), pretty(got))
	}
	c.diverge(d)
	return false
}

func pretty(v any) string {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err.Error()
	}
	return strings.ReplaceAll(string(b), `\n`, "\n")
}
