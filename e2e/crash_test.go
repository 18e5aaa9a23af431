package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// line is what one line of `run --json` may hold.
type line struct {
	Event   *line          `json:"event"` // in an export
	Type    string         `json:"type"`
	Kind    string         `json:"kind"`
	Seq     int64          `json:"seq"`
	Payload map[string]any `json:"payload"`
}

// killPoint is an event after which the process is killed.
type killPoint struct {
	name  string
	match func(line) bool // nil: while the model thinks about its first turn
}

func kind(k string) func(line) bool { return func(l line) bool { return l.Kind == k } }

func with(k, field string, value any) func(line) bool {
	return func(l line) bool { return l.Kind == k && fmt.Sprint(l.Payload[field]) == fmt.Sprint(value) }
}

// following fits the first event of a kind after one of another.
func following(first, then string) func(line) bool {
	seen := false
	return func(l line) bool {
		seen = seen || l.Kind == first
		return seen && l.Kind == then
	}
}

func killPoints() []killPoint {
	return []killPoint{
		{name: "run.started", match: kind("run.started")},
		{name: "snapshot.ready", match: kind("snapshot.ready")},
		{name: "sandbox.started of the baseline", match: kind("sandbox.started")},
		{name: "baseline.finished", match: kind("baseline.finished")},
		{name: "sandbox.started of the agent", match: with("sandbox.started", "purpose", "agent")},
		{name: "prompt.frozen", match: kind("prompt.frozen")},
		{name: "model.request", match: with("model.request", "step", 1)},
		{name: "model.request, the model thinks"},
		{name: "model.response", match: kind("model.response")},
		{name: "tool.started of run", match: with("tool.started", "name", "run")},
		{name: "tool.finished", match: kind("tool.finished")},
		{name: "tool.started of reproduce", match: with("tool.started", "name", "reproduce")},
		{name: "reproduction.checked", match: kind("reproduction.checked")},
		{name: "agent.submitted", match: kind("agent.submitted")},
		{name: "sandbox.started of the verifier", match: following("agent.submitted", "sandbox.started")},
		{name: "verification.finished", match: kind("verification.finished")},
		{name: "effect.intended of the push", match: with("effect.intended", "kind", "push")},
		{name: "effect.done of the push", match: with("effect.done", "kind", "push")},
		{name: "effect.intended of the pull request", match: with("effect.intended", "kind", "pull_request")},
		{name: "effect.done of the pull request", match: with("effect.done", "kind", "pull_request")},
		{name: "pull_request.opened", match: kind("pull_request.opened")},
	}
}

// outcome is a row of the printed table.
type outcome struct {
	name                        string
	killed, resumed             bool
	asked, repaid, doubled, pos int
}

// TestKill_OPS01 kills the process at every stage and gives the same command again: it goes on from
// the log, a reply on record is not asked for again, and there is one branch and one pull
// request.
func TestKill_OPS01(t *testing.T) {
	onRuncAlone(t)
	need(t, "python3")
	files, err := txtar.ParseFile("testdata/kill.txtar")
	if err != nil {
		t.Fatal(err)
	}
	var (
		mu   sync.Mutex
		rows []outcome
	)
	points := killPoints()
	t.Run("points", func(t *testing.T) {
		for i, p := range points {
			t.Run(strings.ReplaceAll(p.name, " ", "_"), func(t *testing.T) {
				t.Parallel()
				o := killOnce(t, files, p)
				o.pos = i
				mu.Lock()
				defer mu.Unlock()
				rows = append(rows, o)
			})
		}
	})
	table := make([]string, len(points))
	for _, o := range rows {
		table[o.pos] = fmt.Sprintf("%-38s %-8v %-8v %-13d %-8d %d", o.name, o.killed, o.resumed, o.asked, o.repaid, o.doubled)
	}
	t.Logf("\n%-38s %-8s %-8s %-13s %-8s %s\n%s", "killed after", "killed", "resumed", "asked again*", "re-paid", "doubled", strings.Join(table, "\n")+
		"\n* turns whose reply had not been recorded when the process died")
}

// installation is a data directory, its repository and its model.
type installation struct {
	dir   string
	model *modelServer
}

func install(t *testing.T, files *txtar.Archive) installation {
	t.Helper()
	dir := t.TempDir()
	for _, f := range files.Files {
		p := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := makeRepo(filepath.Join(dir, "shop")); err != nil {
		t.Fatal(err)
	}
	m, err := serveModel(filepath.Join(dir, "fix.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.close)
	if err := os.WriteFile(filepath.Join(dir, "daybreak.yaml"), []byte(configuration(m.http.URL, "")), 0o644); err != nil {
		t.Fatal(err)
	}
	return installation{dir, m}
}

func (in installation) command(args ...string) *exec.Cmd {
	path, _ := exec.LookPath("daybreak") // put on PATH by testscript.Main
	cmd := exec.Command(path, args...)
	cmd.Dir = in.dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + in.dir, "DAYBREAK_DIR=" + in.data(), "DAYBREAK_CONFIG=" + filepath.Join(in.dir, "daybreak.yaml"),
		"ANTHROPIC_API_KEY=sk-e2e-0123456789abcdef", "TMPDIR=" + in.dir,
	}
	return cmd
}

func (in installation) data() string { return filepath.Join(in.dir, "data") }

// run starts the command and reads its lines until it ends; at the first line that fits, it is
// killed without a chance to say goodbye.
func (in installation) run(t *testing.T, kill func(line) bool) (events []line, killed bool) {
	t.Helper()
	cmd := in.command("run", "--repo", "shop", "--issue", "issue.md", "--json")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReaderSize(out, 1<<20)
	for {
		text, err := r.ReadBytes('\n')
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			t.Fatalf("no JSON: %s", text)
		}
		events = append(events, l)
		if kill != nil && !killed && kill(l) {
			killed = true
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err != nil && !killed {
		t.Errorf("%v: %s", err, stderr.String())
	}
	return events, killed
}

func (in installation) output(t *testing.T, args ...string) string {
	t.Helper()
	cmd := in.command(args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("daybreak %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func killOnce(t *testing.T, files *txtar.Archive, p killPoint) outcome {
	if p.match == nil {
		slow := *files
		slow.Files = slices.Clone(files.Files)
		for i, f := range slow.Files {
			if f.Name == "fix.yaml" {
				slow.Files[i].Data = bytes.Replace(f.Data, []byte("calls:"), []byte("delay_ms: 1000\ncalls:"), 1)
			}
		}
		files = &slow
	}
	in := install(t, files)
	if p.match == nil {
		p.match = func(l line) bool {
			if l.Kind != "model.request" {
				return false
			}
			<-in.model.thinking
			return true
		}
	}
	target := fingerprint(filepath.Join(in.dir, "shop"))
	_, killed := in.run(t, p.match)
	if !killed {
		t.Fatalf("the first run never came to %s", p.name)
	}
	in.model.letGo()
	second, _ := in.run(t, nil)
	last := second[len(second)-1]
	if last.Type != "result" {
		t.Fatalf("no result at the end: %+v", last)
	}
	o := outcome{name: p.name, killed: killed}
	in.judge(t, &o, target)
	return o
}

// judge looks at what became of the one task of an installation whose process was killed
// once, and at everything it left.
func (in installation) judge(t *testing.T, o *outcome, target []string) {
	t.Helper()
	sent, recorded, runs := map[string]int{}, map[string]int{}, 0
	records := in.output(t, "task", "export")
	for text := range strings.Lines(records) {
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil || l.Event == nil {
			continue // the header and the texts
		}
		l = *l.Event
		step := fmt.Sprint(l.Payload["step"])
		switch l.Kind {
		case "run.started":
			runs++
			o.resumed = o.resumed || l.Payload["resumed"] == true
		case "model.request":
			sent[step]++
			if recorded[step] > 0 {
				t.Errorf("step %s was asked for again after its reply was on record", step)
				o.repaid++
			}
		case "model.response":
			recorded[step]++
		}
	}
	turns := in.model.Requests()
	for i, asked := range turns {
		step := fmt.Sprint(i + 1)
		if recorded[step] != 1 {
			t.Errorf("step %s has %d replies on record", step, recorded[step])
		}
		if asked > sent[step] {
			t.Errorf("turn %s was asked for %d times, the log knows of %d", step, asked, sent[step])
		}
		o.asked += asked - 1
	}
	if !o.resumed && runs > 1 { // after one run alone nothing was left to do: the kill came as it ended
		t.Error("the second run does not say that it goes on")
	}
	if o.asked > 1 {
		t.Errorf("requests per turn %v: one kill may repeat one call", turns)
	}
	if err := in.model.Err(); err != nil {
		t.Error(err)
	}
	o.doubled = in.count(t, "branches") - 1 + in.count(t, "pull requests") - 1 + in.count(t, "tasks") - 1
	if o.doubled != 0 {
		t.Errorf("%d branches, %d pull requests, %d tasks; want one of each", in.count(t, "branches"), in.count(t, "pull requests"), in.count(t, "tasks"))
	}
	if out := in.output(t, "task", "verify-log"); !strings.Contains(out, "chain good") || !strings.Contains(out, "checkpoint good") {
		t.Errorf("verify-log: %s", out)
	}
	in.output(t, "sandbox", "gc")
	if out := in.output(t, "sandbox", "ls"); !strings.Contains(out, "no sandboxes") {
		t.Errorf("sandboxes are left: %s", out)
	}
	if left := leftovers(in.data()); len(left) > 0 {
		t.Errorf("left behind: %s", strings.Join(left, "\n"))
	}
	if now := fingerprint(filepath.Join(in.dir, "shop")); strings.Join(now, "\n") != strings.Join(target, "\n") {
		t.Errorf("the target repository changed beyond its new branch:\n%s\nbefore:\n%s", strings.Join(now, "\n"), strings.Join(target, "\n"))
	}
}

func (in installation) count(t *testing.T, what string) int {
	t.Helper()
	switch what {
	case "branches":
		out, err := gitIn(filepath.Join(in.dir, "shop"), "for-each-ref", "--format=%(refname)", "refs/heads/daybreak/")
		if err != nil {
			t.Fatal(err)
		}
		return len(strings.Fields(out))
	case "pull requests":
		found, err := filepath.Glob(filepath.Join(in.data(), "pull-requests", "*", "pull-request.md"))
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	return strings.Count(in.output(t, "task", "ls"), "\n")
}
