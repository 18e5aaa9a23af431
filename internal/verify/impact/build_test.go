package impact

import (
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// readers are the build tools, by the name of a fixture.
func readers() map[string]func(Tree, string) Build {
	return map[string]func(Tree, string) Build{"cargo": Cargo, "maven": Maven, "gradle": Gradle}
}

func pomOf(name, rest string) string {
	return "<project><artifactId>" + name + "</artifactId><packaging>pom</packaging>" + rest + "</project>"
}

func module(name string, needs ...string) string {
	rest := "<parent><artifactId>top</artifactId></parent><dependencies>"
	for _, n := range needs {
		rest += "<dependency><groupId>${project.groupId}</groupId><artifactId>" + n + "</artifactId></dependency>"
	}
	return pomOf(name, rest+"</dependencies>")
}

func crate(name string, rest ...string) string {
	return "[package]\nname = \"" + name + "\"\n\n" + strings.Join(rest, "\n") + "\n"
}

var cargoTree = map[string]string{
	"Cargo.toml":            "[workspace]\nmembers = [\"crates/*\", \"tool\"]\nexclude = [\"crates/old\"]\n\n[workspace.dependencies]\nrates = { path = \"crates/rates\" }\nother = { package = \"mac-user\", path = \"crates/user\" }\n",
	"crates/net/Cargo.toml": crate("net"), "crates/net/src/lib.rs": "",
	"crates/cart/Cargo.toml": crate("cart", "[dependencies]", "net = { path = \"../net\" }", "serde = \"1\""), "crates/cart/src/lib.rs": "", "crates/cart/README.md": "",
	"crates/rates/Cargo.toml": crate("rates", "[dev-dependencies.cart]", "path = \"../cart\""), "crates/rates/src/lib.rs": "", "crates/rates/api.proto": "",
	"crates/shop/Cargo.toml": crate("shop", "[target.'cfg(unix)'.dependencies]", "rates.workspace = true"), "crates/shop/src/lib.rs": "",
	"crates/mac/Cargo.toml": crate("mac", "[lib]", "proc-macro = true"), "crates/mac/src/lib.rs": "",
	"crates/user/Cargo.toml": crate("mac-user", "build = \"make.rs\"", "[dependencies]", "mac = { path = \"../mac\" }"), "crates/user/make.rs": "", "crates/user/src/lib.rs": "const X: &str = include_str!(\"../../data/x.txt\");",
	"crates/data/Cargo.toml": crate("data"), "crates/data/x.txt": "",
	"crates/last/Cargo.toml": crate("last", "[dependencies]", "other = { workspace = true }"),
	"crates/old/Cargo.toml":  crate("old", "[dependencies]", "net = { path = \"../net\" }"),
	"tool/Cargo.toml":        crate("tool"), "tool/src/main.rs": "", "fixtures/a.json": "", "README.md": "",
}

var mavenTree = map[string]string{
	"pom.xml":     pomOf("top", "<modules><module>net</module><module>cart</module><module>apps/shop</module><module>lone</module></modules><profiles><profile><id>x</id><build/></profile></profiles>"),
	"net/pom.xml": module("net"), "net/src/main/java/N.java": "", "cart/pom.xml": module("cart", "net"), "cart/src/test/java/C.java": "",
	"apps/shop/pom.xml": module("shop", "cart", "junit"), "apps/shop/src/main/java/S.java": "", "lone/pom.xml": module("lone"), "lone/src/test/java/L.java": "new File(\"../apps/shop/data\")",
	"shared/x.txt": "", "top.txt": "",
}

var gradleTree = map[string]string{
	"settings.gradle":            "rootProject.name = 'top' // include 'x'\ninclude 'net', ':cart',\n  'apps:shop'\ninclude(\"lone\")\n",
	"build.gradle":               "subprojects {\n  apply plugin: 'java'\n}\n",
	"net/src/main/java/N.java":   "",
	"cart/build.gradle":          "dependencies {\n  implementation project(':net')\n}\n",
	"apps/shop/build.gradle.kts": "dependencies {\n  api(project(path = \":cart\", configuration = \"x\"))\n  testImplementation(projects.net)\n}\n",
	"lone/build.gradle":          "/* project(':net') */\ntest.dependsOn ':apps:shop:jar'\n", "lone/src/test/java/L.java": "",
	"apps/shop/src/main/S.kt": "", "cart/src/test/java/C.java": "", "shared/x.txt": "",
}

func TestBuilds(t *testing.T) {
	for _, c := range []struct {
		tool    string
		tree    map[string]string
		changed string
		want    string // the names of parts, or "?" and a part of the reason
	}{
		{"cargo", cargoTree, "crates/net/src/lib.rs", "cart net old rates shop"},
		{"cargo", cargoTree, "crates/cart/README.md", "cart rates shop"},
		{"cargo", cargoTree, "crates/rates/src/gone.rs", "rates shop"},
		{"cargo", cargoTree, "crates/data/x.txt", "data last mac-user"},
		{"cargo", cargoTree, "crates/user/src/lib.rs", "last mac-user"},
		{"cargo", cargoTree, "crates/user/make.rs", "? decides what is built"},
		{"cargo", cargoTree, "crates/mac/src/lib.rs", "? runs while others are built"},
		{"cargo", cargoTree, "crates/net/Cargo.toml", "? decides what is built"},
		{"cargo", cargoTree, "Cargo.lock", "? decides what is built"},
		{"cargo", cargoTree, "crates/rates/api.proto", "? generated"},
		{"cargo", cargoTree, "fixtures/a.json", "? belongs to nothing"},
		{"cargo", cargoTree, "README.md", ""},
		{"maven", mavenTree, "net/src/main/java/N.java", "cart lone net shop"},
		{"maven", mavenTree, "cart/src/test/java/C.java", "cart lone shop"},
		{"maven", mavenTree, "lone/src/test/java/L.java", "lone"},
		{"maven", mavenTree, "net/pom.xml", "? decides what is built"},
		{"maven", mavenTree, "shared/x.txt", "? may be shared"},
		{"maven", mavenTree, "net/.mvn/jvm.config", "? decides what is built"},
		{"gradle", gradleTree, "net/src/main/java/N.java", ":apps:shop :cart :lone :net"},
		{"gradle", gradleTree, "cart/src/test/java/C.java", ":apps:shop :cart :lone"},
		{"gradle", gradleTree, "lone/src/test/java/L.java", ":lone"},
		{"gradle", gradleTree, "gradle/libs.versions.toml", "? decides what is built"},
		{"gradle", gradleTree, "shared/x.txt", "? may be shared"},
	} {
		b := readers()[c.tool](treeOf(c.tree), ".")
		if got := outcome(b, Reached(treeOf(c.tree), []Build{b}, []string{c.changed})); !agrees(c.want, got) {
			t.Errorf("%s, %s: got %q, want %q", c.tool, c.changed, got, c.want)
		}
	}
	var tested []string
	for _, p := range Cargo(treeOf(cargoTree), ".").Parts {
		if p.Tested {
			tested = append(tested, p.Name)
		}
	}
	slices.Sort(tested)
	if d := cmp.Diff("cart data last mac mac-user net rates shop tool", strings.Join(tested, " ")); d != "" {
		t.Errorf("cargo test -p takes:\n%s", d)
	}
}

func outcome(b Build, r Reach) string {
	if r.Whole != "" {
		return "? " + r.Whole
	}
	var names []string
	for i := range r.Parts[0] {
		names = append(names, b.Parts[i].Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func agrees(want, got string) bool {
	if why, ok := strings.CutPrefix(want, "? "); ok {
		return strings.HasPrefix(got, "? ") && strings.Contains(got, why)
	}
	return want == got
}

// TestUnknown: what the readers do not understand, they say.
func TestUnknown(t *testing.T) {
	big := strings.Repeat("#", maxBuild+1)
	for _, c := range []struct{ tool, file, text, why string }{
		{"cargo", "Cargo.toml", big, "too large"},
		{"cargo", "Cargo.toml", "a = " + strings.Repeat("[", 200), "too deep"},
		{"cargo", "Cargo.toml", "not toml", "cannot be read"},
		{"cargo", "x/Cargo.toml", "[package]\n", "names no package"},
		{"cargo", "Cargo.toml", "[workspace]\nmembers = [\"../x\"]\n", "not understood"},
		{"cargo", "Cargo.toml", "[workspace]\nmembers = [\"x/**\"]\n", "not understood"},
		{"cargo", "Cargo.toml", "[workspace]\nmembers = [\"[\"]\n", "not understood"},
		{"cargo", "Cargo.toml", crate("a", "[dependencies]", "b = {path = \"b\"}"), "where no package is"},
		{"maven", "pom.xml", "<project>", "not whole"},
		{"maven", "pom.xml", "<!DOCTYPE x [<!ENTITY a \"b\">]><project/>", "document type"},
		{"maven", "pom.xml", "<project><artifactId>&a;</artifactId></project>", "not whole"},
		{"maven", "pom.xml", strings.Repeat("<a>", 200), "too deep"},
		{"maven", "pom.xml", pomOf("a", "<modules><module>../b</module></modules>"), "not understood"},
		{"maven", "pom.xml", pomOf("a", "<modules><module>b</module></modules>"), "missing"},
		{"maven", "pom.xml", pomOf("a", "<modules><module>b-${x}</module></modules>"), "not understood"},
		{"maven", "pom.xml", pomOf("a", "<profiles><profile><modules><module>b</module></modules></profile></profiles>"), "in a profile"},
		{"maven", "pom.xml", pomOf("a", "<dependencies><dependency><artifactId>b-${x}</artifactId></dependency></dependencies>"), "not resolved"},
		{"gradle", "settings.gradle", "include \"$x\"", "literal path"},
		{"gradle", "settings.gradle", "['a', 'b'].each { include it }", "more than a list"},
		{"gradle", "settings.gradle", "include 'a'\nproject(':a').projectDir = file('b')", "more than a list"},
		{"gradle", "settings.gradle", "include(listOf(\"a\"))", "literal path"},
		{"gradle", "settings.gradle", "include 'a' + 'b'", "not understood"},
		{"gradle", "settings.gradle", "include(\"a\").also { }", "not understood"},
		{"gradle", "settings.gradle", "include '../a'", "not understood"},
		{"gradle", "settings.gradle", "includeBuild('x')", "includeBuild"},
		{"gradle", "settings.gradle", "plugins { id(\"com.example.finder\") }", "may add projects"},
		{"gradle", "build.gradle", "dependencies { compile project(x) }", "not a literal"},
		{"gradle", "build.gradle", "dependencies { compile project(\":${x}\") }", "not a literal"},
		{"gradle", "build.gradle", "evaluationDependsOn(x)", "not a literal"},
		{"gradle", "build.gradle.kts", "dependencies { api(projects.nothing) }", "not one of the build"},
		{"gradle", "buildSrc/src/main/groovy/P.groovy", "p.dependencies.add('api', p.project(name))", "not a literal"},
	} {
		files := map[string]string{c.file: c.text}
		b := readers()[c.tool](treeOf(files), ".")
		if !strings.Contains(b.Unknown, c.why) {
			t.Errorf("%s %s %.60q: unknown %q, want %q", c.tool, c.file, c.text, b.Unknown, c.why)
		}
		if r := Reached(treeOf(files), []Build{b}, []string{"a/src/x"}); r.Whole != b.Unknown {
			t.Errorf("the whole is reached since %q", r.Whole)
		}
	}
}

// needs is a random relation over n parts, cycles included, and who needs whom in the end.
func needs(r *rand.Rand, n int) (direct, closed [][]bool) {
	direct, closed = make([][]bool, n), make([][]bool, n)
	for i := range n {
		direct[i], closed[i] = make([]bool, n), make([]bool, n)
		for j := range n {
			direct[i][j] = i != j && r.IntN(n) == 0
			closed[i][j] = direct[i][j] || i == j
		}
	}
	for k := range n {
		for i := range n {
			for j := range n {
				closed[i][j] = closed[i][j] || closed[i][k] && closed[k][j]
			}
		}
	}
	return direct, closed
}

// layouts write a relation the way each language and build tool has it: the files, the file to
// change in a part, and how a reached part is seen.
func layouts() map[string]func(r *rand.Rand, direct [][]bool) (files map[string]string, source func(i int) string) {
	dir := func(i int) string { return []string{"a", "b/c", "d"}[i%3] + fmt.Sprint("/p", i) }
	up := func(i, j int) string {
		return strings.Repeat("../", strings.Count(dir(i), "/")+1) + dir(j)
	}
	each := func(direct [][]bool, write func(i int, to []int)) {
		for i, row := range direct {
			var to []int
			for j, needs := range row {
				if needs {
					to = append(to, j)
				}
			}
			write(i, to)
		}
	}
	return map[string]func(*rand.Rand, [][]bool) (map[string]string, func(int) string){
		"cargo": func(r *rand.Rand, direct [][]bool) (map[string]string, func(int) string) {
			files := map[string]string{"Cargo.toml": "[workspace]\nmembers = [\"a/*\", \"b/c/*\", \"d/p*\"]\n[workspace.dependencies]\n"}
			for i := range direct {
				files["Cargo.toml"] += fmt.Sprintf("w%d = { path = %q, package = \"p%d\" }\n", i, dir(i), i)
			}
			each(direct, func(i int, to []int) {
				text, source := crate(fmt.Sprint("p", i)), ""
				for _, j := range to {
					switch r.IntN(5) {
					case 0:
						text += fmt.Sprintf("[dependencies.x%d]\npath = %q\n", j, up(i, j))
					case 1:
						text += fmt.Sprintf("[dev-dependencies.p%d]\nversion = \"1\"\n", j) // patched
					case 2:
						text += fmt.Sprintf("[target.x.build-dependencies.w%d]\nworkspace = true\n", j)
					case 3:
						text += fmt.Sprintf("[target.y.dependencies.z%d]\nversion = \"1\"\npackage = \"p%d\"\n", j, j)
					default:
						source += fmt.Sprintf("include!(\"../%s/src/lib.rs\");\n", up(i, j))
					}
				}
				files[dir(i)+"/Cargo.toml"], files[dir(i)+"/src/lib.rs"] = text, source
			})
			return files, func(i int) string { return dir(i) + "/src/lib.rs" }
		},
		"maven": func(r *rand.Rand, direct [][]bool) (map[string]string, func(int) string) {
			files, modules := map[string]string{}, ""
			each(direct, func(i int, to []int) {
				modules += "<module>" + dir(i) + "</module>"
				source, deps := "", []string{}
				for _, j := range to {
					if r.IntN(3) == 0 {
						source += fmt.Sprintf("new File(\"%s/src/A.java\");\n", up(i, j))
					} else {
						deps = append(deps, fmt.Sprint("p", j))
					}
				}
				files[dir(i)+"/pom.xml"], files[dir(i)+"/src/A.java"] = module(fmt.Sprint("p", i), deps...), source
			})
			files["pom.xml"] = pomOf("top", "<modules>"+modules+"</modules>")
			return files, func(i int) string { return dir(i) + "/src/A.java" }
		},
		"gradle": func(r *rand.Rand, direct [][]bool) (map[string]string, func(int) string) {
			files := map[string]string{}
			name := func(i int) string { return ":" + strings.ReplaceAll(dir(i), "/", ":") }
			each(direct, func(i int, to []int) {
				files["settings.gradle.kts"] += fmt.Sprintf("include(%q)\n", name(i))
				text := ""
				for _, j := range to {
					text += fmt.Sprintf([]string{"implementation(project(%q))\n", "api(project(path = %q))\n", "dependsOn(\"%s:jar\")\n", "implementation project(%q)\n", "implementation project %q\n"}[r.IntN(5)], name(j))
				}
				files[dir(i)+"/build.gradle.kts"], files[dir(i)+"/src/A.kt"] = "dependencies {\n"+text+"}\n", ""
			})
			return files, func(i int) string { return dir(i) + "/src/A.kt" }
		},
		"go": func(_ *rand.Rand, direct [][]bool) (map[string]string, func(int) string) {
			files := map[string]string{"go.mod": "module m\n"}
			each(direct, func(i int, to []int) {
				text := "package p\n\n"
				for _, j := range to {
					text += fmt.Sprintf("import _ \"m/%s\"\n", dir(j))
				}
				files[dir(i)+"/x.go"] = text
			})
			return files, func(i int) string { return dir(i) + "/x.go" }
		},
		"python": func(r *rand.Rand, direct [][]bool) (map[string]string, func(int) string) {
			files := map[string]string{}
			each(direct, func(i int, to []int) {
				text := ""
				for _, j := range to {
					text += fmt.Sprintf([]string{"import %s.x as y\n", "from %s import x\n", "    from %s.x import (\n  a, b)\n"}[r.IntN(3)], strings.ReplaceAll(dir(j), "/", "."))
				}
				files["src/"+dir(i)+"/x.py"] = text
			})
			return files, func(i int) string { return "src/" + dir(i) + "/x.py" }
		},
		"javascript": func(r *rand.Rand, direct [][]bool) (map[string]string, func(int) string) {
			files := map[string]string{}
			each(direct, func(i int, to []int) {
				text := ""
				for _, j := range to {
					text += fmt.Sprintf([]string{"import a from '%s/x'\n", "require(\"%s/x.js\")\n", "export * from '%s/x.ts'\n"}[r.IntN(3)], up(i, j))
				}
				files[dir(i)+"/x.ts"] = text
			})
			return files, func(i int) string { return dir(i) + "/x.ts" }
		},
	}
}

// TestDependantsAreReached: over random relations, whatever needs a changed part in the end is
// reached.
func TestDependantsAreReached(t *testing.T) {
	for name, write := range layouts() {
		r := rand.New(rand.NewPCG(1, uint64(len(name))))
		exact, all := 0, 0
		for round := range 150 {
			n := 2 + r.IntN(9)
			direct, closed := needs(r, n)
			files, source := write(r, direct)
			tree := treeOf(files)
			var builds []Build
			if read := readers()[name]; read != nil {
				builds = append(builds, read(tree, "."))
			}
			for j := range n {
				got := Reached(tree, builds, []string{source(j)})
				if got.Whole != "" {
					t.Fatalf("%s, round %d: %s", name, round, got.Whole)
				}
				for i := range n {
					in := got.Files[source(i)]
					if builds != nil {
						in = got.Parts[0][builds[0].Owners(source(i))[0]]
					}
					if closed[i][j] && !in {
						t.Fatalf("%s, round %d: %s needs %s and is left out\n%v", name, round, path.Dir(source(i)), source(j), files)
					}
					all++
					if in == closed[i][j] {
						exact++
					}
				}
			}
		}
		if exact*10 < all*9 { // what reaches everything chooses nothing
			t.Errorf("%s: of %d answers %d are exact", name, all, exact)
		}
	}
}

func FuzzCargo(f *testing.F) {
	for _, file := range []string{"Cargo.toml", "crates/user/Cargo.toml", "crates/shop/Cargo.toml", "crates/user/src/lib.rs"} {
		f.Add(cargoTree[file], cargoTree["crates/cart/Cargo.toml"])
	}
	f.Fuzz(func(t *testing.T, top, member string) {
		fuzzed(t, Cargo, map[string]string{"Cargo.toml": top, "crates/a/Cargo.toml": member, "crates/a/src/lib.rs": top, "b/Cargo.toml": member, "b/src/lib.rs": ""}, "b/src/lib.rs")
	})
}

func FuzzMaven(f *testing.F) {
	f.Add(mavenTree["pom.xml"], mavenTree["cart/pom.xml"])
	f.Add("<project>&x;", "<!DOCTYPE a>")
	f.Fuzz(func(t *testing.T, top, member string) {
		fuzzed(t, Maven, map[string]string{"pom.xml": top, "net/pom.xml": member, "cart/pom.xml": member, "net/src/A.java": top}, "net/src/A.java")
	})
}

func FuzzGradle(f *testing.F) {
	f.Add(gradleTree["settings.gradle"], gradleTree["apps/shop/build.gradle.kts"])
	f.Add("include ':a', \"b\"\n'''", "project(path: ':a'); projects.a.b /* \"\"\"")
	f.Fuzz(func(t *testing.T, settings, script string) {
		fuzzed(t, Gradle, map[string]string{"settings.gradle": settings, "net/build.gradle": script, "b.gradle": script, "net/src/A.kt": script}, "net/src/A.kt")
	})
}

// fuzzed holds of any text: the owner of a changed file is reached, or the reason is one.
func fuzzed(t *testing.T, read func(Tree, string) Build, files map[string]string, changed string) {
	tree := treeOf(files)
	b := read(tree, ".")
	r := Reached(tree, []Build{b}, []string{changed})
	if r.Whole != "" {
		return
	}
	if owners := b.Owners(changed); len(owners) != 1 || !r.Parts[0][owners[0]] {
		t.Errorf("%v of %v", r, b.Parts)
	}
	for _, p := range b.Parts {
		if p.Dir == ".." || strings.HasPrefix(p.Dir, "../") || strings.HasPrefix(p.Dir, "/") {
			t.Errorf("a part outside the tree: %q", p.Dir)
		}
	}
}
