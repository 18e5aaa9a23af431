package verify

import (
	"slices"
	"testing"
	"testing/fstest"
)

// TestUnsteadyBase: a base that compiles something else each time, or runs what a change may alter.
func TestUnsteadyBase(t *testing.T) {
	cmake := "add_library(price price.c)\nadd_executable(t t.c)\nadd_test(NAME t COMMAND t)\n"
	cargo := "[package]\nname = \"shop\"\n\n[dependencies]\nserde = \"1\"\n"
	for _, c := range []struct {
		name  string
		files map[string]string
		want  string // the kind of suite, "" for none
	}{
		{"plain C", map[string]string{"CMakeLists.txt": cmake, "price.c": "int price;"}, ""},
		{"a clock in C", map[string]string{"CMakeLists.txt": cmake, "deep/version.h": "#define AT __TIME__\n"}, "ctest"},
		{"a clock that no build reads", map[string]string{"Makefile": "all:", "version.h": "#define AT __TIME__\n"}, ""},
		{"a clock of CMake", map[string]string{"CMakeLists.txt": cmake + "string(TIMESTAMP NOW)\n"}, "ctest"},
		{"a clock that is a comment", map[string]string{"CMakeLists.txt": cmake + "# string(TIMESTAMP NOW) and the date\n"}, ""},
		{"date", map[string]string{"cmake/x.cmake": "execute_process(COMMAND date +%s OUTPUT_VARIABLE NOW)\n", "CMakeLists.txt": cmake}, "ctest"},
		{"date in a shell", map[string]string{"CMakeLists.txt": cmake + "add_custom_command(OUTPUT x COMMAND sh -c \"date > x\")\n"}, "ctest"},
		{"a program of the tree", map[string]string{"CMakeLists.txt": cmake + "add_executable(gen gen.c)\nadd_custom_command(OUTPUT x COMMAND gen > x)\n"}, "ctest"},
		{"a program by a variable", map[string]string{"CMakeLists.txt": cmake + "add_custom_target(x ALL\n COMMAND ${GEN} x)\n"}, "ctest"},
		{"a target that nobody needs", map[string]string{"CMakeLists.txt": cmake + "add_custom_target(fuzz COMMAND ${FUZZ} x)\n"}, ""},
		{"a target that another needs", map[string]string{"CMakeLists.txt": cmake + "add_dependencies(price gen)\n", "gen/CMakeLists.txt": "add_custom_target(gen COMMAND ${GEN} x)\n"}, "ctest"},
		{"a copy", map[string]string{"CMakeLists.txt": cmake + "add_custom_command(OUTPUT x COMMAND ${CMAKE_COMMAND} -E copy a x)\n"}, ""},
		{"a script", map[string]string{"CMakeLists.txt": cmake + "add_custom_command(OUTPUT x COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/gen.py)\n", "tools/gen.py": "print(1)\n"}, ""},
		{"a script with a clock", map[string]string{"CMakeLists.txt": cmake + "add_custom_command(OUTPUT x COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/gen.py)\n", "tools/gen.py": "import time\nprint(time.time())\n"}, "ctest"},
		{"another script with a clock", map[string]string{"CMakeLists.txt": cmake, "tools/gen.py": "import time\nprint(time.time())\n"}, ""},
		{"plain Rust", map[string]string{"Cargo.toml": cargo, "src/lib.rs": "use std::time::Instant;"}, ""},
		{"a build script", map[string]string{"Cargo.toml": cargo, "build.rs": "fn main() { println!(\"cargo:rerun-if-changed=build.rs\"); }"}, ""},
		{"a build script with a clock", map[string]string{"Cargo.toml": cargo, "x/build.rs": "use std::time::SystemTime;"}, "cargo"},
		{"a build script that shares a module", map[string]string{"Cargo.toml": cargo, "build.rs": "#[path = \"src/shared.rs\"] mod shared;"}, "cargo"},
		{"a build script with a crate of the tree", map[string]string{"x/Cargo.toml": cargo + "\n[build-dependencies]\ngen = { path = \"../gen\" }\n"}, "cargo"},
		{"a crate for build scripts", map[string]string{"Cargo.toml": cargo + "\n[build-dependencies]\ncc = \"1\"\n\n[dev-dependencies]\nx = { path = \"x\" }\n"}, ""},
		{"the workspace's crate for build scripts", map[string]string{"Cargo.toml": "[workspace.dependencies]\ngen = { path = \"gen\" }\n", "x/Cargo.toml": cargo + "\n[build-dependencies]\ngen = { workspace = true }\n"}, "cargo"},
		{"another crate of the workspace's", map[string]string{"Cargo.toml": "[workspace.dependencies]\ncc = \"1\"\n", "x/Cargo.toml": cargo + "\n[build-dependencies]\ncc = { workspace = true }\n"}, ""},
		{"a macro with a crate of the tree", map[string]string{"Cargo.toml": "[lib]\nproc-macro = true\n\n[dependencies]\ncore = { path = \"../core\" }\n"}, "cargo"},
		{"a macro alone", map[string]string{"Cargo.toml": "[lib]\nproc-macro = true\npath = \"src/lib.rs\"\n\n[dependencies]\nsyn = \"2\"\n"}, ""},
		{"a crate that tells the time", map[string]string{"Cargo.toml": cargo + "vergen-git2 = \"1\"\n"}, "cargo"},
		{"a macro that draws", map[string]string{"Cargo.toml": cargo, "src/a.rs": "const A: u8 = const_random::const_random!(u8);"}, "cargo"},
	} {
		fsys := fstest.MapFS{}
		var files []string
		for f, text := range c.files {
			fsys[f] = &fstest.MapFile{Data: []byte(text)}
			files = append(files, f)
		}
		slices.Sort(files)
		got := unsteady(fsys, files)
		for _, k := range []Kind{KindCTest, KindCargo} {
			if want := string(k) == c.want; got[k] != want {
				t.Errorf("%s: %s %v, want %v", c.name, k, got[k], want)
			}
		}
	}
}
