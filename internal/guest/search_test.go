package guest_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-agent/daybreak/internal/guest"
)

func (s *site) find(t *testing.T, r guest.SearchRequest) guest.SearchResult {
	t.Helper()
	res, err := s.Search(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func TestSearch(t *testing.T) {
	need(t, "rg")
	s := start(t)
	outside := t.TempDir()
	if err := os.WriteFile(outside+"/x.txt", []byte("needle outside\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, s.dir+"/link"); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(s.dir+"/.git", 0o755); err != nil {
		t.Fatal(err)
	}
	s.put(t, ".git/config", "needle\n")
	s.put(t, ".gitignore", "ignored.txt\n")
	s.put(t, "ignored.txt", "needle\n")
	s.put(t, ".hidden", "needle\n")
	s.put(t, "a.go", "x\nneedle one\ny\nNeedle two\n")
	s.put(t, "b c.txt", "caf\xe9 needle \x1b[31m\n")
	s.put(t, "long.txt", "needle"+strings.Repeat("é", 1000)+"\n")
	s.put(t, "-e.txt", "needle-dash\n")

	r := s.find(t, guest.SearchRequest{Pattern: "needle"})
	if want := []guest.FileCount{{"-e.txt", 1}, {".hidden", 1}, {"a.go", 2}, {"b c.txt", 1}, {"long.txt", 1}}; !cmp.Equal(r.Files, want) {
		t.Errorf("files %v, want %v", r.Files, want)
	}
	texts := make(map[string]string)
	for _, m := range r.Matches {
		texts[fmt.Sprintf("%s:%d", m.Path, m.Line)] = m.Text
	}
	if len(texts) != 6 || texts["a.go:4"] != "Needle two" || texts["b c.txt:1"] != `caf\xE9 needle \x1B[31m` || !strings.HasSuffix(texts["long.txt:1"], "more bytes in this line]") {
		t.Errorf("matches %q", texts)
	}
	cases := []struct {
		name  string
		r     guest.SearchRequest
		files int
		err   string
	}{
		{"case", guest.SearchRequest{Pattern: "needle", Case: "sensitive", Paths: []string{"a.go"}}, 1, ""},
		{"smart case", guest.SearchRequest{Pattern: "Needle"}, 1, ""},
		{"glob", guest.SearchRequest{Pattern: "needle", Globs: []string{"*.txt", "!long*"}}, 2, ""},
		{"literal", guest.SearchRequest{Pattern: "needle.", Literal: true}, 0, ""},
		{"pattern that looks like an option", guest.SearchRequest{Pattern: "-dash"}, 1, ""},
		{"path that looks like an option", guest.SearchRequest{Pattern: "needle", Paths: []string{"-e.txt"}}, 1, ""},
		{"bad pattern", guest.SearchRequest{Pattern: "a("}, 0, "unclosed group"},
		{"bad glob", guest.SearchRequest{Pattern: "a", Globs: []string{"{a"}}, 0, "unclosed alternate group"},
		{"empty", guest.SearchRequest{}, 0, "the pattern is empty"},
		{"link out", guest.SearchRequest{Pattern: "needle", Paths: []string{"link"}}, 0, "is a link that leaves the work tree"},
		{"above", guest.SearchRequest{Pattern: "needle", Paths: []string{".."}}, 0, "outside the work tree"},
		{"absolute", guest.SearchRequest{Pattern: "needle", Paths: []string{outside}}, 0, "outside the work tree"},
		{"missing", guest.SearchRequest{Pattern: "needle", Paths: []string{"no"}}, 0, "no does not exist"},
		{"whole tree by its name", guest.SearchRequest{Pattern: "needle", Paths: []string{s.dir}}, 5, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := s.find(t, c.r)
			if len(r.Files) != c.files || (c.err == "") != (r.Error == "") || !strings.Contains(r.Error, c.err) {
				t.Errorf("got %+v", r)
			}
		})
	}
	r = s.find(t, guest.SearchRequest{Files: true, Globs: []string{"*.txt"}})
	if want := []guest.FileCount{{Path: "-e.txt"}, {Path: "b c.txt"}, {Path: "long.txt"}}; !cmp.Equal(r.Files, want) {
		t.Errorf("files %v", r.Files)
	}
	r = s.find(t, guest.SearchRequest{Pattern: "needle one", Context: 1})
	if len(r.Matches) != 3 || !r.Matches[0].Context || r.Matches[1].Context || r.Matches[1].Line != 2 {
		t.Errorf("matches %+v", r.Matches)
	}
}

func TestSearchThatFindsMuch(t *testing.T) {
	need(t, "rg")
	s := start(t)
	for i := range 30 {
		s.put(t, fmt.Sprintf("f%02d.txt", i), strings.Repeat("needle\n", 100))
	}
	r := s.find(t, guest.SearchRequest{Pattern: "needle", Max: 60})
	per := make(map[string]int)
	for _, m := range r.Matches {
		per[m.Path]++
	}
	if !r.Truncated || len(r.Matches) != 60 || len(per) != 30 || r.Files[0].Count != 100 {
		t.Errorf("%d matches in %d files, truncated %v", len(r.Matches), len(per), r.Truncated)
	}
	for i := range guest.MaxNarrow {
		s.put(t, fmt.Sprintf("g%03d.txt", i), "needle\n")
	}
	r = s.find(t, guest.SearchRequest{Pattern: "needle"})
	if len(r.Files) != 130 || len(r.Matches) != 0 {
		t.Errorf("%d files, %d matches", len(r.Files), len(r.Matches))
	}
}
