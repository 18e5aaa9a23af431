package intake

import (
	"testing"

	"github.com/daybreak-agent/daybreak/internal/forge"
)

// TestLongIssue: what is said once is said once below an issue with more comments than a forge
// lists, and by a process that ended before it could remember it.
func TestLongIssue(t *testing.T) {
	l := newLab(t)
	l.issue(1, "text")
	l.post(l.labelled(1, "wanda"))
	edited := func(want int) {
		t.Helper()
		l.post(l.delivery(forge.Delivery{Kind: forge.Edited, Sender: user("rita"), Issue: l.town.issues[1]}))
		if said := l.town.said(1); len(said) != want {
			t.Errorf("said %d times", len(said))
		}
	}
	edited(1)
	if err := l.st.Update(t.Context(), "said/town:42#1", func([]byte) ([]byte, error) { return nil, nil }); err != nil {
		t.Fatal(err)
	}
	edited(1)
	l.town.comments[1] = nil
	for range forge.MaxItems {
		l.comment(1, "rita", "me too")
	}
	if err := l.st.Update(t.Context(), "said/town:42#1", func([]byte) ([]byte, error) { return nil, nil }); err != nil {
		t.Fatal(err)
	}
	edited(1)
	edited(1)
}
