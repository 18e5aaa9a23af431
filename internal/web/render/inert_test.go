package render

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// allowed are the elements that this package writes, with their attributes.
func allowed() map[string][]string {
	m := map[string][]string{
		"span": {"class", "title"}, "mark": {"class"}, "pre": {"class"}, "code": {"class"}, "p": {"class"}, "a": {"class", "rel", "href"},
		"div": {"class", "data-o", "data-n"}, "th": {"align"}, "td": {"align"}, "ol": {"start"},
	}
	for _, name := range []string{"em", "strong", "del", "ul", "li", "blockquote", "table", "thead", "tbody", "tr", "br", "hr"} {
		m[name] = nil
	}
	return m
}

// inertness reads markup as strictly as a browser reads it loosely: every "<" must begin an element
// written in this package, every attribute must be known and quoted, and every element must be
// closed in order. It returns what does not hold.
func inertness(h string) string {
	var open []string
	ok := allowed()
	for h != "" {
		i := strings.IndexByte(h, '<')
		if i < 0 {
			i = len(h)
		}
		if bad := textProblem(h[:i]); bad != "" {
			return bad
		}
		h = h[i:]
		if h == "" {
			break
		}
		end := strings.IndexByte(h, '>')
		if end < 0 {
			return "an unclosed tag: " + head(h)
		}
		tag := h[1:end]
		h = h[end+1:]
		if name, closing := strings.CutPrefix(tag, "/"); closing {
			if len(open) == 0 || open[len(open)-1] != name {
				return "a stray end of " + name
			}
			open = open[:len(open)-1]
			continue
		}
		name, rest, _ := strings.Cut(tag, " ")
		attrs, known := ok[name]
		if !known {
			return "an element " + head(name)
		}
		if bad := attributes(name, rest, attrs); bad != "" {
			return bad
		}
		if name != "br" && name != "hr" {
			open = append(open, name)
		}
	}
	if len(open) > 0 {
		return "unclosed " + strings.Join(open, " ")
	}
	return ""
}

func attributes(name, s string, known []string) string {
	for s = strings.TrimSpace(s); s != ""; s = strings.TrimSpace(s) {
		key, rest, found := strings.Cut(s, `="`)
		value, after, closed := strings.Cut(rest, `"`)
		if !found || !closed || !slices.Contains(known, key) {
			return "an attribute of " + name + ": " + head(s)
		}
		if key == "href" && !strings.HasPrefix(value, "/leave?to=https") {
			return "a link to " + head(value)
		}
		s = after
	}
	return ""
}

func textProblem(s string) string {
	if !utf8.ValidString(s) {
		return "invalid UTF-8"
	}
	for _, r := range s {
		if Acts(r) {
			return "a character that acts: " + point(r)
		}
	}
	if strings.ContainsAny(s, `>`) {
		return "a bare > in " + head(s)
	}
	return ""
}

func head(s string) string { return s[:min(len(s), 80)] }

// hostile are texts that try to act where they are shown.
func hostile() []string {
	return []string{
		"<script>alert(1)</script><img src=x onerror=alert(1)><svg/onload=alert(1)><style>*{}</style><form action=//x><meta http-equiv=refresh content=0>",
		"[a](javascript:alert(1)) [b](JaVaScRiPt:alert(1)) [c](data:text/html,x) [d](vbscript:x) [e](//evil.example) [f](/admin) [g](http://plain.example) [h](mailto:a@b)",
		"[ok](https://example.com/a?b=c&d=\"e\"'f) <https://auto.example/x> <javascript:alert(1)> <a@b.example>",
		"![x](https://canary.example/p.png) ![y](data:image/png;base64,AA) [![z](https://canary.example/b.svg)](https://ci.example)\n\n![ref][r]\n\n[r]: https://canary.example/q.png \"t\"",
		"\u202eevil\u2066x\u2069 \u200b\u200c\u200d\u00ad\ufeff \U000e0041 \u115f\u3164 \u2028\u2029 \ue000 \x00\x07\x1b[31mred\x1b[0m\x1b]0;t\x07\u009b2J",
		"caf\xe9 \xff\xfe \xc3", "</pre></code></details></main></body></html><!-- --><![CDATA[x]]>",
		"```html\n</code></pre><script>x</script>\n```\n~~~\n<b>\n~~~\n    indented <i>\n",
		"<div>\n<img src=x>\n\n</div>\n<!-- comment -->\n<?php x ?>\n<!DOCTYPE x>",
		"| a | b |\n|:--|--:|\n| <b>x</b> | [j](javascript:x) |\n",
		"# h <b>\n## [x](javascript:1)\nsetext <i>\n===\n",
		"&lt;script&gt; &#106;avascript: &amp; &nbsp; &#x202e; &ZeroWidthSpace; &#0; [x](&#106;avascript:alert(1)) [y](https://example.com/&#x202e;)",
		strings.Repeat(">", 10_000), strings.Repeat("[", 20_000), strings.Repeat("- ", 5_000) + "x", strings.Repeat("*a_", 20_000), strings.Repeat("<", 5000),
		strings.Repeat("A", 1_000_000), "a" + strings.Repeat("\u0301", 5000), "\r\r\n\n\r", "\t\x0b\x0c",
	}
}

// TestMarkdown_WEB01_WEB02: no markup of the input, no image, no link but https ones by the leaving
// page.
func TestMarkdown_WEB01_WEB02(t *testing.T) {
	m := NewMarkdown()
	for _, s := range hostile() {
		if bad := inertness(string(m.HTML(s))); bad != "" {
			t.Errorf("%q: %s\n%.600s", head(s), bad, m.HTML(s))
		}
	}
	for in, want := range map[string]string{
		"a **b** `c`":                          "<p>a <strong>b</strong> <code>c</code></p>\n",
		"[x](https://example.com/a?b=1&c=2)":   `<p><a class="out" rel="noopener noreferrer nofollow" href="/leave?to=https%3A%2F%2Fexample.com%2Fa%3Fb%3D1%26c%3D2">x</a></p>` + "\n",
		"[x](http://example.com)":              `<p>x <span class="image">(http://example.com)</span></p>` + "\n",
		"![pic](https://canary.example/a.png)": `<p><span class="image">image: pic (https://canary.example/a.png)</span></p>` + "\n",
		"a <b>c</b>":                           "<p>a &lt;b&gt;c&lt;/b&gt;</p>\n",
		"# T":                                  `<p class="h">T</p>` + "\n",
		"\u202ex":                              "<p>⟨U+202E⟩x</p>\n",
		"see https://example.com":              "<p>see https://example.com</p>\n",
	} {
		if got := string(m.HTML(in)); got != want {
			t.Errorf("%q:\n got %q\nwant %q", in, got, want)
		}
	}
}

func TestLink(t *testing.T) {
	for to, ok := range map[string]bool{
		"https://example.com": true, "HTTPS://example.com/x": true, "http://example.com": false, "javascript:alert(1)": false, "https:example.com": false,
		"https://user:pass@example.com": false, "//example.com": false, "/x": false, "": false, "https://example.com/\u202e": false, " https://example.com": false,
		"https://": false, "data:text/html,x": false, "https://example.com/\n": false, "https://exa mple.com": false,
	} {
		if got := Link(to) != ""; got != ok {
			t.Errorf("Link(%q) = %q", to, Link(to))
		}
	}
}

// TestText_WEB04: whatever is in it, a text is escaped, shown in code points, and bounded by column.
func TestText_WEB04(t *testing.T) {
	for _, s := range hostile() {
		for name, f := range map[string]func(string) HTML{"Inline": Inline, "Lines": Lines, "Terminal": Terminal, "Exact": Exact} {
			out := string(f(s))
			if bad := inertness(out); bad != "" {
				t.Errorf("%s(%q): %s", name, head(s), bad)
			}
			if name != "Exact" && len(out) > 40*MaxColumns*(1+strings.Count(s, "\n")) {
				t.Errorf("%s(%q): %d bytes", name, head(s), len(out))
			}
		}
	}
	for in, want := range map[string]string{
		"a\tb\nc":  "a\tb\nc",
		"a\r\nb":   "a\nb",
		"x\u202ey": `x<span class="cp" title="invisible character">U+202E</span>y`,
		"\xff":     `<span class="cp" title="invisible character">\xFF</span>`,
		"é日本 👍":    "é日本 👍",
		"<&>\"'":   "&lt;&amp;&gt;&#34;&#39;",
	} {
		if got := string(Lines(in)); got != want {
			t.Errorf("Lines(%q) = %q", in, got)
		}
	}
	if got := string(Inline("a\nb")); got != `a<span class="cp" title="invisible character">U+000A</span>b` {
		t.Errorf("Inline: %q", got)
	}
	if got := string(Lines(strings.Repeat("A", MaxColumns+5) + "\nb")); !strings.HasSuffix(got, "… 5 more bytes on this line</span>\nb") {
		t.Errorf("a wide line: %q", got[len(got)-80:])
	}
}

// TestExact_WEB09: what is shown is what was given, byte for byte, with the written-out code
// points marked.
func TestExact_WEB09(t *testing.T) {
	for _, s := range []string{"plain\n\ttext é", "a[U+202E]b [U+200B][U+XX] [U+] [U+1F600", "[U+E0041]", "<b>&amp;</b> \"'", "[U+202e]"} {
		if got := textOf(string(Exact(s))); got != s {
			t.Errorf("Exact(%q) shows %q", s, got)
		}
	}
	if got := string(Exact("a[U+202E]b")); got != `a<mark class="cp">[U+202E]</mark>b` {
		t.Errorf("%q", got)
	}
}

// textOf is the text of markup, as a browser has it.
func textOf(h string) string {
	var b strings.Builder
	for h != "" {
		i := strings.IndexByte(h, '<')
		if i < 0 {
			b.WriteString(h)
			break
		}
		b.WriteString(h[:i])
		h = h[i+strings.IndexByte(h[i:], '>')+1:]
	}
	return strings.NewReplacer("&lt;", "<", "&gt;", ">", "&#34;", `"`, "&#39;", "'", "&amp;", "&").Replace(b.String())
}

func TestTerminal(t *testing.T) {
	for in, want := range map[string]string{
		"\x1b[31mred\x1b[0m plain":          `<span class="f1">red</span> plain`,
		"\x1b[1;32mok\x1b[m":                `<span class="f2 fb">ok</span>`,
		"\x1b[38;5;196mx\x1b[39my":          `xy`,
		"\x1b[48;2;1;2;3mx":                 `x`,
		"\x1b[94mb\nc\x1b[0md":              "<span class=\"f12\">b</span>\n<span class=\"f12\">c</span>d",
		"\x1b[2Jx":                          `<span class="cp" title="invisible character">U+001B</span>[2Jx`,
		"\x1b[3mi\x1b[23m\x1b[4mu\x1b[24mn": `<span class="fi">i</span><span class="fu">u</span>n`,
	} {
		if got := string(Terminal(in)); got != want {
			t.Errorf("Terminal(%q)\n got %s\nwant %s", in, got, want)
		}
	}
}

const diffHostile = "diff --git \"a/x\\342\\200\\256<img src=x>\\n.go\" \"b/x\\342\\200\\256<img src=x>\\n.go\"\nnew file mode 100755\n--- /dev/null\n" +
	"+++ \"b/x\\342\\200\\256<img src=x>\\n.go\"\n@@ -0,0 +1,5 @@ <script>\n+package x // \u202e\n+var s = \"</code><script>\"\n+\xff\xfe\x00\n+--- a/not\n+tail\r\n\\ No newline at end of file\n" +
	"diff --git a/a b.txt b/a b.txt\nold mode 100644\nnew mode 100755\n--- a/a b.txt\t\n+++ b/a b.txt\t\n@@ -1,2 +1,2 @@\n-diff --git a/evil b/evil\n \n+@@ -1 +1 @@\n" +
	"diff --git a/o b/n\nsimilarity index 90%\nrename from o\nrename to n\ndiff --git a/l.png b/l.png\nBinary files a/l.png and b/l.png differ\n" +
	"diff --git a/gone b/gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"

// TestDiff_WEB04: names are read as git quotes them, lines are counted, and nothing of a change
// acts.
func TestDiff_WEB04(t *testing.T) {
	files := ParseDiff(diffHostile)
	var got []string
	for _, f := range files {
		got = append(got, f.Status+" "+f.Name())
	}
	want := []string{"added x\u202e<img src=x>\n.go", "changed a b.txt", "renamed n", "changed l.png", "deleted gone"}
	if !slices.Equal(got, want) {
		t.Fatalf("files %q", got)
	}
	if f := files[0]; f.Adds != 5 || f.Hunks[0].Lines[4].Text != "tail\r" || f.Hunks[0].Lines[5].Kind != '\\' {
		t.Errorf("first file: %+v", f)
	}
	if f := files[1]; f.Adds != 1 || f.Dels != 1 || f.Hunks[0].Lines[0].Text != "diff --git a/evil b/evil" {
		t.Errorf("a line that looks like a head: %+v", f)
	}
	if !files[3].Binary || files[2].Old != "o" {
		t.Errorf("binary or rename: %+v", files)
	}
	h := &Highlighter{}
	for _, f := range files {
		out, left := h.Hunks(f, 1000)
		if bad := inertness(string(out)); bad != "" || left != 0 {
			t.Errorf("%q: %s, %d left\n%s", f.Name(), bad, left, out)
		}
	}
	wide := ParseDiff("diff --git a/w.js b/w.js\n--- a/w.js\n+++ b/w.js\n@@ -0,0 +1 @@\n+" + strings.Repeat("x<", 500_000) + "\n")
	if out, _ := h.Hunks(wide[0], 10); len(out) > 20*MaxColumns {
		t.Errorf("a line of a million columns became %d bytes", len(out))
	}
	if _, left := h.Hunks(files[0], 2); left != 4 {
		t.Errorf("%d lines are left of 6 when 2 are shown", left)
	}
}

// TestHighlight: classes come from the language, the text stays what it is.
func TestHighlight(t *testing.T) {
	files := ParseDiff("diff --git a/m.go b/m.go\n--- a/m.go\n+++ b/m.go\n@@ -1,3 +1,3 @@\n func f() string {\n-\treturn \"old`\n+\treturn \"new\" // why\n }\n")
	out, _ := (&Highlighter{}).Hunks(files[0], 100)
	for _, want := range []string{`<span class="k-kd">func</span>`, `<span class="k-s">&#34;new&#34;</span>`, `<span class="k-c1">// why</span>`, `<div class="l d" data-o="2"><code>-`, `<div class="l" data-o="3" data-n="3"><code> `} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%s is not in\n%s", want, out)
		}
	}
	plainFile := ParseDiff("diff --git a/x.unknown b/x.unknown\n--- a/x.unknown\n+++ b/x.unknown\n@@ -0,0 +1 @@\n+func\n")
	if out, _ := (&Highlighter{}).Hunks(plainFile[0], 100); strings.Contains(string(out), "k-") {
		t.Errorf("coloured without a language: %s", out)
	}
}

func FuzzText(f *testing.F) {
	for _, s := range hostile() {
		f.Add(head(s))
	}
	m, h := NewMarkdown(), &Highlighter{}
	f.Add(diffHostile)
	f.Fuzz(func(t *testing.T, s string) {
		for name, out := range map[string]HTML{"Inline": Inline(s), "Lines": Lines(s), "Terminal": Terminal(s), "Exact": Exact(s), "Markdown": m.HTML(s)} {
			if bad := inertness(string(out)); bad != "" {
				t.Fatalf("%s(%q): %s\n%s", name, s, bad, out)
			}
		}
		for _, file := range ParseDiff(s) {
			if out, _ := h.Hunks(file, 200); inertness(string(out)) != "" {
				t.Fatalf("diff %q: %s\n%s", s, inertness(string(out)), out)
			}
		}
		if textProblem(strings.ReplaceAll(Plain(s), ">", "")) != "" {
			t.Fatalf("Plain(%q) = %q", s, Plain(s))
		}
	})
}
