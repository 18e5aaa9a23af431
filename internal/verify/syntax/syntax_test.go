package syntax

import (
	"strings"
	"testing"
)

func TestTokens(t *testing.T) {
	for _, c := range []struct {
		l         Lang
		src, want string
	}{
		{Go, "x := `a\\` + 'b' // c", "x := `a\\` + 'b'"},
		{Python, "f(r'a\\'b', b\"\"\"x\n'\"\"\") # c\ny", "f ( r'a\\'b' , b\"\"\"x\n'\"\"\" ) y"},
		{JavaScript, "a = b / c; d(/[/'\"]/g); `x ${y ? `z` : '}'} 'w`; e", "a = b / c ; d ( /[/'\"]/g ) ; `x ${y ? `z` : '}'} 'w` ; e"},
		{Java, "char c = '\"'; String s = \"\"\"\n a \"b\" /* \"\"\"; /* x */ y", "char c = '\"' ; String s = \"\"\"\n a \"b\" /* \"\"\" ; y"},
		{CSharp, "a = @\"x\"\"\\\"; b = $\"y{z}\"; #if false\nc\n#if X\n#endif\nd\n#else\ne\n#endif", "a = @\"x\"\"\\\" ; b = $\"y{z}\" ; # if false c # if X # endif d # else e # endif"},
		{CSharp, "a\n#if false\nc\n#if X\n#endif\nd\n#else\ne\n#endif\nf", "a e # endif f"},
		{Rust, "f::<'a>('b', '\\'', b'c', r#\"d\"e\"#, \"f\ng\") /* h /* i */ j */ k", "f :: < ' a > ( 'b' , '\\'' , b'c' , r#\"d\"e\"# , \"f\ng\" ) k"},
		{C, "a(R\"x(b)\" c)x\", L\"d\", 1'000, 'e'); \n#if 0\nf\n#endif\ng", "a ( R\"x(b)\" c)x\" , L\"d\" , 1'000 , 'e' ) ; g"},
		{PHP, "<?php $a = 'b\nc'; # d\n#[E]\n$f = <<<EOT\n g' \n  EOT . $h; ?>", "$a = 'b\nc' ; # [ E ] $f = <<<EOT\n g' \n . $h ;"},
		{Ruby, "a = %w[b (c] + [/d'/, :e]\nf <<~G, 1\n h ' end\nG\n=begin\ni\n=end\n\"j #{k[\"l\"]} '\" if m? # n", "a = %w[b (c] + [ /d'/ , : e ] f <<~G\n h ' end\n , 1 \"j #{k[\"l\"]} '\" if m?"},
		{None, "a b", ""},
	} {
		if got := Join(Lex([]byte(c.src), c.l)); got != c.want {
			t.Errorf("%s: %q\n got %q\nwant %q", c.l, c.src, got, c.want)
		}
	}
}

func TestPlaces(t *testing.T) {
	src := "if (a) {\n\tb(1)\n}\n"
	toks := Lex([]byte(src), Java)
	for _, x := range toks {
		if src[x.At:x.At+len(x.Text)] != x.Text || strings.Count(src[:x.At], "\n")+1 != x.Line {
			t.Errorf("%+v", x)
		}
	}
	p := Partners(toks)
	if p[1] != 4 || p[4] != len(toks) || toks[5].Depth != 1 || toks[5].Indent != 8 || toks[6].Indent != -1 {
		t.Error(p, toks)
	}
}

func FuzzLex(f *testing.F) {
	for _, s := range []string{"'\"`/*", "<<~A\n", "%w[", "r#\"", "R\"(", "#if 0\n", "$\"{", "\"#{\"", "'\\''"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		for l := Go; l <= Ruby; l++ {
			line, at := 1, 0
			for _, x := range Lex(src, l) {
				if x.Line < line || x.At < at || x.Depth < 0 || x.Text == "" || x.At > len(src) || x.Kind != Text && !strings.HasPrefix(string(src[x.At:]), x.Text) && !strings.Contains("#[]testdataProviderdoesNotPerformAssertionsexpectedException", x.Text) {
					t.Fatalf("%s: %+v after line %d in %q", l, x, line, src)
				}
				line, at = x.Line, x.At
			}
		}
	})
}

func BenchmarkLex(b *testing.B) {
	src := []byte(strings.Repeat("  assertEquals(30, cart.total(\"a\"), 1.5); // and so on\n", 2000))
	b.SetBytes(int64(len(src)))
	for b.Loop() {
		Lex(src, Java)
	}
}
