package guest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/guest"
)

// asked is what is known about a name or a path.
func (s *site) asked(t *testing.T, r guest.SymbolsRequest) guest.SymbolsResult {
	t.Helper()
	res, err := s.Symbols(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func TestSymbolsOfGoPackages(t *testing.T) {
	need(t, "rg")
	need(t, "ctags")
	s := start(t)
	for name, text := range map[string]string{
		"go.mod": "module example.com/shop\n", "pay/pay.go": "package pay\n\nimport \"errors\"\n\nfunc Pay() error { return errors.New(\"no\") }\n",
		"cart/cart.go":  "package cart\n\nimport \"example.com/shop/pay\"\n\nfunc Buy() error { return pay.Pay() }\n",
		"far/deep/x.go": "package deep\n\nimport p \"example.com/shop/pay\"\n\nvar X = p.Pay\n", "pay.txt": "\"example.com/shop/pay\"\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(s.dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		s.put(t, name, text)
	}
	r := s.asked(t, guest.SymbolsRequest{Path: "pay"})
	if r.Package != "pay" || strings.Join(r.Imports, " ") != "errors" || len(r.Symbols) != 1 || r.Symbols[0].Text != `func Pay() error { return errors.New("no") }` {
		t.Errorf("%+v", r)
	}
	if len(r.Files) != 2 || r.Files[0].Path != "cart/cart.go" || r.Files[1].Path != "far/deep/x.go" {
		t.Errorf("imported by %+v", r.Files)
	}
	r = s.asked(t, guest.SymbolsRequest{Name: "pay.Pay", Refs: 10})
	if len(r.Symbols) != 1 || r.Uses != 2 || len(r.Refs) != 2 || r.Refs[0].In != "Buy" {
		t.Errorf("%+v", r)
	}
}

// Names and paths that a repository can have and nobody means.
func TestSymbolsOfHostileNames(t *testing.T) {
	need(t, "rg")
	need(t, "ctags")
	s := start(t)
	s.put(t, "--options=x.go", "package x\n\nfunc Found() {}\n")
	s.put(t, "a\x1b[2J.go", "package x\n\nfunc Found() {}\n")
	s.put(t, ".ctags", "--exclude=*\n")
	if err := os.Symlink("/etc", s.dir+"/out"); err != nil {
		t.Fatal(err)
	}
	r := s.asked(t, guest.SymbolsRequest{Name: "Found", Refs: 5})
	if len(r.Symbols) != 1 || r.Symbols[0].Path != "--options=x.go" || r.Error != "" {
		t.Errorf("%+v", r)
	}
	for _, q := range []guest.SymbolsRequest{
		{Path: "out/passwd"}, {Path: "/etc"}, {Path: "../.."}, {}, {Name: strings.Repeat("x", 300)}, {Name: "..."}, {Name: "Found", Path: "out"},
	} {
		if r := s.asked(t, q); r.Error == "" || len(r.Symbols) > 0 {
			t.Errorf("%+v: %+v", q, r)
		}
	}
	if r := s.asked(t, guest.SymbolsRequest{Name: "(*+?[", Refs: 1}); len(r.Symbols) > 0 {
		t.Errorf("%+v", r)
	}
}
