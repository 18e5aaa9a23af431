package evaluate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/daybreak-agent/daybreak/internal/app"
	"github.com/daybreak-agent/daybreak/internal/eval"
	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/prover"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/snapshot"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// keepTried is how much of a command's output is read from each end, in bytes.
const keepTried = guest.MaxKeep

// resetTree brings the checkout back to the base.
const resetTree = `git -c safe.directory='*' checkout -q -f HEAD -- . && git -c safe.directory='*' clean -fdxq`

// bench is one sandbox on an instance's base, in which plain commands run.
type bench struct{ box sandbox.Sandbox }

// Try implements eval.Bench.
func (b bench) Try(ctx context.Context, changes []git.Change, shell string, limit time.Duration) (eval.Tried, error) {
	g := b.box.Guest()
	res, err := g.Exec(ctx, guest.ExecRequest{Shell: resetTree, Timeout: time.Minute, Head: 1000, Tail: 1000})
	if err == nil && res.ExitCode != 0 {
		err = fmt.Errorf("the checkout cannot be put back: %s%s", res.Head, res.Tail)
	}
	if err != nil {
		return eval.Tried{}, err
	}
	for _, c := range changes {
		w := guest.WriteRequest{Path: c.Path, Force: true, Delete: c.Deleted, Content: c.Content, Mode: c.Mode & 0o777}
		out, err := g.Write(ctx, w)
		if err == nil && !out.OK && !(c.Deleted && out.Problem == "missing") {
			err = &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("%q cannot be written: %s", c.Path, out.Problem)}
		}
		if err != nil {
			return eval.Tried{}, err
		}
	}
	res, err = g.Exec(ctx, guest.ExecRequest{Shell: shell, Timeout: limit, Head: keepTried, Tail: keepTried})
	return eval.Tried{Output: string(res.Head) + string(res.Tail), TimedOut: res.TimedOut, Took: res.Wall}, err
}

// ground is where the cases of one instance are made and verified: a repository with its base.
type ground struct {
	a    *app.App
	p    *prover.Prover
	i    eval.Instance
	src  string // the operator's repository, which is read
	repo string // ours
}

// open makes the repository, with nothing in it yet.
func open(ctx context.Context, a *app.App, p *prover.Prover, dir, repos string, i eval.Instance) (ground, error) {
	src, err := i.Locate(repos)
	if err != nil {
		return ground{}, err
	}
	g := ground{a, p, i, src, filepath.Join(dir, "eval", "instances", i.ID+".git")}
	if err := os.MkdirAll(filepath.Dir(g.repo), 0o755); err != nil {
		return g, &task.Error{Class: task.Unavailable, Msg: "cannot make the folder for copies of repositories", Err: err}
	}
	if err := a.Git.EnsureBare(ctx, g.repo); err != nil {
		return g, err
	}
	_, err = a.Git.FetchCommit(ctx, g.repo, src, i.Base)
	return g, err
}

// base is a commit of the instance's base with the limit of one run of its suite; the same limit
// gives the same commit.
func (g ground) base(ctx context.Context, limit time.Duration) (string, error) {
	return g.commit(ctx, g.i.Base, "", []git.Change{{Path: eval.CaseFile, Mode: git.ModeFile, Content: fmt.Appendf(nil, "timeout: %s\n", limit)}})
}

// commit makes a commit of the tree with the changes.
func (g ground) commit(ctx context.Context, tree, parent string, changes []git.Change) (string, error) {
	changes, err := g.a.Git.DropUnchanged(ctx, g.repo, tree, changes)
	if err != nil {
		return "", err
	}
	id, err := g.a.Git.BuildTree(ctx, g.repo, tree, changes)
	if err != nil {
		return "", err
	}
	return g.a.Git.Commit(ctx, g.repo, id, parent, git.CommitInfo{When: time.Unix(1_700_000_000, 0), Message: g.i.ID + "\n"})
}

// derive makes the instance's cases in a sandbox on its base. The baseline is made first: its
// build cache is what makes the many runs quick, and the cases need it anyway.
func (g ground) derive(ctx context.Context, limit time.Duration, seed uint64, faults []eval.Fault) (cases []eval.Derived, left []eval.Omitted, err error) {
	base, err := g.base(ctx, limit)
	if err != nil {
		return nil, nil, err
	}
	s, err := g.a.Snapshots.Prepare(ctx, snapshot.Source{Repo: g.repo, Ref: base, Environment: g.a.Environment()})
	if err != nil {
		return nil, nil, err
	}
	c, err := g.p.Settings(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	if s, _, err = g.p.Setup(ctx, s, c, nil, nil); err != nil {
		return nil, nil, err
	}
	if _, _, _, err := g.p.Baseline(ctx, s, c, func(string) {}); err != nil {
		return nil, nil, err
	}
	box, err := g.p.Bench(ctx, "label", s, false)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, box.Destroy(context.WithoutCancel(ctx))) }()
	return g.i.Derive(ctx, g.src, bench{box}, seed, faults)
}

// verify takes the case through the code of `daybreak verify`.
func (g ground) verify(ctx context.Context, c eval.Derived, limit time.Duration) (prover.Outcome, error) {
	if c.Limit > 0 {
		limit = c.Limit
	}
	base, err := g.base(ctx, limit)
	if err != nil {
		return prover.Outcome{}, err
	}
	head, err := g.commit(ctx, base, base, c.Changes)
	if err != nil {
		return prover.Outcome{}, err
	}
	return g.p.Change(ctx, prover.Request{Repo: g.repo, Base: base, Head: head, Exact: true, Tests: c.Tests, Environment: g.a.Environment()})
}
