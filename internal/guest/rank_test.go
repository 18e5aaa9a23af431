package guest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFileRank(t *testing.T) {
	for p, want := range map[string]Rank{
		"a/b.go": RankSource, "a/b_test.go": RankTest, "tests/x.py": RankTest, "test_x.py": RankTest, "src/conftest.py": RankTest,
		"a.spec.ts": RankTest, "a.test.js": RankTest, "src/FooTest.java": RankTest, "__tests__/a.js": RankTest,
		"vendor/a/b.go": RankAside, "web/node_modules/a.js": RankAside, "api/zz_generated.deepcopy.go": RankAside, "api.pb.go": RankAside, "vendors.go": RankSource,
		"contest.py": RankSource, "latest/x.rs": RankSource, "README.md": RankOther, "go.sum": RankOther, "testdata/x.json": RankOther, "Makefile": RankOther,
	} {
		if got := RankFile(p); got != want {
			t.Errorf("%s: %d, want %d", p, got, want)
		}
	}
}

func TestDefinitions(t *testing.T) {
	for _, c := range []struct {
		pattern, line string
		want          bool
	}{
		{"Total", "func Total(p []int) int {", true},
		{"Total", "func (c *Cart) Total() int {", true},
		{"Total", "\treturn Total(p)", false},
		{"Total", "func Sum() { Total() }", false},
		{`\btotal\b`, "    async def total(self):", true},
		{"Total", "export default class Total extends X {", true},
		{"Total", "pub(crate) fn total() {", false}, // not recognised: it is ranked as source
		{"total", "const total = 1", true},
		{"Tot.*l", "type Total struct {", true},
		{"Tot.*l", "x := Total{}", false},
	} {
		if got := RankingOf(SearchRequest{Pattern: c.pattern}).Of(Match{Path: "a.go", Text: c.line}) == RankDefinition; got != c.want {
			t.Errorf("%s in %q: %v", c.pattern, c.line, got)
		}
	}
}

func TestShare(t *testing.T) {
	for _, c := range []struct {
		asked []int
		limit int
		want  []int
	}{
		{nil, 5, []int{}},
		{[]int{3, 0, 9}, 0, []int{0, 0, 0}},
		{[]int{3, 0, 9}, 100, []int{3, 0, 9}},
		{[]int{3, 0, 9}, 8, []int{3, 0, 5}},
		{[]int{9, 9, 9}, 2, []int{1, 1, 0}},
		{[]int{100, 1, 100, 2}, 20, []int{9, 1, 8, 2}},
	} {
		got, sum := share(c.asked, c.limit)
		total := 0
		for i := range got {
			total += got[i]
		}
		if d := cmp.Diff(c.want, got); d != "" || sum != total {
			t.Errorf("%d of %v, %d in all:\n%s", c.limit, c.asked, sum, d)
		}
	}
}
