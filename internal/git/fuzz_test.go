package git

import (
	"regexp"
	"strings"
	"testing"
)

func FuzzRedactURL(f *testing.F) {
	for _, s := range []string{"https://u:p@h/x", "://@", "a://b@c://d@e", "http://a@", "x://?@", "://://@"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := RedactURL(s)
		if RedactURL(got) != got {
			t.Fatalf("%q is redacted further: %q", got, RedactURL(got))
		}
		if m := regexp.MustCompile(`://[^/?#'" ]*@`).FindString(got); m != "" {
			t.Fatalf("%q is left of %q", m, s)
		}
	})
}

func FuzzCheckBranch(f *testing.F) {
	for _, s := range []string{"daybreak/x", "daybreak/../x", "daybreak/a/b-c_d", "main", "daybreak/x.lock", "daybreak/@{1}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if CheckBranch(s) != nil {
			return
		}
		if !strings.HasPrefix(s, BranchPrefix) || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-_/") != "" || strings.Contains(s, "//") || strings.HasSuffix(s, "/") {
			t.Fatalf("%q is accepted", s)
		}
	})
}

func FuzzParseSource(f *testing.F) {
	for _, s := range []string{"/x", "ext::sh -c x", "file://x", "-x", "a@b:c", "git://h/x", "ssh://h/x", "a::b:c", "http::x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := parseSource(s)
		if err != nil {
			if strings.ContainsRune(err.Error(), '\n') {
				t.Fatalf("not one line: %q", err)
			}
			return
		}
		if strings.HasPrefix(got.url, "-") || !got.local && strings.Contains(strings.SplitN(got.url, "/", 2)[0], "::") || strings.HasPrefix(got.url, "file://") {
			t.Fatalf("%q becomes %+v", s, got)
		}
	})
}
