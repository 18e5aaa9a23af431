package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestIDsOfATest(t *testing.T) {
	for name, want := range map[string][]string{
		"TestTraps_EXP01_EXP02":                 {"EXP-01", "EXP-02"},
		"TestNET08Budget":                       {"NET-08"},
		"TestSuite/PidsCap_SBX17":               {"SBX-17"},
		"TestSuite_SBX17/plain":                 nil,
		"TestSuite/Calls_SBX05_SBX06#01":        {"SBX-05", "SBX-06"},
		"TestPRINT01":                           nil,
		"TestSBX017":                            nil,
		"TestSECRETCI05":                        nil,
		"TestNetworkMOD05":                      {"MOD-05"},
		"TestA_GW01/x_GW02":                     {"GW-02"},
		"TestHTTPS_NET0":                        nil,
		"TestTheToolsAreTheseAlone_INT09_MOD07": {"INT-09", "MOD-07"},
	} {
		if got := idsOf(name); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func TestCatalogueIsWhole(t *testing.T) {
	cases, err := catalogue()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, c := range cases {
		if seen[c.ID] || !slices.Equal(idsOf("Test_"+strings.Replace(c.ID, "-", "", 1)), []string{c.ID}) || c.Title == "" || !slices.Contains([]string{"P0", "P1", "P2"}, c.Priority) {
			t.Errorf("%+v", c)
		}
		seen[c.ID] = true
		if c.Absent != "" && gate(c) {
			t.Errorf("%s is a gate of a release and cannot be absent", c.ID)
		}
	}
	if len(cases) != 128 {
		t.Errorf("%d cases", len(cases))
	}
}

// Every id that a test carries is one of the catalogue, or the test would count for nothing.
func TestEveryTestIsOfTheCatalogue(t *testing.T) {
	cases, err := catalogue()
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`(?m)^func (Test\w+)\(|\t\{?(?:t\.Run\()?"(\w+_[A-Z]{2,4}\d\d)"`)
	seen := 0
	packages, err := holders("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range append(packages, "internal/sandbox/sandboxtest", "internal/model/modeltest") {
		files, err := filepath.Glob(filepath.Join("..", dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range names.FindAllStringSubmatch(string(b), -1) {
				for _, id := range idsOf(m[1] + m[2]) {
					seen++
					if !slices.ContainsFunc(cases, func(c Case) bool { return c.ID == id }) {
						t.Errorf("%s: %s%s carries %s, which is no case", f, m[1], m[2], id)
					}
				}
			}
		}
	}
	if seen < 100 {
		t.Errorf("only %d ids were seen: the search is broken", seen)
	}
}

// A package of a module that is not run would fail the whole, or count for nothing.
func TestEveryHolderIsInAModuleThatIsRun(t *testing.T) {
	packages, err := holders("..")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(packages, inBrowser) {
		t.Errorf("no test in a browser carries an id: %q", packages)
	}
	for _, dir := range packages {
		for up := dir; up != "."; up = filepath.Dir(up) {
			if _, err := os.Stat(filepath.Join("..", up, "go.mod")); err == nil && up != inBrowser {
				t.Errorf("%s is in the module %s, which is not run", dir, up)
			}
		}
	}
}

const report = `{"Action":"run","Package":"m/p","Test":"TestA_SBX01"}
{"Action":"output","Package":"m/p","Test":"TestA_SBX01","Output":"    a_test.go:3: it got out\n"}
{"Action":"fail","Package":"m/p","Test":"TestA_SBX01"}
{"Action":"pass","Package":"github.com/daybreak-agent/daybreak/internal/sandbox/oci","Test":"TestB_SBX02"}
{"Action":"pass","Package":"m/p","Test":"TestC_SBX03"}
{"Action":"output","Package":"m/p","Test":"TestE_SBX02","Output":"    e_test.go:9: not exercised: busy\n"}
{"Action":"skip","Package":"m/p","Test":"TestE_SBX02"}
{"Action":"output","Package":"m/p","Test":"TestD_SBX04","Output":"    d_test.go:9: not exercised: no such thing here\n"}
{"Action":"skip","Package":"m/p","Test":"TestD_SBX04"}
{"Action":"output","Package":"github.com/daybreak-agent/daybreak/e2e","Test":"TestE_SBX06/one","Output":"    e_test.go:9: not exercised: nor without it\n"}
{"Action":"skip","Package":"github.com/daybreak-agent/daybreak/e2e","Test":"TestE_SBX06/one"}
{"Action":"pass","Package":"github.com/daybreak-agent/daybreak/e2e","Test":"TestE_SBX06"}
{"Action":"output","Package":"github.com/daybreak-agent/daybreak/e2e","Test":"TestF_SBX07/one","Output":"    f_test.go:9: not exercised: the one\n"}
{"Action":"skip","Package":"github.com/daybreak-agent/daybreak/e2e","Test":"TestF_SBX07/one"}
{"Action":"pass","Package":"github.com/daybreak-agent/daybreak/e2e","Test":"TestF_SBX07/other"}
{"Action":"pass","Package":"github.com/daybreak-agent/daybreak/e2e","Test":"TestF_SBX07"}
{"Action":"pass","Package":"github.com/daybreak-agent/daybreak/e2e/browser","Test":"TestG_WEB01"}
{"Action":"pass","Package":"github.com/daybreak-agent/daybreak/internal/web","Test":"TestH_WEB02"}
{"Action":"build-output","ImportPath":"m/q [m/q.test]","Output":"q.go:1: syntax error\n"}
{"Action":"fail","Package":"m/q"}
`

func TestJudging(t *testing.T) {
	got, err := read(strings.NewReader(report), func(result) {})
	if err != nil {
		t.Fatal(err)
	}
	var cases []Case
	for _, id := range []string{"SBX-01", "SBX-02", "SBX-03", "SBX-04", "SBX-05", "MCP-01", "SBX-06", "SBX-07", "WEB-01", "WEB-02"} {
		cases = append(cases, Case{ID: id, Priority: "P0", Boundary: "sandbox", Kind: "R"})
	}
	cases[5].Absent, cases[5].Boundary = "no tool servers yet", "mcp"
	for i := 8; i < len(cases); i++ {
		cases[i].Kind, cases[i].Boundary = "B", "web"
	}
	columns := []column{{Runtime: "runc", results: got}, {Runtime: "runsc", Why: "no runsc"}}
	rows := judge(cases, columns)
	for i, want := range []outcome{
		{Status: failed, Reason: "m/p.TestA_SBX01: it got out"},
		{Status: held, Reason: "a part not: busy", Tests: []string{"internal/sandbox/oci.TestB_SBX02"}},
		{Status: absent, Reason: "only in a table, not in a real sandbox"},
		{Status: absent, Reason: "no such thing here"},
		{Status: absent, Reason: "no test carries this id"},
		{Status: absent, Reason: "no tool servers yet"},
		{Status: absent, Reason: "nor without it"},
		{Status: held, Reason: "a part not: the one"},
		{Status: held, Tests: []string{"e2e/browser.TestG_WEB01"}},
		{Status: absent, Reason: "only in a table, not in a real browser"},
	} {
		o := rows[i].Outcomes[0]
		if o.Status != want.Status || o.Reason != want.Reason {
			t.Errorf("%s: %+v, want %+v", rows[i].ID, o, want)
		}
	}
	if o := rows[1].Outcomes[1]; o.Status != absent || o.Reason != "no runsc" {
		t.Errorf("runsc: %+v", o)
	}
	err = verdict(rows, columns)
	for _, want := range []string{"SBX-01 failed on runc", "SBX-03 is a gate", "SBX-04 is a gate", "SBX-05 is a gate", "m/q failed on runc: q.go:1: syntax error"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("verdict does not say %q: %v", want, err)
		}
	}
	if err != nil && (strings.Contains(err.Error(), "SBX-02") || strings.Contains(err.Error(), "MCP-01")) {
		t.Errorf("verdict: %v", err)
	}
	if err := verdict(judge(cases, columns[1:]), columns[1:]); err != nil {
		t.Errorf("a runtime that is not there: %v", err)
	}
}
