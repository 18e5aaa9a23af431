package proposal

import (
	"fmt"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/event"
)

// writeReach says which packages outside the lockfiles were asked for, and what was refused: a
// reviewer must see both.
func writeReach(b *strings.Builder, r event.Reach) {
	if len(r.New)+len(r.Noted) == 0 && r.Refusals == 0 {
		return
	}
	b.WriteString("#### Package registries\n\n")
	if len(r.New) > 0 {
		fmt.Fprintf(b, "Asked for %s that no lockfile of the base has:\n\n", count(len(r.New), "package"))
		listNames(b, r.New)
	}
	if len(r.Noted) > 0 {
		b.WriteString("What the registries say of versions that were fetched:\n\n")
		listNames(b, r.Noted)
	}
	if r.Refusals > 0 {
		fmt.Fprintf(b, "Refused %s:\n\n| ecosystem | asked for | reason |\n|---|---|---|\n", count(r.Refusals, "request"))
		for i, n := range r.Refused {
			if i == maxRows {
				break
			}
			what, ecosystem := strings.TrimSpace(n.Name+" "+n.Version), "–"
			if what == "" {
				what = n.Detail // a request that named no package
			}
			if n.Ecosystem != "" {
				ecosystem = cell(n.Ecosystem)
			}
			fmt.Fprintf(b, "| %s | %s | %s |\n", ecosystem, cell(what), cell(n.Reason))
		}
		if more := r.Refusals - min(len(r.Refused), maxRows); more > 0 {
			fmt.Fprintf(b, "| | and %d more | |\n", more)
		}
		b.WriteString("\n")
	}
}

func listNames(b *strings.Builder, names []event.NetworkName) {
	b.WriteString("| ecosystem | package | note |\n|---|---|---|\n")
	for i, n := range names {
		if i == maxRows {
			fmt.Fprintf(b, "| | and %d more | |\n", len(names)-i)
			break
		}
		fmt.Fprintf(b, "| %s | %s | %s |\n", cell(n.Ecosystem), cell(strings.TrimSpace(n.Name+" "+n.Version)), cell(strings.Join(n.Notes, "; ")))
	}
	b.WriteString("\n")
}
