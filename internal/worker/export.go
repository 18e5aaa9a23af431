package worker

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/policy"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// change is what left the agent's sandbox, sorted by what may happen to it.
type change struct {
	all      []git.Change // everything but what the base's rules ignore
	allowed  []git.Change
	held     []git.Change // waits for a person's word; not part of the proposal
	refused  []string
	leftOut  []string
	findings []task.Finding
	manifest string
}

// export takes the change out of the agent's sandbox and asks policy about every path.
func (r *run) export(ctx context.Context) (change, error) {
	m, err := r.box.Export(ctx, sandbox.ExportLimits{})
	if err != nil {
		return change{}, err
	}
	c := change{manifest: manifestDigest(m)}
	for _, s := range m.Skipped {
		c.findings = append(c.findings, task.Finding{Kind: "left_out", Severity: "info", Path: s, Detail: "a socket, device or pipe is not exported"})
	}
	in := make([]git.Change, len(m.Entries))
	for i, e := range m.Entries {
		in[i] = git.Change{Path: e.Path, Mode: e.Mode, Content: e.Content, Deleted: e.Deleted}
	}
	return r.sort(ctx, c, in)
}

// sort fills the change from exported files.
func (r *run) sort(ctx context.Context, c change, in []git.Change) (change, error) {
	reviewed := make([]policy.PathChange, 0, len(in))
	for _, e := range in {
		p := policy.PathChange{Path: e.Path, Mode: e.Mode, Deleted: e.Deleted, Size: int64(len(e.Content))}
		if e.Mode == git.ModeLink {
			p.Link = string(e.Content)
		}
		reviewed = append(reviewed, p)
	}
	decision := policy.ReviewPaths(reviewed, append(r.cfg.Protected[:len(r.cfg.Protected):len(r.cfg.Protected)], r.set.repo.Protected...))
	c.refused = decision.Refused
	status := map[string]int{}
	const allow, hold = 1, 2
	for _, p := range decision.Allowed {
		status[p] = allow
	}
	for _, p := range decision.Held {
		status[p] = hold
	}
	var safe []git.Change
	var paths []string
	for _, e := range in {
		if status[e.Path] != 0 {
			safe = append(safe, e)
			paths = append(paths, e.Path)
		}
	}
	ignored, err := r.cfg.Git.Ignored(ctx, r.snap.GitDir, r.snap.Base, r.snap.Tree, paths)
	if err != nil {
		return c, err
	}
	skip := map[string]bool{}
	for _, p := range ignored {
		skip[p] = true
		c.leftOut = append(c.leftOut, p)
	}
	if safe, err = r.cfg.Git.DropUnchanged(ctx, r.snap.GitDir, r.snap.Base, safe); err != nil {
		return c, err
	}
	kept := map[string]bool{}
	for _, e := range safe {
		if skip[e.Path] {
			continue
		}
		kept[e.Path] = true
		c.all = append(c.all, e)
		if status[e.Path] == hold {
			c.held = append(c.held, e)
		} else {
			c.allowed = append(c.allowed, e)
		}
	}
	for _, f := range decision.Findings {
		if f.Path == "" || kept[f.Path] || contains(c.refused, f.Path) {
			c.findings = append(c.findings, f)
		}
	}
	return c, nil
}

func contains(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
}

// manifestDigest identifies an export, each field framed by its length.
func manifestDigest(m sandbox.Manifest) string {
	h := sha256.New()
	field := func(b []byte) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(b))))
		h.Write(b)
	}
	for _, e := range m.Entries {
		field([]byte(e.Path))
		field(binary.BigEndian.AppendUint32(nil, e.Mode))
		if e.Deleted {
			field([]byte("deleted"))
		}
		field(e.Content)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// build makes the tree of the allowed part in our own repository and records the export.
func (r *run) build(ctx context.Context, c change) (tree, diff string, err error) {
	tree, err = r.cfg.Git.BuildTree(ctx, r.snap.GitDir, r.snap.Base, c.allowed)
	if err != nil {
		return "", "", err
	}
	diff, _, err = r.cfg.Git.Diff(ctx, r.snap.GitDir, r.snap.Base, tree, git.DiffOptions{})
	if err != nil {
		return "", "", err
	}
	text, err := r.redacted(ctx, diff)
	if err != nil {
		return "", "", err
	}
	var paths []string
	for _, e := range c.allowed {
		paths = append(paths, e.Path)
	}
	payloads := []event.Payload{event.Exported{Manifest: c.manifest, Tree: tree, Paths: paths, LeftOut: c.leftOut, Diff: text}}
	known := map[task.Finding]bool{}
	for _, f := range r.j.Summary().Findings {
		known[f] = true
	}
	for _, f := range c.findings {
		if !known[f] {
			payloads = append(payloads, event.PolicyFound{Finding: f})
		}
	}
	_, err = r.j.Append(ctx, payloads...)
	return tree, diff, err
}

// heldDiff shows what was held back.
func (r *run) heldDiff(ctx context.Context, held []git.Change) (string, error) {
	if len(held) == 0 {
		return "", nil
	}
	tree, err := r.cfg.Git.BuildTree(ctx, r.snap.GitDir, r.snap.Base, held)
	if err != nil {
		return "", err
	}
	diff, _, err := r.cfg.Git.Diff(ctx, r.snap.GitDir, r.snap.Base, tree, git.DiffOptions{MaxBytes: 64 << 10})
	return diff, err
}

func (r *run) redacted(ctx context.Context, s string) (event.Text, error) {
	if r.cfg.Redactor != nil {
		s, _ = r.cfg.Redactor.Redact(s)
	}
	return r.j.Text(ctx, s)
}

// saveWorkspace keeps the agent's change in the log. Without a sandbox there is nothing new.
func (r *run) saveWorkspace(ctx context.Context, why string) error {
	if r.box == nil {
		return nil
	}
	c, err := r.export(ctx)
	if err != nil {
		return err
	}
	return r.recordWorkspace(ctx, why, c.all)
}

func (r *run) recordWorkspace(ctx context.Context, why string, files []git.Change) error {
	doc, err := json.Marshal(files)
	if err != nil {
		return err
	}
	diff := ""
	if len(files) > 0 {
		tree, err := r.cfg.Git.BuildTree(ctx, r.snap.GitDir, r.snap.Base, files)
		if err != nil {
			return err
		}
		if diff, _, err = r.cfg.Git.Diff(ctx, r.snap.GitDir, r.snap.Base, tree, git.DiffOptions{}); err != nil {
			return err
		}
	}
	text, err := r.j.Text(ctx, string(doc))
	if err != nil {
		return err
	}
	dt, err := r.redacted(ctx, diff)
	if err != nil {
		return err
	}
	_, err = r.j.Append(ctx, event.WorkspaceSaved{Step: r.step(), Why: why, Change: text, Diff: dt, Files: len(files)})
	return err
}

// savedWorkspace is the change that the log kept last.
func (r *run) savedWorkspace(ctx context.Context) ([]git.Change, error) {
	w := r.j.Summary().Workspace
	if w == nil {
		return nil, nil
	}
	doc, err := r.j.Load(ctx, w.Change)
	if err != nil {
		return nil, err
	}
	var files []git.Change
	if err := json.Unmarshal([]byte(doc), &files); err != nil {
		return nil, fmt.Errorf("recorded workspace: %w", err)
	}
	return files, nil
}
