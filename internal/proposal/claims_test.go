package proposal

import (
	"slices"
	"strings"
	"testing"
)

func TestNamesIn(t *testing.T) {
	for s, want := range map[string]string{
		"The coupon(s) were taken off without a floor.":                           "",
		"`Total()` in cart/total.go subtracts the coupon in the loop.":            "Total cart/total.go",
		"TestCouponOnce and test_large_coupon fail, e.g. on GitHub or macOS.":     "TestCouponOnce test_large_coupon",
		"Use `max(0, total - coupon)` as `net_price` does.":                       "max total coupon net_price",
		"cart.applyCoupon(x) calls parseInt; see README.md, not JavaScript.":      "applyCoupon parseInt README.md",
		"`if x == \"someValue here\"` and `go test ./...` and 3.14":               "",
		"See https://example.com/fooBar_baz and deadbeef1.":                       "deadbeef1",
		"The IPv6 address, JSON-RPC, U+FE0E, 0xFF and an int64 overflow (utf8).":  "",
		"It used [redacted:github_token] before; `n-1` and `x` and `None` remain": "",
		"`__init__` runs before `setUp`":                                          "__init__ setUp",
		"Émile's `größeBerechnen` is called":                                      "größeBerechnen",
		"The class TokenStream, the CSVParser, Makefile, a.vue and src/b.lua":     "TokenStream CSVParser Makefile a.vue src/b.lua",
		"fix(parser): `internal/nothere`, `the-key`, --no-flag=1 and `-v`":        "internal/nothere the-key no-flag v",
		"Fixes CVE-2024-12345, see commit abc1234, not 1234567.":                  "CVE-2024-12345 abc1234",
		"The test \"handles an empty cart\" is new, \"as it were\".":              "handles an empty cart",
		"Thanks @someBody for `ok\u200bName`":                                     "okName",
	} {
		var got []string
		for _, n := range namesIn(s) {
			got = append(got, n.text)
		}
		w := strings.Fields(want)
		if strings.HasPrefix(want, "handles") {
			w = []string{want}
		}
		slices.Sort(got)
		slices.Sort(w)
		if !slices.Equal(got, w) {
			t.Errorf("%s\n got %v\nwant %v", s, got, w)
		}
	}
}

// known is a small change to a shop.
func known() *Facts {
	return NewFacts([]string{"shop/cart/total.go", "shop/cart/total_test.go"},
		[]string{"shop/cart/total.go", "shop/cart/store.go", "README.md", "Makefile", "shop/docs/use.md"},
		[]string{"func Total(cart Cart) int { applyCoupon(max(0, total)) }\nvar real_name = flag(\"dry-run\")", "TestCouponOnce", "--- FAIL: got 80, OverdraftError"},
		"The option `wholeCart` is ignored, see CVE-2024-1111")
}

// What the record says, or nothing does, is not for the agent to say, however it is written.
func TestFilterDropsOutcomes_MOD06(t *testing.T) {
	for _, s := range []string{
		"The whole test suite now\npasses without problems.", "I ran the\ntest suite.", "The suite is fully green.", "All 214 specs are green.",
		"Everything passes.", "Every existing test still works.", "All tests: OK (300/300).", "300 of 300 succeeded.", "The existing test-suite continues to pass cleanly.",
		"Tests pass: 300.", "pytest reports 0 failures.", "pytest exits with 0.", "`go test ./...` succeeds.", "`cargo test` is clean.", "go vet is clean and the linter finds nothing.",
		"All tests pass now.", "All tests pass (300 of 300).", "All tests passed/green.", "All tests pass: see below", "tests pass - all", "**pass**", "All green", "Result: green.", "Status: OK",
		"All tests **pass**.", "All tests _pass_.", "All tests `pass`.", "All tests ‘pass’", "All tests pa<b></b>ss.", "All tests pa<!-- x -->ss.", "All tests [pass](x).", "All tests [pa](http: x)ss.", "All tests ![pa](x)ss.", "All tests <!-- a. B --> pass.", "All tests <a\ttitle=\"x. Y\">pass</a>.", "All tests pa<<b>b>ss.",
		"All t\u200bests pass.", "All tests pa\u00adss.", "All tests\u00a0pass.", "The tests paſs.", "All tests ｐａｓｓ.", "All tests p\u0430ss.", "All tests pa\u0301ss.", "All tests 𝐩𝐚𝐬𝐬.", "Tests ✅",
		"> All tests\n> pass.", "- All tests\n  pass.", "  All tests\n  pass.", "```\nall tests\npass\n```", "| suite | pass |", "All of the tests, e.g. the slow ones, pass.",
		"No tests fail.", "No test regressed.", "No test is broken.", "no-regressions.", "There are no regressions.", "zero failures", "The failing test no longer fails.", "All of them are green now.",
		"CI is green", "CI: green.", "The full CI pipeline ran green.", "Nothing breaks.", "312 passed.", "All four pass.", "Line coverage is 100 %.", "Regressions: none.", "It compiles cleanly.", "Every check passes.",
		"Les tests passent tous.", "Alle Tests laufen durch.", "Todas las pruebas pasan.", "Todos os testes passam.", "I test passano.", "Alle tests slagen.", "Testy przechodzą.", "Testler başarılı.", "Alla tester är gröna.",
		"Все тесты проходят.", "所有测试都通过了。", "テストはすべて成功した。", "모든 테스트가 통과했습니다.", "كل الاختبارات ناجحة.",
		"It is twice as fast.", "Parsing is 3x faster.", "Performance is unchanged.", "It runs 20 % quicker than before.", "A noticeable speed-up.",
		"I checked it on Python 3.8 to 3.13.", "Checked by hand on Windows.", "This was reviewed by a maintainer and approved.", "LGTM", "We have verified this.", "It works on Python 3.8 and 3.13.", "The maintainers agreed to it.", "I've run it locally.",
		"It is fully backwards compatible.", "There are no behaviour changes.", "Nothing else is affected.", "Added three tests and removed 40 lines.",
	} {
		if kept, gone := Filter("fix", s, known()); kept != "" || len(gone) == 0 {
			t.Errorf("%q is kept: %q", s, kept)
		}
	}
}

func TestFilterDropsWhatIsNotThere(t *testing.T) {
	many := "Touches "
	for range 30 {
		many += "Total(), real_name, "
	}
	for s, name := range map[string]string{
		"The parser class TokenStream is replaced by StreamParser.": "TokenStream", "Total is replaced by StreamParser.": "StreamParser", "`Parser` now calls `Total`.": "Parser",
		"The new package `internal/nothere` holds it.": "internal/nothere", "It is in shop/nowhere.": "shop/nowhere", "Changed the Dockerfile.": "Dockerfile", "In `nothere.vue` it is renamed.": "nothere.vue", "Edited src/nothere.lua.": "src/nothere.lua",
		"Adds the option --no-such-flag.": "no-such-flag", "It reads NO_SUCH_VAR.": "NO_SUCH_VAR", "The test \"handles an empty cart\" is added.": "handles an empty cart", "Fixes CVE-2024-12345.": "CVE-2024-12345", "It came with commit abc1234.": "abc1234",
		"total.go was rewritten and README.md documents it.": "README.md", "README.md documents it.": "README.md", "The caller is in store.go.": "store.go", "It also rounds in apply_discount.": "apply_discount", "See pricing/engine.go.": "pricing/engine.go",
		"Now it reads wholeCart.": "wholeCart", many + "and lie_one.": "lie_one", "A real\u200bname and lie\u200b_two.": "lie_two",
	} {
		kept, gone := Filter("cause", s, known())
		if kept != "" || len(gone) != 1 || !strings.HasSuffix(gone[0].Why, " "+name) || gone[0].Where != "cause" {
			t.Errorf("%q\nkept %q, dropped %+v", s, kept, gone)
		}
	}
}

func TestFilterKeepsWhatExists(t *testing.T) {
	for _, s := range []string{
		"Total() subtracts the coupon in the loop, once for every line.", "The fix is in cart/total.go, and applyCoupon stays.", "`Total` now takes `max` of 0 and the rest.",
		"TestCouponOnce covers it; it raised OverdraftError or `ValueError`.", "The flag --dry-run and `dry_run` are read there.", "The report says that wholeCart is ignored, which is CVE-2024-1111.",
		"The test passes a negative number to it.", "The build tag was wrong, so nothing passed through.", "The price is 3 times too high.", "A pass over the list is enough.", "Tests for it come with the change.",
		"Adds a regression test for the failing input.", "It checks whether the read failed.", "Fixes a regression where Total fails for an empty cart.", "The spec allows it, but Total fails.", "The check succeeds for an empty cart.", "Reading and/or writing is I/O (see Total).", "In shop/cart/ it is read once.", "The sum of coupons is wrong.\n\n  total -= applyCoupon\n\n- One.\n- Two:\n  three.",
		"# Cause\n\nThe loop is left too early.\n\n1. Read.\n2. Write.", "```go\nreal_name := Total(cart)\n```\n\nThat is all.", "Die Summe wird zu früh gekürzt.", "合計が負になる。それを防ぐ。", "Сумма вычитается дважды.", "The angle α is in [0, 2π).",
	} {
		if kept, gone := Filter("cause", s, known()); kept != s {
			t.Errorf("%q became %q: %+v", s, kept, gone)
		}
	}
}

// A sentence goes alone: its neighbours stay as they were written.
func TestFilterLeavesTheRest(t *testing.T) {
	for words, want := range map[string]string{
		"Total() subtracts it in the loop. It also calls checkInventory() twice! That is in total.go.\r\n\r\n  total -= 1\r\nAll tests pass now.": "Total() subtracts it in the loop. That is in total.go.\n\n  total -= 1",
		"One.\nI ran the suite and there are\nno regressions. Two.\nThree.":                                                                       "One.\nTwo.\nThree.",
		"- All tests pass. It is short.\n- CI is green.\n- Last.":                                                                                 "- It is short.\n- Last.",
		"Tests:\n- unit: ok\n- the cart: 12/12\n\nWhy:\n- the loop was wrong":                                                                     "Tests:\n\nWhy:\n- the loop was wrong",
		"The tests\n\n  no_such_name = 1\n\npass over it":                                                                                         "The tests\n\npass over it",
		"```\nreal_name = 1\nno_such_name = 2\n```":                                                                                               "```\nreal_name = 1\n```",
		"See total.go. It is e.g. Total that is wrong. `no_such()` as well, see i.e. X.":                                                          "See total.go. It is e.g. Total that is wrong.",
	} {
		kept, _ := Filter("fix", words, known())
		if kept != want {
			t.Errorf("%q\nkept %q\nwant %q", words, kept, want)
		}
	}
}

func TestFilterIsBounded(t *testing.T) {
	kept, gone := Filter("fix", strings.Repeat("All tests pass. It is short. ", 100000), known())
	if len(kept) > maxWords || len(gone) > maxWords || len(gone) == 0 || !strings.HasPrefix(gone[0].Text, "the last ") {
		t.Errorf("%d bytes kept, %d sentences dropped: %+v", len(kept), len(gone), gone[0])
	}
}

// FuzzFilter: whatever is written, what is kept is kept again, and no paragraph of it is about an
// outcome.
func FuzzFilter(f *testing.F) {
	for _, s := range []string{
		"All tests pass. `a.b()` in x/y.go!\n  code\n", "The tests\n\n  no_such = 1\npass", "- a\n```\nb\n~~~\n> c\n# d\n| e |", "Tests:\n\nno_such\n\n- ok", "tests <!-- a. B --> pass <<b>b>", "all\ntests. _pass_\u200b", "所有测试。通過", "1. tests\n  2) pass",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, words string) {
		kept, gone := Filter("fix", words, known())
		if again, none := Filter("fix", kept, known()); again != kept || len(none) != 0 {
			t.Errorf("%q is kept as %q and then as %q", words, kept, again)
		}
		if len(gone) == 0 && len(kept) > len(words) {
			t.Errorf("%q grew to %q", words, kept)
		}
		for _, u := range unitsOf(unmarked(kept)) {
			parts := sentences(u.text)
			if u.code {
				parts = []string{u.text}
			}
			for _, s := range parts {
				if why := outcome(s); why != "" {
					t.Errorf("%q of %q: %s", s, kept, why)
				}
			}
		}
	})
}
