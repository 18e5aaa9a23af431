package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// lookInto is a conversation that tells one sandbox's certificate from others, and tries to
// change it.
const lookInto = `transcript: 1
---
calls:
  - {name: run, input: {command: "c=/etc/daybreak/front.pem; grep -c BEGIN $c; echo \"front $(sha256sum <$c | cut -c1-64)\"; stat -c 'is %U %a' $c; echo x >>$c || echo kept"}}
---
calls:
  - {name: decline, input: {kind: out_of_scope, reason: The shop wants it., tried: I looked.}}
`

// TestASandboxStoodReady: a task on a base that another had before gets a sandbox that stood ready,
// with a certificate that it alone trusts. The list of sandboxes, the record and the numbers say so.
func TestASandboxStoodReady(t *testing.T) {
	files := killFiles(t)
	for i := range files.Files {
		if files.Files[i].Name == "fix.yaml" {
			files.Files[i].Data = []byte(lookInto)
		}
	}
	in := service(t, files, "", "")
	in.replace(t, "mirror: {off: [go, npm, pypi, crates, maven, debian]}", "mirror: {off: [go, pypi, crates, maven, debian], npm: {url: 'https://packages.test', internal: true}}")
	p := in.start(t, nil, "serve")
	issue, err := os.ReadFile(filepath.Join(in.dir, "issue.md"))
	if err != nil {
		t.Fatal(err)
	}
	ask := func(key string) task.ID {
		t.Helper()
		code, got := p.call(t, "POST", "/api/tasks", apiToken, map[string]any{"repo": filepath.Join(in.dir, "shop"), "issue": string(issue), "key": key})
		if code != http.StatusCreated {
			t.Fatalf("%d %v", code, got)
		}
		id, _ := got["task"].(string)
		if s := in.wait(t, task.ID(id)); s != task.Declined {
			t.Fatalf("the task is %s\n%s", s, p.log())
		}
		return task.ID(id)
	}
	numbers := func(name string) float64 {
		t.Helper()
		_, all := get(t, "http://"+p.address(t)+"/metrics", map[string]string{"Authorization": "Bearer " + apiToken})
		m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindStringSubmatch(all)
		if m == nil {
			t.Fatalf("no %s in\n%s", name, all)
		}
		n, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	ready := regexp.MustCompile(`(?m)^[0-9a-f]{32} +- +ready +\S+ +alive$`)
	waiting := func() {
		t.Helper()
		// One serves the agent and what verifies: they differ in what only their task has.
		for end := time.Now().Add(patience); !ready.MatchString(in.output(t, "sandbox", "ls")); <-time.After(100 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("none is ready: %s\n%s", in.output(t, "sandbox", "ls"), p.log())
			}
		}
	}
	own := regexp.MustCompile(`│ 1\n.*│ front ([0-9a-f]{64})\n.*│ is root 644\n.*Read-only file system\n.*│ kept`)
	certificate := func(id task.ID) string {
		t.Helper()
		shown := in.output(t, "task", "show", string(id), "--full")
		m := own.FindStringSubmatch(shown)
		if m == nil {
			t.Fatalf("no certificate of its own:\n%s", shown)
		}
		return m[1]
	}

	first := certificate(ask("one"))
	waiting()
	before := numbers(`daybreak_ready_sandbox_claims{outcome="handed_out"}`)
	id := ask("two")
	if s := in.summary(t, id).AgentSandbox; s == nil || !s.Stood {
		t.Errorf("the agent's sandbox of the second task was started for it: %+v", s)
	}
	if shown := in.output(t, "task", "show", string(id)); !strings.Contains(shown, ", stood ready") {
		t.Errorf("it is not said:\n%s", shown)
	}
	if second := certificate(id); second == first {
		t.Error("both tasks' sandboxes trust one certificate")
	}
	if after := numbers(`daybreak_ready_sandbox_claims{outcome="handed_out"}`); after < before+1 {
		t.Errorf("%v handed out, %v before", after, before)
	}
	if took := numbers("daybreak_ready_sandbox_start_seconds"); took <= 0 {
		t.Errorf("a start takes %v", took)
	}
	waiting()
	p.end(t)
	if left := in.output(t, "sandbox", "ls"); ready.MatchString(left) {
		t.Errorf("ready ones are left: %s", left)
	}
}
