package main

import (
	_ "embed"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

//go:embed cases.tsv
var casesTSV string

// Case is one line of the threat model.
type Case struct {
	ID       string `json:"id"`
	Priority string `json:"priority"` // P0 is a gate of a release
	Boundary string `json:"boundary"`
	Kind     string `json:"-"` // U table, F fuzz, R real sandbox, N trap servers, G git, B browser
	Title    string `json:"title"`
	Absent   string `json:"-"` // which part of the product does not exist yet
}

// catalogue reads the cases, sorted as they stand in the file.
func catalogue() ([]Case, error) {
	var out []Case
	for i, line := range strings.Split(strings.TrimSuffix(casesTSV, "\n"), "\n") {
		f := strings.Split(line, "\t")
		if len(f) != 6 {
			return nil, fmt.Errorf("cases.tsv line %d has %d columns, want 6", i+1, len(f))
		}
		if i == 0 {
			continue
		}
		out = append(out, Case{ID: f[0], Priority: f[1], Boundary: f[2], Kind: f[3], Title: f[4], Absent: f[5]})
	}
	return out, nil
}

const families = "INT|MOD|GW|SBX|NET|EXP|FRG|CI|WEB|HOOK|SSRF|MCP|KEY|LOG|OPS"

// suiteOf is the test whose subtests carry ids while its own name does not.
func suiteOf(runtime string) string {
	if runtime == "runsc" {
		return "^TestSuiteGVisor$|"
	}
	return "^TestSuite$|"
}

var idInName = regexp.MustCompile("(?:^|[^A-Z])(" + families + ")([0-9]{2})(?:[^0-9]|$)")

// idsOf are the ids that a test's own name, without its parents', carries.
func idsOf(test string) []string {
	name := test[strings.LastIndexByte(test, '/')+1:]
	var out []string
	for i := 0; i < len(name); {
		m := idInName.FindStringSubmatchIndex(name[i:])
		if m == nil {
			break
		}
		out = append(out, name[i+m[2]:i+m[3]]+"-"+name[i+m[4]:i+m[5]])
		i += m[5]
	}
	return out
}

// runPattern is the -run of the cases.
func runPattern(cases []Case) string {
	var ids []string
	for _, c := range cases {
		ids = append(ids, strings.Replace(c.ID, "-", "", 1))
	}
	return "(" + strings.Join(ids, "|") + ")([^0-9]|$)"
}

// suiteUsers are the packages where only a suite's subtests may carry ids.
func suiteUsers() []string {
	return []string{"internal/sandbox/oci", "internal/model/anthropic", "internal/model/openai"}
}

// isReal tells the packages whose tests start sandboxes: they run once for each runtime.
func isReal(dir string) bool { return dir == "e2e" || dir == "internal/sandbox/oci" }

// inBrowser is the package whose tests open the pages in a real browser. It is a module of its own,
// which the go command runs from its own directory alone.
const inBrowser = "e2e/browser"

// holders lists the packages below root that hold tests with an id in their name.
func holders(root string) ([]string, error) {
	holds := regexp.MustCompile("(?m)^func Test[A-Za-z0-9_]*(" + families + ")[0-9]{2}")
	out := suiteUsers()
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := filepath.ToSlash(p)
		if d.IsDir() {
			if base := path.Base(name); base == "testdata" || base == "tools" || len(base) > 1 && base[0] == '.' && base != ".." {
				return fs.SkipDir
			}
			return nil
		}
		dir, err := filepath.Rel(root, path.Dir(name))
		if err != nil || !strings.HasSuffix(name, "_test.go") || slices.Contains(out, dir) {
			return err
		}
		b, err := os.ReadFile(p)
		if err == nil && holds.Match(b) {
			out = append(out, dir)
		}
		return err
	})
	return out, err
}

// unavailable says why a runtime cannot be used here, or "".
func unavailable(runtime string) string {
	switch runtime {
	case "runc", "runsc":
	default:
		return "there is no runtime " + runtime
	}
	if os.Getenv("DAYBREAK_"+strings.ToUpper(runtime)) != "" {
		return ""
	}
	if _, err := os.Stat(filepath.Join(".tools", "bin", runtime)); err == nil {
		return ""
	}
	for dir := range strings.SplitSeq(os.Getenv("PATH"), ":") {
		if st, err := os.Stat(filepath.Join(dir, runtime)); err == nil && st.Mode().IsRegular() {
			return ""
		}
	}
	return "no " + runtime + " on this machine: run make " + map[string]string{"runc": "setup", "runsc": "gvisor"}[runtime]
}
