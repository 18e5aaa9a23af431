package worker

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/daybreak-agent/daybreak/internal/action"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/evidence"
	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/proposal"
	"github.com/daybreak-agent/daybreak/internal/prover"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// publish makes the commit, pushes it and opens the pull request, each once: the branch, the
// commit and the text follow from the log alone, so that a later run makes the same ones.
func (r *run) publish(ctx context.Context) error {
	begin := r.cfg.Now()
	if err := r.rebase(ctx); err != nil {
		return err
	}
	verdict, files, signed, err := r.account(ctx) // whoever is asked to approve can look at it
	if err != nil {
		return err
	}
	if ended, err := r.hold(ctx); ended || err != nil {
		return err
	}
	r.progress("publish", "writing the pull request")
	sum := r.j.Summary()
	in, err := r.proposal(ctx, sum, verdict)
	if err != nil {
		return err
	}
	if in.Moved, err = r.compareTarget(ctx); err != nil {
		return err
	}
	if err := r.checkClaims(ctx, sum, verdict, &in); err != nil {
		return err
	}
	in.Evidence = signed
	title, body := proposal.Compose(in)
	if o := sum.Created.Origin; o != nil {
		body += fmt.Sprintf("\n\nFixes #%d\n", o.Number)
	}
	branch, parent, old, merges := proposal.BranchName(in), r.snap.Base, "", ""
	if sum.PullRequest != nil { // a follow-up: one more commit on what is under review
		branch, parent, old = sum.PullRequest.Branch, sum.PullRequest.Head, sum.PullRequest.Head
		if b := sum.PullRequest.Base; b != "" && b != r.snap.Base { // what is under review stays: the target's tip is merged into it
			merges = r.snap.Base
		}
		if err := r.reviewed(ctx, sum); err != nil {
			return err
		}
	}
	message := proposal.CommitMessage(in)
	if err := r.clean([]outgoing{{"branch name", &branch}, {"commit message", &message}, {"title", &title}, {"text", &body}}); err != nil {
		return err
	}
	commit, err := r.cfg.Git.Commit(ctx, r.snap.GitDir, sum.Exported.Tree, parent, git.CommitInfo{
		AuthorName: r.cfg.AuthorName, AuthorEmail: r.cfg.AuthorEmail, When: sum.VerifiedAt,
		Message: message,
	}, merges)
	if err != nil {
		return err
	}
	if same, err := r.cfg.Git.TreeID(ctx, r.snap.GitDir, parent); err != nil {
		return err
	} else if same == sum.Exported.Tree && old != "" {
		commit = old // the review led to no change
	}
	push := forge.Push{GitDir: r.snap.GitDir, Repo: sum.Created.Repo, Branch: branch, Commit: commit, Old: old}
	if err := r.push(ctx, push); err != nil {
		if old != "" && task.ClassOf(err) == task.Conflict { // a person's commits are left to them
			return r.j.move(context.WithoutCancel(ctx), task.InReview, "a further change was not pushed: "+err.Error())
		}
		return err
	}
	pr := forge.PullRequest{
		Task: string(sum.Task), Repo: sum.Created.Repo, Base: sum.Created.Target, Branch: branch, Head: commit,
		Title: title, Body: body, Draft: true, Files: files,
	}
	if sum.PullRequest != nil {
		pr.Before = sum.PullRequest.Title
	}
	type opened struct {
		URL    string `json:"url"`
		Number int    `json:"number,omitempty"`
	}
	done, err := action.Do(ctx, r.j, effectKey("pull_request", branch, old, commit), "pull_request", map[string]string{"branch": branch, "head": commit, "title": title},
		func(ctx context.Context) (opened, bool, error) {
			if old != "" { // it is there; what is new is its text, which may be written twice
				return opened{}, false, nil
			}
			found, err := r.cfg.Forge.FindPullRequest(ctx, pr.Repo, branch)
			if err != nil || found == nil {
				return opened{}, false, err
			}
			return opened{found.URL, found.Number}, true, nil
		},
		func(ctx context.Context) (opened, error) {
			got, _, err := r.cfg.Forge.OpenPullRequest(ctx, pr)
			return opened{got.URL, got.Number}, err
		})
	if err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx) // it is open: a stop that comes now must not deny that
	text, err := r.redacted(ctx, body)
	if err != nil {
		return err
	}
	return r.j.move(ctx, task.InReview, "", event.PullRequestOpened{
		Branch: branch, Head: commit, Base: r.snap.Base, URL: done.URL, Number: done.Number, Title: title, Body: text, Draft: true,
	}, event.StageFinished{Stage: "publish", Millis: r.since(begin)})
}

// account is the verdict with its evidence, and the files that go with the pull request.
func (r *run) account(ctx context.Context) (v task.Verdict, files map[string][]byte, e proposal.Evidence, err error) {
	if v, err = r.recordedVerdict(ctx); err != nil {
		return v, nil, e, err
	}
	if err := r.provenThere(r.j.Summary(), v); err != nil {
		return v, nil, e, err
	}
	files = map[string][]byte{}
	e, err = r.attest(ctx, r.j.Summary(), v, files)
	return v, files, e, err
}

// provenThere refuses to publish anything but the very tree that the verdict is about, on its base.
func (r *run) provenThere(sum event.Summary, v task.Verdict) error {
	internal := func(msg string) error {
		return &task.Error{Class: task.Internal, Msg: msg, Fix: "nothing was published; begin the task anew, and report this"}
	}
	switch {
	case sum.Submitted == nil || sum.Exported == nil:
		return internal("the log has a verdict but no submission")
	case !v.Kind.Accepted():
		return internal(fmt.Sprintf("the verdict is %s, which leads to no pull request", v.Kind))
	case v.HeadTree != sum.Exported.Tree || v.Base != r.snap.Base:
		return internal(fmt.Sprintf("the verdict is about tree %s on %s, and what would be published is tree %s on %s",
			or(v.HeadTree, "none"), or(v.Base, "none"), sum.Exported.Tree, r.snap.Base))
	}
	return nil
}

// push puts the commit on the branch, once.
func (r *run) push(ctx context.Context, p forge.Push) error {
	type pushed struct {
		Commit string `json:"commit"`
	}
	_, err := action.Do(ctx, r.j, effectKey("push", p.Branch, p.Old, p.Commit), "push", p,
		func(context.Context) (pushed, bool, error) { return pushed{}, false, nil }, // Push itself finds the branch
		func(ctx context.Context) (pushed, error) {
			_, err := r.cfg.Forge.Push(ctx, p)
			return pushed{p.Commit}, err
		})
	return err
}

// effectKey names an effect on a branch: one for the first publication, one for each commit of a
// follow-up.
func effectKey(kind, branch, from, commit string) string {
	if from == "" {
		return kind + ":" + branch
	}
	return kind + ":" + branch + "@" + commit
}

// reviewed makes sure that the commit under review is in our own repository: another machine
// may have made it.
func (r *run) reviewed(ctx context.Context, sum event.Summary) error {
	head := sum.PullRequest.Head
	_, err := r.cfg.Git.Resolve(ctx, r.snap.GitDir, head)
	if task.ClassOf(err) != task.NotFound {
		return err
	}
	home, err := r.cfg.Forge.Home(ctx, sum.Created.Repo, sum.PullRequest.Branch)
	if err != nil {
		return err
	}
	_, err = r.cfg.Git.FetchCommit(ctx, r.snap.GitDir, home, head)
	return err
}

// attest puts the signed account of the verification among the files that go with the pull
// request. What must not leave is masked before it is signed.
func (r *run) attest(ctx context.Context, sum event.Summary, v task.Verdict, files map[string][]byte) (proposal.Evidence, error) {
	doc, err := json.Marshal(v)
	if err != nil {
		return proposal.Evidence{}, err
	}
	text := string(doc)
	if err := r.clean([]outgoing{{"evidence", &text}}); err != nil {
		return proposal.Evidence{}, err
	}
	if r.cfg.Attest == nil {
		files[proposal.EvidenceFile] = []byte(text + "\n")
		return proposal.Evidence{}, nil
	}
	var masked task.Verdict
	if err := json.Unmarshal([]byte(text), &masked); err != nil {
		return proposal.Evidence{}, fmt.Errorf("masked verdict: %w", err)
	}
	changes, err := prover.Changes(ctx, r.cfg.Git, r.snap.GitDir, r.snap.Base, sum.Exported.Tree)
	if err != nil {
		return proposal.Evidence{}, err
	}
	b, err := evidence.Sign(ctx, evidence.RecordOf(evidence.Input{
		Repo: sum.Created.Repo, Verdict: masked, Changes: changes, Made: sum.VerifiedAt,
		Log: &evidence.Log{Task: sum.Task, Seq: sum.VerifiedSeq, Root: sum.VerifiedHash},
	}), r.cfg.Attest)
	if err != nil {
		return proposal.Evidence{}, err
	}
	files[proposal.EvidenceFile] = b
	key, err := r.cfg.Attest.KeyID()
	if err != nil {
		return proposal.Evidence{}, err
	}
	e := proposal.Evidence{Digest: evidence.Digest(b), Key: key}
	if sum.Signed != nil && sum.Signed.Digest == e.Digest {
		return e, nil
	}
	kept, err := r.j.Text(ctx, string(b))
	if err != nil {
		return e, err
	}
	_, err = r.j.Append(ctx, event.EvidenceSigned{Digest: e.Digest, Key: key, Verification: sum.VerifiedSeq, Bundle: kept})
	return e, err
}

// proposal gathers what the pull request says, all of it from the record.
func (r *run) proposal(ctx context.Context, sum event.Summary, v task.Verdict) (proposal.Input, error) {
	stat, err := r.cfg.Git.Stat(ctx, r.snap.GitDir, r.snap.Base, sum.Exported.Tree)
	if err != nil {
		return proposal.Input{}, err
	}
	in := proposal.Input{
		Created: sum.Created, Submitted: *sum.Submitted, Verdict: v, Spent: sum.Spent, Unpriced: sum.Unpriced, Reach: sum.Reach,
		Chosen: sum.Attempts.Chosen, Rebased: sum.Rebased, Undone: sum.Undone, LogSeq: sum.VerifiedSeq, LogRoot: sum.VerifiedHash, Task: sum.Task, Sandbox: r.sandboxLine(sum),
	}
	for _, s := range stat {
		in.Stat = append(in.Stat, proposal.FileStat{Path: s.Path, Added: s.Added, Removed: s.Removed, Binary: s.Binary})
	}
	files, err := r.savedWorkspace(ctx)
	if err != nil {
		return in, err
	}
	c, err := r.sort(ctx, change{}, files)
	if err != nil {
		return in, err
	}
	if in.HeldDiff, err = r.heldDiff(ctx, c.held); err != nil {
		return in, err
	}
	return in, nil
}

func (r *run) sandboxLine(sum event.Summary) string {
	s := sum.AgentSandbox
	if s == nil {
		return ""
	}
	line := fmt.Sprintf("%s, %s", s.Runtime, s.Isolation)
	if what := sandbox.Explain(s.Isolation); what != "" {
		line += ": " + what
	}
	return line
}
