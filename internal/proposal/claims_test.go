package proposal

import (
	"slices"
	"strings"
	"testing"
)

func TestNamesIn(t *testing.T) {
	for s, want := range map[string]string{
		"The coupon was taken off without a floor.":                           "",
		"`Total()` in cart/total.go subtracts the coupon in the loop.":        "Total cart/total.go",
		"TestCouponOnce and test_large_coupon fail, e.g. on GitHub or macOS.": "TestCouponOnce test_large_coupon",
		"Use `max(0, total - coupon)` as `net_price` does.":                   "max net_price",
		"cart.applyCoupon(x) calls parseInt; see README.md, not JavaScript.":  "applyCoupon parseInt README.md",
		"`if x == \"someValue here\"` and `go test ./...` and and/or 3.14":    "",
		"See https://example.com/fooBar_baz.":                                 "",
		"The IPv6 address, JSON-RPC and an int64 overflow (utf8).":            "",
		"It used [redacted:github_token] before.":                             "",
		"`__init__` runs before `setUp`":                                      "setUp",
		"Émile's `größeBerechnen` is called":                                  "größeBerechnen",
	} {
		var got []string
		for _, n := range NamesIn(s) {
			got = append(got, n.Text)
		}
		slices.Sort(got)
		w := strings.Fields(want)
		slices.Sort(w)
		if !slices.Equal(got, w) {
			t.Errorf("%s\n got %v\nwant %v", s, got, w)
		}
	}
}

func TestFilterKeepsWhatExists(t *testing.T) {
	has := func(n Name) (bool, error) {
		if n.Path {
			return HasPath([]string{"shop/cart/total.go"}, n.Text), nil
		}
		return slices.Contains([]string{"Total", "applyCoupon", "max"}, n.Text), nil
	}
	words := "Total() subtracts the coupon in the loop. It also calls checkInventory() twice! That is in total.go.\n\n" +
		"  total -= coupon\n" +
		"All tests pass now. The fix is in cart/total.go, and applyCoupon stays.\nI ran the suite and there are no regressions.\nSee pricing/engine.go.\n"
	kept, dropped, err := Filter("fix", words, has)
	if err != nil {
		t.Fatal(err)
	}
	want := "Total() subtracts the coupon in the loop. That is in total.go.\n\n  total -= coupon\nThe fix is in cart/total.go, and applyCoupon stays."
	if kept != want {
		t.Errorf("kept %q\nwant %q", kept, want)
	}
	var why []string
	for _, d := range dropped {
		why = append(why, d.Text+" ← "+d.Why)
	}
	all := strings.Join(why, "\n")
	for _, s := range []string{"has checkInventory", "All tests pass now. ← how tests", "no regressions. ← how tests", "has pricing/engine.go"} {
		if !strings.Contains(all, s) {
			t.Errorf("no %q in\n%s", s, all)
		}
	}
	if len(dropped) != 4 || dropped[0].Where != "fix" {
		t.Errorf("%d dropped: %s", len(dropped), all)
	}
	// Words that only sound like a result stay.
	for _, s := range []string{
		"The test passes a negative number to it.", "The build tag was wrong, so nothing passed through.", "The price is 3 times too high.",
		"A pass over the list is enough.", "Tests for it come with the change.",
	} {
		if kept, _, err := Filter("cause", s, has); err != nil || kept != s {
			t.Errorf("%q became %q", s, kept)
		}
	}
}

func FuzzFilter(f *testing.F) {
	f.Add("All tests pass. `a.b()` in x/y.go!\n  code\n")
	f.Fuzz(func(t *testing.T, words string) {
		n := 0
		kept, dropped, err := Filter("fix", words, func(Name) (bool, error) { n++; return n%2 == 0, nil })
		if err != nil || len(kept) > len(words) || len(dropped) > len(words)+1 {
			t.Errorf("%q: %q, %d dropped, %v", words, kept, len(dropped), err)
		}
		if all, none, err := Filter("fix", kept, func(Name) (bool, error) { return true, nil }); err != nil || len(none) == 0 && all != kept {
			t.Errorf("%q is not kept as it is: %q", kept, all)
		}
	})
}
