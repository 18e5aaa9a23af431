package impact

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// Gradle reads the settings of the build at dir and what its scripts say of projects. A script is a
// program: whatever could name a project in another way than by its literal path makes the build
// unknown.
func Gradle(t Tree, dir string) Build {
	b := Build{whole: func(f string) bool {
		base := path.Base(f)
		return strings.HasSuffix(base, ".gradle") || strings.HasSuffix(base, ".gradle.kts") || base == "gradle.properties" || strings.HasPrefix(base, "gradlew") ||
			strings.Contains("/"+f, "/buildSrc/") || strings.Contains("/"+f, "/gradle/") || strings.HasSuffix(base, ".versions.toml")
	}}
	if why := b.gradleSettings(t, dir); why != "" {
		return unknown(why)
	}
	if len(b.Parts) > maxParts {
		return unknown("more projects than are looked at")
	}
	byName := b.names()
	loose := map[string]int{} // as accessors spell it
	for i, p := range b.Parts {
		loose[accessor(p.Name)] = i
	}
	scripts := below(t.Files, dir, func(base string) bool {
		return strings.HasSuffix(base, ".gradle") || strings.HasSuffix(base, ".gradle.kts")
	})
	for _, f := range t.Files { // what scripts call may name projects too
		if strings.Contains("/"+f, "/buildSrc/") && slices.Contains([]string{".kt", ".groovy", ".java"}, path.Ext(f)) && within(f, dir) {
			scripts = append(scripts, f)
		}
	}
	for _, f := range scripts {
		text := t.Read(f)
		if len(text) > maxBuild {
			return unknown(f + " is too large to be read")
		}
		if strings.HasPrefix(path.Base(f), "settings.gradle") && path.Dir(f) == dir {
			continue
		}
		from := b.Owners(f)
		if len(from) == 0 || b.Parts[from[0]].Dir != path.Dir(f) || !strings.HasPrefix(path.Base(f), "build.gradle") || b.Parts[from[0]].Dir == dir {
			from = nil // of the top, or of none: it may speak for all
		}
		need := func(to int) {
			if len(from) > 0 {
				b.need(from[0], to)
				return
			}
			for i := range b.Parts {
				b.need(i, to)
			}
		}
		if why := gradleScript(gradleTokens(text), byName, loose, need); why != "" {
			return unknown(f + " " + why)
		}
	}
	b.reads(t, []string{".java", ".kt", ".kts", ".groovy", ".gradle", ".scala"})
	return b
}

// accessor is the form in which ":core-utils:net" and projects.coreUtils.net are the same.
func accessor(name string) string {
	return strings.ToLower(strings.NewReplacer(":", "", "-", "", "_", "", ".", "").Replace(name))
}

// gradleToken is a word, a mark or a string of a script.
type gradleToken struct {
	text    string
	literal bool // a string without anything to fill in; filled is one with
	filled  bool
	line    bool // the first of its line
}

func (t gradleToken) is(text string) bool { return !t.literal && !t.filled && t.text == text }

var gradleLex = regexp.MustCompile(`(?s)//[^\n]*|/\*.*?(?:\*/|$)|"""(.*?)(?:"""|$)|'''(.*?)(?:'''|$)|"((?:[^"\\\n]|\\.)*)["\n]?|'((?:[^'\\\n]|\\.)*)['\n]?|[A-Za-z_$][\w$]*|\d\w*|\n|\S`)

// gradleTokens parts Groovy or Kotlin into words, marks and strings, without comments. A pattern
// between slashes is not known from a division, so a quote in one is read as a string's.
func gradleTokens(text []byte) []gradleToken {
	var out []gradleToken
	first := true
	for _, m := range gradleLex.FindAllSubmatchIndex(text, -1) {
		word := string(text[m[0]:m[1]])
		switch {
		case word == "\n":
			first = true
			continue
		case strings.HasPrefix(word, "//") || strings.HasPrefix(word, "/*"):
			continue
		}
		tok := gradleToken{text: word, line: first}
		for g := 2; g < len(m); g += 2 {
			if m[g] >= 0 {
				tok.text = string(text[m[g]:m[g+1]])
				tok.filled = strings.ContainsAny(tok.text, `$\`)
				tok.literal = !tok.filled
			}
		}
		out = append(out, tok)
		first = false
	}
	return out
}

// usual are plugins of settings that add no project.
var usual = []string{"org.gradle.toolchains.foojay-resolver-convention", "org.gradle.toolchains.foojay-resolver", "com.gradle.enterprise", "com.gradle.develocity", "com.gradle.common-custom-user-data-gradle-plugin"}

// gradleSettings finds the projects.
func (b *Build) gradleSettings(t Tree, dir string) string {
	b.Parts = append(b.Parts, Part{Name: ":", Dir: dir, Tested: true})
	var tokens []gradleToken
	file := path.Join(dir, "settings.gradle")
	for _, name := range []string{"settings.gradle", "settings.gradle.kts"} {
		f := path.Join(dir, name)
		text := t.Read(f)
		if len(text) > maxBuild {
			return f + " is too large to be read"
		}
		if len(text) > 0 {
			if len(tokens) > 0 {
				return dir + " has two settings"
			}
			tokens, file = gradleTokens(text), f
		}
	}
	seen := map[string]bool{":": true}
	for i := 0; i < len(tokens); i++ {
		tok := tokens[i]
		if tok.literal || tok.filled {
			continue
		}
		switch tok.text {
		case "includeBuild", "includeFlat", "projectDir", "buildFileName", "apply", "each", "forEach", "eachDir", "for", "while", "if", "when", "switch", "settingsDir", "rootDir", "evaluate", "children", "project", "sourceControl", "eachFile", "eachFileRecurse", "listFiles", "def", "val", "var", "fun", "gradle", "import":
			return file + " is more than a list of projects: " + tok.text
		case "id":
			if j := skipMark(tokens, i+1, "("); j < len(tokens) && !(tokens[j].literal && slices.Contains(usual, tokens[j].text)) {
				return file + " has a plugin that may add projects: " + tokens[j].text
			}
		case "include":
			list, why := gradleInclude(tokens, i+1)
			if why != "" {
				return file + " " + why
			}
			for _, name := range list {
				if why := b.gradleProject(dir, name, seen); why != "" {
					return file + " " + why
				}
			}
		}
	}
	return ""
}

func skipMark(tokens []gradleToken, i int, mark string) int {
	if i < len(tokens) && tokens[i].is(mark) {
		return i + 1
	}
	return i
}

// gradleInclude reads the literal paths behind "include".
func gradleInclude(tokens []gradleToken, i int) (list []string, why string) {
	bracket := i < len(tokens) && tokens[i].is("(")
	i = skipMark(tokens, i, "(")
	for {
		if i >= len(tokens) || !tokens[i].literal {
			return nil, "includes a project that is not named by its literal path"
		}
		list = append(list, tokens[i].text)
		i++
		if i >= len(tokens) || bracket && tokens[i].is(")") || !bracket && tokens[i].line && !tokens[i].is(",") {
			if i+1 < len(tokens) && bracket && !tokens[i+1].line && !tokens[i+1].is(";") {
				return nil, "includes a project in a way that is not understood"
			}
			return list, ""
		}
		if tokens[i].is(";") && !bracket {
			return list, ""
		}
		if !tokens[i].is(",") {
			return nil, "includes a project in a way that is not understood"
		}
		i++
		if bracket && i < len(tokens) && tokens[i].is(")") {
			return list, ""
		}
	}
}

// gradleProject adds a project with those above it.
func (b *Build) gradleProject(dir, name string, seen map[string]bool) string {
	full, at := "", dir
	for word := range strings.SplitSeq(strings.TrimPrefix(name, ":"), ":") {
		if word == "" || word == ".." || word == "." || strings.ContainsAny(word, `/\`) || len(b.Parts) > maxParts {
			return "includes " + name + ", which is not understood"
		}
		full, at = full+":"+word, path.Join(at, word)
		if !seen[full] {
			seen[full] = true
			b.Parts = append(b.Parts, Part{Name: full, Dir: at, Tested: true})
		}
	}
	return ""
}

// gradleScript finds the projects that a script names.
func gradleScript(tokens []gradleToken, byName map[string][]int, loose map[string]int, need func(int)) string {
	all := func() {
		for _, parts := range byName {
			need(parts[0])
		}
	}
	for i, tok := range tokens {
		next := func(n int) gradleToken {
			if i+n < len(tokens) {
				return tokens[i+n]
			}
			return gradleToken{}
		}
		after := i > 0 && tokens[i-1].is(".")
		switch {
		case (tok.literal || tok.filled) && strings.HasPrefix(tok.text, ":"):
			if tok.filled {
				return "names a project that is computed: " + tok.text
			}
			if parts := byName[tok.text]; parts != nil {
				need(parts[0])
			} else if parts := byName[tok.text[:max(1, strings.LastIndex(tok.text, ":"))]]; parts != nil { // a task of it
				need(parts[0])
			}
		case tok.is("project") && next(1).is("(") || tok.is("findProject") || tok.is("evaluationDependsOn"):
			// project(":x"), project(path: ":x"), project(path = ":x", configuration = "y")
			arg := next(2)
			if arg.is("path") {
				arg = next(4)
			}
			if !arg.literal || byName[arg.text] == nil && byName[":"+arg.text] == nil {
				return "names a project that is not a literal path of the build"
			}
			for _, to := range append(byName[arg.text], byName[":"+arg.text]...) {
				need(to)
			}
		case tok.is("projects") && !after && next(1).is("."):
			name, last := "", -1
			for j := i + 1; j+1 < len(tokens) && tokens[j].is("."); j += 2 {
				name += tokens[j+1].text
				if to, ok := loose[accessor(name)]; ok {
					last = to
				}
			}
			if last < 0 {
				return "names a project that is not one of the build: projects." + next(2).text
			}
			need(last)
		case tok.is("subprojects") || tok.is("allprojects") || tok.is("childProjects") || tok.is("getSubprojects") || tok.is("getAllprojects") || tok.is("rootProject") && next(1).is(".") && next(2).is("project"):
			if !next(1).is("{") {
				all() // what is done with the list is not followed
			}
		case tok.is("includeBuild") || tok.is("dependencySubstitution"):
			return "replaces dependencies"
		}
	}
	return ""
}
