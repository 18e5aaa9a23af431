package worker

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/git/gittest"
	"github.com/daybreak-agent/daybreak/internal/policy"
	"github.com/daybreak-agent/daybreak/internal/policy/secrets"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/snapshot"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/tool"
)

const hostKey = "canary-9Qe2/Lm+7xTz4Wb1Kd"

// gitHubToken is made up, and put together so that this file holds none.
func gitHubToken() string { return "ghp_" + "k3J9sQ2xV7bN1mZ8cL4dW6fR0tY5uH2pA9e1" }

func gzipped(s string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(s))
	_ = w.Close()
	return b.String()
}

func entry(path, content string) sandbox.Entry {
	return sandbox.Entry{Path: path, Mode: git.ModeFile, Content: []byte(content)}
}

// exporting is a run at work whose sandbox holds the entries.
func exporting(t *testing.T, entries ...sandbox.Entry) (*rig, *harness) {
	t.Helper()
	r := newRig(t, task.Limits{})
	known := []policy.Secret{{Name: "model key", Value: hostKey}}
	r.cfg.Secrets, r.cfg.Redactor = secrets.New(known), policy.NewRedactor(known)
	r.boxes.manifest = sandbox.Manifest{Entries: entries}
	r.record(t, event.StateChanged{From: task.Queued, To: task.Preparing}, event.StateChanged{From: task.Preparing, To: task.Working})
	events, err := r.cfg.Store.Events(t.Context(), r.id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	j := &journal{st: r.cfg.Store, now: r.cfg.Now, task: r.id, lease: r.lease}
	if j.summary, err = event.Fold(events); err != nil {
		t.Fatal(err)
	}
	one := &run{Worker: r.Worker, j: j, box: &left{r.boxes}}
	if one.snap, err = r.cfg.Snapshots.Prepare(t.Context(), snapshot.Source{Repo: r.repo}); err != nil {
		t.Fatal(err)
	}
	return r, &harness{one}
}

// everything is what the log holds.
func (r *rig) everything(t *testing.T) string {
	t.Helper()
	events, err := r.cfg.Store.Events(t.Context(), r.id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, e := range events {
		b.Write(e.Payload)
		b.WriteByte('\n')
	}
	return b.String()
}

func TestSecretsBlockTheExport_EXP13(t *testing.T) {
	b64 := base64.StdEncoding.EncodeToString([]byte(gzipped("key: " + hostKey)))
	for _, c := range []struct {
		name, path, content, rule string
	}{
		{"plain", "conf.go", "x = \"" + hostKey + "\"\n", "known-secret:model key"},
		{"hex", "conf.go", hex.EncodeToString([]byte(hostKey)), "known-secret:model key"},
		{"gzip and base64", "data.txt", b64, "known-secret:model key"},
		{"over lines", "data.txt", hostKey[:9] + "\n" + hostKey[9:] + "\n", "known-secret:model key"},
		{"in a binary", "a.bin", "\x00\x01" + hostKey, "known-secret:model key"},
		{"in a held file", ".github/workflows/ci.yml", "env: " + hostKey, "known-secret:model key"},
		{"in a file name", "docs/" + strings.ReplaceAll(hostKey, "/", "_") + ".md", "x", "known-secret:model key"},
		{"a key's format", "test.go", "token := \"" + gitHubToken() + "\"\n", "github-pat"},
		{"in an ignored place by name", "node_modules/x/index.js", "'" + gitHubToken() + "' // gitleaks:allow\n", "github-pat"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, h := exporting(t, entry("a.txt", "two\n"), entry(c.path, c.content))
			v, got, err := h.verdict(t.Context(), tool.SubmitRequest{Title: "fix"})
			if err != nil {
				t.Fatal(err)
			}
			if v.Kind != task.PolicyRefused || !strings.Contains(v.Reason, c.rule) {
				t.Errorf("verdict %s: %s", v.Kind, v.Reason)
			}
			inName := c.name == "in a file name"
			if strings.Contains(v.Reason, c.path) == inName {
				t.Errorf("the reason names the path: %v: %s", !inName, v.Reason)
			}
			if !got.withheld || len(got.all) != 1 || got.all[0].Path != "a.txt" {
				t.Errorf("kept: %+v", got.all)
			}
			for _, f := range v.Findings {
				if strings.Contains(f.Path+f.Detail+f.Old+f.New, hostKey) || strings.Contains(f.Detail, gitHubToken()) {
					t.Errorf("a finding tells the value: %+v", f)
				}
			}
			all := r.everything(t)
			for what, s := range map[string]string{"key": hostKey, "token": gitHubToken(), "hex": hex.EncodeToString([]byte(hostKey)), "pack": b64, "content": base64.StdEncoding.EncodeToString([]byte(c.content))} {
				if len(s) > 8 && strings.Contains(all, s) {
					t.Errorf("the log holds the %s", what)
				}
			}
			if !strings.Contains(all, c.rule) {
				t.Error("the log does not name the rule")
			}
			res, err := h.Reproduce(t.Context(), tool.ReproduceRequest{Files: []string{"a.txt"}})
			if err != nil || !res.IsError || !strings.Contains(res.Text, c.rule) {
				t.Errorf("reproduce: %+v %v", res, err)
			}
		})
	}
}

// What the base holds already, a person put there.
func TestASecretOfTheBaseIsNoFinding_EXP13(t *testing.T) {
	_, h := exporting(t)
	in := []git.Change{{Path: "a.txt", Mode: git.ModeFile, Content: []byte("token " + gitHubToken() + "\n")}}
	var d policy.Decision
	clean, err := h.r.withoutSecrets(in, map[string][]byte{"a.txt": []byte("the old token " + gitHubToken())}, &d)
	if err != nil || len(clean) != 1 || len(d.Findings) != 0 {
		t.Errorf("%+v %+v %v", clean, d, err)
	}
	if clean, err = h.r.withoutSecrets(in, nil, &d); err != nil || len(clean) != 0 || len(d.Findings) != 1 {
		t.Errorf("%+v %+v %v", clean, d, err)
	}
}

func TestSecretsInTheAgentsWords_EXP13(t *testing.T) {
	for name, q := range map[string]tool.SubmitRequest{
		"title": {Title: "use " + gitHubToken()}, "cause": {Title: "t", Cause: base64.StdEncoding.EncodeToString([]byte("the key " + hostKey))},
		"fix": {Title: "t", Fix: strings.Join(strings.Split(hostKey, ""), " ")}, "tests": {Title: "t", Tests: []string{gitHubToken()}},
	} {
		r, h := exporting(t, entry("a.txt", "two\n"))
		res, err := h.Submit(t.Context(), q)
		if err != nil || !res.IsError || !strings.Contains(res.Text, "policy_refused") || !strings.Contains(res.Text, "rule ") {
			t.Errorf("%s: %+v %v", name, res, err)
		}
		if s := h.r.j.Summary(); s.State != task.Working || s.Submitted != nil || len(s.Findings) != 1 {
			t.Errorf("%s: state %s, submitted %v, findings %v", name, s.State, s.Submitted, s.Findings)
		}
		if all := r.everything(t); strings.Contains(all, hostKey) || strings.Contains(all, gitHubToken()) {
			t.Errorf("%s: the log holds the value", name)
		}
	}
}

// published runs a verified task to its end and returns everything that left.
func published(t *testing.T, fix string, v task.Verdict) (event.Summary, string, error) {
	t.Helper()
	r := newRig(t, task.Limits{})
	known := []policy.Secret{{Name: "model key", Value: hostKey}}
	r.cfg.Secrets, r.cfg.Redactor = secrets.New(known), policy.NewRedactor(known)
	r.verified(t)
	base := gittest.Run(t, r.repo, "rev-parse", "HEAD")
	v.Kind, v.Base, v.HeadTree = task.Verified, base, r.fold(t).Exported.Tree
	r.record(t, event.Submitted{Title: "fix it", Fix: fix}, event.VerificationFinished{Attempt: 2, Kind: task.Verified, Document: text(t, v)})
	r.release(t)
	sum, err := r.Run(t.Context(), r.id)
	out := gittest.Run(t, r.repo, "log", "--all", "--format=%B %D", "-p")
	if sum.PullRequest != nil {
		werr := filepath.WalkDir(sum.PullRequest.URL, func(p string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			b, err := os.ReadFile(p)
			out += string(b)
			return err
		})
		if werr != nil {
			t.Fatal(werr)
		}
	}
	return sum, out, err
}

// MOD-05: what a model, or a test's output, says reaches the pull request masked.
func TestSecretsAreMaskedInThePullRequest_MOD05_EXP13(t *testing.T) {
	dop := "dop_v1_" + "3f9a1c7e5b2d8046f1e3a9c7b5d2e8f04a6c1e3b5d7f9082a4c6e8f01b3d5f70" // a format that only gitleaks' rules know
	v := task.Verdict{Reproduction: []task.Reproduction{{Test: "p.TestX", Base: task.Fail, Head: task.Pass, BaseOutput: "env: K=" + hostKey + "\ntoken " + dop + "\n"}}}
	sum, out, err := published(t, "It used "+gitHubToken()+" before.", v)
	if err != nil || sum.State != task.InReview {
		t.Fatalf("state %s, error %v", sum.State, err)
	}
	for _, s := range []string{hostKey, gitHubToken(), dop} {
		if strings.Contains(out, s) {
			t.Errorf("%.8s… left with the pull request", s)
		}
	}
	for _, want := range []string{"[redacted:model key]", "[redacted:github_token]", "[redacted:digitalocean-pat]"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in what left:\n%s", want, out)
		}
	}
}

// What is encoded cannot be masked: then nothing leaves.
func TestAnEncodedSecretEndsThePublication_EXP13(t *testing.T) {
	packed := base64.StdEncoding.EncodeToString([]byte(gzipped("the key is " + hostKey)))
	sum, out, err := published(t, "Data: "+packed, task.Verdict{})
	if sum.State != task.Failed || !strings.Contains(sum.Reason, "known-secret:model key") {
		t.Errorf("state %s: %s (%v)", sum.State, sum.Reason, err)
	}
	if strings.Contains(out, packed) || strings.Contains(out, "daybreak/") {
		t.Error("something was pushed")
	}
}

func TestContentPolicyIsAsked_EXP14_EXP15_EXP16_EXP17(t *testing.T) {
	lock := `{"packages":{"node_modules/a":{"version":"1.0.0","resolved":"git+https://evil.test/a.git","integrity":""}}}`
	_, h := exporting(t, entry("a.txt", "two\n"), entry("package-lock.json", lock), entry("logo.png", "\x89PNG\x00"), entry("run.sh", "true\n"), entry("x.go", "var p\u0430y = 1\n"))
	c, err := h.r.export(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var allowed, held []string
	for _, e := range c.allowed {
		allowed = append(allowed, e.Path)
	}
	for _, e := range c.held {
		held = append(held, e.Path)
	}
	if !slices.Equal(allowed, []string{"a.txt", "run.sh", "x.go"}) || !slices.Equal(held, []string{"package-lock.json", "logo.png"}) || c.blocked != "" {
		t.Errorf("allowed %q, held %q, blocked %q", allowed, held, c.blocked)
	}
	got := map[string]string{}
	for _, f := range c.findings {
		got[f.Path+" "+f.Kind] = f.Severity
	}
	for want, severity := range map[string]string{"package-lock.json lockfile": "warn", "logo.png held_content": "warn", "run.sh runs_elsewhere": "info", "x.go mixed_script": "warn"} {
		if got[want] != severity {
			t.Errorf("no finding %q of severity %s in %v", want, severity, got)
		}
	}
	for content, says := range map[string]string{"x = 1 // \u202e\n": "U+202E", strings.Repeat("x", 2<<20): "make it smaller"} {
		_, h := exporting(t, entry("x.go", content))
		v, _, err := h.verdict(t.Context(), tool.SubmitRequest{Title: "fix"})
		if err != nil || v.Kind != task.PolicyRefused || !strings.Contains(v.Reason, says) || !strings.Contains(v.Reason, `"x.go"`) {
			t.Errorf("%s: %s %v", v.Kind, v.Reason, err)
		}
	}
}
