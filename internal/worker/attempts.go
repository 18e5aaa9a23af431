package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/daybreak-agent/daybreak/internal/agent"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/verify"
)

// leads are what later attempts are told beside the issue, so that they do not all go the same way.
// Nothing of one attempt is told to another.
var leads = []string{
	"Before you look for the cause, write down three places where it could be, and begin with the least likely one.",
	"Begin with the test: describe the right behaviour by several inputs, also ones that the issue does not name.",
	"Begin with the callers of the code that the issue names, and ask what each of them relies on.",
	"Look for the smallest change that is right for every input, and for inputs for which it would be wrong.",
}

// attemptNote is the first thing that attempt n of several is told; the first one is told nothing.
func attemptNote(n int) string {
	if n == 1 {
		return ""
	}
	return fmt.Sprintf("This is attempt %d at the issue, on the untouched base and on its own. %s", n, leads[(n-2)%len(leads)])
}

// attempts makes independent attempts, one after the other, until enough of them agree, all are
// made or the budget is used up, and makes the best one's change the task's. Everything is on
// record before it happens, so that a run that died goes on in the attempt it was in.
func (r *run) attempts(ctx context.Context, events []event.Event) error {
	for {
		if sum := r.j.Summary(); sum.Attempts.Current == nil {
			enough, err := r.judge(ctx)
			if err == nil && (enough || len(sum.Attempts.Done) >= sum.Created.Attempts) {
				return r.choose(ctx, enough)
			}
			if err == nil {
				err = r.beginAttempt(ctx, len(sum.Attempts.Done)+1)
			}
			if err != nil {
				return err
			}
			if events, err = r.cfg.Store.Events(ctx, sum.Task, 0, 0); err != nil {
				return err
			}
		}
		out, err := r.converse(ctx, events)
		end := context.WithoutCancel(ctx)
		spent := out.Ending == agent.Exhausted || out.Ending != agent.Accepted && overBudget(ctx)
		switch {
		case spent && r.proven():
			return errors.Join(errSpent, r.endAttempt(end, "exhausted", or(out.Reason, "the budget ran out")))
		case err != nil && task.ClassOf(err) == task.Invalid && ctx.Err() == nil:
			out = agent.Outcome{Ending: agent.Stuck, Reason: err.Error()}
		case err != nil:
			return r.keepOnError(ctx, err)
		}
		switch out.Ending {
		case agent.Accepted:
			err = r.endAttempt(end, "verified", out.Reason)
		case agent.Declined:
			err = r.endAttempt(end, "declined", out.Reason)
		case agent.Exhausted, agent.Stopped, agent.Waiting:
			return r.conclude(ctx, out)
		default:
			err = r.endAttempt(end, "failed", out.Reason)
		}
		if err != nil {
			return err
		}
	}
}

// errSpent ends the attempts when the budget is used up and some of them proved something.
var errSpent = errors.New("the budget of the attempts is used up")

// proven reports whether there is a candidate to choose, on record as one or about to be.
func (r *run) proven() bool {
	sum := r.j.Summary()
	return sum.Trying() && (justVerified(sum) || slices.ContainsFunc(sum.Attempts.Done, event.Candidate.Verified))
}

// justVerified reports whether the attempt under way has its verdict and no end yet.
func justVerified(sum event.Summary) bool {
	return sum.Attempts.Current != nil && sum.State == task.Verifying && sum.Verification != nil && sum.Verification.Kind.Accepted()
}

// settle chooses from what is proven when the budget is used up. Judging costs a machine's time, not
// a model's money, so the clock that ran out does not end it; it has a time of its own beyond that, and
// what is not judged by its end counts for nobody.
func (r *run) settle(ctx context.Context) error {
	if err := r.prepare(ctx); err != nil { // the clock may have ended it half-way
		return err
	}
	if err := r.endedBefore(ctx); err != nil {
		return err
	}
	if err := r.endAttempt(ctx, "exhausted", "the budget ran out"); err != nil {
		return err
	}
	if err := r.endAgents(ctx); err != nil {
		return err
	}
	judging, cancel := context.WithTimeout(ctx, r.cfg.Judging+max(r.limits().Wall-r.j.Spent().Wall, 0))
	defer cancel()
	if _, err := r.judge(judging); err != nil && (ctx.Err() != nil || judging.Err() == nil) {
		return err
	}
	return r.choose(context.WithoutCancel(ctx), false)
}

// overBudget reports a clock that ran out.
func overBudget(ctx context.Context) bool {
	var cause *task.Error
	return ctx.Err() != nil && errors.As(context.Cause(ctx), &cause) && cause.Class == task.Budget
}

// beginAttempt starts from the base: nothing of another attempt's sandbox is taken over.
func (r *run) beginAttempt(ctx context.Context, n int) error {
	if err := r.endAgents(ctx); err != nil {
		return err
	}
	of := r.j.Summary().Created.Attempts
	r.progress("agent", fmt.Sprintf("attempt %d of %d", n, of))
	started := event.AttemptStarted{N: n, Of: of, Note: attemptNote(n)}
	if r.j.state() == task.Preparing {
		return r.j.move(ctx, task.Working, "", started)
	}
	_, err := r.j.Append(ctx, started)
	return err
}

// endAgents ends the agent's sandboxes that earlier attempts left.
func (r *run) endAgents(ctx context.Context) error {
	for id, s := range r.j.Summary().Sandboxes {
		if s.Purpose == purposeAgent {
			if err := r.discard(ctx, id); err != nil {
				return err
			}
		}
	}
	return nil
}

// endAttempt keeps what the attempt came to, and frees the task for the next one.
func (r *run) endAttempt(ctx context.Context, ending, reason string) error {
	sum := r.j.Summary()
	if sum.Attempts.Current == nil {
		return nil
	}
	done := event.AttemptFinished{N: sum.Attempts.Current.N, Ending: ending, Reason: firstLine(reason)}
	if ending == "verified" {
		stat, err := r.cfg.Git.Stat(ctx, r.snap.GitDir, r.snap.Base, sum.Exported.Tree)
		if err != nil {
			return err
		}
		for _, s := range stat {
			done.Lines += s.Added + s.Removed
		}
	} else if err := r.saveWorkspace(ctx, ending); err != nil {
		r.cfg.Logger.WarnContext(ctx, "the change of an attempt could not be kept", "error", err)
	}
	if err := r.j.move(ctx, task.Working, fmt.Sprintf("attempt %d: %s", done.N, ending), done); err != nil {
		return err
	}
	return r.endBox(ctx, "attempt "+ending)
}

// endedBefore ends the attempt of an earlier run that died between the attempt's end and its record.
func (r *run) endedBefore(ctx context.Context) error {
	sum := r.j.Summary()
	switch {
	case sum.Attempts.Current == nil:
		return nil
	case justVerified(sum):
		v, err := r.recordedVerdict(ctx)
		if err != nil {
			return err
		}
		if err := r.answer(ctx, accepted(v, change{}).Text); err != nil {
			return err
		}
		return r.endAttempt(ctx, "verified", v.Reason)
	case sum.State == task.Working && sum.Declined != nil:
		if err := r.answer(ctx, recordedText); err != nil {
			return err
		}
		return r.endAttempt(ctx, "declined", sum.Declined.Reason)
	}
	return nil
}

// candidates are the attempts that may be chosen.
func candidates(a event.Attempts) []event.Candidate {
	return slices.DeleteFunc(slices.Clone(a.Done), func(c event.Candidate) bool { return !c.Verified() })
}

func passes(a event.Attempts, source, tests int) (passed, known bool) {
	for _, j := range a.Judged {
		if j.Source == source && j.Tests == tests {
			return j.Passed, true
		}
	}
	return false, false
}

// judge runs every candidate's source under every other's reproduction tests, each pair once, and
// reports whether two pass each other's.
func (r *run) judge(ctx context.Context) (agree bool, err error) {
	sum := r.j.Summary()
	list := candidates(sum.Attempts)
	for _, x := range list {
		for _, y := range list {
			if _, known := passes(sum.Attempts, x.N, y.N); known || x.N == y.N {
				continue
			}
			if err := r.drained(); err != nil {
				return false, err
			}
			if err := r.cross(ctx, x, y); err != nil {
				return false, err
			}
		}
	}
	now := r.j.Summary().Attempts
	for _, x := range list {
		for _, y := range list {
			there, _ := passes(now, x.N, y.N)
			back, _ := passes(now, y.N, x.N)
			agree = agree || x.N < y.N && there && back
		}
	}
	return agree, nil
}

func (r *run) cross(ctx context.Context, source, tests event.Candidate) error {
	begin := r.cfg.Now()
	r.progress("verify", fmt.Sprintf("attempt %d under the tests of attempt %d", source.N, tests.N))
	mine, err := r.candidateJob(ctx, source)
	if err != nil {
		return err
	}
	theirs, err := r.candidateJob(ctx, tests)
	if err != nil {
		return err
	}
	got, err := r.verifier().Cross(ctx, mine, theirs)
	if err != nil {
		return err
	}
	judged := event.AttemptJudged{Source: source.N, Tests: tests.N, Passed: got.Passed, Reason: got.Reason, Millis: r.since(begin)}
	for _, x := range got.Phase.Runs {
		judged.Log = x.Log
	}
	_, err = r.j.Append(ctx, judged)
	return err
}

// candidateJob is the change that the attempt had verified.
func (r *run) candidateJob(ctx context.Context, c event.Candidate) (verify.Job, error) {
	doc, err := r.j.Load(ctx, c.Workspace.Change)
	if err != nil {
		return verify.Job{}, err
	}
	var files []git.Change
	if err := json.Unmarshal([]byte(doc), &files); err != nil {
		return verify.Job{}, fmt.Errorf("recorded workspace: %w", err)
	}
	sorted, err := r.sort(ctx, change{}, files)
	if err != nil {
		return verify.Job{}, err
	}
	return r.job(sorted.allowed, c.Exported.Tree, c.Submitted.Tests), nil
}

// rank orders verdicts: the better, the lower.
func rank(k task.VerdictKind) int {
	return max(slices.Index([]task.VerdictKind{task.Verified, task.VerifiedWeak, task.VerifiedScript}, k), 0)
}

// choose makes the best candidate's change the task's: the one that passes the tests of most
// others, of those the best verified, of those the smallest, of those the earliest. Without any the
// task ends as its last attempt did.
func (r *run) choose(ctx context.Context, early bool) error {
	a := r.j.Summary().Attempts
	list := candidates(a)
	if len(list) == 0 {
		return r.noneVerified(ctx, a)
	}
	agreed := func(c event.Candidate) int {
		n := 0
		for _, o := range list {
			if ok, _ := passes(a, c.N, o.N); ok {
				n++
			}
		}
		return n
	}
	best := slices.MinFunc(list, func(x, y event.Candidate) int {
		return cmp.Or(cmp.Compare(agreed(y), agreed(x)), cmp.Compare(rank(x.Verification.Kind), rank(y.Verification.Kind)), cmp.Compare(x.Lines, y.Lines), cmp.Compare(x.N, y.N))
	})
	chosen := event.AttemptChosen{N: best.N, Of: len(a.Done), Agreed: agreed(best), Rivals: len(list) - 1, Early: early && len(a.Done) < r.j.Summary().Created.Attempts, Wanted: r.j.Summary().Created.Attempts}
	chosen.Reason = chosenReason(chosen, best)
	if best.N != len(a.Done) {
		chosen.Note = fmt.Sprintf("Of several independent attempts at the issue, attempt %d was chosen; the working tree has its change, not yours.\n\nWhat was wrong: %s\nThe fix: %s", best.N, best.Submitted.Cause, best.Submitted.Fix)
	}
	if err := r.j.move(ctx, task.Verifying, fmt.Sprintf("attempt %d was chosen", best.N), chosen); err != nil {
		return err
	}
	return r.j.move(ctx, task.Publishing, "")
}

// chosenReason says how the choice was made.
func chosenReason(c event.AttemptChosen, best event.Candidate) string {
	switch {
	case c.Rivals == 0:
		return "it is the only one that was verified"
	case c.Early:
		return fmt.Sprintf("it and another attempt pass each other's tests, so no further one was made; it is %s, with %d changed lines", best.Verification.Kind, best.Lines)
	}
	return fmt.Sprintf("it passes the tests of %d of %d other verified attempts; it is %s, with %d changed lines", c.Agreed, c.Rivals, best.Verification.Kind, best.Lines)
}

func (r *run) noneVerified(ctx context.Context, a event.Attempts) error {
	last := a.Done[len(a.Done)-1]
	for _, c := range a.Done {
		if c.Ending == "declined" { // an honest no says more than a failure
			last = c
		}
	}
	reason := fmt.Sprintf("none of %d attempts was verified; attempt %d: %s", len(a.Done), last.N, last.Reason)
	if last.Ending == "declined" {
		return r.j.move(ctx, task.Declined, reason)
	}
	return r.j.move(ctx, task.Failed, reason)
}
