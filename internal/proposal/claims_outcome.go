package proposal

import (
	"regexp"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// What a sentence must not say, because the record says it or nothing does.
const (
	whyOutcome = "how tests and measurements came out is said by the record"
	whyCount   = "how much was added and removed is counted by the record"
	whyPeople  = "who tried or reviewed the change is not for the agent to say"
	whyEffect  = "no record shows what the change does not affect"
	whyScript  = "its letters hide what it says or cannot be checked"
)

// Words for tests and what runs them, and for how they come out. A sentence with one of each is
// about an outcome. Letters are folded: small, without accents.
var (
	tested = regexp.MustCompile(`\b(?:tests?|test-?(?:suites?|runs?|cases?)|testsuites?|suites?|specs|ci|(?:test|build|full|whole|entire|github) pipelines?|workflow runs?|benchmarks?|unittests?|linters?|linting|type-?check(?:er|ing|s)?` +
		`|(?:all|ci|the|status|required|other|these|those|lint|types?|pre-commit|existing) checks|(?:ci|lint|status|pre-commit|every|each) check|(?:all|ci|the|every|each|full|clean|release|debug|docker) builds?` +
		`|pytest|nosetests|tox|nox|jest|mocha|vitest|karma|cypress|playwright|rspec|minitest|phpunit|ctest|gtest|googletest|junit|testng|surefire|maven|mvn|gradlew?|bazel|cargo|clippy|nextest` +
		`|tsc|eslint|prettier|mypy|pyright|ruff|flake8|pylint|staticcheck|golangci-lint|gofmt|go (?:test|vet|build)|npm (?:test|t|run)|yarn|pnpm|make (?:test|check|lint|ci|all)|dotnet (?:test|build)|rake|sanitizers?|valgrind|race detector|fuzz(?:er|ing)` +
		`|testes?|testlaufe?|testlauf|testen|tester(?:na|ne)?|testy|testow|testler\w*|pruebas?|prove)\b|тест|сборк|测试|測試|用例|构建|流水线|テスト|ヒルト|ビルド|테스트|빌드`)
	result = regexp.MustCompile(`\b(?:pass(?:e[sd]|ing)?|succeed(?:s|ed|ing)?|success(?:es|ful|fully)?|green|fail(?:s|ed|ing|ures?)?|cleanly|(?:is|are|was|were|runs?|comes?(?: out| back)?|looks?|stays?|remains?|all)(?: \w+)? clean|clean[.! ]*$|ok(?:ay)?|broken?|breaks?|works?|happy|holds?|regress(?:e[sd])?` +
		`|exit(?:s|ed)?(?: (?:with|code|status))* (?:0|zero)|(?:no|zero|0|without|without any) (?:\w+ )?(?:errors?|failures?|warnings?|problems?|issues?|complaints?|findings?|regressions?)|finds? nothing|error-?free|unaffected|intact|complain(?:s|ed)?|satisfied` +
		`|\d[\d,.]* ?(?:/|of|out of) ?\d+|100 ?%` +
		`|passent|passe|reussi\w*|echou\w+|verte?s?|succes|durch|durchgelaufen|lauft|laufen|bestehen|besteht|bestanden|grun|gruen|erfolgreich|fehlschl\w+|fehlerfrei|pasan?|pasaron|exito\w*|correctamente|fallan?|superad\w+|verdes?` +
		`|passam|passou|passaram|sucesso|falh\w+|passano|passa|superat\w+|superano|successo|slagen|slaagt|geslaagd|groen|falen|faalt|przechodz\w+|przeszly|zielon\w+|gec(?:iyor|ti|er)\w*|basari\w+|yesil|godkan\w+|lyckas|bestar|passerer|lykkes|gron\w*)\b` +
		`|про(?:ход|шл|йд)|успешн|зелен|пада[ею]|[✅✔✓☑👍💯]|通过|通過|成功|失败|失敗|通り|通る|通って|パス|ハス|合格|통과|성공|실패`)
	// Outcomes that need no word for a test.
	outcomes = regexp.MustCompile(`\b(?:everything|all of (?:it|them|these)|they all|it all|all|both)(?: \w+)? (?:pass(?:es|ed)?|succeed(?:s|ed)?|(?:is|are|was|were|stays?|remains?|looks?) (?:\w+ )?(?:green|ok|fine|clean|good|passing)|works?|builds?|compiles?)\b` +
		`|\b(?:nothing|none|no one)(?: \w+)? (?:fails?|failed|breaks?|broke|regress\w*)\b` +
		`|\b(?:no|without(?: any)?|zero|0)\W+(?:(?:new|other|known|further|test) )*(?:regress\w+|failures?|failing)\b|\bno-?regressions?\b|\bregressions?\W+(?:none|no|0|zero)\b|\bcompiles? (?:cleanly|fine|without (?:errors?|warnings?))` +
		`|\b\d[\d,.]*(?: \w+)? (?:pass(?:e[sd]|ing)|failed|failing|failures|succeeded)\b|\b\d+ (?:of|out of|/) \d+ (?:pass|succe|ok|green)` +
		`|^\W*(?:status|results?|outcome|verification|verdict)\W+(?:is |was |were )?(?:all )?(?:pass|ok|green|succe|fail|clean|good|\d)` +
		`|^\W*(?:all |now |and |it |still |again )*(?:pass(?:e[sd]|ing)?|green|ok|succe(?:eds?|ss\w*)|good|lgtm|works)(?: now| again| too| locally)*\W*$` +
		`|\b(?:test|line|code|branch|statement) coverage\b|\b\d+(?:\.\d+)? ?(?:%|percent) (?:covered|coverage|of (?:the )?(?:lines|branches|code))\b`)
	// Comparisons of speed and size of resources: nothing measured them.
	measured = regexp.MustCompile(`\b\d+(?:\.\d+)? ?(?:%|x|×|times|fold|percent) (?:\w+ )?(?:faster|slower|quicker|less|fewer|more|smaller|cheaper|better|speed|improvement|reduction)` +
		`|\b(?:faster|slower|quicker)\b|\b(?:twice|thrice|half|times|magnitude|as) as (?:fast|slow|quick|efficient)\b|\bspeed-?ups?\b|\bspe?eds? (?:it |things )?up\b|\bsped up\b` +
		`|\bperformance (?:is|was|stays?|remains?|improve\w*|gains?|regress\w*|impact|unchanged|does)|\b(?:improves?|better|no|without) performance\b|\bbenchmark(?:s|ed)? (?:show|prove|confirm)`)
	counted = regexp.MustCompile(`\b(?:add|remov|delet|chang|touch|rewr|cover)\w*\b[^.;]{0,40}\b(?:\d+|two|three|four|five|six|seven|eight|nine|ten|dozens?|several|many)(?: of)? (?:\w+ )?(?:lines?|files|tests|test cases|assertions)\b`)
	people  = regexp.MustCompile(`\b(?:i|ive|weve|have|had)(?: also| then| just| already)? run\b|\b(?:i|we)(?:ve|d)?(?: (?:have|had|also|then|both|just|already|\w+ly))* (?:ran|re-?ran|tested|verified|checked|confirmed|validated|benchmarked|measured|profiled|tried|reproduced|reviewed|compared|executed|ensured|made sure)\b` +
		`|\b(?:was|were|been|got) (?:\w+ly |also |all )?(?:tested|reviewed|approved|benchmarked|profiled|signed off|audited)\b|\b(?:reviewed|approved|signed off|endorsed|audited) (?:and \w+ )?by\b|\blgtm\b` +
		`|^\W*(?:(?:also|then|and|manually|locally|successfully) )*(?:tested|verified|checked|confirmed|reviewed|approved|benchmarked|validated|ran|reran|re-ran)\b` +
		`|\b(?:tested|verified|checked|confirmed|validated|tried|reproduced|works?|runs?|builds?|compiles?|passes|behaves) (?:\w+ )?(?:by hand|manually|locally|on my|on all|on both|on every)\b|\b(?:manual(?:ly)?|local(?:ly)?) (?:test|verif|check|review)` +
		`|\b(?:maintainers?|reviewers?|owners?|team|colleagues?) (?:has |have |had |also |already )*(?:reviewed|approved?s?|agreed?s?|confirm(?:s|ed)?|accept(?:s|ed)|signed|okayed)\b`)
	versions = regexp.MustCompile(`\b(?:works?|runs?|compatible|tested|checked|verified|builds?|compiles?|behaves|identical|same)\b[^.;]{0,40}\b(?:on|with|under|across)\b[^.;]{0,20}\b(?:c?python|pypy|node(?:\.?js)?|go|java|jdk|ruby|rust|php|perl|\.net|windows|linux|macos|ubuntu|debian|chrome|firefox|safari|bsd)\W{0,2}v?(?:\d|$|and\b|or\b|to\b|too\b)`)
	effects  = regexp.MustCompile(`\b(?:nothing|no (?:other )?(?:code|caller|callers|user|users|path|paths)) (?:else )?(?:is|was|are|were) (?:affected|broken)\b|\bno (?:other )?(?:user-?visible |observable |functional )?(?:behaviou?r(?:al)?|functional(?:ity)?) changes?\b|\b(?:fully|completely|entirely|100 ?%) (?:backwards?|forwards?)[- ]compatible\b`)
)

// harmless takes out what only sounds like an outcome: passing something to somebody, and the
// input that fails.
var harmless = regexp.MustCompile(`\bpass(?:e[sd]|ing)? (?:an?|the|its?|this|that|these|those|nil|null|none|them|him|\d+)(?: [\w.()-]+){0,5}? (?:to|into|as|through|along|down)\b` +
	`|\bpass(?:e[sd]|ing)? an? (?:invalid|empty|null|nil|negative|non-?\w+|strings?|list|value|number|function|callback|context|pointer|path|url|file|key|custom|different|wrong|large|larger|small|smaller|single|second|third|new)\b|\bbreaks? (?:up|out|down)\b` +
	`|\bfail(?:s|ed|ing)? (?:case|input|example|path|line|value|branch|call|lookup|assertion)s?\b|\bpass(?:e[sd]|ing)? through\b|\bbuild (?:tags?|scripts?|files?|steps?|systems?|constraints?|options?|director(?:y|ies)|metadata|identifiers?|versions?)\b`)

// outcome says why a sentence may not stand, or "".
func outcome(s string) string {
	folded, hidden := fold(s)
	plain := harmless.ReplaceAllString(folded, " ")
	switch {
	case hidden:
		return whyScript
	case tested.MatchString(plain) && result.MatchString(plain), outcomes.MatchString(plain), measured.MatchString(plain):
		return whyOutcome
	case counted.MatchString(plain):
		return whyCount
	case people.MatchString(plain), versions.MatchString(plain):
		return whyPeople
	case effects.MatchString(plain):
		return whyEffect
	}
	return ""
}

var bare = regexp.MustCompile(`(?:^|[\s:=|-])(?:pass(?:e[sd]|ing)?|green|ok|succe\w+|fail(?:s|ed)?|clean|\d+ ?/ ?\d+|[✅✔✓☑])\W*$`)

// inDoubt says why words may not stand under a line that says what they are about, if there is
// one: "unit: ok" under "Tests:" is an outcome as well.
func inDoubt(head, s string) string {
	if why := outcome(s); why != "" || head == "" {
		return why
	}
	h, _ := fold(head)
	t, _ := fold(s)
	if tested.MatchString(h) && bare.MatchString(t) {
		return whyOutcome
	}
	return ""
}

var (
	markup   = regexp.MustCompile(`(?s)<!--.*?(?:-->|\z)|</?[a-zA-Z][^<>]*>`)
	link     = regexp.MustCompile(`\[([^\]\n]*)\]\([^)\n]*\)`)
	lines    = regexp.MustCompile(`\n[ \t]*(?:>[ \t]*)*`)
	emphasis = regexp.MustCompile(`(^|[^\p{L}\p{N}_])_+|_+([^\p{L}\p{N}_]|$)`)
)

// fold gives a sentence the form that the rules are written for, whatever makes it look the same
// to a reader. hidden says that letters in it only look like others, or have no rules.
func fold(s string) (folded string, hidden bool) {
	for range 4 {
		without := link.ReplaceAllString(markup.ReplaceAllString(s, ""), "$1")
		if without == s {
			break
		}
		s = without
	}
	s = strings.Map(func(r rune) rune {
		switch {
		case r >= 0x300 && r <= 0x36f, strings.ContainsRune("*~`'\"‘’“”«»„", r):
			return -1
		case unicode.IsSpace(r):
			return ' '
		case unicode.Is(unicode.Pd, r):
			return '-'
		case r == 'ı':
			return 'i'
		}
		return unicode.ToLower(r)
	}, norm.NFKD.String(seen(lines.ReplaceAllString(s, " "))))
	s = strings.Join(strings.Fields(emphasis.ReplaceAllString(s, "$1$2")), " ")
	return norm.NFC.String(s), disguised(s)
}

// seen is a text without the characters that nobody sees.
func seen(s string) string {
	return strings.Map(func(r rune) rune {
		if r > 0xA0 && (unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Variation_Selector, r) || unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r)) ||
			unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

// disguised reports Latin words with letters of another alphabet that look the same, and text
// most of which is in a script that no rule reads.
func disguised(folded string) bool {
	letters, foreign := 0, 0
	for _, w := range strings.FieldsFunc(folded, func(r rune) bool { return !unicode.IsLetter(r) }) {
		latin, alike := false, false
		for _, r := range w {
			letters++
			switch {
			case unicode.Is(unicode.Latin, r):
				latin = true
			case unicode.Is(unicode.Cyrillic, r), unicode.Is(unicode.Armenian, r), unicode.Is(unicode.Cherokee, r), strings.ContainsRune("αεικνορτυχ", r):
				alike = true
			}
			if !unicode.In(r, unicode.Latin, unicode.Greek, unicode.Cyrillic, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul) {
				foreign++
			}
		}
		if latin && alike {
			return true
		}
	}
	return foreign*2 > letters
}
