package tasks

import (
	"bytes"
	"crypto/ed25519"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybreak-agent/daybreak/internal/access"
	"github.com/daybreak-agent/daybreak/internal/app"
	"github.com/daybreak-agent/daybreak/internal/cli/kit"
	"github.com/daybreak-agent/daybreak/internal/cli/verify"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/evidence"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// sign records the evidence of a verdict for a task, as its worker does.
func sign(t *testing.T, a *app.App) []byte {
	t.Helper()
	b, err := evidence.Sign(t.Context(), evidence.RecordOf(evidence.Input{
		Repo: "/srv/shop", Made: time.Now(), Log: &evidence.Log{Task: someTask, Seq: 1, Root: strings.Repeat("ab", 32)},
		Verdict: task.Verdict{Kind: task.Verified, Reason: "it holds", Base: strings.Repeat("b", 40), HeadTree: strings.Repeat("c", 40), Detail: strings.Repeat("long\n", 5000)},
	}), a.Attest())
	if err != nil {
		t.Fatal(err)
	}
	text, err := store.Spill(t.Context(), a.Store, string(b))
	if err != nil {
		t.Fatal(err)
	}
	l, err := a.Store.Acquire(t.Context(), someTask, "me", time.Hour, nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := event.New(event.EvidenceSigned{Digest: evidence.Digest(b), Key: event.KeyID(ed25519.PublicKey(a.PublicKey())), Verification: 1, Bundle: text})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Store.Append(t.Context(), l, d); err != nil {
		t.Fatal(err)
	}
	if err := a.Store.Release(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	return b
}

// verifies runs verify-evidence with the public key alone.
func verifies(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	env := &kit.Env{Out: &out, Err: &out, Now: time.Now, Dir: t.TempDir(), Getenv: func(string) string { return "" }}
	root := &cobra.Command{Use: "daybreak", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(verify.NewEvidenceCmd(env))
	root.SetArgs(append([]string{"verify-evidence"}, args...))
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

// TestEvidence: what a task's evidence is downloaded as, over the API and by the command beside the
// store and far from it, are the bytes that were signed. They verify with the line that is printed,
// and a changed byte is found and named.
func TestEvidence(t *testing.T) {
	a, srv := installed(t)
	_, token, err := access.CreateToken(t.Context(), a.Store.(store.Access), nil, time.Now(), access.NewToken{Name: "reader", Scopes: []access.Scope{access.Read}})
	if err != nil {
		t.Fatal(err)
	}
	here, there := t.TempDir(), t.TempDir()
	id := string(someTask)
	for _, server := range []string{"", srv.URL} {
		_, err := run(t, a.Dir, server, token, "task", "evidence", id)
		if task.ClassOf(err) != task.NotFound || !strings.Contains(err.Error(), "was not verified yet") {
			t.Errorf("without evidence, server %q: %v", server, err)
		}
	}
	want := sign(t, a)

	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"/api/tasks/"+id+"/evidence", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil || !bytes.Equal(got, want) || res.Header.Get("Content-Type") != "application/json" ||
		res.Header.Get("Content-Disposition") != `attachment; filename="`+id+`.evidence.json"` || res.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%d %v %v", res.StatusCode, res.Header, err)
	}

	for _, tt := range []struct{ dir, server, into string }{{a.Dir, "", here}, {t.TempDir(), srv.URL, there}} {
		if out, err := run(t, tt.dir, tt.server, token, "task", "evidence", id); err != nil || out != string(want) {
			t.Errorf("server %q: %v, %d bytes", tt.server, err, len(out))
		}
		file := filepath.Join(tt.into, "proof.json")
		out, err := run(t, tt.dir, tt.server, token, "task", "evidence", "-o", file)
		if err != nil || !strings.Contains(out, evidence.Digest(want)) {
			t.Fatalf("%q %v", out, err)
		}
		_, line, _ := strings.Cut(strings.TrimSpace(out), " verify-evidence ")
		if said, err := verifies(t, strings.Fields(line)...); err != nil || !strings.HasPrefix(said, "good: "+evidence.Digest(want)) {
			t.Errorf("%q: %q %v", line, said, err)
		}
		key := line[strings.LastIndex(line, " ")+1:]
		for from, to := range map[string]string{`"it holds"`: `"it h0lds"`, strings.Repeat("b", 40): "0" + strings.Repeat("b", 39)} {
			bad := filepath.Join(tt.into, "bad.json")
			if err := os.WriteFile(bad, bytes.Replace(want, []byte(from), []byte(to), 1), 0o600); err != nil {
				t.Fatal(err)
			}
			part := map[bool]string{true: "off: results: ", false: "off: base: "}[from == `"it holds"`]
			if said, err := verifies(t, bad, "--key", key); kit.CodeOf(err) != kit.NotVerified || !strings.HasPrefix(said, part) {
				t.Errorf("%s → %s: %q %v", from, to, said, err)
			}
		}
	}
}
