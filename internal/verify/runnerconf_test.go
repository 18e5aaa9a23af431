package verify

import "testing"

func TestCalmBuildFiles(t *testing.T) {
	cmake := "enable_testing()\nset(tests\n  a\n  b)\nforeach(t ${tests})\n  add_executable(${t} ${t}.c)\n  add_test(NAME ${t} COMMAND ${t})\nendforeach()\n"
	pom := "<project>\n<dependencies>\n<dependency><artifactId>junit</artifactId><version>4.12</version></dependency>\n</dependencies>\n</project>\n"
	cargo := "[package]\nname = \"shop\"\nversion = \"0.1.0\"\n\n[dependencies]\nserde = \"1\"\n"
	for _, c := range []struct {
		name, path, old, now string
		want                 bool
	}{
		{"a test more", "CMakeLists.txt", cmake, "enable_testing()\nset(tests\n  a\n  c\n  b)\nforeach(t ${tests})\n  add_executable(${t} ${t}.c)\n  add_test(NAME ${t} COMMAND ${t})\nendforeach()\n", true},
		{"a test registered", "t/CMakeLists.txt", cmake, cmake + "add_executable(c c.c)\nadd_test(NAME c COMMAND c)\n", true},
		{"an outcome turned", "CMakeLists.txt", cmake, cmake + "set_tests_properties(a PROPERTIES WILL_FAIL TRUE)\n", false},
		{"another command", "CMakeLists.txt", cmake, "enable_testing()\nset(tests\n  a\n  b)\nforeach(t ${tests})\n  add_executable(${t} ${t}.c)\n  add_test(NAME ${t} COMMAND true)\nendforeach()\n", false},
		{"assertions off", "CMakeLists.txt", cmake, cmake + "add_compile_definitions(NDEBUG)\n", false},
		{"a macro in between", "CMakeLists.txt", cmake, "macro(add_test)\nendmacro()\n" + cmake, false},
		{"a newer dependency", "pom.xml", pom, "<project>\n<dependencies>\n<dependency><artifactId>junit</artifactId><version>4.13</version></dependency>\n</dependencies>\n</project>\n", true},
		{"failures ignored", "pom.xml", pom, "<project>\n<properties><maven.test.failure.ignore>true</maven.test.failure.ignore></properties>\n" + pom[10:], false},
		{"the plug-in configured", "pom.xml", pom, pom + "<build><plugins><plugin><artifactId>maven-surefire-plugin</artifactId></plugin></plugins></build>\n", false},
		{"a newer version", "Cargo.toml", cargo, "[package]\nname = \"shop\"\nversion = \"0.2.0\"\n\n[dependencies]\nserde = \"1.1\"\n", true},
		{"the library's tests off", "Cargo.toml", cargo, cargo + "[lib]\ntest = false\n", false},
		{"overflow checks off", "Cargo.toml", cargo, cargo + "[profile.test]\noverflow-checks = false\n", false},
		{"new", "Cargo.toml", "", cargo, false},
		{"another kind of file", "setup.cfg", "a\n", "a\nb\n", false},
	} {
		if got := calm(c.path, []byte(c.old), []byte(c.now)); got != c.want {
			t.Errorf("%s: calm %t, want %t", c.name, got, c.want)
		}
	}
}
