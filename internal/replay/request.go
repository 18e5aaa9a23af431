package replay

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"github.com/daybreak-agent/daybreak/internal/model"
)

// alike returns the request with the recorded text in every place where its own differs only in
// what may differ, so that equal requests have equal digests. With prompt the recorded prompt
// takes the place of the one now.
func alike(n *normaliser, now, recorded model.Request, prompt bool) model.Request {
	out := now
	out.Messages = slices.Clone(now.Messages)
	if prompt {
		out.System, out.Tools = recorded.System, recorded.Tools
		if len(out.Messages) > 0 && len(recorded.Messages) > 0 {
			// What follows the first block came later: a note about what was dropped.
			first, old := out.Messages[0], recorded.Messages[0]
			if len(first.Blocks) > 0 && len(old.Blocks) > 0 {
				first.Blocks = append(slices.Clone(old.Blocks[:1]), first.Blocks[1:]...)
				out.Messages[0] = first
			}
		}
	}
	for i := range out.Messages {
		if i >= len(recorded.Messages) {
			break
		}
		m, old := out.Messages[i], recorded.Messages[i]
		if m.Role != old.Role || len(m.Blocks) != len(old.Blocks) {
			continue
		}
		blocks := slices.Clone(m.Blocks)
		for k, b := range blocks {
			if b.Text != old.Blocks[k].Text && n.apply(b.Text) == n.apply(old.Blocks[k].Text) {
				blocks[k].Text = old.Blocks[k].Text
			}
		}
		out.Messages[i].Blocks = blocks
	}
	return out
}

func digest(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}
