package verify

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// manyPackages is a module with a chain net ← cart ← shop and many packages beside it.
func manyPackages() sample {
	files := map[string]string{
		"go.mod":            "module example.com/shop\n\ngo 1.21\n",
		"net/net.go":        "package net\n\nfunc Net(total, coupon int) int { return total - coupon }\n",
		"cart/cart.go":      "package cart\n\nimport \"example.com/shop/net\"\n\nfunc Sum(coupon int) int { return net.Net(10, coupon) }\n",
		"cart/cart_test.go": "package cart\n\nimport \"testing\"\n\nfunc TestSum(t *testing.T) {\n\tif Sum(3) != 7 {\n\t\tt.Fatal(Sum(3))\n\t}\n}\n",
	}
	for i := range 4 {
		files[fmt.Sprintf("p%d/p_test.go", i)] = fmt.Sprintf("package p%d\n\nimport \"testing\"\n\nfunc TestP(t *testing.T) {}\n", i)
	}
	test := map[string]string{"net/net_test.go": "package net\n\nimport \"testing\"\n\nfunc TestNet(t *testing.T) {\n\tif got := Net(1, 3); got != 0 {\n\t\tt.Fatalf(\"got %d, want 0\", got)\n\t}\n}\n"}
	return sample{layers: map[string]map[string]string{
		"base": files, "test": test,
		"fix":   {"net/net.go": "package net\n\nfunc Net(total, coupon int) int {\n\tif coupon > total {\n\t\treturn 0\n\t}\n\treturn total - coupon\n}\n"},
		"break": {"net/net.go": "package net\n\nfunc Net(total, coupon int) int {\n\treturn 0\n}\n"},
		"build": {"go.mod": "module example.com/shop\n\ngo 1.22\n"},
	}}
}

func TestImpactedTestsRunFirst(t *testing.T) {
	s := manyPackages()
	v, _ := newVerifier(t, Settings{Guard: -1})
	snap := s.snapshot(t, "base")
	base, err := v.Baseline(context.Background(), snap, nil)
	if err != nil {
		t.Fatal(err)
	}
	const declared = "example.com/shop/net.TestNet"
	for _, c := range []struct {
		name   string
		change []string
		millis int64
		want   task.VerdictKind
		phases string
		note   string // what P5 says of the choice
	}{
		{"a regression among them saves the suite", []string{"test", "break"}, impactFrom, task.Regression, "impact", "1 test of 5, in files that import what changed"},
		{"the suite follows when they pass", []string{"test", "fix"}, impactFrom, task.Verified, "impact regression", "in files that import"},
		{"a quick suite is run at once", []string{"test", "break"}, impactFrom - 1, task.Regression, "regression", ""},
		{"what a build file reaches is not known", []string{"test", "fix", "build"}, impactFrom, "", "regression", "the whole suite at once: go.mod decides what is built"},
	} {
		t.Run(c.name, func(t *testing.T) {
			base := roundTrip(t, base)
			base.SuiteMillis = c.millis
			v, _ := newVerifier(t, Settings{Guard: -1})
			changes := s.changes(t, c.change...)
			got, err := v.Verify(context.Background(), Job{Snapshot: snap, HeadTree: "tree", Changes: changes, Declared: []string{declared}, Baseline: base})
			if err != nil {
				t.Fatal(err)
			}
			var names, notes []string
			for _, ph := range got.Phases {
				if ph.Phase == "P5" {
					names, notes = append(names, ph.Name), append(notes, ph.Note)
				}
			}
			if note := strings.Join(notes, "; "); !strings.Contains(note, c.note) || c.note == "" && note != "" {
				t.Errorf("P5 says %q, want %q", note, c.note)
			}
			if c.want != "" && got.Kind != c.want || strings.Join(names, " ") != c.phases {
				t.Errorf("verdict %s: %s, P5 %q; want %s, %q\n%s", got.Kind, got.Reason, names, c.want, c.phases, outline(got))
			}
			if got.Kind == task.Regression && !slices.Equal(got.Suite.NewlyFailing, []string{"example.com/shop/cart::TestSum"}) {
				t.Errorf("newly failing %q", got.Suite.NewlyFailing)
			}
		})
	}
}
