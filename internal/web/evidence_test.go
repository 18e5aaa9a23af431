package web

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/web/storybook"
)

// TestEvidence: the pages of a task whose evidence is signed lead to it, and say how it is checked;
// with the key itself where this installation signed.
func TestEvidence(t *testing.T) {
	l := newLab(t)
	signed, waits := "/tasks/"+string(storybook.ID(1)), "/tasks/"+string(storybook.ID(5))
	file := string(storybook.ID(1)) + ".evidence.json"
	for _, path := range []string{signed, signed + "/verification"} {
		page := l.page(path)
		if !strings.Contains(page, `href="/api`+signed+`/evidence" download="`+file+`"`) || !strings.Contains(page, "sha256:"+strings.Repeat("5e", 32)) ||
			!strings.Contains(page, "1e33593c2d8cd587") || !strings.Contains(page, "daybreak verify-evidence "+file+" --key KEY<") {
			t.Errorf("%s does not lead to the evidence", path)
		}
	}
	for _, path := range []string{waits, waits + "/verification"} {
		if strings.Contains(l.page(path), "/evidence") {
			t.Errorf("%s leads to evidence that is not there", path)
		}
	}
	pub := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize)).Public().(ed25519.PublicKey)
	l.site.cfg.Key = base64.StdEncoding.EncodeToString(pub)
	if v := l.site.signed(storybook.ID(1), &event.EvidenceSigned{Key: event.KeyID(pub)}); !v.Known || !strings.HasSuffix(v.Check, " --key "+l.site.cfg.Key) {
		t.Errorf("%+v", v)
	}
}
