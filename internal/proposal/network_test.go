package proposal

import (
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/event"
)

// TestReachIsShown: names come from a sandbox, so that they must not act as Markdown.
func TestReachIsShown(t *testing.T) {
	var b strings.Builder
	writeReach(&b, event.Reach{})
	if b.Len() > 0 {
		t.Errorf("nothing was asked for and it says %q", b.String())
	}
	r := event.Reach{
		New:      []event.NetworkName{{Ecosystem: "npm", Name: "left-pad"}},
		Noted:    []event.NetworkName{{Ecosystem: "npm", Name: "left-pad", Version: "1.3.0", Notes: []string{"deprecated: use | instead"}}},
		Refusals: 40,
	}
	r.Refused = append(r.Refused, event.NetworkRefused{Reason: "origin", Detail: "x.test is no host of a configured registry"})
	for range 39 {
		r.Refused = append(r.Refused, event.NetworkRefused{Ecosystem: "go", Name: "x.test/](http://evil)<b>|", Reason: "name.foreign"})
	}
	writeReach(&b, r)
	got := b.String()
	for _, want := range []string{"| `npm` | `left-pad 1.3.0` | `deprecated: use \\| instead` |", "Refused 40 requests", "Asked for 1 package that", "| `npm` | `left-pad` |", "| – | `x.test is no host of a configured registry` | `origin` |", "`name.foreign`", "and 10 more"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	if strings.Contains(got, "| x.test") || !strings.Contains(got, "`x.test/](http://evil)<b>\\|`") {
		t.Errorf("a name is not shown as plain code:\n%s", got)
	}
}
