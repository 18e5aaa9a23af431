package worker

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/policy"
	"github.com/daybreak-agent/daybreak/internal/policy/content"
	"github.com/daybreak-agent/daybreak/internal/policy/secrets"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/tool"
)

// inspect looks into what the paths' review let through and adds its findings to the decision.
// It returns the files without those that hold a secret: they are proposed, shown and kept
// nowhere.
func (r *run) inspect(ctx context.Context, in []git.Change, d *policy.Decision) ([]git.Change, error) {
	old, err := r.oldContents(ctx, in)
	if err != nil {
		return nil, err
	}
	clean, err := r.withoutSecrets(in, old, d)
	if err != nil {
		return nil, err
	}
	allowed := setOf(d.Allowed)
	var files []content.File
	for _, e := range clean {
		if allowed[e.Path] {
			files = append(files, content.File{Path: e.Path, Mode: e.Mode, OldMode: r.base[e.Path].Mode, Deleted: e.Deleted, Old: old[e.Path], New: e.Content})
		}
	}
	more := content.Limits{}.Review(files)
	d.Findings = append(d.Findings, more.Findings...)
	held := setOf(more.Held)
	d.Allowed = slices.DeleteFunc(d.Allowed, func(p string) bool { return held[p] })
	d.Held = append(d.Held, more.Held...)
	return clean, nil
}

// oldContents reads the base's side of every changed path.
func (r *run) oldContents(ctx context.Context, in []git.Change) (map[string][]byte, error) {
	if _, err := r.baseNames(ctx); err != nil {
		return nil, err
	}
	var entries []git.Entry
	for _, e := range in {
		if b, ok := r.base[e.Path]; ok {
			entries = append(entries, b)
		}
	}
	blobs, err := r.cfg.Git.Blobs(ctx, r.snap.GitDir, entries, policy.DefaultMaxFileBytes)
	if err != nil {
		return nil, err
	}
	out := make(map[string][]byte, len(entries))
	for _, e := range entries {
		if b, ok := blobs[e.ID]; ok {
			out[e.Path] = b
		}
	}
	return out, nil
}

func (r *run) withoutSecrets(in []git.Change, old map[string][]byte, d *policy.Decision) ([]git.Change, error) {
	bad := map[string]bool{}
	for _, e := range in {
		if e.Deleted {
			continue
		}
		hits, err := r.cfg.Secrets.Scan(secrets.Doc{Name: e.Path, Text: e.Content, Old: old[e.Path]})
		if err != nil {
			return nil, err
		}
		for _, h := range hits {
			bad[e.Path] = bad[e.Path] || !h.Weak
			d.Findings = append(d.Findings, secretFinding(h, h.Doc))
		}
		if _, had := r.base[e.Path]; had {
			continue
		}
		if hits, err = r.cfg.Secrets.Scan(secrets.Doc{Name: "file name", Text: []byte(e.Path)}); err != nil {
			return nil, err
		}
		for _, h := range hits {
			if h.Weak {
				continue
			}
			// No finding may name the path, since the value stands in it.
			bad[e.Path] = true
			d.Findings = slices.DeleteFunc(d.Findings, func(f task.Finding) bool { return f.Path == e.Path })
			h.Line = 0
			d.Findings = append(d.Findings, secretFinding(h, ""))
		}
	}
	gone := func(p string) bool { return bad[p] }
	d.Allowed, d.Held = slices.DeleteFunc(d.Allowed, gone), slices.DeleteFunc(d.Held, gone)
	return slices.DeleteFunc(slices.Clone(in), func(e git.Change) bool { return bad[e.Path] }), nil
}

// secretFinding says which rule found something and where, never what.
func secretFinding(h secrets.Hit, path string) task.Finding {
	f := task.Finding{Kind: "secret", Severity: "block", Path: path, Line: h.Line, Detail: "holds a secret (rule " + h.Rule}
	if path == "" {
		f.Detail = "a " + h.Doc + " holds a secret (rule " + h.Rule
	}
	if h.Weak {
		f.Kind, f.Severity, f.Detail = "possible_secret", "warn", "looks like a credential (rule "+h.Rule
	}
	if h.Form != "" {
		f.Detail += ", found as " + h.Form
	}
	f.Detail += ")"
	return f
}

// blockedText is the reason for a change that is refused as a whole, with what to do.
func blockedText(f task.Finding) string {
	text := f.Detail
	if f.Path != "" {
		text = fmt.Sprintf("%q %s", f.Path, text)
		if f.Line > 0 {
			text = fmt.Sprintf("%q line %d %s", f.Path, f.Line, f.Detail)
		}
	}
	switch f.Kind {
	case "cap":
		return text + "; make it smaller"
	case "secret":
		return text + "; take it out: a test needs a value that is plainly made up"
	}
	return text
}

// inspectWords refuses a submission whose words hold a secret, before they are recorded.
func (r *run) inspectWords(ctx context.Context, q tool.SubmitRequest) (res tool.Result, refused bool, err error) {
	hits, err := r.cfg.Secrets.Scan(
		secrets.Doc{Name: "title", Text: []byte(q.Title)}, secrets.Doc{Name: "cause", Text: []byte(q.Cause)},
		secrets.Doc{Name: "fix", Text: []byte(q.Fix)}, secrets.Doc{Name: "list of tests", Text: []byte(strings.Join(q.Tests, "\n"))})
	if err != nil {
		return tool.Result{}, false, err
	}
	hits = slices.DeleteFunc(hits, func(h secrets.Hit) bool { return h.Weak })
	if len(hits) == 0 {
		return tool.Result{}, false, nil
	}
	hits[0].Line = 0
	f := secretFinding(hits[0], "")
	if _, err := r.j.Append(ctx, event.PolicyFound{Finding: f}); err != nil {
		return tool.Result{}, false, err
	}
	return refuse("Refused: " + string(task.PolicyRefused) + ". " + f.Detail + "; submit again without it."), true, nil
}

// outgoing is one text of the pull request.
type outgoing struct {
	name string
	text *string
}

// clean masks secrets in what is about to be published. What cannot be masked, because it is
// encoded, ends the publication.
func (r *run) clean(texts []outgoing) error {
	for _, o := range texts {
		if r.cfg.Redactor != nil {
			*o.text, _ = r.cfg.Redactor.Redact(*o.text)
		}
		masked, err := r.cfg.Secrets.Mask(*o.text)
		if err != nil {
			return err
		}
		*o.text = masked
		hits, err := r.cfg.Secrets.Scan(secrets.Doc{Name: o.name, Text: []byte(masked)})
		if err != nil {
			return err
		}
		for _, h := range hits {
			if !h.Weak {
				return &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("the pull request's %s holds a secret (rule %s, found as %s), so nothing was published", o.name, h.Rule, or(h.Form, "plain text"))}
			}
		}
	}
	return nil
}

func or(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}
