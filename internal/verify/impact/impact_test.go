package impact

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func treeOf(files map[string]string) Tree {
	return Tree{Files: slices.Sorted(maps.Keys(files)), Read: func(n string) []byte { return []byte(files[n]) }}
}

var goTree = map[string]string{
	"go.mod": "module example.com/m\n", "a/a.go": "package a\n", "a/a_test.go": "package a\n", "a/testdata/x.json": "{}",
	"b/b.go": "package b\n\nimport \"example.com/m/a\"\n", "b/b_test.go": "package b\n",
	"c/c.go": "package c\n", "c/c_test.go": "package c\n\nimport (\n\t\"testing\"\n\t\"example.com/m/b\"\n)\n",
	"d/d.go": "package d\n\nimport \"example.com/m/c\"\n", "d/d_test.go": "package d\n", "README.md": "", "sub/go.mod": "module example.com/m/sub\n",
	"sub/s.go": "package sub\n\nimport \"example.com/m/a\"\n", "sub/s_test.go": "package sub\n", "broken/x.go": "not go", "lone.txt": "",
}

var pyTree = map[string]string{
	"src/shop/__init__.py": "", "src/shop/price.py": "import os\n", "src/shop/cart.py": "from .price import net\nfrom . import (\n    tax,\n)\n",
	"src/shop/tax.py": "", "tests/conftest.py": "from shop import tax\n", "tests/test_cart.py": "import shop.cart as c, json\n",
	"tests/test_price.py": "from shop.price import net\n", "other/test_other.py": "x = 'import shop.cart'\n",
}

var jsTree = map[string]string{
	"package.json": "{\n  \"name\": \"root\"\n}", "packages/a/package.json": "{\n  \"name\": \"@x/a\"\n}", "packages/b/package.json": "{\n  \"name\": \"b\"\n}",
	"packages/a/src/index.ts": "export * from './net.js'\n", "packages/a/src/net.ts": "export const net = 1\n", "packages/a/src/net.test.ts": "import { net } from \"./net\"\n",
	"packages/a/src/far.test.ts": "const q = require('./q')\n", "packages/a/src/q.js": "", "packages/b/use.js": "const { net } = require('@x/a/lib')\n",
	"packages/a/src/gone.test.ts": "import '../gone.mjs'\n", "packages/a/src/root.test.ts": "import { f } from 'e/f'\n",
	"packages/a/src/far/a/b/c/d/e/f.ts": "", "packages/a/src/far/x.test.ts": "import './a/b/c/d/e/f'\nimport '/nowhere'\n",
	"packages/b/use.test.js": "import './use.js'\n", "packages/b/alone.test.js": "import fs from 'fs'\n",
}

func TestReached(t *testing.T) {
	for _, c := range []struct {
		name    string
		tree    map[string]string
		changed string
		want    string // "?": not known
	}{
		{"a Go package and all above it", goTree, "a/a.go", "a/a.go a/a_test.go b/b.go b/b_test.go c/c_test.go sub/s.go sub/s_test.go"},
		{"only tests import it", goTree, "b/b.go", "b/b.go b/b_test.go c/c_test.go"},
		{"a Go test", goTree, "c/c_test.go", "c/c_test.go"},
		{"data of a Go package", goTree, "a/testdata/x.json", "a/a.go a/a_test.go b/b.go b/b_test.go c/c_test.go sub/s.go sub/s_test.go"},
		{"a removed Go file", goTree, "b/gone.go", "b/b.go b/b_test.go c/c_test.go"},
		{"go.mod", goTree, "go.mod", "?"},
		{"a text that nobody reads", goTree, "README.md", ""},
		{"a text of which that is not known", goTree, "lone.txt", "?"},
		{"a Python module", pyTree, "src/shop/price.py", "src/shop/cart.py src/shop/price.py tests/test_cart.py tests/test_price.py"},
		{"a conftest's import", pyTree, "src/shop/tax.py", "src/shop/cart.py src/shop/tax.py tests/conftest.py tests/test_cart.py tests/test_price.py"},
		{"a Python test", pyTree, "tests/test_cart.py", "tests/test_cart.py"},
		{"a script of a workspace", jsTree, "packages/a/src/net.ts", "packages/a/src/index.ts packages/a/src/net.test.ts packages/a/src/net.ts packages/b/use.js packages/b/use.test.js"},
		{"a removed script that is still imported", jsTree, "packages/a/gone.ts", "packages/a/src/gone.test.ts packages/b/use.js packages/b/use.test.js"},
		{"a script below a configured root", jsTree, "packages/a/src/far/a/b/c/d/e/f.ts", "packages/a/src/far/a/b/c/d/e/f.ts packages/a/src/far/x.test.ts packages/a/src/root.test.ts packages/b/use.js packages/b/use.test.js"},
		{"a lockfile", jsTree, "package-lock.json", "?"},
	} {
		got := Reached(treeOf(c.tree), nil, []string{c.changed})
		text := strings.Join(slices.Sorted(maps.Keys(got.Files)), " ")
		if got.Whole != "" {
			text = "?"
		}
		if d := cmp.Diff(c.want, text); d != "" {
			t.Errorf("%s: %s\n%s", c.name, c.changed, d)
		}
	}
}

// FuzzReached reads what strangers wrote.
func FuzzReached(f *testing.F) {
	f.Add("", "import x from '/y'", "")
	f.Add("import a.b\nfrom ... import (x,\n y)", "import x from './y'; require(`z`)", "package a\nimport \"x/y\"")
	f.Fuzz(func(t *testing.T, py, js, golang string) {
		got := Reached(treeOf(map[string]string{
			"a/b.py": py, "a/y.js": js, "p/a.go": golang, "go.mod": golang, "package.json": js, "conftest.py": py,
		}), nil, []string{"a/b.py", "a/y.js", "p/a.go"})
		if got.Whole != "" || !got.Files["a/b.py"] || !got.Files["a/y.js"] || !got.Files["p/a.go"] {
			t.Errorf("%v", got)
		}
	})
}
