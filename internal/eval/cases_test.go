package eval

import (
	"go/parser"
	"go/token"
	"maps"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestCasesAreWhatTheirLabelSays(t *testing.T) {
	all := Cases()
	faulty, ids := 0, map[string]bool{}
	for _, c := range all {
		if ids[c.ID] {
			t.Errorf("%s twice", c.ID)
		}
		ids[c.ID] = true
		if c.Fault != TrueFix {
			faulty++
		}
		if len(c.Fault.Wanted()) == 0 || maps.Equal(c.Base, c.Head) || len(c.Tests) != 1 {
			t.Errorf("%s: wanted %v, tests %v", c.ID, c.Fault.Wanted(), c.Tests)
		}
		for name, text := range c.Head {
			if strings.Contains(text, "%!") || text == "" {
				t.Errorf("%s: %s is not filled in:\n%s", c.ID, name, text)
			}
			if strings.HasSuffix(name, ".go") {
				if _, err := parser.ParseFile(token.NewFileSet(), name, text, 0); err != nil {
					t.Errorf("%s: %v", c.ID, err)
				}
			}
		}
		source := map[Lang]string{Go: ".go", Node: ".js", Pytest: ".py", Unittest: ".py"}[c.Lang]
		name, _, _ := strings.Cut(c.ID, "-")
		touched := c.Base[name+source] != c.Head[name+source]
		if only := map[Fault]bool{NoFixAtAll: true, Faked: true, CompileOnly: true, WrongReason: true, FlakyTest: true}[c.Fault]; touched == only {
			t.Errorf("%s: the source differs: %v", c.ID, touched)
		}
	}
	if faulty < 120 {
		t.Errorf("%d faulty cases, at least 120 are wanted", faulty)
	}
	if got := Select(all, []string{"price-go-hang", "nothing"}); len(got) != 1 || got[0].ID != "price-go-hang" {
		t.Errorf("selected %d", len(got))
	}
}

// TestTrueFixesAreTrue runs the Python cases by hand, without the verifier whose judge they are:
// the true fix passes its tests, and every other change of behaviour fails one.
func TestTrueFixesAreTrue(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	for _, p := range problems() {
		for body, good := range map[string]bool{"bug": false, "fix": true, "wrong": false, "partial": false, "hardcoded": true} {
			src := p.sources["python"]
			text := src[body] + "\n" + src["other"] + "\n"
			for _, c := range p.old {
				text += "assert " + c.call + " == " + c.want + "\n"
			}
			if out, err := exec.Command(python, "-c", text).CombinedOutput(); err != nil {
				t.Errorf("%s %s breaks an old test: %s", p.name, body, out)
			}
			for _, c := range p.checks {
				text += "assert " + c.call + " == " + c.want + "\n"
			}
			if out, err := exec.Command(python, "-c", text).CombinedOutput(); (err == nil) != good {
				t.Errorf("%s %s passes its tests: %v, want %v\n%s", p.name, body, err == nil, good, out)
			}
			spoilt := src["fix"] + "\n" + src["spoilt"] + "\nassert " + p.spoilt.call + " == " + p.spoilt.want + "\nassert " + p.old[0].call + " != " + p.old[0].want + "\n"
			if out, err := exec.Command(python, "-c", spoilt).CombinedOutput(); err != nil {
				t.Errorf("%s spoilt: %s", p.name, out)
			}
		}
	}
}

func TestWriteCase(t *testing.T) {
	c := Select(Cases(), []string{"price-node-deleted_test"})[0]
	dir := filepath.Join(t.TempDir(), "repo")
	base, head, err := WriteCase(t.Context(), dir, c, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	r := repo{dir: dir}
	f, err := r.read(t.Context(), base, "test/price.test.js")
	if err != nil || string(f.content) != c.Base["test/price.test.js"] {
		t.Errorf("%q %v", f.content, err)
	}
	f, err = r.read(t.Context(), head, "test/price.test.js")
	if err != nil || strings.Contains(string(f.content), "old a") || !strings.Contains(string(f.content), "old b") {
		t.Errorf("%q %v", f.content, err)
	}
	if f, err = r.read(t.Context(), base, CaseFile); err != nil || string(f.content) != "timeout: 1m0s\n" {
		t.Errorf("%q %v", f.content, err)
	}
}
