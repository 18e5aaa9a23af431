package web

import (
	"crypto/ed25519"
	"encoding/base64"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// signedView is the signed account of a verification, with the line that checks it.
type signedView struct {
	URL, Name   string
	Digest, Key string
	Check       string
	Known       bool // the line has the key itself
}

// signed is what pages say of a signed account; nil for none.
func (s *Site) signed(id task.ID, e *event.EvidenceSigned) *signedView {
	if e == nil {
		return nil
	}
	v := &signedView{URL: "/api/tasks/" + string(id) + "/evidence", Name: string(id) + ".evidence.json", Digest: e.Digest, Key: e.Key}
	key := "KEY"
	// A worker elsewhere may have signed with a key of its own.
	if pub, err := base64.StdEncoding.DecodeString(s.cfg.Key); err == nil && len(pub) == ed25519.PublicKeySize && event.KeyID(pub) == e.Key {
		key, v.Known = s.cfg.Key, true
	}
	v.Check = "daybreak verify-evidence " + v.Name + " --key " + key
	return v
}
