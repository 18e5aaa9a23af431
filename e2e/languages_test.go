package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// languages are the tool chains that set-up does not install: where one is absent its script is skipped, in
// CI as well. $RUST is the directory of the Rust toolchain.
func languages(name string) (have, known bool) {
	switch name {
	case "rust":
		return rustRoot() != "", true
	case "maven":
		list, err := filepath.Glob("/usr/share/maven-repo/org/apache/maven/surefire/surefire-junit4/*")
		_, missing := exec.LookPath("mvn")
		return err == nil && len(list) > 0 && missing == nil, true
	case "gradle":
		_, junit := os.Stat("/usr/share/java/junit4.jar")
		_, missing := exec.LookPath("gradle")
		return missing == nil && junit == nil, true
	case "bazel":
		_, missing := exec.LookPath("bazel")
		return missing == nil, true
	case "languages":
		return os.Getenv("DAYBREAK_LANGUAGES") == "all", true
	}
	return false, false
}

// rustRoot is the toolchain that rustc belongs to, also behind rustup; "" for none.
func rustRoot() string {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/"
	}
	for _, rustc := range []string{"rustc", filepath.Join(home, ".cargo/bin/rustc")} {
		if out, err := exec.Command(rustc, "--print", "sysroot").Output(); err == nil {
			return strings.TrimSpace(string(out))
		}
	}
	return ""
}
