package proposal

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Facts is what the agent's words are held against.
type Facts struct {
	changed map[string]bool     // paths of the change, and their folders; in small letters, as all paths here
	paths   map[string]bool     // those and the base's
	named   map[string][]string // paths by their last part
	words   map[string]bool     // identifiers of the texts
	texts   []string
	issue   string
	asked   map[string]bool // identifiers of the issue
}

// NewFacts takes the paths of the change and of the base, the texts of the record (the
// difference, the changed files before and after it, how the tests failed) and the issue.
func NewFacts(changed, base, texts []string, issue string) *Facts {
	f := &Facts{
		changed: map[string]bool{}, paths: map[string]bool{}, named: map[string][]string{}, words: map[string]bool{},
		texts: texts, issue: issue, asked: map[string]bool{},
	}
	for _, p := range changed {
		f.add(p, f.changed)
		f.add(p, f.paths)
		identifiers(p, f.words)
	}
	for _, p := range base {
		f.add(p, f.paths)
	}
	for _, t := range texts {
		identifiers(t, f.words)
	}
	identifiers(issue, f.asked)
	return f
}

func (f *Facts) add(p string, set map[string]bool) {
	for ; p != "." && p != "/" && !set[p]; p = path.Dir(p) {
		p = strings.ToLower(p)
		if b := path.Base(p); !f.paths[p] && !f.changed[p] {
			f.named[b] = append(f.named[b], p)
		}
		set[p] = true
	}
}

// meant reports whether a path of the set is meant by one in prose, which may leave out folders.
func (f *Facts) meant(name string, set map[string]bool) bool {
	name = strings.ToLower(strings.Trim(path.Clean(name), "/"))
	return set[name] || slices.ContainsFunc(f.named[path.Base(name)], func(p string) bool {
		return set[p] && strings.HasSuffix(p, "/"+name)
	})
}

func identifiers(text string, into map[string]bool) {
	for _, w := range strings.FieldsFunc(text, func(c rune) bool {
		return c != '_' && c != '$' && !unicode.IsLetter(c) && !unicode.IsDigit(c)
	}) {
		into[w] = true
	}
}

// changes are words that say of what they name that it is part of the change.
var changes = regexp.MustCompile(`\b(?:add(?:s|ed|ing)?|chang(?:e[sd]?|ing)|edit(?:s|ed|ing)?|modif\w+|updat\w+|remov\w+|delet\w+|renam\w+|mov(?:e[sd]?|ing)|rewr\w+|replac\w+|introduc\w+|creat\w+|document(?:s|ed|ing)|touch(?:e[sd])?|extend(?:s|ed)?|fix(?:e[sd]|ing)?|adjust\w*|refactor\w*|new|now)\b`)

// unknown says what a sentence names that the change does not have, or "". The issue's names
// count where nothing is said to have become of them.
func (f *Facts) unknown(s string) string {
	folded, _ := fold(s)
	ofChange := changes.MatchString(folded)
	for _, n := range namesIn(s) {
		switch n.kind {
		case folder:
			if top, _, _ := strings.Cut(strings.ToLower(n.text), "/"); !f.paths[top] {
				continue // "and/or", "read/write"
			}
			fallthrough
		case file:
			switch {
			case f.meant(n.text, f.changed), strings.Contains(n.text, "/") && within(n.text, f.texts...):
				continue
			case f.meant(n.text, f.paths):
				return "the change does not touch " + n.text
			}
		case literal:
			if within(n.text, f.texts...) || within(strings.ReplaceAll(n.text, "-", "_"), f.texts...) {
				continue
			}
		case reference:
			if within(n.text, f.texts...) || within(n.text, f.issue) {
				continue
			}
		case symbol:
			if f.symbol(n.text) || !ofChange && f.asked[n.text] {
				continue
			}
		}
		return "the change and the files it touches do not have " + n.text
	}
	return ""
}

func (f *Facts) symbol(name string) bool {
	one := strings.TrimSuffix(name, "s") // of several
	return f.words[name] || f.words[one] || keywords.MatchString(one) || strings.Contains(name, "_") && within(strings.ReplaceAll(name, "_", "-"), f.texts...)
}

// within reports whether a text has s as a whole.
func within(s string, texts ...string) bool {
	for _, t := range texts {
		for at := 0; ; at++ {
			i := strings.Index(t[at:], s)
			if i < 0 {
				break
			}
			at += i
			if end := at + len(s); (at == 0 || !wordy(t[at-1])) && (end == len(t) || !wordy(t[end])) {
				return true
			}
		}
	}
	return false
}

func wordy(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

type nameKind int

const (
	symbol    nameKind = iota // an identifier
	file                      // a path
	folder                    // a path if the repository has its first part
	literal                   // a flag, a key, a test's title
	reference                 // a commit, the number of a weakness
)

type name struct {
	text string
	kind nameKind
}

var (
	masked    = regexp.MustCompile(`\[redacted:[^\]]*\]`)
	span      = regexp.MustCompile("`+([^`]+)`+")
	fileName  = regexp.MustCompile(`^(?:[\w.@+-]+/)*(?:[\w@+-][\w.@+-]*\.(?:go|py|pyi|pyx|js|mjs|cjs|jsx|ts|tsx|vue|svelte|java|kt|kts|rb|erb|rs|c|h|cc|cpp|hpp|cs|fs|vb|php|swift|scala|groovy|clj|ex|exs|erl|hs|lua|pl|pm|dart|zig|nim|jl|sh|bash|ps1|bat|sql|md|rst|adoc|toml|yaml|yml|json|jsonl|xml|html|css|scss|less|txt|csv|cfg|ini|conf|properties|proto|graphql|gradle|bzl|cmake|mod|sum|lock|snap|tmpl|templ|svg|png|ipynb|tf|nix)|(?:GNU)?[Mm]akefile|Dockerfile|Containerfile|Jenkinsfile|Gemfile|Rakefile|Procfile|Vagrantfile|Justfile|CHANGELOG|CONTRIBUTING|CODEOWNERS|Pipfile|\.(?:gitignore|gitattributes|editorconfig|npmrc|eslintrc|dockerignore|env))$`)
	pathName  = regexp.MustCompile(`^\.{0,2}/?[\w.@~+-]+(?:/[\w.@~+-]+)+/?$|^[\w.@~+-]+/$`)
	flagName  = regexp.MustCompile(`^--?[A-Za-z][\w-]*`)
	kebabName = regexp.MustCompile(`^[a-z]\w+(?:-[A-Za-z]\w+)+$`)
	nameChars = regexp.MustCompile(`[\p{L}\p{N}_$]+`)
	called    = regexp.MustCompile(`([\p{L}_$][\p{L}\p{N}_$.]*[\p{L}\p{N}_$]|[\p{L}_$])\(`)
	plural    = regexp.MustCompile(`^[\p{L}]+\((?:e?s|ren)$`)
	referred  = regexp.MustCompile(`\b(?:CVE-\d{4}-\d{4,}|GHSA(?:-\w{4}){3}|[0-9a-f]{7,40})\b`)
	titled    = regexp.MustCompile(`(?i)\b(?:tests?|specs?|cases?)(?: (?:named|called|titled))? ["“]([^"“”]{3,160})["”]|["“]([^"“”]{3,160})["”] (?:tests?|specs?|cases?)\b`)
	address   = regexp.MustCompile(`\S*://\S*`)
	scope     = regexp.MustCompile(`^[a-z]+\([^()]*\)!?: `) // of a conventional commit
	command   = regexp.MustCompile(`^(?:\$ )?(?:go|git|npm|npx|yarn|pnpm|node|python3?|pip3?|pytest|cargo|make|mvn|gradle|dotnet|bundle|rake|docker|curl|sh|bash|tox|cmake|ctest) `)
)

// namesIn finds what a sentence names: files, identifiers that are told from prose by their form
// or by standing in a code span, flags, and the titles of tests. What might as well be a word is
// none.
func namesIn(s string) []name {
	s = strings.Join(strings.Fields(masked.ReplaceAllString(seen(s), " ")), " ")
	var out []name
	add := func(text string, kind nameKind) {
		n := name{text, kind}
		if text != "" && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	rest := span.ReplaceAllStringFunc(s, func(m string) string {
		inSpan(unquoted(strings.Trim(m, "`")), add)
		return " "
	})
	rest = address.ReplaceAllString(scope.ReplaceAllString(rest, ""), " ")
	for _, m := range titled.FindAllStringSubmatch(rest, -1) {
		add(strings.TrimRight(m[1]+m[2], ".,;"), literal)
	}
	for _, r := range referred.FindAllString(rest, -1) {
		if strings.ContainsAny(r, "0123456789") && strings.ContainsAny(r, "abcdefCG") { // "1234567" is a number
			add(r, reference)
		}
	}
	for w := range strings.FieldsSeq(rest) {
		inProse(w, add)
	}
	return out
}

func inSpan(inner string, add func(string, nameKind)) {
	isCommand := command.MatchString(inner)
	for w := range strings.FieldsSeq(inner) {
		w = strings.Trim(w, `"'(),;:[]{}<>*!?`)
		switch {
		case strings.Contains(w, "://"), strings.Contains(w, "..."):
		case fileName.MatchString(w):
			add(strings.TrimPrefix(w, "./"), file)
		case isCommand:
			for _, id := range nameChars.FindAllString(w, -1) {
				if distinct(id) {
					add(id, symbol)
				}
			}
		case flagName.MatchString(w):
			add(strings.TrimLeft(flagName.FindString(w), "-"), literal)
		case pathName.MatchString(w):
			add(w, file)
		case kebabName.MatchString(w):
			add(w, literal)
		default:
			for _, id := range nameChars.FindAllString(w, -1) {
				if len(strings.Trim(id, "_")) >= 3 && !unicode.IsDigit(rune(id[0])) && !keywords.MatchString(id) {
					add(id, symbol)
				}
			}
		}
	}
	if m := called.FindStringSubmatch(inner); m != nil && !isCommand {
		add(last(m[1]), symbol)
	}
}

func inProse(w string, add func(string, nameKind)) {
	if strings.HasPrefix(w, "@") || strings.HasPrefix(w, "(@") { // a person
		return
	}
	w = strings.Trim(w, `"'(),;:[]{}<>!?*“”‘’`)
	w = strings.TrimSuffix(w, ".")
	switch {
	case strings.Contains(w, "://"):
	case fileName.MatchString(w):
		add(strings.TrimPrefix(w, "./"), file)
	case strings.HasPrefix(w, "--") && flagName.MatchString(w):
		add(strings.TrimLeft(flagName.FindString(w), "-"), literal)
	case plural.MatchString(w):
	case called.MatchString(w):
		add(last(called.FindStringSubmatch(w)[1]), symbol)
	case pathName.MatchString(w):
		add(w, folder)
	case strings.Contains(w, "/"):
	default:
		for _, id := range nameChars.FindAllString(w, -1) {
			if distinct(id) {
				add(id, symbol)
			}
		}
	}
}

// unquoted drops string literals: their text need not stand anywhere.
func unquoted(s string) string {
	if strings.ContainsAny(s, `"'`) {
		return regexp.MustCompile(`"[^"]*"?|'[^']*'?`).ReplaceAllString(s, " ")
	}
	return s
}

func last(dotted string) string { return dotted[strings.LastIndexByte(dotted, '.')+1:] }

var (
	humps  = regexp.MustCompile(`\p{Ll}\p{Lu}|^\p{Ll}+\p{N}+\p{Lu}`)
	upper  = regexp.MustCompile(`^\p{Lu}{2,}\p{Ll}{3,}`)
	proper = regexp.MustCompile(`^(?:JavaScript|TypeScript|CoffeeScript|ECMAScript|GitHub|GitLab|BitBucket|PostgreSQL|MySQL|SQLite|NoSQL|MariaDB|MongoDB|DynamoDB|GraphQL|OpenAPI|OpenSSL|OpenSSH|OpenTelemetry|OpenAI|ChatGPT|YouTube|LaTeX|WebSockets?|WebAssembly|WebKit|FreeBSD|OpenBSD|NetBSD|PowerShell|CommonMark|AsciiDoc|JUnit|PyPI|PyPy|NumPy|SciPy|RubyGems|DevOps|IntelliJ|PyCharm|MinGW|AppVeyor|CircleCI|TravisCI|CMake|NaNs?|OAuth2?|WiFi|MacOS|macOS|iOS|eBay|ReDoS|StackOverflow|CamelCase|PascalCase|camelCase|VSCode|DOMs|UTFs)$`)
)

// distinct reports whether a word has the form of an identifier and of nothing else.
func distinct(id string) bool {
	inner := strings.Trim(id, "_")
	switch {
	case len(inner) < 3, unicode.IsDigit(rune(id[0])), keywords.MatchString(id):
		return false
	case strings.Contains(inner, "_"), strings.HasPrefix(id, "$"):
		return true
	case proper.MatchString(inner):
		return false
	}
	return humps.MatchString(inner) || upper.MatchString(inner)
}

// keywords any program may have without its author writing them down.
var keywords = regexp.MustCompile(`^(?:nil|null|None|undefined|true|false|True|False|NaN|int(?:eger)?(?:8|16|32|64)?|uint(?:8|16|32|64)?|float(?:32|64)?|double|char|bool(?:ean)?|string|str|bytes?|void|list|dict|tuple|set|map|array|slice|object|Object|String|this|self|super|async|await|return|else|for|while|switch|case|break|continue|try|except|catch|finally|raise|throws?|class|struct|enum|interface|func|function|def|lambda|var|let|const|static|public|private|protected|import|from|package|module|with|yield|assert|panic|error|len|max|min|abs|range|print|and|not|del|pass|elif` +
	`|(?:Value|Type|Key|Index|Attribute|Runtime|Recursion|ZeroDivision|UnicodeDecode|UnicodeEncode|Overflow|Name|Import|OS|IO|Assertion|NotImplemented|Memory|Reference|Range|Syntax|Lookup|EOF)Error|StopIteration|Exception|Error|(?:NullPointer|IndexOutOfBounds|IllegalArgument|IllegalState|ClassCast|Runtime)Exception)$`)
