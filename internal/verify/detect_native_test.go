package verify

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-agent/daybreak/internal/verify/result"
)

// TestDetectNative: each suite says what made detection choose it, and what is not installed is
// named and not run.
func TestDetectNative(t *testing.T) {
	all := Tools{Programs: programs()}
	rust := "#[test]\nfn t() {}\n"
	for name, c := range map[string]struct {
		files map[string]string
		tools Tools
		want  []string // kind directory flags: why
		notes string
	}{
		"a crate": {
			map[string]string{"Cargo.toml": "[package]\nname = \"a\"\n", "src/lib.rs": rust},
			all,
			[]string{"cargo . []: found Cargo.toml: cargo test"},
			"",
		},
		"a workspace runs its members, a crate outside by itself": {
			map[string]string{"Cargo.toml": "[workspace]\nmembers = [\"a\"]\n", "a/Cargo.toml": "[package]\n", "a/src/lib.rs": rust, ".config/nextest.toml": ""},
			all,
			[]string{"cargo . [--workspace]: found Cargo.toml: cargo test of its workspace (.config/nextest.toml configures nextest, which runs the same tests)"},
			"",
		},
		"a crate without tests":       {map[string]string{"Cargo.toml": "[package]\n", "src/lib.rs": "pub fn x() {}"}, all, nil, "Cargo.toml: a crate without tests"},
		"cargo is not there":          {map[string]string{"Cargo.toml": "[package]\n", "src/lib.rs": rust}, Tools{}, nil, "Cargo.toml with Rust tests, but cargo is not installed"},
		"a vendored crate is others'": {map[string]string{"vendor/x/Cargo.toml": "[package]\n", "vendor/x/src/lib.rs": rust}, all, nil, ""},
		"Maven": {
			map[string]string{"pom.xml": "", "core/pom.xml": "", "core/src/test/java/ATest.java": ""},
			all,
			[]string{"maven . []: found pom.xml: mvn test"},
			"",
		},
		"Maven by its wrapper": {
			map[string]string{"pom.xml": "", "mvnw": "", "src/test/kotlin/ATest.kt": ""},
			Tools{Programs: []string{"java"}},
			[]string{"maven . []: found pom.xml and mvnw: ./mvnw test"},
			"",
		},
		"Maven and Gradle": {
			map[string]string{"pom.xml": "", "build.gradle": "", "src/test/java/ATest.java": ""},
			all,
			[]string{"maven . []: found pom.xml: mvn test"},
			"build.gradle: mvn runs the tests of this directory",
		},
		"Gradle": {
			map[string]string{"settings.gradle.kts": "", "gradlew": "", "app/build.gradle.kts": "", "app/src/test/kotlin/ATest.kt": ""},
			Tools{Programs: []string{"java"}},
			[]string{"gradle . []: found settings.gradle.kts and gradlew: ./gradlew test"},
			"",
		},
		"CMake, its tests switched on": {
			map[string]string{"CMakeLists.txt": "project(x C)\noption(X_BUILD_TESTS \"tests\" OFF)\nadd_subdirectory(tests)\n", "tests/CMakeLists.txt": "add_test(NAME a COMMAND a)\n"},
			all,
			[]string{"ctest . [-DX_BUILD_TESTS=ON]: found CMakeLists.txt, and tests in tests/CMakeLists.txt: cmake, then ctest; its option X_BUILD_TESTS is switched on"},
			"",
		},
		"CMake without tests": {map[string]string{"CMakeLists.txt": "project(x C)\n"}, all, nil, "CMakeLists.txt registers no tests with ctest"},
		"dotnet": {
			map[string]string{"Shop.sln": "", "tests/Shop.Tests.csproj": `<PackageReference Include="Microsoft.NET.Test.Sdk"/>`},
			all,
			[]string{"dotnet . []: found Shop.sln: dotnet test"},
			"",
		},
		"RSpec by Bundler, and plainly": {
			map[string]string{"Gemfile.lock": "", "spec/a_spec.rb": "", "gem/spec/b_spec.rb": ""},
			all,
			[]string{"rspec gem []: found gem/spec/b_spec.rb and its like: rspec", "rspec . []: found spec/a_spec.rb and its like: rspec of Gemfile.lock"},
			"",
		},
		"PHPUnit by Composer": {
			map[string]string{"composer.json": `{"require-dev": {"phpunit/phpunit": "^9"}}`, "tests/ATest.php": ""},
			all,
			[]string{"phpunit . []: composer.json names phpunit"},
			"",
		},
		"Bazel alone": {
			map[string]string{"MODULE.bazel": "", "x/BUILD": "sh_test(name = \"t\")\n"},
			Tools{Programs: []string{"bazelisk"}},
			[]string{"bazel . []: found MODULE.bazel, and tests in x/BUILD: bazel test //..."},
			"",
		},
		"Bazel beside others": {
			map[string]string{"MODULE.bazel": "", "BUILD": "cc_test(name = \"t\")\n", "go.mod": "module a\n", "a_test.go": ""},
			all,
			[]string{"go . []: go.mod with _test.go files below it"},
			"MODULE.bazel: Bazel is left out",
		},
		"several languages": {
			map[string]string{"go.mod": "module a\n", "a_test.go": "", "native/Cargo.toml": "[package]\n", "native/src/lib.rs": rust, "java/pom.xml": "", "java/src/test/java/ATest.java": ""},
			all,
			[]string{"go . []: go.mod with _test.go files below it", "cargo native []: found native/Cargo.toml: cargo test", "maven java []: found java/pom.xml: mvn test"},
			"",
		},
		"a Makefile alone": {map[string]string{"Makefile": "check: all\n\t./run\n"}, all, nil, `Makefile has a target "check"`},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Detect(tree(c.files), c.tools, Settings{})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, s := range p.Suites {
				got = append(got, string(s.Kind)+" "+s.Dir+" ["+strings.Join(s.Flags, " ")+"]: "+s.Why)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
			if notes := strings.Join(p.Notes, "\n"); !strings.Contains(notes, c.notes) {
				t.Errorf("notes %q, want %q", notes, c.notes)
			}
		})
	}
}

// TestOneNative: what a person types to run one test again, and which suite a changed file belongs to.
func TestOneNative(t *testing.T) {
	p := Plan{Suites: []Suite{
		{Kind: KindCargo, Dir: "."},
		{Kind: KindMaven, Dir: "java"},
		{Kind: KindGradle, Dir: "kt", Test: "sh ./gradlew"},
		{Kind: KindCTest, Dir: "c"},
		{Kind: KindDotnet, Dir: "net", Targets: []string{"A.sln"}},
		{Kind: KindRSpec, Dir: "rb", Test: "bundle exec rspec"},
		{Kind: KindPHPUnit, Dir: "php"},
		{Kind: KindBazel, Dir: "."},
	}}
	for _, c := range []struct {
		place Place
		want  string
	}{
		{Place{Suite: 0, Group: "shop (src/lib.rs)", Name: "tests::adds"}, "cargo test --lib -- --exact tests::adds"},
		{Place{Suite: 0, Group: "my_it (tests/my-it.rs)", Name: "it's"}, `cargo test --test my-it -- --exact 'it'\''s'`},
		{Place{Suite: 0, Group: "two_words (tests/other/main.rs)", Name: "a"}, "cargo test --test 'two?words' -- --exact a"},
		{Place{Suite: 0, Group: "tool (src/bin/tool.rs)", Name: "a"}, "cargo test --bin tool -- --exact a"},
		{Place{Suite: 0, Group: "shop (doc)", Name: "src/lib.rs - add"}, "cargo test --doc -- 'src/lib.rs - add (line'"},
		{Place{Suite: 0, File: "crates/a/tests/it.rs"}, "cargo test --test it"},
		{Place{Suite: 0, File: "tests/common/mod.rs"}, "cargo test --tests"},
		{Place{Suite: 1, Group: "shop.PriceTest", Name: "rows[1]"}, "(cd java && mvn -Dtest='shop.PriceTest*#rows*' test)"},
		{Place{Suite: 1, Group: "shop.PriceTest", Name: "takes a share off"}, "(cd java && mvn -Dtest='shop.PriceTest*' test)"},
		{Place{Suite: 1, File: "java/src/test/java/shop/PriceTest.java"}, "(cd java && mvn -Dtest='PriceTest*' test)"},
		{Place{Suite: 2, Group: "shop.PriceTest", Name: "adds()"}, "(cd kt && sh ./gradlew test --tests 'shop.PriceTest*.adds*')"},
		{Place{Suite: 3, Group: "a+b", Name: "a+b"}, `(cd c && cmake -B build && cmake --build build && ctest --test-dir build -R '^(a\+b)$')`},
		{Place{Suite: 4, Group: "Shop.Tests.PriceTests", Name: "Rows", Param: "(a: 1)"}, "(cd net && dotnet test A.sln --filter 'FullyQualifiedName~Shop.Tests.PriceTests.Rows')"},
		{Place{Suite: 5, File: "rb/spec/a_spec.rb", Name: "Price adds"}, "(cd rb && bundle exec rspec spec/a_spec.rb -e 'Price adds')"},
		{Place{Suite: 6, Group: `Shop\PriceTest`, Name: "testRows", Param: "#1"}, `(cd php && phpunit --filter '/(?:Shop\\PriceTest::testRows(?: |$))/')`},
		{Place{Suite: 7, Group: "//shop:bad_test", Name: "//shop:bad_test"}, "bazel test //shop:bad_test"},
		{Place{Suite: 7, Group: "shop.PriceTest", Name: "adds"}, "bazel test //..."},
	} {
		if got := p.rerun(c.place); got != c.want {
			t.Errorf("%+v:\n got %s\nwant %s", c.place, got, c.want)
		}
	}
	for file, want := range map[string]int{"tests/a.rs": 0, "java/src/test/java/A.java": 1, "c/t.c": 3, "rb/spec/a_spec.rb": 5, "php/tests/ATest.php": 6} {
		if got := owningSuite(Plan{Suites: p.Suites[:7]}, file); got != want {
			t.Errorf("%s belongs to suite %d, want %d", file, got, want)
		}
	}
}

// TestCommandsAreShell: whatever a suite, its places and its settings hold, bash can read the command.
func TestCommandsAreShell(t *testing.T) {
	hostile := Place{File: "d/$(reboot) 'x'.spec", Group: "a (tests/`id`.rs)", Name: "b; rm -rf / # ' \""}
	var plan Plan
	for _, k := range []Kind{KindGo, KindPytest, KindUnittest, KindNode, KindTAP, KindJest, KindVitest, KindMocha, KindCargo, KindMaven, KindGradle, KindCTest, KindDotnet, KindRSpec, KindPHPUnit, KindBazel} {
		plan.Suites = append(plan.Suites, Suite{Kind: k, Dir: "d", Flags: []string{"--x=$y"}, Globs: []string{"**/*"}})
	}
	for _, f := range append(result.Formats(), "") {
		plan.Suites = append(plan.Suites, Suite{Kind: KindCustom, Dir: ".", Test: "make test # all of them", TestOne: "make one T={tests}", Format: f})
	}
	for i := range plan.Suites {
		hostile.Suite = i
		for _, places := range [][]Place{nil, {{Suite: i}}, {hostile}} {
			for _, c := range plan.commands(i, places, []string{"d/a.js"}, "/tmp/r") {
				for _, text := range []string{c.shell, c.human} {
					if out, err := exec.Command("bash", "-n", "-c", text).CombinedOutput(); err != nil {
						t.Errorf("%s: %v: %s\n%s", plan.Suites[i].Kind, err, out, text)
					}
				}
			}
		}
	}
}
