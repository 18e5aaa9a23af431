package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/agent"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/model"
	"github.com/daybreak-agent/daybreak/internal/policy"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/tool"
)

// work runs the agent until its change is verified (state publishing) or the task has ended.
func (r *run) work(ctx context.Context, events []event.Event) error {
	if sum := r.j.Summary(); sum.Trying() {
		return r.attempts(ctx, events)
	}
	out, err := r.converse(ctx, events)
	if err != nil {
		return r.keepOnError(ctx, err)
	}
	return r.conclude(ctx, out)
}

// converse runs the agent, in a sandbox with what is on record of its change, until it ends.
func (r *run) converse(ctx context.Context, events []event.Event) (out agent.Outcome, err error) {
	created := r.j.Summary().Created
	client, err := r.cfg.Model(created.Model)
	if err != nil {
		return out, err
	}
	conv := agent.NewConversation()
	seen := newSeenFiles()
	load := func(t event.Text) (string, error) { return r.j.Load(ctx, t) }
	for _, e := range events {
		if err := conv.Apply(e, load); err != nil {
			return out, err
		}
		if err := seen.apply(e, load); err != nil {
			return out, err
		}
	}
	lost, err := r.openBox(ctx)
	if err != nil {
		return out, err
	}
	tools := tool.NewRegistry(r.watched(append(tool.Standard(), tool.NewAsk(r.cfg.Questions.Most)))...)
	if !conv.Started() {
		if err := r.freezePrompt(ctx, conv, tools); err != nil {
			return out, err
		}
	}
	if s := r.j.state(); s == task.Preparing {
		if err := r.j.move(ctx, task.Working, ""); err != nil {
			return out, err
		}
	}
	env := &tool.Env{Guest: r.box.Guest(), Seen: map[string]string{}, Harness: &harness{r: r}}
	if err := seen.digest(ctx, env); err != nil {
		return out, err
	}
	a := agent.New(agent.Config{
		Model: client, Tools: tools, Log: r.j, Redactor: r.cfg.Redactor, Raised: r.limits,
		MaxOutput: r.cfg.MaxOutput, Thinking: r.cfg.Thinking, CacheKey: string(r.j.Summary().Task),
		Now: r.cfg.Now, Logger: r.cfg.Logger, Show: r.cfg.Show, Pause: r.drained,
	}, conv, env)
	if lost != "" {
		if err := a.Tell(ctx, "lost", lost); err != nil {
			return out, err
		}
	}
	if sum := r.j.Summary(); sum.Adopted != nil && sum.AdoptedSeq > sum.LastResponse {
		if err := a.Tell(ctx, "adopted", adoptedText(sum.Adopted)); err != nil {
			return out, err
		}
	}
	return a.Run(ctx)
}

// keepOnError saves the workspace when the run pauses, so that nothing depends on the sandbox
// being there when it goes on. Where it cannot be saved (a full disk), the sandbox stays for the
// next run to take the files from.
func (r *run) keepOnError(ctx context.Context, err error) error {
	if task.ClassOf(err) == task.Stale {
		return err
	}
	if serr := r.saveWorkspace(context.WithoutCancel(ctx), "paused"); serr != nil {
		r.unsaved = true
		return errors.Join(err, serr)
	}
	return err
}

func (r *run) conclude(ctx context.Context, out agent.Outcome) error {
	end := context.WithoutCancel(ctx)
	switch out.Ending {
	case agent.Accepted:
		// A sandbox that does not go away is tried again at the run's end; it is no reason to
		// lose what was proven.
		if err := r.endBox(end, "verified"); err != nil {
			r.cfg.Logger.WarnContext(ctx, "the agent's sandbox could not be ended yet", "error", err)
		}
		return r.j.move(end, task.Publishing, "")
	case agent.Declined:
		return r.finish(end, task.Declined, out.Reason)
	case agent.Exhausted:
		return r.finish(end, task.Exhausted, out.Reason)
	case agent.Stopped:
		return r.stopped(end)
	case agent.Waiting:
		return errors.Join(ErrParked, r.endBox(end, "waits for an answer"))
	default:
		return r.finish(end, task.Failed, out.Reason)
	}
}

// openBox starts the agent's sandbox, with the files of an interrupted run in it. lost is a
// text for the model when files could not be brought back.
func (r *run) openBox(ctx context.Context) (lost string, err error) {
	files, lost, err := r.leftBehind(ctx)
	if err != nil {
		return "", err
	}
	if err := r.index(ctx); err != nil {
		return "", err
	}
	r.progress("prepare", "starting the sandbox")
	if r.box, err = r.prover().Start(ctx, r.prover().Spec(purposeAgent, r.snap)); err != nil {
		return "", err
	}
	for _, f := range files {
		res, err := r.box.Guest().Write(ctx, guest.WriteRequest{
			Path: f.Path, Content: f.Content, Mode: f.Mode & 0o777, Force: true,
			Link: f.Mode == git.ModeLink, Delete: f.Deleted,
		})
		if err != nil {
			return "", err
		}
		if !res.OK {
			return "", &task.Error{Class: task.Internal, Msg: fmt.Sprintf("could not put %s back into the sandbox: %s", f.Path, res.Problem)}
		}
	}
	return lost, nil
}

// leftBehind finds the agent's change of an interrupted run: in what is left of its sandbox,
// else in the log.
func (r *run) leftBehind(ctx context.Context) (files []git.Change, lost string, err error) {
	sum := r.j.Summary()
	if files, err = r.savedWorkspace(ctx); err != nil {
		return nil, "", err
	}
	found, had := false, false
	for id, s := range sum.Sandboxes {
		if s.Purpose != purposeAgent {
			continue
		}
		had = true
		if !sum.AgentTouched {
			// Nothing was done in it: it holds what the log has, or less, when the worker died
			// while it filled it.
			found = true
		} else if box, rerr := r.cfg.Runtime.Recover(ctx, id); rerr == nil {
			if m, xerr := box.Export(ctx, r.exportLimits()); xerr == nil {
				c, err := r.sort(ctx, change{}, changesOf(m))
				if err != nil {
					return nil, "", err
				}
				files, found = c.all, true
				if err := r.recordWorkspace(ctx, "recovered", files); err != nil {
					return nil, "", err
				}
			}
		}
		if err := r.discard(ctx, id); err != nil {
			return nil, "", err
		}
	}
	if had && !found && sum.Spent.Steps > 0 {
		lost = "The sandbox was lost when the worker restarted, and its files with it. "
		if w := sum.Workspace; w != nil {
			lost += fmt.Sprintf("The state after step %d was put back; what was changed later is gone. Run `git status` and look before you go on.", w.Step)
		} else {
			lost += "The checkout is as it was at the start: every change you made is gone. Make it again."
		}
	}
	return files, lost, nil
}

func changesOf(m sandbox.Manifest) []git.Change {
	out := make([]git.Change, len(m.Entries))
	for i, e := range m.Entries {
		out[i] = git.Change{Path: e.Path, Mode: e.Mode, Content: e.Content, Deleted: e.Deleted}
	}
	return out
}

// freezePrompt fixes the prefix of every request of the task.
func (r *run) freezePrompt(ctx context.Context, conv *agent.Conversation, tools *tool.Registry) error {
	created := r.j.Summary().Created
	issue, err := r.j.Load(ctx, created.Issue)
	if err != nil {
		return err
	}
	n, err := r.nonce()
	if err != nil {
		return err
	}
	guidance := ""
	if r.set.guidance != "" {
		text, _ := policy.CleanText(r.set.guidance)
		guidance = policy.Frame("AGENTS.md", text, n)
	}
	title := created.IssueTitle
	if title != "" && !strings.Contains(firstLine(issue), title) {
		issue = title + "\n\n" + issue
	}
	prefix, err := agent.BuildPrefix(agent.PromptInput{
		WorkDir: sandbox.WorkDir, Issue: policy.Frame("issue", issue, n), Repo: path.Base(strings.TrimSuffix(created.Repo, ".git")),
		Base: short(created.Base), Guidance: guidance, Suite: r.set.baseline.Describe(), Notes: r.snap.Warnings,
	}, r.offered(tools))
	if err != nil {
		return err
	}
	doc, err := prefix.Encode()
	if err != nil {
		return err
	}
	t, err := r.j.Text(ctx, doc)
	if err != nil {
		return err
	}
	frozen, err := prefix.Frozen(t)
	if err != nil {
		return err
	}
	evs, err := r.j.Append(ctx, frozen)
	if err != nil {
		return err
	}
	for _, e := range evs {
		if err := conv.Apply(e, func(t event.Text) (string, error) { return r.j.Load(ctx, t) }); err != nil {
			return err
		}
	}
	return nil
}

// offered are the tools that the model is told of.
func (r *run) offered(tools *tool.Registry) []model.ToolSpec {
	return slices.DeleteFunc(tools.Specs(), func(s model.ToolSpec) bool { return s.Name == "ask" && r.cfg.Questions.Most == 0 })
}

func firstLine(s string) string {
	l, _, _ := strings.Cut(s, "\n")
	return l
}

func (r *run) step() int { return r.j.Summary().Spent.Steps }

// seenFiles knows which files the model has read, so that a resumed run lets it edit them.
type seenFiles struct {
	calls map[string]string // open call → path
	paths map[string]bool
}

func newSeenFiles() *seenFiles { return &seenFiles{map[string]string{}, map[string]bool{}} }

func (s *seenFiles) apply(e event.Event, load func(event.Text) (string, error)) error {
	p, err := event.Decode(e)
	if err != nil {
		return err
	}
	switch p := p.(type) {
	case *event.AttemptStarted:
		clear(s.paths)
	case *event.ToolStarted:
		if p.Name != "read" && p.Name != "edit" && p.Name != "write" {
			return nil
		}
		args, err := load(p.Args)
		if err != nil {
			return err
		}
		var in struct {
			Path string `json:"path"`
		}
		if json.Unmarshal([]byte(args), &in) == nil && in.Path != "" {
			s.calls[p.Call] = in.Path
		}
	case *event.ToolFinished:
		if path, ok := s.calls[p.Call]; ok && !p.IsError {
			s.paths[path] = true
		}
	}
	return nil
}

// digest fills env.Seen with the files as they are now in the restored sandbox.
func (s *seenFiles) digest(ctx context.Context, env *tool.Env) error {
	paths := make([]string, 0, len(s.paths))
	for p := range s.paths {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	for _, p := range paths {
		res, err := env.Guest.Read(ctx, guest.ReadRequest{Path: p, Limit: 1})
		if err != nil {
			return err
		}
		if res.SHA256 != "" {
			env.Remember(p, res.SHA256)
		}
	}
	return nil
}
