package tamper

import (
	"testing"

	"github.com/daybreak-agent/daybreak/internal/verify/syntax"
)

// TestAsWritten: a finding quotes the lines as they stand in the file.
func TestAsWritten(t *testing.T) {
	for path, tt := range map[string]struct{ old, now, was, is string }{
		"test_share.py": {
			"class T(unittest.TestCase):\n    def test_share(self):\n        self.assertEqual(share(100,\n                               4), 25)  # a quarter\n",
			"class T(unittest.TestCase):\n    def test_share(self):\n        self.assertIsNotNone(share(100, 4))\n",
			"self.assertEqual(share(100,\n                       4), 25)", "self.assertIsNotNone(share(100, 4))",
		},
		"share.test.js": {
			"test('share', () => {\n  expect(share(100, 4)).toBe(25);\n});\n",
			"test('share', () => {\n  expect(share(100, 4)).toBeDefined();\n});\n",
			"expect(share(100, 4)).toBe(25)", "expect(share(100, 4)).toBeDefined()",
		},
	} {
		r := Analyse([]FileChange{{Path: path, Old: []byte(tt.old), New: []byte(tt.now)}}, func(string) Class { return ClassTest })
		if len(r.Findings) != 1 || r.Findings[0].Old != tt.was || r.Findings[0].New != tt.is {
			t.Errorf("%s: %+v", path, r.Findings)
		}
	}
}

// TestQuote: what is nowhere in the file, or only as part of other words, is quoted as it came.
func TestQuote(t *testing.T) {
	w := writtenOf([]byte("f(aa, b)\n"), syntax.Python)
	for text, want := range map[string]string{"a , b": "a , b", "aa , b": "aa, b", "( aa": "(aa", "c ( d": "c ( d", "": ""} {
		if got := w.quote(text); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}
