// Package pipelines decides, from the CI files of a repository, what would run on a branch that
// Daybreak pushes and with what in its hands.
//
// Invariants: it reads text and does nothing else; a file that it cannot read is a finding, not a
// silence; what it says is what the file says, in words for the person who registers.
package pipelines

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// Severity is how bad a finding is.
type Severity string

// The severities.
const (
	Refuse Severity = "refuse" // registering needs a person's explicit word
	Warn   Severity = "warn"
	Note   Severity = "note"
)

// Finding is one thing about one file.
type Finding struct {
	Severity Severity
	Path     string
	Text     string // one line
	Fix      string // what to do, may be empty
}

// Is reports whether a path is a CI file that [Look] understands.
func Is(p string) bool {
	dir, ext := path.Dir(p), path.Ext(p)
	return p == ".gitlab-ci.yml" || (dir == ".github/workflows" || dir == ".gitea/workflows" || dir == ".forgejo/workflows") && (ext == ".yml" || ext == ".yaml")
}

// workflow is the part of a workflow file that matters. The key "on" may be read as a boolean
// by YAML, so it is looked up by hand.
type workflow struct {
	on          map[string]any
	permissions any
	text        string // of the whole file
}

// Look says what a CI file would do with branches below the prefix (such as "daybreak/").
func Look(file string, content []byte, prefix string) []Finding {
	find := func(s Severity, fix, format string, a ...any) Finding {
		return Finding{s, file, fmt.Sprintf(format, a...), fix}
	}
	if len(content) > 1<<20 {
		return []Finding{find(Refuse, "read it yourself", "the file is too large to be judged")}
	}
	if file == ".gitlab-ci.yml" {
		return []Finding{find(Warn, "make the variables protected, and protect no branch below "+prefix,
			"pipelines run on every branch unless their rules say otherwise; variables that are not protected are in their hands")}
	}
	w, err := parse(content)
	if err != nil {
		return []Finding{find(Refuse, "correct it, or read it yourself", "the file cannot be read: %v", err)}
	}
	var out []Finding
	ours := w.ours(prefix)
	secrets := w.secrets()
	switch {
	case len(ours) > 0 && len(secrets) > 0:
		out = append(out, find(Refuse, "leave "+prefix+"** out with branches-ignore, or move the secrets into an environment that needs an approval",
			"on %s it would run code that an agent wrote, with the secrets %s in its hands", strings.Join(ours, " and "), strings.Join(secrets, ", ")))
	case len(ours) > 0:
		out = append(out, find(Note, "", "runs on %s, with no secrets of its own", strings.Join(ours, " and ")))
	}
	if len(ours) > 0 && !w.readOnly() {
		out = append(out, find(Warn, "add `permissions: {contents: read}` at the top", "its token is not limited to reading"))
	}
	for _, danger := range []string{"pull_request_target", "issue_comment", "issues", "workflow_run", "pull_request_review", "pull_request_review_comment", "discussion_comment"} {
		if _, ok := w.on[danger]; ok {
			out = append(out, find(Warn, "make sure that it neither checks out nor obeys what a pull request or a comment says",
				"%s runs with the rights of the default branch on what others wrote", danger))
		}
	}
	if len(ours) > 0 && regexp.MustCompile(`(?m)uses:\s*['"]?actions/cache|^\s*cache:\s*\S`).MatchString(w.text) {
		out = append(out, find(Warn, "put the branch into the key of the cache, or leave caches to trusted branches", "it shares a cache with other branches"))
	}
	if m := regexp.MustCompile(`\$\{\{\s*github\.(head_ref|ref_name|event\.(pull_request|issue|comment|review)\.(title|body|head\.ref)[^}]*)\s*\}\}`).FindString(w.text); m != "" {
		out = append(out, find(Warn, "pass it through an environment variable, quoted", "%s is pasted into the workflow, where a name or a title becomes code", m))
	}
	return out
}

func parse(content []byte) (workflow, error) {
	var doc map[string]any
	if err := yaml.Unmarshal(content, &doc); err != nil {
		return workflow{}, fmt.Errorf("%s", strings.SplitN(err.Error(), "\n", 2)[0])
	}
	w := workflow{on: map[string]any{}, permissions: doc["permissions"], text: string(content)}
	on, ok := doc["on"]
	if !ok {
		on, ok = doc["true"]
	}
	if !ok {
		return w, fmt.Errorf("it has no `on`")
	}
	switch on := on.(type) {
	case string:
		w.on[on] = nil
	case []any:
		for _, e := range on {
			w.on[fmt.Sprint(e)] = nil
		}
	case map[string]any:
		w.on = on
	default:
		return w, fmt.Errorf("`on` has a form that is not known")
	}
	return w, nil
}

// ours are the events by which the workflow would run on our branches.
func (w workflow) ours(prefix string) []string {
	var out []string
	if push, ok := w.on["push"]; ok && matches(push, prefix) {
		out = append(out, "a push")
	}
	if _, ok := w.on["pull_request"]; ok {
		out = append(out, "a pull request")
	}
	if _, ok := w.on["create"]; ok {
		out = append(out, "a new branch")
	}
	return out
}

// matches reports whether a push to a branch below the prefix is meant. A filter of tags alone
// means no branch.
func matches(push any, prefix string) bool {
	m, ok := push.(map[string]any)
	if !ok {
		return true
	}
	branch := prefix + "t_01hzzzzzzzzzzzzzzzzzzzzzzz-fix"
	if only := globs(m["branches"]); only != nil {
		hit := false
		for _, g := range only {
			if rest, not := strings.CutPrefix(g, "!"); not {
				hit = hit && !glob(rest, branch)
			} else {
				hit = hit || glob(g, branch)
			}
		}
		return hit
	}
	if never := globs(m["branches-ignore"]); never != nil {
		return !slices.ContainsFunc(never, func(g string) bool { return glob(g, branch) })
	}
	return m["tags"] == nil && m["tags-ignore"] == nil
}

func globs(v any) []string {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		out := []string{}
		for _, x := range v {
			out = append(out, fmt.Sprint(x))
		}
		return out
	}
	return nil
}

// glob is the workflow syntax: * stops at a slash, ** does not.
func glob(g, s string) bool {
	var b strings.Builder
	b.WriteString("^")
	for i := 0; i < len(g); i++ {
		switch {
		case strings.HasPrefix(g[i:], "**"):
			b.WriteString(".*")
			i++
		case g[i] == '*':
			b.WriteString("[^/]*")
		case strings.IndexByte("?+[]", g[i]) >= 0:
			b.WriteByte(g[i]) // the same in both syntaxes, near enough
		default:
			b.WriteString(regexp.QuoteMeta(g[i : i+1]))
		}
	}
	re, err := regexp.Compile(b.String() + "$")
	return err != nil || re.MatchString(s) // what cannot be read is taken to match
}

// secrets are the names of those that the workflow uses, beside its own token.
func (w workflow) secrets() []string {
	var out []string
	for _, m := range regexp.MustCompile(`\bsecrets(?:\.([A-Za-z_][A-Za-z0-9_]*)|\[['"]([^'"]+)['"]\])`).FindAllStringSubmatch(w.text, -1) {
		name := m[1] + m[2]
		if name != "GITHUB_TOKEN" && name != "GITEA_TOKEN" && name != "inherit" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	if regexp.MustCompile(`(?m)^\s*secrets:\s*['"]?inherit`).MatchString(w.text) || regexp.MustCompile(`toJSON\(\s*secrets\s*\)`).MatchString(w.text) {
		out = append(out, "(all of them)")
	}
	return out
}

// readOnly reports whether the file limits its token to reading.
func (w workflow) readOnly() bool {
	switch p := w.permissions.(type) {
	case string:
		return p == "read-all"
	case map[string]any:
		for _, v := range p {
			if s := fmt.Sprint(v); s != "read" && s != "none" {
				return false
			}
		}
		return true
	}
	return false
}
