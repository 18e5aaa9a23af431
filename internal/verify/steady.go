package verify

import (
	"bytes"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/verify/syntax"
)

var (
	// cVaries is what C takes from the time of its compilation or from the machine, also in parts that
	// are put together: by pasting, by lines that go on, by what a macro names as the file to include.
	cVaries = regexp.MustCompile(`__(TIME|DATE)|(TIME|DATE|STAMP)__|[^\s#][ \t]*##|\\[ \t]*\r?\n[ \t]*##|%:%:|\?\?[/=]|\w(\\[ \t]*\r?\n)+\w|(include|import|embed)(_next)?\s*["<]/|/(proc|dev|sys)/` +
		`|(#|%:)(\s|/\*[^*]*\*/)*(include|import|embed)(_next)?(\s|/\*[^*]*\*/)*[A-Za-z_]|\bincbin\b|\b_*asm_*\b`)
	// rustVaries names macros that give another value each time, and macros whose name is one's argument.
	rustVaries = regexp.MustCompile(`/(proc|dev|sys)/|\$\w+\s*!|` + rustDraws)
	// rustConstant are variables that cargo sets from the manifest and the checkout's place.
	rustConstant = regexp.MustCompile(`^CARGO_(PKG_\w+|MANIFEST_DIR|BIN_EXE_[\w-]+|BIN_NAME|CRATE_NAME|PRIMARY_PACKAGE|TARGET_TMPDIR)$`)
)

// rustDraws are crates whose macros or build scripts read the clock, the machine or chance.
const rustDraws = `\b(const_random|compile_time|build_time|build_timestamp|obfstr|random_str|build_info|shadow_rs|vergen|git_version|run_command)`

// varies reports whether what is compiled of the file may differ from one build to the next, by the
// time or by what the machine says. Its runs must not all show the one build.
func varies(c git.Change) bool {
	switch strings.ToLower(path.Ext(c.Path)) {
	case ".rs":
		return rustVaries.Match(c.Content) || rustReads(syntax.Lex(c.Content, syntax.Rust))
	case ".s", ".asm":
		return true
	}
	return cVaries.Match(c.Content)
}

// rustReads reports macros that take in what is no plain file below the tree or no constant of
// cargo's, and their names without a call, by which they can be called elsewhere.
func rustReads(toks []syntax.Token) bool {
	at := func(i int) string {
		if i >= 0 && i < len(toks) {
			return toks[i].Text
		}
		return ""
	}
	for i, t := range toks {
		if t.Kind != syntax.Word {
			continue
		}
		called := at(i+1) == "!"
		arg, plain := "", false
		if called && i+4 < len(toks) && toks[i+3].Kind == syntax.Text && strings.HasPrefix(at(i+3), `"`) && slices.Contains([]string{")", "]", "}", ","}, at(i+4)) {
			arg, plain = strings.Trim(at(i+3), `"`), !strings.Contains(at(i+3), `\`)
		}
		switch t.Text {
		case "include_str", "include_bytes":
			if !plain || strings.HasPrefix(arg, "/") {
				return true
			}
		case "include":
			if called && (!plain || strings.HasPrefix(arg, "/")) || !called && at(i-1) != "." && at(i-1) != "fn" {
				return true
			}
		case "env", "option_env":
			if called && (!plain || !rustConstant.MatchString(arg)) || at(i+1) == "as" || t.Text == "option_env" && !called || !called && at(i-1) == "(" && at(i+1) == "," {
				return true
			}
		case "asm", "global_asm", "naked_asm", "llvm_asm":
			if called {
				return true
			}
		case "path":
			if v := strings.TrimLeft(at(i+2), `rb#"`); at(i+1) == "=" && i+2 < len(toks) && toks[i+2].Kind == syntax.Text && (strings.HasPrefix(v, "/") || strings.Contains(v, `\`)) {
				return true
			}
		}
	}
	return false
}

var (
	cmakeDraws   = regexp.MustCompile(`(?i)\b(string|file)\s*\(\s*(TIMESTAMP|RANDOM|UUID)\b|\bBUILD_TIMESTAMP\b|\bCOMMAND\s+[^)]*\bdate\b|/(proc|dev/u?random|sys)/|\bcmake_host_system_information\b`)
	cmakeRuns    = regexp.MustCompile(`(?i)\b(add_custom_command|add_custom_target|execute_process)\s*\(([^)]*)\)`)
	cmakeAll     = regexp.MustCompile(`^\s*\S+\s+ALL\b`)
	cmakeNeeds   = regexp.MustCompile(`(?i)\badd_dependencies\s*\(`)
	cmakeCommand = regexp.MustCompile(`\bCOMMAND\s+"?([^\s")]+)`)
	cmakeTools   = regexp.MustCompile(`(?i)^(\$\{CMAKE_\w+\}|\$\{(GIT|PYTHON3?|PERL|BASH|AWK|SED|DOXYGEN|CLANG_FORMAT)_?\w*\}|(\S*/)?(cmake|cp|mv|ln|cat|echo|sed|awk|mkdir|touch|rm|sh|bash|python3?|perl|git|doxygen|xxd|true|test|pkg-config|llvm-config|which|install|install_name_tool|strip|objcopy|ar|ranlib))$`)
	scriptName   = regexp.MustCompile(`[\w.-]+\.(?:cmake|py|sh|bash|pl|rb|awk|lua|js|tcl|m4|in)\b`)
	scriptDraws  = regexp.MustCompile(`(?i)\b(strftime|datetime|localtime|gmtime|time\.time|time\(|Date\.now|new Date|utcnow|urandom|uuid|random|mktemp|getpid|perf_counter|hostname|uname)\b|\$RANDOM|\$\$|/proc/|\bdate\b\s*['"+$` + "`" + `)-]|string\s*\(\s*(TIMESTAMP|RANDOM|UUID)`)
	buildDraws   = regexp.MustCompile(`\b(SystemTime|Instant|Utc|Local|OffsetDateTime|chrono|vergen\w*|built|shadow_rs|rand|getrandom|RandomState|thread_rng|random)\b|"date"|/(proc|dev|sys)/|\bprocess\s*::\s*id\b|\bpath\s*=|\binclude\s*!`)
	rustNames    = regexp.MustCompile(rustDraws)
	manifestRuns = regexp.MustCompile(`(?m)^\s*["']?(vergen[\w-]*|shadow-rs|build-time|compile-time|const-random|built|build-info|git-version)["']?\s*(=|\.)`)
	buildDeps    = regexp.MustCompile(`(?ms)^\s*\[[^\]\n]*build-dependencies[^\n]*\](.*?)(?:^\s*\[|\z)`)
	inlineDeps   = regexp.MustCompile(`\bbuild-dependencies["']?\s*[.=]`)
	ownCrate     = regexp.MustCompile(`\bpath\s*=`)
	ofWorkspace  = regexp.MustCompile(`\bworkspace\s*=\s*true`)
	sharedOwn    = regexp.MustCompile(`(?s)\[workspace\.dependencies.*\bpath\s*=`)
	cTimes       = []string{"__TIME__", "__DATE__", "__TIMESTAMP__"}
)

// unsteady says for which suites the base itself compiles something else each time, or runs while it
// is built what a change may be part of: a clock in a source file or a step, a program of the tree
// that a step starts, a crate of the tree that a build script or a macro uses. Then what one build
// shows is no more than that build.
func unsteady(fsys fs.FS, files []string) map[Kind]bool {
	out := map[Kind]bool{}
	has := func(base string) bool {
		return slices.ContainsFunc(files, func(f string) bool { return path.Base(f) == base })
	}
	if has("Cargo.toml") {
		shares := slices.ContainsFunc(files, func(f string) bool { return path.Base(f) == "Cargo.toml" && sharedOwn.Match(wholeText(fsys, f)) })
		out[KindCargo] = slices.ContainsFunc(files, func(f string) bool { return cargoDraws(fsys, f, shares) })
	}
	if has("CMakeLists.txt") {
		scripts, needs := map[string]bool{}, false
		var texts [][]byte
		for _, f := range files {
			if path.Base(f) == "CMakeLists.txt" || path.Ext(f) == ".cmake" {
				texts = append(texts, wholeText(fsys, f))
				needs = needs || cmakeNeeds.Match(texts[len(texts)-1])
			}
		}
		for _, b := range texts {
			out[KindCTest] = out[KindCTest] || cmakeUnsteady(b, needs, scripts)
		}
		out[KindCTest] = out[KindCTest] || slices.ContainsFunc(files, func(f string) bool {
			switch path.Ext(f) {
			case ".c", ".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp", ".hxx", ".inl", ".inc", ".in":
				b := wholeText(fsys, f)
				return slices.ContainsFunc(cTimes, func(w string) bool { return bytes.Contains(b, []byte(w)) })
			}
			return scripts[path.Base(f)] && scriptDraws.Match(wholeText(fsys, f))
		})
	}
	return out
}

// cargoDraws reads a file of a Rust project. shares says that crates of the tree are among those
// that a workspace's members take from it.
func cargoDraws(fsys fs.FS, f string, shares bool) bool {
	own := func(b []byte) bool { return ownCrate.Match(b) || shares && ofWorkspace.Match(b) }
	switch {
	case path.Base(f) == "build.rs":
		return buildDraws.Match(wholeText(fsys, f))
	case path.Base(f) == "Cargo.toml":
		b := wholeText(fsys, f)
		for _, m := range buildDeps.FindAllSubmatch(b, -1) {
			if own(m[0]) {
				return true
			}
		}
		macro := bytes.Contains(b, []byte("proc-macro")) && procMacro.Match(b)
		return manifestRuns.Match(b) || inlineDeps.Match(b) || macro && own(dependencies(b))
	case path.Ext(f) == ".rs":
		return rustNames.Match(wholeText(fsys, f))
	}
	return false
}

// dependencies is what a manifest says after the first table of them.
func dependencies(manifest []byte) []byte {
	i := bytes.Index(manifest, []byte("dependencies"))
	return manifest[max(i, 0):]
}

// cmakeUnsteady reads one file of CMake's and notes the scripts that it names. needs says that some
// target is built because another one needs it.
func cmakeUnsteady(b []byte, needs bool, scripts map[string]bool) bool {
	var lines [][]byte
	for line := range bytes.Lines(b) {
		if before, _, found := bytes.Cut(line, []byte("#")); found && bytes.Count(before, []byte(`"`))%2 == 0 {
			line = append(bytes.Clone(before), '\n')
		}
		lines = append(lines, line)
	}
	b = bytes.Join(lines, nil)
	if cmakeDraws.Match(b) {
		return true
	}
	for _, m := range cmakeRuns.FindAllSubmatch(b, -1) {
		if bytes.EqualFold(m[1], []byte("add_custom_target")) && !cmakeAll.Match(m[2]) && !needs {
			continue // built when somebody asks for it
		}
		for _, name := range scriptName.FindAll(m[2], -1) {
			scripts[string(name)] = true
		}
		for _, c := range cmakeCommand.FindAllSubmatch(m[2], -1) {
			if !cmakeTools.Match(c[1]) {
				return true // a program of the tree, or one that nothing is known of
			}
		}
	}
	return false
}

// maxSteady bounds what is read of a file; a larger one counts as if it named the time.
const maxSteady = 8 << 20

func wholeText(fsys fs.FS, p string) []byte {
	f, err := fsys.Open(p)
	if err != nil {
		return nil
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil
	}
	b, err := io.ReadAll(io.LimitReader(f, maxSteady+1))
	if err != nil || len(b) > maxSteady {
		return []byte(cTimes[0])
	}
	return b
}
