package verify

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/verify/impact"
)

// choice is a change of a repository of several parts, in which net is needed by cart and by nothing
// else.
type choice struct {
	name, declared string
	base           map[string]string
	links          map[string]string // of the base, to what a package manager would install
	test, fix      map[string]string
	breaks         map[string]string // the fix, and cart's own test broken by it
	failing        string            // in the id of that test
	runs           string            // in the command that runs first
	note           string            // in what P5 says
}

// chosen runs a fix and a break of one build, as if its suite took long, and says what ran first.
func chosen(t *testing.T, c choice) {
	t.Helper()
	ctx := context.Background()
	s := sample{layers: map[string]map[string]string{"base": c.base, "test": c.test, "fix": c.fix, "breaks": c.breaks}}
	v, _ := newVerifier(t, Settings{Guard: -1, Timeout: 10 * time.Minute})
	snap := s.snapshot(t, "base")
	for at, to := range c.links {
		if err := os.Symlink(to, filepath.Join(snap.Tree, at)); err != nil {
			t.Fatal(err)
		}
	}
	for f := range c.base {
		if strings.HasSuffix(f, ".sh") {
			if err := os.Chmod(filepath.Join(snap.Tree, f), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	base, err := v.Baseline(ctx, snap, nil)
	if err != nil {
		t.Fatal(err)
	}
	base = roundTrip(t, base)
	base.SuiteMillis = impactFrom
	for _, side := range []struct {
		layer, phases string
		want          task.VerdictKind
	}{{"breaks", "impact", task.Regression}, {"fix", "impact regression", task.Verified}} {
		changes := s.changes(t, "test", side.layer)
		for i := range changes {
			if strings.HasSuffix(changes[i].Path, ".sh") {
				changes[i].Mode = 0o100755
			}
		}
		got, err := v.Verify(ctx, Job{Snapshot: snap, HeadTree: "tree", Changes: changes, Declared: []string{c.declared}, Baseline: base})
		if err != nil {
			t.Fatal(err)
		}
		var names, notes, first []string
		for _, ph := range got.Phases {
			if ph.Phase == "P5" {
				names, notes = append(names, ph.Name), append(notes, ph.Note)
			}
			for _, r := range ph.Runs {
				if ph.Name == "impact" {
					first = append(first, r.Command)
				}
			}
		}
		if got.Kind != side.want || strings.Join(names, " ") != side.phases {
			t.Errorf("%s, %s: verdict %s: %s, P5 %q %q; want %s, %q\n%s", c.name, side.layer, got.Kind, got.Reason, names, notes, side.want, side.phases, outline(got))
		}
		if side.want == task.Regression && !strings.Contains(strings.Join(got.Suite.NewlyFailing, " "), c.failing) {
			t.Errorf("%s: newly failing %q", c.name, got.Suite.NewlyFailing)
		}
		if !strings.Contains(strings.Join(first, "\n"), c.runs) || !strings.Contains(strings.Join(notes, "; "), c.note) {
			t.Errorf("%s: ran %q first, and says %q; want %q, %q", c.name, first, notes, c.runs, c.note)
		}
	}
}

// alike writes the same files for each of some parts.
func alike(files map[string]string, names []string, each func(name string) map[string]string) map[string]string {
	for _, n := range names {
		maps.Copy(files, each(n))
	}
	return files
}

func others() []string { return []string{"pa", "pb", "pc", "pd", "pe"} }

func TestChosenByCargo(t *testing.T) {
	optional(t, rustBin() != "", "cargo")
	manifest := func(name, rest string) string {
		return fmt.Sprintf("[package]\nname = %q\nversion = \"0.1.0\"\nedition = \"2021\"\n%s", name, rest)
	}
	lib := func(body string) string {
		return "pub fn net(total: i64, coupon: i64) -> i64 {\n    " + body + "\n}\n"
	}
	chosen(t, choice{
		name: "cargo", declared: "stops_at_nothing",
		base: alike(map[string]string{
			"Cargo.toml":             "[workspace]\nresolver = \"2\"\nmembers = [\"crates/*\"]\n\n[workspace.dependencies]\nnet = { path = \"crates/net\" }\n",
			"Cargo.lock":             "",
			"crates/net/Cargo.toml":  manifest("net", ""),
			"crates/net/src/lib.rs":  lib("total - coupon"),
			"crates/cart/Cargo.toml": manifest("cart", "\n[dependencies]\nnet.workspace = true\n"),
			"crates/cart/src/lib.rs": "#[test]\nfn sums() {\n    assert_eq!(net::net(10, 3), 7);\n}\n",
		}, others(), func(n string) map[string]string {
			return map[string]string{"crates/" + n + "/Cargo.toml": manifest(n, ""), "crates/" + n + "/src/lib.rs": "#[test]\nfn holds() {}\n"}
		}),
		test:    map[string]string{"crates/net/tests/coupon.rs": "#[test]\nfn stops_at_nothing() {\n    assert_eq!(net::net(1, 3), 0);\n}\n"},
		fix:     map[string]string{"crates/net/src/lib.rs": lib("(total - coupon).max(0)")},
		breaks:  map[string]string{"crates/net/src/lib.rs": lib("let _ = (total, coupon); 0")},
		failing: "cart (src/lib.rs)::sums", runs: "cargo test -p cart -p net", note: "1 test of 6, in what needs the changed parts by cargo's build: cart, net",
	})
}

func price(body string) string {
	return "package net;\n\npublic class Price {\n  public static int net(int total, int coupon) { " + body + " }\n}\n"
}

func junit(pkg, class, name, assertion string) string {
	return "package " + pkg + ";\n\nimport static org.junit.Assert.*;\nimport org.junit.Test;\n\npublic class " + class + " {\n  @Test public void " + name + "() { " + assertion + " }\n}\n"
}

// jvm is the same repository for Maven and Gradle.
func jvm(c choice, build func(name string) map[string]string) choice {
	c.declared = "CouponTest.stopsAtNothing"
	c.base = alike(c.base, append(others(), "net", "cart"), build)
	maps.Copy(c.base, map[string]string{
		"net/src/main/java/net/Price.java":     price("return total - coupon;"),
		"cart/src/test/java/cart/SumTest.java": junit("cart", "SumTest", "sums", "assertEquals(7, net.Price.net(10, 3));"),
	})
	alike(c.base, others(), func(n string) map[string]string {
		class := strings.ToUpper(n) + "Test"
		return map[string]string{n + "/src/test/java/" + n + "/" + class + ".java": junit(n, class, "holds", "assertTrue(true);")}
	})
	c.test = map[string]string{"net/src/test/java/net/CouponTest.java": junit("net", "CouponTest", "stopsAtNothing", "assertEquals(0, Price.net(1, 3));")}
	c.fix = map[string]string{"net/src/main/java/net/Price.java": price("return Math.max(0, total - coupon);")}
	c.breaks = map[string]string{"net/src/main/java/net/Price.java": price("return 0;")}
	c.failing = "sums"
	return c
}

func TestChosenByMaven(t *testing.T) {
	optional(t, have("mvn") && debianRepository(), "mvn with Debian's repository")
	long(t, 0)
	t.Setenv("MAVEN_OPTS", "-Dmaven.repo.local=/usr/share/maven-repo")
	pom := func(name, rest string) string {
		return "<project xmlns=\"http://maven.apache.org/POM/4.0.0\">\n<modelVersion>4.0.0</modelVersion>\n" + rest + "<artifactId>" + name + "</artifactId>\n"
	}
	modules := "<modules>"
	for _, n := range append(others(), "net", "cart") {
		modules += "<module>" + n + "</module>"
	}
	chosen(t, jvm(choice{
		name: "maven", runs: "-pl cart,net -am test", note: "1 test of 6, in what needs the changed parts by maven's build: cart, net",
		base: map[string]string{"pom.xml": pom("shop", "<groupId>shop</groupId><version>1</version><packaging>pom</packaging>\n") + modules + "</modules>\n" +
			"<properties><maven.compiler.source>17</maven.compiler.source><maven.compiler.target>17</maven.compiler.target><project.build.sourceEncoding>UTF-8</project.build.sourceEncoding></properties>\n" +
			"<dependencies><dependency><groupId>junit</groupId><artifactId>junit</artifactId><version>4.x</version><scope>test</scope></dependency></dependencies>\n</project>\n"},
	}, func(n string) map[string]string {
		text := pom(n, "<parent><groupId>shop</groupId><artifactId>shop</artifactId><version>1</version></parent>\n")
		if n == "cart" {
			text += "<dependencies><dependency><groupId>shop</groupId><artifactId>net</artifactId><version>1</version></dependency></dependencies>\n"
		}
		return map[string]string{n + "/pom.xml": text + "</project>\n"}
	}))
}

func TestChosenByGradle(t *testing.T) {
	_, err := os.Stat("/usr/share/java/junit4.jar")
	optional(t, have("gradle") && err == nil, "gradle with junit4")
	long(t, 0)
	settings := ""
	for _, n := range append(others(), "net", "cart") {
		settings += "include '" + n + "'\n"
	}
	chosen(t, jvm(choice{
		name: "gradle", runs: "gradle :cart:test :net:test", note: "1 test of 6, in what needs the changed parts by gradle's build: :cart, :net",
		base: map[string]string{"settings.gradle": settings, "build.gradle": "subprojects {\n  apply plugin: 'java'\n  repositories { flatDir { dirs '/usr/share/java' } }\n  dependencies {\n    testCompile name: 'junit4'\n    testCompile name: 'hamcrest-core'\n  }\n}\n"},
	}, func(n string) map[string]string {
		if n == "cart" {
			return map[string]string{"cart/build.gradle": "dependencies { compile project(':net') }\n"}
		}
		return nil
	}))
}

// TestChosenByJest and TestChosenByVitest: the name that cart imports is one that only the runner's
// configuration knows.
func TestChosenByJest(t *testing.T) {
	chosen(t, script(t, choice{
		name: "jest", runs: "npx jest --findRelatedTests", note: "and what jest itself relates to it",
		base: map[string]string{"package.json": `{"scripts": {"test": "jest"}, "jest": {"testEnvironment": "node", "moduleNameMapper": {"^money$": "<rootDir>/lib/net.js"}}}`},
	}, "const { net } = require('FROM')\n", "exports.net = (total, coupon) => BODY\n"))
}

func TestChosenByVitest(t *testing.T) {
	chosen(t, script(t, choice{
		name: "vitest", runs: "npx vitest related --run", note: "and what vitest itself relates to it",
		base: map[string]string{
			"package.json":     `{"type": "module", "scripts": {"test": "vitest run"}}`,
			"vitest.config.js": "export default { resolve: { alias: { money: new URL('./lib/net.js', import.meta.url).pathname } } }\n",
		},
	}, "import { test, expect } from 'vitest'\nimport { net } from 'FROM'\n", "export const net = (total, coupon) => BODY\n"))
}

// script is a package with the runner that set-up for the languages has installed.
func script(t *testing.T, c choice, head, source string) choice {
	t.Helper()
	modules, err := filepath.Abs("../../.tools/node/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	_, err = os.Stat(filepath.Join(modules, ".bin", c.name))
	optional(t, err == nil && exec.Command("node", "--version").Run() == nil, c.name)
	long(t, 0)
	c.links = map[string]string{"node_modules": modules}
	c.declared = "stops at nothing"
	body := func(text string) map[string]string {
		return map[string]string{"lib/net.js": strings.Replace(source, "BODY", text, 1)}
	}
	plain, _, found := strings.Cut(head, "import { net }") // of a test that imports nothing but the runner
	if !found {
		plain = ""
	}
	maps.Copy(c.base, body("total - coupon"))
	c.base["cart/sum.test.js"] = strings.Replace(head, "FROM", "money", 1) + "test('sums', () => expect(net(10, 3)).toBe(7))\n"
	alike(c.base, others(), func(n string) map[string]string {
		return map[string]string{n + "/holds.test.js": plain + "test('" + n + " holds', () => {})\n"}
	})
	c.test = map[string]string{"lib/net.test.js": strings.Replace(head, "FROM", "./net.js", 1) + "test('stops at nothing', () => expect(net(1, 3)).toBe(0))\n"}
	c.fix, c.breaks = body("Math.max(0, total - coupon)"), body("0")
	c.failing = "sums"
	return c
}

// bazelStandIns are the repositories that Bazel would fetch for its own rules.
func bazelStandIns(t *testing.T) map[string]string {
	t.Helper()
	a, err := txtar.ParseFile("../../e2e/testdata/script/verify_bazel.txtar")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, f := range a.Files {
		if name, ok := strings.CutPrefix(f.Name, "shop/"); ok && (strings.HasPrefix(name, "tools/") || !strings.Contains(name, "/")) {
			out[name] = string(f.Data)
		}
	}
	return out
}

func TestChosenByBazel(t *testing.T) {
	optional(t, have("bazel"), "bazel")
	long(t, 0)
	sh := func(check string) string {
		return "#!/bin/bash\n. net/net.sh\nwant() { [ \"$1\" = \"$2\" ] || { echo \"got $1, want $2\"; exit 1; }; }\n" + check + "\n"
	}
	source := func(body string) map[string]string {
		return map[string]string{"net/net.sh": "net() { " + body + "; }\n"}
	}
	c := choice{
		name: "bazel", declared: "//net:coupon_test", failing: "//cart:sum_test", runs: "bazel test //cart:sum_test //net:coupon_test", note: "that bazel query says depend on what changed",
		base: bazelStandIns(t), fix: source("echo $(($1 > $2 ? $1 - $2 : 0))"), breaks: source("echo 0"),
		test: map[string]string{"net/coupon_test.sh": sh("want 1 1\nwant \"$(net 1 3)\" 0")}, // what stands there stays: a changed line of a shell test asks for a person
	}
	maps.Copy(c.base, source("echo $(($1 - $2))"))
	maps.Copy(c.base, map[string]string{
		"net/BUILD":          "sh_library(name = \"net\", srcs = [\"net.sh\"], visibility = [\"//visibility:public\"])\n\nsh_test(name = \"coupon_test\", srcs = [\"coupon_test.sh\"], data = [\":net\"])\n",
		"net/coupon_test.sh": sh("want 1 1"),
		"cart/BUILD":         "sh_test(name = \"sum_test\", srcs = [\"sum_test.sh\"], data = [\"//net\"])\n",
		"cart/sum_test.sh":   sh("want \"$(net 10 3)\" 7"),
	})
	alike(c.base, others(), func(n string) map[string]string {
		return map[string]string{n + "/BUILD": "sh_test(name = \"" + n + "_test\", srcs = [\"t.sh\"])\n", n + "/t.sh": "#!/bin/bash\ntrue\n"}
	})
	chosen(t, c)
}

// TestPlacesOfParts: where a test's part is not known, it is chosen, and nothing is narrowed by it.
func TestPlacesOfParts(t *testing.T) {
	files := []string{"a/pom.xml", "a/src/test/java/ATest.java", "b/pom.xml", "b/src/test/java/BTest.java", "pom.xml"}
	texts := map[string]string{
		"pom.xml":   "<project><artifactId>top</artifactId><modules><module>a</module><module>b</module></modules></project>",
		"a/pom.xml": "<project><artifactId>a</artifactId></project>", "b/pom.xml": "<project><artifactId>b</artifactId></project>",
	}
	tree := impact.Tree{Files: files, Read: func(f string) []byte { return []byte(texts[f]) }}
	for _, c := range []struct{ declared, other, tests, places string }{
		{"x.ATest", "x.BTest", "a", "-pl=a x.ATest"},
		{"x.ATest", "x.Elsewhere", "a other", "x.ATest x.Elsewhere"},
		{"x.Nowhere", "x.BTest", "a", "x.ATest x.Nowhere"},
	} {
		b := Baseline{
			Plan: Plan{Suites: []Suite{{Kind: KindMaven, Dir: "."}}}, Tests: map[string]task.TestStatus{"a": task.Pass, "other": task.Pass},
			Where: map[string]Place{"a": {Group: "x.ATest"}, "other": {Group: c.other}},
		}
		p := &proof{plan: b.Plan, job: Job{Baseline: b}, facts: Facts{Tests: []TestFacts{{Test: "d"}}}, places: map[string]Place{"d": {Group: c.declared}}}
		builds := []impact.Build{impact.Maven(tree, ".")}
		ch := chooser{p: p, of: map[int]int{0: 0}, builds: builds, stems: map[int]map[string][]string{}, files: files, reach: impact.Reached(tree, builds, []string{"a/src/test/java/ATest.java"})}
		got := ch.choose()
		places := map[string]bool{}
		for _, pl := range got.places {
			if pl.Reach != "" {
				pl.Group = "-pl=" + pl.Reach
			}
			places[pl.Group] = true
		}
		if tests, places := strings.Join(sortedKeys(got.tests), " "), strings.Join(sortedKeys(places), " "); tests != c.tests || places != c.places {
			t.Errorf("declared %s beside %s: tests %q, places %q; want %q, %q", c.declared, c.other, tests, places, c.tests, c.places)
		}
	}
}
