package worker

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

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
	blocked  string // why the change as a whole is refused, and what to do; "" when it is not
	withheld bool   // files with secrets in them are in none of the lists and not kept
	leftOut  []string
	findings []task.Finding
	manifest string
}

// export takes the change out of the agent's sandbox and asks policy about every path.
func (r *run) export(ctx context.Context) (change, error) {
	m, err := r.box.Export(ctx, r.exportLimits())
	if err != nil {
		return change{}, err
	}
	c := change{manifest: manifestDigest(m), leftOut: m.Left}
	for _, s := range m.Skipped {
		c.findings = append(c.findings, task.Finding{Kind: "left_out", Severity: "info", Path: s, Detail: "a socket, device or pipe is not exported"})
	}
	in := make([]git.Change, len(m.Entries))
	for i, e := range m.Entries {
		in[i] = git.Change{Path: e.Path, Mode: e.Mode, Content: e.Content, Deleted: e.Deleted}
	}
	return r.sort(ctx, c, in)
}

// exportLimits lets build output stay behind when a change would be too large with it.
func (r *run) exportLimits() sandbox.ExportLimits {
	return sandbox.ExportLimits{Ignored: func(ctx context.Context, paths []string) ([]string, error) {
		out, err := r.cfg.Git.Ignored(ctx, r.snap.GitDir, r.snap.Base, r.snap.Tree, paths)
		for _, p := range paths {
			if r.snap.Layers.Owns(p) && !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
		return out, err
	}}
}

// sort fills the change from exported files: what the base's own rules ignore and what preparing
// dependencies had put there is left out, what is as in the base is dropped, and policy decides
// about every other path.
func (r *run) sort(ctx context.Context, c change, in []git.Change) (change, error) {
	in = slices.DeleteFunc(slices.Clone(in), func(e git.Change) bool {
		owned := r.snap.Layers.Owns(e.Path)
		if owned {
			c.leftOut = append(c.leftOut, e.Path)
		}
		return owned
	})
	paths := make([]string, len(in))
	for i, e := range in {
		paths[i] = e.Path
	}
	ignored, err := r.cfg.Git.Ignored(ctx, r.snap.GitDir, r.snap.Base, r.snap.Tree, paths)
	if err != nil {
		return c, err
	}
	c.leftOut = append(c.leftOut, ignored...)
	skip := make(map[string]bool, len(ignored))
	for _, p := range ignored {
		skip[p] = true
	}
	in = slices.DeleteFunc(slices.Clone(in), func(e git.Change) bool { return skip[e.Path] })
	if in, err = r.cfg.Git.DropUnchanged(ctx, r.snap.GitDir, r.snap.Base, in); err != nil {
		return c, err
	}
	decision, err := r.review(ctx, in)
	if err != nil {
		return c, err
	}
	kept, err := r.inspect(ctx, in, &decision)
	if err != nil {
		return c, err
	}
	c.withheld, in = len(kept) < len(in), kept
	c.refused = decision.Refused
	c.findings = append(c.findings, decision.Findings...)
	if f, blocked := decision.Blocked(); blocked && len(c.refused) == 0 {
		c.blocked = blockedText(f)
	}
	allowed, held := setOf(decision.Allowed), setOf(decision.Held)
	for _, e := range in {
		theirs := false
		if held[e.Path] {
			if theirs, err = r.byPeople(ctx, e); err != nil {
				return c, err
			}
		}
		switch {
		case allowed[e.Path], theirs:
			c.all, c.allowed = append(c.all, e), append(c.allowed, e)
		case held[e.Path]:
			c.all, c.held = append(c.all, e), append(c.held, e)
		}
	}
	return c, nil
}

// review asks policy about every path.
func (r *run) review(ctx context.Context, in []git.Change) (policy.Decision, error) {
	names, err := r.baseNames(ctx)
	if err != nil {
		return policy.Decision{}, err
	}
	paths := make([]policy.PathChange, 0, len(in))
	for _, e := range in {
		p := policy.PathChange{Path: e.Path, Mode: e.Mode, Deleted: e.Deleted, Size: int64(len(e.Content))}
		if e.Mode == git.ModeLink {
			p.Link = string(e.Content)
		}
		paths = append(paths, p)
	}
	rules := policy.Rules{Protected: slices.Concat(r.cfg.Protected, r.set.repo.Protected), Existing: names}
	return rules.Review(paths), nil
}

func setOf(list []string) map[string]bool {
	out := make(map[string]bool, len(list))
	for _, s := range list {
		out[s] = true
	}
	return out
}

// baseNames lists the base's paths once per run: a new name that differs from one of them only
// in case or Unicode form would be the same file on another machine.
func (r *run) baseNames(ctx context.Context) ([]string, error) {
	if r.names != nil {
		return r.names, nil
	}
	list, err := r.cfg.Git.ListTree(ctx, r.snap.GitDir, r.snap.Base)
	if err != nil {
		return nil, err
	}
	r.names, r.base = make([]string, len(list)), make(map[string]git.Entry, len(list))
	for i, e := range list {
		r.names[i], r.base[e.Path] = e.Path, e
	}
	return r.names, nil
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
	_, err = r.j.Append(ctx, event.Exported{Manifest: c.manifest, Tree: tree, Paths: paths, LeftOut: c.leftOut, Diff: text})
	return tree, diff, err
}

// recordFindings stores what policy found, each finding once a task.
func (r *run) recordFindings(ctx context.Context, c change) error {
	known := map[task.Finding]bool{}
	for _, f := range r.j.Summary().Findings {
		known[f] = true
	}
	var payloads []event.Payload
	for _, f := range c.findings {
		if !known[f] {
			known[f] = true
			payloads = append(payloads, event.PolicyFound{Finding: f})
		}
	}
	if len(payloads) == 0 {
		return nil
	}
	_, err := r.j.Append(ctx, payloads...)
	return err
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
	saved, err := r.workspace(ctx, r.snap.Base, why, files)
	if err != nil {
		return err
	}
	_, err = r.j.Append(ctx, saved)
	return err
}

// workspace is the record of a change of a base.
func (r *run) workspace(ctx context.Context, base, why string, files []git.Change) (saved event.WorkspaceSaved, err error) {
	doc, err := json.Marshal(files)
	if err != nil {
		return saved, err
	}
	diff := ""
	if len(files) > 0 {
		tree, err := r.cfg.Git.BuildTree(ctx, r.snap.GitDir, base, files)
		if err != nil {
			return saved, err
		}
		if diff, _, err = r.cfg.Git.Diff(ctx, r.snap.GitDir, base, tree, git.DiffOptions{}); err != nil {
			return saved, err
		}
	}
	text, err := r.j.Text(ctx, string(doc))
	if err != nil {
		return saved, err
	}
	dt, err := r.redacted(ctx, diff)
	return event.WorkspaceSaved{Step: r.step(), Why: why, Change: text, Diff: dt, Files: len(files)}, err
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
