package verify

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// builtCase is a change whose verdict is wrong where something old is taken for built of it.
type builtCase struct {
	name  string
	base  []string
	tests string
	fix   []git.Change
	back  bool // the clock is put back after the base was built
	leaks bool
	want  task.VerdictKind
	not   task.VerdictKind // instead of want
	built int              // how many trees are built once for several runs

	settings Settings
}

func proveBuilt(t *testing.T, file string, cases []builtCase) {
	t.Helper()
	s := loadSample(t, file)
	if os.Getenv("DAYBREAK_LANGUAGES") != "all" {
		cases = cases[:min(3, len(cases))]
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			ctx := context.Background()
			c.settings.Guard, c.settings.Timeout = -1, 5*time.Minute
			v, lab := newVerifier(t, c.settings)
			snap := s.snapshot(t, c.base...)
			base, err := v.Baseline(ctx, snap, nil)
			if err != nil || !base.Usable() {
				t.Fatalf("%v %s %s", err, base.Blocked, base.Detail)
			}
			lab.leaks = c.leaks
			if c.back {
				v.Now = func() time.Time { return time.Now().Add(-time.Hour) }
			}
			got, err := v.Verify(ctx, Job{Snapshot: snap, HeadTree: "tree", Changes: append(s.changes(t, c.tests), c.fix...), Baseline: base})
			if err != nil {
				t.Fatal(err)
			}
			if c.not == "" && got.Kind != c.want || c.not == got.Kind {
				t.Errorf("verdict %s: %s; want %s, not %s\n%s", got.Kind, got.Reason, c.want, c.not, outline(got))
			}
			n := 0
			for _, purpose := range lab.runs {
				if purpose == "build" {
					n++
				}
			}
			builds, unnamed := namedBuilds(t, got)
			if !c.leaks && c.built > 0 && (len(builds) == 0 || len(builds) > c.built || c.name == "plainly" && (len(builds) != c.built || unnamed > 0)) {
				t.Errorf("%d builds are named, want %d, and %d runs name none\n%s", len(builds), c.built, unnamed, outline(got))
			}
			if !c.leaks && n != c.built {
				t.Errorf("%d trees were built once for several runs, want %d: %s", n, c.built, strings.Join(lab.runs, " "))
			}
		})
	}
}

// namedBuilds are the builds of a record, each of which some run began with, and how many runs of
// what was changed began with none.
func namedBuilds(t *testing.T, v task.Verdict) (builds map[string]int, unnamed int) {
	t.Helper()
	builds = map[string]int{}
	for _, ph := range v.Phases { // P4 is recorded before P5, which may have built what it runs
		for _, r := range ph.Runs {
			if r.Outcome == "built" {
				builds[r.Build] = 0
			}
		}
	}
	for _, ph := range v.Phases {
		for _, r := range ph.Runs {
			_, made := builds[r.Build]
			switch {
			case r.Built():
			case r.Build != "" && !made:
				t.Errorf("%s: %s began with %q, which was not built", ph.Phase, r.Command, r.Build)
			case r.Build != "":
				builds[r.Build]++
			case ph.Phase == "P3" || ph.Phase == "P4" || ph.Phase == "P5":
				unnamed++
			}
		}
	}
	for b, n := range builds {
		if b == "" || n == 0 {
			t.Errorf("%d runs began with the build %q", n, b)
		}
	}
	return builds, unnamed
}

func link(path, to string) git.Change {
	return git.Change{Path: path, Mode: git.ModeLink, Content: []byte(to)}
}

// TestBuiltByCMake: each fix is one that make alone would not build again, and no verdict rests on
// what a test left.
func TestBuiltByCMake(t *testing.T) {
	optional(t, have("ctest") && have("cc"), "cmake with a C compiler")
	s := loadSample(t, "built_c.txtar")
	proveBuilt(t, "built_c.txtar", []builtCase{
		{name: "a link to an old file", base: []string{"base"}, tests: "test", fix: []git.Change{link("price.c", "better.c")}, want: task.Verified, built: 1},
		{name: "a test that plants a program", base: []string{"base"}, tests: "plants", want: task.NotFixed, built: 1},
		{name: "a test that plants a program, with a lab that leaks", base: []string{"base"}, tests: "plants", leaks: true, not: task.NotFixed},
		{name: "a program that is built no longer", base: []string{"base", "api"}, tests: "test", fix: s.changes(t, "fix", "assembler"), want: task.Regression, built: 2},
		{name: "plainly", base: []string{"base"}, tests: "test", fix: s.changes(t, "fix"), want: task.Verified, built: 2},
		{name: "a clock that was put back", base: []string{"base"}, tests: "test", fix: s.changes(t, "fix"), back: true, want: task.Verified, built: 2},
		{name: "a header that is found first", base: []string{"base"}, tests: "test", fix: s.changes(t, "header"), want: task.Verified, built: 2},
		{name: "data that a step reads", base: []string{"base", "step"}, tests: "test", fix: s.changes(t, "rate"), want: task.Verified, built: 2},
		{name: "a step that leaves something in HOME", base: []string{"base", "maker"}, tests: "finds", fix: s.changes(t, "planter"), want: task.NotFixed, built: 6},
		{name: "what configuring asked the compiler", base: []string{"base", "asked"}, tests: "test", fix: s.changes(t, "answer"), want: task.Verified, built: 2},
		{name: "what is drawn when it is compiled", base: []string{"base"}, tests: "test", fix: s.changes(t, "coin"), want: task.Verified, built: 1},
	})
}

func TestBuiltByCargo(t *testing.T) {
	optional(t, rustBin() != "", "cargo")
	s := loadSample(t, "built_rust.txtar")
	proveBuilt(t, "built_rust.txtar", []builtCase{
		{name: "a link to an old file", base: []string{"base"}, tests: "test", fix: []git.Change{link("src/rate.rs", "../better.txt")}, want: task.Verified, built: 1},
		{name: "a test that plants a program", base: []string{"base"}, tests: "plants", want: task.NotFixed, built: 1},
		{name: "a test that plants a program, with a lab that leaks", base: []string{"base"}, tests: "plants", leaks: true, not: task.NotFixed},
		{name: "plainly", base: []string{"base"}, tests: "test", fix: s.changes(t, "fix"), want: task.Verified, built: 2},
		{name: "a clock that was put back", base: []string{"base"}, tests: "test", fix: s.changes(t, "fix"), back: true, want: task.Verified, built: 2},
		{name: "data that a step reads", base: []string{"base", "step"}, tests: "test", fix: s.changes(t, "rate"), want: task.Verified, built: 2},
		{name: "a whole crate that links to an old file", base: []string{"one"}, tests: "own", fix: []git.Change{link("src/lib.rs", "../worse.txt")}, want: task.Regression, built: 1},
		{name: "data of a crate beside", base: []string{"beside"}, tests: "besidetest", fix: s.changes(t, "besidefix"), want: task.Verified, built: 2},
		{name: "what is drawn when it is compiled", base: []string{"base"}, tests: "test", fix: s.changes(t, "coin"), want: task.Verified, built: 1},
	})
}

// TestBuiltByAClock: where a step of the base gives something else each time, a fix that holds in every
// other build is seen to fail, and no run shows the build of another.
func TestBuiltByAClock(t *testing.T) {
	optional(t, have("ctest") && have("cc"), "cmake with a C compiler")
	s, ctx := loadSample(t, "built_c.txtar"), context.Background()
	counter := filepath.Join(t.TempDir(), "builds")
	s.layers["clock"] = map[string]string{
		"CMakeLists.txt": strings.NewReplacer("${CMAKE_COMMAND} -E copy ${CMAKE_SOURCE_DIR}/rate.txt", "sh ${CMAKE_SOURCE_DIR}/clock.sh", "rate.txt", "clock.sh").Replace(s.layers["step"]["CMakeLists.txt"]),
		"clock.sh":       "n=$(cat " + counter + " || echo 0); echo $((n + 1)) > " + counter + " # in place of date '+%s'\necho \"#define NOW $n\" > $1\n",
		"price.c":        "#include \"rate.h\"\nint net(int cents, int percent) { return cents - percent; }\n",
	}
	v, _ := newVerifier(t, Settings{Guard: -1, Timeout: 5 * time.Minute})
	snap := s.snapshot(t, "base", "clock")
	base, err := v.Baseline(ctx, snap, nil)
	if err != nil || !base.Usable() {
		t.Fatalf("%v %s %s", err, base.Blocked, base.Detail)
	}
	fix := git.Change{Path: "price.c", Mode: git.ModeFile, Content: []byte("#include \"rate.h\"\nint net(int cents, int percent) { return cents - (NOW % 2 ? percent : cents * percent / 100); }\n")}
	got, err := v.Verify(ctx, Job{Snapshot: snap, HeadTree: "tree", Changes: append(s.changes(t, "test"), fix), Declared: []string{"coupon"}, Baseline: base})
	if err != nil || got.Kind != task.FlakyFix {
		t.Fatalf("%s: %s, %v\n%s", got.Kind, got.Reason, err, outline(got))
	}
	if builds, unnamed := namedBuilds(t, got); len(builds) < 4 || unnamed > 0 || slices.ContainsFunc(slices.Collect(maps.Values(builds)), func(n int) bool { return n > 1 }) {
		t.Errorf("runs by their builds: %v, and %d of none\n%s", builds, unnamed, outline(got))
	}
}

// TestBuiltByMake: what make finds of the base is older than what is placed, so it builds that again.
func TestBuiltByMake(t *testing.T) {
	optional(t, have("make") && have("cc"), "make with a C compiler")
	s := loadSample(t, "built_make.txtar")
	own := Settings{Test: "make -s check", Format: "tap", TestGlobs: []string{"tests/**"}}
	proveBuilt(t, "built_make.txtar", []builtCase{
		{name: "plainly", base: []string{"base"}, tests: "test", fix: s.changes(t, "fix"), settings: own, want: task.Verified},
		{name: "not fixed", base: []string{"base"}, tests: "test", settings: own, want: task.NotFixed},
	})
}

func TestBuiltByGo(t *testing.T) {
	optional(t, have("cc"), "a C compiler")
	s := loadSample(t, "built_go.txtar")
	proveBuilt(t, "built_go.txtar", []builtCase{
		{name: "a header of another directory", base: []string{"base"}, tests: "test", fix: s.changes(t, "fix"), want: task.Verified},
		{name: "not fixed", base: []string{"base"}, tests: "test", want: task.NotFixed},
	})
}

// TestTrusted: what a build tool does not look at is built anew.
func TestTrusted(t *testing.T) {
	files := []string{"CMakeLists.txt", "Cargo.toml", "a/x.c", "a/x.h", "data.json", "src/lib.rs", "vendor/dep/.cargo-checksum.json", "vendor/dep/src/lib.rs"}
	change := func(p string) git.Change { return git.Change{Path: p, Mode: git.ModeFile} }
	gone := func(p string) git.Change { return git.Change{Path: p, Deleted: true} }
	for _, c := range []struct {
		kind   Kind
		change git.Change
		want   trust
	}{
		{KindCTest, change("a/x.c"), trustAll},
		{KindCTest, change("a/x.h"), trustAll},
		{KindCTest, change("b/new.c"), trustAll},
		{KindCTest, change("README.md"), trustAll},
		{KindCTest, gone("a/x.c"), trustAll},
		{KindCTest, change("b/x.c"), trustNone},
		{KindCTest, change("b/new.h"), trustNone},
		{KindCTest, gone("a/x.h"), trustNone},
		{KindCTest, change("data.json"), trustNone},
		{KindCTest, change("CMakeLists.txt"), trustNone},
		{KindCTest, link("a/x.c", "y.c"), trustNone},
		{KindCTest, link("README.md", "y"), trustNone},
		{KindCTest, gone("a/link.c"), trustNone},
		{KindCargo, change("src/lib.rs"), trustAll},
		{KindCargo, change("tests/new.rs"), trustAll},
		{KindCargo, change("src/new.rs"), trustForeign},
		{KindCargo, change("src/tests/new.rs"), trustForeign},
		{KindCargo, change("README.md"), trustAll},
		{KindCargo, change("docs/a.md"), trustForeign},
		{KindCargo, gone("src/lib.rs"), trustForeign},
		{KindCargo, change("data.json"), trustForeign},
		{KindCargo, change("Cargo.toml"), trustForeign},
		{KindCargo, link("src/lib.rs", "y.rs"), trustNone},
		{KindCargo, change("vendor/dep/src/lib.rs"), trustNone},
	} {
		if got := (Suite{Kind: c.kind}).trusted([]git.Change{c.change}, &parts{files: files}); got != c.want {
			t.Errorf("%s, %+v: %d, want %d", c.kind, c.change, got, c.want)
		}
	}
	if !slices.IsSorted(files) {
		t.Error("the files are not sorted")
	}
}

// TestVaries: what may come out otherwise the next time it is compiled is compiled by each run.
func TestVaries(t *testing.T) {
	for _, c := range []struct {
		path, text string
		want       bool
	}{
		{"a.c", "#include \"price.h\"\n#include <stdio.h>\nint n = 1; // at build time\n", false},
		{"a.c", "char *at = __TIME__;", true},
		{"a.inc", "char *at = __TIMESTAMP__;", true},
		{"a.h", "#define JOIN(a, b) a ## b\nchar *at = JOIN(__T, IME__);", true},
		{"a.h", "char *at = __TI\\\nME__;", true},
		{"a.h", "#define TWO \\\n  2\n", false},
		{"a.c", "#include \"/proc/uptime\"", true},
		{"a.c", "#include \"../../etc/x.h\"", false},
		{"a.rs", "// to include what matters\nmod rate;\nconst A: &str = include_str!(\"rate.txt\");", false},
		{"a.rs", "const A: &[u8] = include_bytes!(\"/proc/uptime\");", true},
		{"a.rs", "const A: &[u8] = include_bytes!(\"../../../dev/urandom\");", true},
		{"a.rs", "const A: &[u8] = include_bytes!(\"\\x2fetc/x\");", true},
		{"a.rs", "const A: &str = include_str!(concat!(\"/pr\", \"oc/uptime\"));", true},
		{"a.rs", "use std::include_bytes as take;\nconst A: &[u8] = take!(\"x\");", true},
		{"a.rs", "macro_rules! m { ($i:ident) => { $i!(\"x\") } }", true},
		{"a.rs", "#[path = \"/tmp/x.rs\"] mod x;", true},
		{"a.rs", "const A: u8 = const_random::const_random!(u8);", true},
		{"a.c", "char *at = __TI\\  \n\\\nME__;", true},
		{"a.h", "#define JOIN(a, b) a/**/##/**/b\n", true},
		{"a.h", "#define JOIN(a, b) a \\\n  ## b\n", true},
		{"a.h", "#define JOIN(a, b) a %:%: b\n", true},
		{"a.h", "#define JOIN(a, b) a ??=??= b\n", true},
		{"a.h", "char *at = __TI??/\nME__;", true},
		{"a.c", "#define WHAT <some.h>\n#include WHAT\n", true},
		{"a.c", "#/**/include/**/WHAT\n", true},
		{"a.c", "%: include WHAT\n", true},
		{"a.c", "static const unsigned char a[] = {\n#embed WHAT\n};", true},
		{"a.c", "__asm__(\".inc\" \"bin \\\"/pr\" \"oc/uptime\\\"\");", true},
		{"a.c", "// include what matters\nint embed = 1, include = 2;", false},
		{"a.S", ".data\n", true},
		{"README.md", "# Shop\n\n## Prices\n\n### More\n", false},
		{"a.rs", "const A: &str = env!(\"BUILT_AT\");", true},
		{"a.rs", "const A: Option<&str> = option_env!(\"BUILT_AT\");", true},
		{"a.rs", "const A: &str = env ! (concat!(\"BUILT\", \"_AT\"));", true},
		{"a.rs", "const A: &str = concat!(env!(\"CARGO_PKG_NAME\"), \" \", env!(\"CARGO_PKG_VERSION\"));", false},
		{"a.rs", "use std::{env, fs};\nfn f() -> Option<String> { env::var(\"HOME\").ok() }", false},
		{"a.rs", "use std::env as e;\nconst A: &str = e!(\"BUILT_AT\");", true},
		{"a.rs", "call!(env, \"BUILT_AT\");", true},
		{"a.rs", "include!(concat!(env!(\"OUT_DIR\"), \"/x.rs\"));", true},
		{"a.rs", "const A: &str = include_str /* x */ ! (\"/pr\\x6fc/uptime\");", true},
		{"a.rs", "call!(include_bytes, concat!(\"/pr\", \"oc/uptime\"));", true},
		{"a.rs", "#[path = r\"/tmp/x.rs\"] mod x;", true},
		{"a.rs", "core::arch::global_asm!(concat!(\".inc\", \"bin x\"));", true},
		{"a.rs", "#[doc = include_str!(\"../README.md\")]\npub struct A;", false},
	} {
		if got := varies(git.Change{Path: c.path, Content: []byte(c.text)}); got != c.want {
			t.Errorf("%s %q: %v, want %v", c.path, c.text, got, c.want)
		}
	}
	for text, want := range map[string]bool{
		"[lib]\nproc-macro = true": true, "lib = { path = \"x.rs\", proc-macro = true }": true, "lib.proc-macro = true": true, "[lib]\ncrate-type = [\n\"proc-macro\"]": true,
		"[package]\nbuild = \"x.rs\"": true, "package.build = \"x.rs\"": true, "[build-dependencies]\ncc = \"1\"\n[lib]\npath = \"src/lib.rs\"": false, "[dependencies]\nproc-macro2 = \"1\"": false,
	} {
		if got := procMacro.MatchString(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
