package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// column is one runtime and what its run reported.
type column struct {
	Runtime string
	Why     string // why there was no run
	results []result
}

// Outcomes of a case.
const (
	held   = "held"
	failed = "failed"
	absent = "not exercised"
)

// outcome of one case under one runtime.
type outcome struct {
	Status string   `json:"status"`
	Reason string   `json:"reason,omitempty"`
	Tests  []string `json:"tests,omitempty"` // those that held
}

// row is a case with one outcome for each column.
type row struct {
	Case
	Outcomes []outcome
}

func judge(cases []Case, columns []column) []row {
	out := make([]row, len(cases))
	for i, c := range cases {
		out[i].Case = c
		for _, col := range columns {
			out[i].Outcomes = append(out[i].Outcomes, judgeOne(c, col))
		}
	}
	return out
}

// judgeOne looks at all tests that carry the case's id.
func judgeOne(c Case, col column) outcome {
	if col.Why != "" {
		return outcome{Status: absent, Reason: col.Why}
	}
	var o outcome
	var skipped []string
	wants := map[bool]string{strings.Contains(c.Kind, "R"): "sandbox", c.Kind == "B": "browser"}[true]
	genuine := wants == ""
	for _, r := range col.results {
		if r.Test == "" || !slices.Contains(idsOf(r.Test), c.ID) {
			continue
		}
		name := shortPackage(r.Package) + "." + r.Test
		switch r.Action {
		case "fail":
			return outcome{Status: failed, Reason: name + ": " + r.Reason}
		case "skip":
			skipped = append(skipped, r.Reason)
		case "pass":
			passed, why := partsOf(r, col.results)
			skipped = append(skipped, why...)
			if passed {
				o.Tests = append(o.Tests, name)
				genuine = genuine || wants == "sandbox" && isReal(shortPackage(r.Package)) || wants == "browser" && shortPackage(r.Package) == inBrowser
			}
		}
	}
	switch {
	case len(o.Tests) > 0 && genuine:
		o.Status = held
		if len(skipped) > 0 {
			o.Reason = "a part not: " + skipped[0]
		}
	case len(skipped) > 0:
		o.Status, o.Reason = absent, skipped[0]
	case len(o.Tests) > 0:
		o.Status, o.Reason = absent, "only in a table, not in a real "+wants
	case c.Absent != "":
		o.Status, o.Reason = absent, c.Absent
	default:
		o.Status, o.Reason = absent, "no test carries this id"
	}
	return o
}

// partsOf looks at the subtests of a test that passed, which it does when all of them were
// skipped as well: then it shows nothing. The reasons are those of the skipped ones.
func partsOf(t result, all []result) (passed bool, skipped []string) {
	parts := 0
	for _, r := range all {
		if r.Package != t.Package || !strings.HasPrefix(r.Test, t.Test+"/") {
			continue
		}
		parts++
		if r.Action == "skip" {
			skipped = append(skipped, r.Reason)
		}
	}
	return parts == 0 || len(skipped) < parts, skipped
}

func shortPackage(p string) string {
	return strings.TrimPrefix(p, "github.com/daybreak-agent/daybreak/")
}

// gates are the boundaries whose P0 cases must be held under runc.
func gate(c Case) bool {
	return c.Priority == "P0" && slices.Contains([]string{"gateway", "sandbox", "egress", "export"}, c.Boundary)
}

// verdict is an error when a case failed, a package did not run, or a gate is open.
func verdict(rows []row, columns []column) error {
	var bad []string
	for _, r := range rows {
		for i, o := range r.Outcomes {
			switch {
			case o.Status == failed:
				bad = append(bad, r.ID+" failed on "+columns[i].Runtime)
			case o.Status != held && columns[i].Runtime == "runc" && gate(r.Case):
				bad = append(bad, r.ID+" is a gate and was not exercised")
			}
		}
	}
	for _, c := range columns {
		for _, r := range c.results {
			if r.Action == "fail" && len(idsOf(r.Test)) == 0 && !strings.Contains(r.Test, "/") {
				bad = append(bad, strings.TrimSuffix(strings.TrimSpace(shortPackage(r.Package)+" "+r.Test)+" failed on "+c.Runtime+": "+r.Reason, ": "))
			}
		}
	}
	if len(bad) == 0 {
		return nil
	}
	slices.Sort(bad)
	return fmt.Errorf("%s", strings.Join(slices.Compact(bad), "; "))
}

func printTable(w io.Writer, rows []row, columns []column) error {
	title := 0
	for _, r := range rows {
		title = max(title, len(r.Title))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-8s %-3s %-10s %-*s", "case", "pri", "boundary", title, "what is tried")
	for _, c := range columns {
		fmt.Fprintf(&b, "  %-13s", c.Runtime)
	}
	b.WriteString("  why not\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "%-8s %-3s %-10s %-*s", r.ID, r.Priority, r.Boundary, title, r.Title)
		var reasons []string
		for i, o := range r.Outcomes {
			fmt.Fprintf(&b, "  %-13s", o.Status)
			if o.Reason == "" {
				continue
			}
			if i > 0 && r.Outcomes[0].Reason == o.Reason {
				continue
			}
			if i > 0 {
				o.Reason = columns[i].Runtime + ": " + o.Reason
			}
			reasons = append(reasons, o.Reason)
		}
		if len(reasons) > 0 {
			b.WriteString("  " + strings.Join(reasons, "; "))
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
	for i, c := range columns {
		n := count(rows, i)
		fmt.Fprintf(&b, "%-6s %d held, %d failed, %d not exercised\n", c.Runtime, n[held], n[failed], n[absent])
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func count(rows []row, i int) map[string]int {
	n := map[string]int{}
	for _, r := range rows {
		n[r.Outcomes[i].Status]++
	}
	return n
}

func printJSON(w io.Writer, rows []row, columns []column) error {
	enc := json.NewEncoder(w)
	totals := map[string]any{"type": "result"}
	for i, c := range columns {
		n := count(rows, i)
		totals[c.Runtime] = map[string]int{"held": n[held], "failed": n[failed], "not_exercised": n[absent]}
	}
	for _, r := range rows {
		by := map[string]outcome{}
		for i, o := range r.Outcomes {
			by[columns[i].Runtime] = o
		}
		line := struct {
			Type string `json:"type"`
			Case
			Runtimes map[string]outcome `json:"runtimes"`
		}{"case", r.Case, by}
		if err := enc.Encode(line); err != nil {
			return err
		}
	}
	return enc.Encode(totals)
}
