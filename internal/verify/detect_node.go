package verify

import (
	"path"
	"slices"
	"strings"
)

// nodeScript reads what the package's test script runs. Only the runner and its arguments are
// taken from it; the script itself is not run, since wrappers (coverage, lint) change exit
// codes and reports.
func (d *detector) nodeScript(dir string, p packageJSON) {
	where := path.Join(dir, "package.json")
	words := inlineScripts(p.Scripts, "test", 0)
	if len(words) == 0 {
		d.note("%s has no test script", where)
		return
	}
	found := false
	for _, w := range words {
		s, ok := d.nodeCommand(dir, w)
		if !ok {
			continue
		}
		s.Why = "the test script of " + where + " runs " + w[0]
		if (s.Kind == KindNode || s.Kind == KindTAP) && len(s.match(d.files)) == 0 {
			d.note("%s: no file matches %s", where, strings.Join(s.Globs, " "))
			continue
		}
		d.add(s)
		found = true
	}
	if !found {
		d.note("the test script of %s runs no test runner that is known here", where)
	}
}

// inlineScripts splits a script into commands and replaces "npm run x" by x's commands.
func inlineScripts(scripts map[string]string, name string, depth int) [][]string {
	if depth > 5 {
		return nil
	}
	var out [][]string
	for _, words := range shellCommands(scripts[name]) {
		if next := npmRun(words); next != "" {
			out = append(out, inlineScripts(scripts, next, depth+1)...)
			continue
		}
		out = append(out, words)
	}
	return out
}

// npmRun is the script that "npm run x", "yarn x" and their like start, or "".
func npmRun(words []string) string {
	if len(words) < 2 || !slices.Contains([]string{"npm", "yarn", "pnpm"}, words[0]) {
		return ""
	}
	rest := slices.DeleteFunc(slices.Clone(words[1:]), func(w string) bool { return strings.HasPrefix(w, "-") })
	if len(rest) > 1 && (rest[0] == "run" || rest[0] == "run-script") {
		return rest[1]
	}
	if len(rest) > 0 && rest[0] != "run" && rest[0] != "exec" {
		return rest[0]
	}
	return ""
}

// shellCommands splits at ; & | and line ends, and words at blanks, with quotes taken off. It
// understands what test scripts use, not the whole shell.
func shellCommands(script string) [][]string {
	var out [][]string
	var words []string
	var word strings.Builder
	inWord := false
	var quoteChar rune
	endWord := func() {
		if inWord {
			words = append(words, word.String())
		}
		word.Reset()
		inWord = false
	}
	endCommand := func() {
		endWord()
		if len(words) > 0 {
			out = append(out, words)
		}
		words = nil
	}
	for _, c := range script {
		switch {
		case quoteChar != 0 && c == quoteChar:
			quoteChar = 0
		case quoteChar != 0:
			word.WriteRune(c)
		case c == '"' || c == '\'':
			quoteChar, inWord = c, true
		case c == ' ' || c == '\t':
			endWord()
		case strings.ContainsRune(";&|\n", c):
			endCommand()
		default:
			word.WriteRune(c)
			inWord = true
		}
	}
	endCommand()
	return out
}

// nodeCommand turns one command of the script into a suite. Wrappers such as nyc, c8 and
// cross-env are looked through.
func (d *detector) nodeCommand(dir string, words []string) (Suite, bool) {
	s := Suite{Dir: dir}
	for i, w := range words {
		if strings.Contains(w, "=") && !strings.HasPrefix(w, "-") {
			if k, _, _ := strings.Cut(w, "="); k != "NODE_OPTIONS" && k != "" && strings.Trim(k, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") == "" {
				s.Env = append(s.Env, w)
			}
			continue
		}
		args := words[i+1:]
		switch path.Base(w) {
		case "node":
			return d.nodeItself(s, args)
		case "tape", "tap", "tap-node", "borp":
			s.Kind = KindTAP
			s.Flags, s.Globs = splitArgs(args, map[string]bool{"-r": true, "--require": true, "--import": true})
			s.Flags = slices.DeleteFunc(s.Flags, func(f string) bool { return !slices.Contains(requireWords(s.Flags), f) })
			s.Globs = d.scriptGlobs(dir, s.Globs)
			if len(s.Globs) == 0 {
				s.Globs = []string{"test/**/*.{js,cjs,mjs}", "tests/**/*.{js,cjs,mjs}", "**/*.{test,spec}.{js,cjs,mjs}", "**/test.{js,cjs,mjs}"}
			}
			return s, true
		case "jest", "vitest":
			s.Kind = Kind(path.Base(w))
			s.Flags = withoutOptions(args, "--json", "--outputFile", "--reporter", "--reporters", "--coverage", "--watch", "--watchAll", "--ci", "--color", "--colors", "run", "--run", "--verbose", "--silent", "--coverage.enabled")
			return s, true
		case "mocha", "_mocha":
			s.Kind = KindMocha
			s.Flags, s.Targets = splitArgs(withoutOptions(args, "--reporter", "-R", "--reporter-option", "--reporter-options", "-O", "--watch", "-w", "--color", "--colors", "-c", "--bail", "-b"),
				map[string]bool{"-r": true, "--require": true, "--import": true, "-t": true, "--timeout": true, "--config": true, "-u": true, "--ui": true, "--spec": true, "--extension": true, "--ignore": true, "--file": true, "--loader": true})
			return s, true
		}
	}
	return Suite{}, false
}

// nodeItself is "node --test …" or "node FILE".
func (d *detector) nodeItself(s Suite, args []string) (Suite, bool) {
	valued := map[string]bool{"-r": true, "--require": true, "--import": true, "--loader": true, "--experimental-loader": true, "--conditions": true, "-C": true}
	isTest := slices.Contains(args, "--test")
	args = withoutOptions(args, "--test", "--test-reporter", "--test-reporter-destination", "--watch", "--test-concurrency", "--experimental-test-coverage")
	s.Flags, s.Globs = splitArgs(args, valued)
	if !isTest {
		if len(s.Globs) == 0 || !strings.Contains(strings.ToLower(s.Globs[0]), "test") {
			return Suite{}, false
		}
		s.Kind = KindTAP
		s.Globs = s.Globs[:1]
		return s, true
	}
	s.Kind = KindNode
	s.Globs = d.scriptGlobs(s.Dir, s.Globs)
	if len(s.Globs) == 0 {
		s.Globs = []string{"**/*{.,-,_}test.{js,cjs,mjs}", "**/test-*.{js,cjs,mjs}", "**/test.{js,cjs,mjs}", "**/test/**/*.{js,cjs,mjs}"}
	}
	return s, true
}

// scriptGlobs turns file, directory and glob arguments into globs.
func (d *detector) scriptGlobs(dir string, args []string) []string {
	var out []string
	for _, a := range args {
		a = strings.TrimSuffix(path.Clean(a), "/")
		prefix := path.Join(dir, a) + "/"
		if _, isDir := d.anyFile(func(f string) bool { return strings.HasPrefix(f, prefix) }); isDir {
			a += "/**/*.{js,cjs,mjs}"
		}
		out = append(out, strings.TrimPrefix(a, "./"))
	}
	return out
}

// splitArgs parts options (with the values of those in valued) from operands.
func splitArgs(args []string, valued map[string]bool) (flags, operands []string) {
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "--":
		case strings.HasPrefix(args[i], "-"):
			flags = append(flags, args[i])
			if valued[args[i]] && i+1 < len(args) {
				i++
				flags = append(flags, args[i])
			}
		default:
			operands = append(operands, args[i])
		}
	}
	return flags, operands
}

// requireWords keeps what node itself understands of another runner's options.
func requireWords(flags []string) []string {
	var out []string
	for i, f := range flags {
		if (f == "-r" || f == "--require" || f == "--import") && i+1 < len(flags) {
			out = append(out, f, flags[i+1])
		}
	}
	return out
}

// withoutOptions drops options, "--name=value" and the value that follows "--name" where the
// next word is no option and the name takes one.
func withoutOptions(args []string, names ...string) []string {
	takesValue := []string{
		"--outputFile", "--reporter", "--reporters", "--reporter-option", "--reporter-options", "-R", "-O",
		"--test-reporter", "--test-reporter-destination", "--test-concurrency",
	}
	var out []string
	for i := 0; i < len(args); i++ {
		name, _, joined := strings.Cut(args[i], "=")
		if !slices.Contains(names, name) {
			out = append(out, args[i])
			continue
		}
		if !joined && slices.Contains(takesValue, name) && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			i++
		}
	}
	return out
}
