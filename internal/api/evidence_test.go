package api

import (
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/access"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// TestEvidence: the signed account comes as a file that acts nowhere, whole or as its envelope, to
// whoever may read the task; without one the answer says why.
func TestEvidence(t *testing.T) {
	l := newLab(t)
	envelope := `{"payload":"e30=","payloadType":"application/vnd.in-toto+json","signatures":[{"keyid":"k","sig":"c2ln"}]}`
	bundle := `{"attestation":` + envelope + `,"format":"daybreak-evidence/1","record":{"base":"<script>"}}` + "\n"
	digest, err := l.st.PutBlob(t.Context(), []byte(bundle))
	if err != nil {
		t.Fatal(err)
	}
	old := event.EvidenceSigned{Digest: "sha256:0", Bundle: event.Text{Inline: "{}", Bytes: 2}}
	id := l.record(t, 1, "https://hub/open/x", "ann", old, event.EvidenceSigned{Digest: "sha256:" + digest, Key: "k", Verification: 2, Bundle: event.Text{Blob: digest, Bytes: len(bundle)}})
	at := "/api/tasks/" + string(id) + "/evidence"
	for _, tt := range []struct{ accept, kind, name, body string }{
		{"", "application/json", string(id) + ".evidence.json", bundle},
		{"*/*", "application/json", string(id) + ".evidence.json", bundle},
		{typeEnvelope, typeEnvelope, string(id) + ".dsse.json", envelope},
	} {
		w := l.call(t, person("reader"), "GET", at, "", "Accept", tt.accept)
		h := w.Header()
		if w.Code != 200 || w.Body.String() != tt.body || h.Get("Content-Type") != tt.kind || h.Get("Content-Disposition") != `attachment; filename="`+tt.name+`"` ||
			h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Content-Security-Policy") != access.InertPolicy || h.Get("Vary") != "Accept" {
			t.Errorf("accept %q: %d %v %.60s", tt.accept, w.Code, h, w.Body)
		}
	}
	if w := l.call(t, operator, "GET", "/api/tasks/"+string(id)+"/blobs/"+digest, ""); w.Code != 200 || w.Body.String() != bundle {
		t.Errorf("as a text of the log: %d", w.Code)
	}
	verdict := func(k task.VerdictKind) event.Payload {
		return event.VerificationFinished{Kind: k, Document: event.Text{Inline: "{}", Bytes: 2}}
	}
	for i, tt := range []struct {
		log  []event.Payload
		says string
	}{
		{nil, "was not verified yet"},
		{[]event.Payload{verdict(task.NotFixed)}, "the newest verdict is not_fixed"},
		{[]event.Payload{verdict(task.Verified)}, "not signed yet"},
		{[]event.Payload{verdict(task.Verified), event.PullRequestOpened{Branch: "b"}}, "beside the pull request"},
	} {
		id := l.record(t, 2+i, "https://hub/open/x", "ann", tt.log...)
		w := l.call(t, person("reader"), "GET", "/api/tasks/"+string(id)+"/evidence", "")
		if p := decodeInto[access.Problem](t, w); w.Code != 404 || p.Class != "not_found" || !strings.Contains(p.Detail, tt.says) {
			t.Errorf("%d: %d %s", i, w.Code, w.Body)
		}
	}
}
