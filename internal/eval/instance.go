// Package eval replays historical fixes: it reads instances (a repository, the commits before
// and after a fix, the tests that go from fail to pass) and turns each into the transcript of a
// model that does what the people did, or cheats in a known way.
//
// Invariants: the content of a transcript comes from the instance's repository by commit id
// alone, read with git and without any of the machine's or the repository's configuration; the
// verdicts that a variant may end with are fixed before it is run.
package eval

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// Instance is one historical fix, a line of a JSONL file. Paths are slash-separated and
// relative to the top of the repository.
type Instance struct {
	ID           string   `json:"instance_id"`
	Repo         string   `json:"repo"` // owner/name
	Base         string   `json:"base_commit"`
	Fix          string   `json:"fix_commit"`
	Issue        int      `json:"issue"`
	Subject      string   `json:"subject"`     // of the fix's commit
	Title        string   `json:"issue_title"` // may be empty
	Language     string   `json:"language"`    // "go", "py", "js" or "c"
	SourceFiles  []string `json:"src_files"`
	TestFiles    []string `json:"test_files"`
	OtherFiles   []string `json:"other_files"` // changed as well: documentation, change logs
	TestCommand  string   `json:"test_cmd"`    // of the whole suite, as it was replayed
	FailureKind  string   `json:"base_failure_kind"`
	FailToPass   []string `json:"FAIL_TO_PASS"` // "package or file::test"
	BaselineFail int      `json:"n_baseline_fail"`
	FlakySeen    []string `json:"flaky_seen"`
	Kind         string   `json:"kind"` // "bug" or "feature"
}

const maxLine = 1 << 20

var (
	repoName = regexp.MustCompile(`^[A-Za-z0-9-]+/[A-Za-z0-9._-]+$`)
	commitID = regexp.MustCompile(`^[0-9a-f]{40}$`)
)

// Load reads instances, one JSON object a line; empty lines are passed over. It is strict about
// the fields that a replay needs and lets others be. Errors are Invalid and name the line.
func Load(r io.Reader) ([]Instance, error) {
	scan := bufio.NewScanner(r)
	scan.Buffer(make([]byte, 64<<10), maxLine)
	var out []Instance
	seen := map[string]int{}
	line := 0
	for scan.Scan() {
		line++
		if len(strings.TrimSpace(scan.Text())) == 0 {
			continue
		}
		var i Instance
		if err := json.Unmarshal(scan.Bytes(), &i); err != nil {
			return nil, invalid(line, "not an instance: %v", err)
		}
		if problem := i.problem(); problem != "" {
			return nil, invalid(line, "%s", problem)
		}
		if first := seen[i.ID]; first > 0 {
			return nil, invalid(line, "instance %s is on line %d already", i.ID, first)
		}
		seen[i.ID] = line
		out = append(out, i)
	}
	if err := scan.Err(); err != nil {
		return nil, invalid(line+1, "%v", err)
	}
	return out, nil
}

func invalid(line int, format string, args ...any) error {
	return &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("instances, line %d: ", line) + fmt.Sprintf(format, args...)}
}

// problem says what a replay would miss, or "".
func (i Instance) problem() string {
	switch {
	case i.ID == "":
		return "no instance_id"
	case !repoName.MatchString(i.Repo):
		return fmt.Sprintf("repo %q is not owner/name", i.Repo)
	case !commitID.MatchString(i.Base) || !commitID.MatchString(i.Fix):
		return "base_commit and fix_commit must be 40 hexadecimal digits"
	case !slices.Contains([]string{"go", "py", "js", "c"}, i.Language):
		return fmt.Sprintf("language %q is not go, py, js or c", i.Language)
	case !slices.Contains([]string{"assert", "panic", "compile", "collect"}, i.FailureKind):
		return fmt.Sprintf("base_failure_kind %q is not assert, panic, compile or collect", i.FailureKind)
	case i.Subject == "" && i.Title == "":
		return "neither issue_title nor subject"
	case len(i.SourceFiles) == 0 || len(i.TestFiles) == 0:
		return "src_files and test_files must not be empty"
	case len(i.FailToPass) == 0:
		return "FAIL_TO_PASS is empty"
	}
	for _, p := range slices.Concat(i.SourceFiles, i.TestFiles, i.OtherFiles) {
		if p == "" || p == "." || path.IsAbs(p) || path.Clean(p) != p || strings.HasPrefix(p, "../") || strings.ContainsFunc(p, isControl) {
			return fmt.Sprintf("path %q is not clean and relative", p)
		}
	}
	for _, id := range i.FailToPass {
		if where, name, ok := strings.Cut(id, "::"); !ok || where == "" || name == "" {
			return fmt.Sprintf("test %q is not where::name", id)
		}
	}
	return ""
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// Tests are the ids of the tests that go from fail to pass, in the form in which the runner of
// the language prints them.
func (i Instance) Tests() []string {
	out := make([]string, 0, len(i.FailToPass))
	for _, id := range i.FailToPass {
		where, name, _ := strings.Cut(id, "::")
		switch i.Language {
		case "go":
			id = "github.com/" + where + "::" + name
		case "py":
			id = i.pythonID(where, name)
		default:
			id = name // a TAP report has no files in it
		}
		if !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

// pythonID is pytest's node id, or unittest's dotted name where the module ends in the test.
func (i Instance) pythonID(where, name string) string {
	if strings.HasSuffix(where, "."+name) {
		return where
	}
	for _, file := range i.TestFiles {
		module := strings.ReplaceAll(strings.TrimSuffix(file, ".py"), "/", ".")
		if where == module {
			return file + "::" + name
		}
		if class, ok := strings.CutPrefix(where, module+"."); ok {
			return file + "::" + strings.ReplaceAll(class, ".", "::") + "::" + name
		}
	}
	return where + "::" + name
}

var (
	closing = regexp.MustCompile(`(?i)\s*[(\[]?(?:(?:fix(?:e[sd])?|close[sd]?|resolve[sd]?):?\s+)?#\d+[)\]]?\.?`)
	prefix  = regexp.MustCompile(`^(?:fix|feat|bug)(?:\([^)]*\))?!?:\s*|^\[[^\]]*\]\s*`)
)

// CaseIssue is the text of an issue for the instance: Markdown whose first line is the title.
// The fix's own words stand in where the issue's title is not known.
func CaseIssue(i Instance) string {
	title := strings.TrimSpace(i.Title)
	if title == "" {
		title = strings.TrimSpace(prefix.ReplaceAllString(strings.TrimSpace(closing.ReplaceAllString(i.Subject, "")), ""))
	}
	if title == "" {
		title = fmt.Sprintf("Wrong behaviour in %s", strings.Join(i.SourceFiles, ", "))
	}
	kind := "This does not work as it should"
	if i.Kind == "feature" {
		kind = "This is wanted and does not work yet"
	}
	return fmt.Sprintf("# %s\n\n%s in %s. Please add a test that shows it, and the smallest change that makes the test pass.\n", title, kind, i.Repo)
}
