package render

import (
	"net/url"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	gmrender "github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/util"
)

// MaxMarkdown is the size in bytes above which Markdown is shown as text.
const MaxMarkdown = 24 << 10

// maxNesting is how deep quotes and lists may go; deeper ones are shown as text.
const maxNesting = 40

// LeavePath is the page that names where a link goes before the browser goes there.
const LeavePath = "/leave"

// Markdown renders Markdown. It is safe for concurrent use.
type Markdown struct{ md goldmark.Markdown }

// NewMarkdown returns a renderer for tables, strikethrough and CommonMark, without raw HTML,
// images, footnotes and automatic links.
func NewMarkdown() *Markdown {
	return &Markdown{goldmark.New(
		goldmark.WithExtensions(extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignNone)), extension.Strikethrough),
		goldmark.WithRendererOptions(gmrender.WithNodeRenderers(util.Prioritized(inert{}, 1))),
	)}
}

// HTML renders a text.
func (m *Markdown) HTML(s string) HTML {
	if len(s) > MaxMarkdown || nested(s) {
		return `<pre class="text">` + Lines(s) + `</pre>`
	}
	var b strings.Builder
	if err := m.md.Convert([]byte(Plain(s)), &b); err != nil {
		return `<pre class="text">` + Lines(s) + `</pre>`
	}
	return HTML(Plain(b.String())) // entities may have become what acts
}

// nested finds lines that would make the parser recurse deeply.
func nested(s string) bool {
	for line := range strings.Lines(s) {
		marks := 0
		for _, c := range line {
			if c == '>' || c == '-' || c == '*' || c == '+' || c == '[' {
				marks++
			} else if c != ' ' && c != '\t' {
				break
			}
		}
		indent := len(line) - len(strings.TrimLeft(line, " \t"))
		if marks > maxNesting && strings.Trim(line, "-*+ \t\r\n") != "" || indent > 8*maxNesting || strings.Count(line, "[") > 200 {
			return true
		}
	}
	return false
}

// inert replaces what goldmark renders of nodes that reach outside of the text.
type inert struct{}

// RegisterFuncs implements goldmark's NodeRenderer.
func (r inert) RegisterFuncs(reg gmrender.NodeRendererFuncRegisterer) {
	reg.Register(ast.KindRawHTML, r.rawHTML)
	reg.Register(ast.KindHTMLBlock, r.htmlBlock)
	reg.Register(ast.KindImage, r.image)
	reg.Register(ast.KindLink, r.link)
	reg.Register(ast.KindAutoLink, r.autoLink)
	reg.Register(ast.KindHeading, r.heading)
	reg.Register(ast.KindFencedCodeBlock, r.code)
	reg.Register(ast.KindCodeBlock, r.code)
}

func (inert) rawHTML(w util.BufWriter, src []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		segments := n.(*ast.RawHTML).Segments
		for i := range segments.Len() {
			s := segments.At(i)
			text(w, string(s.Value(src)))
		}
	}
	return ast.WalkSkipChildren, nil
}

func (inert) htmlBlock(w util.BufWriter, src []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	block := n.(*ast.HTMLBlock)
	put(w, `<pre class="raw">`)
	for i := range block.Lines().Len() {
		s := block.Lines().At(i)
		text(w, string(s.Value(src)))
	}
	if block.HasClosure() {
		text(w, string(block.ClosureLine.Value(src)))
	}
	put(w, `</pre>`)
	return ast.WalkSkipChildren, nil
}

// image shows the address, and the words that stand for the picture.
func (inert) image(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		put(w, `<span class="image">image: `)
		return ast.WalkContinue, nil
	}
	put(w, ` (`)
	text(w, string(n.(*ast.Image).Destination))
	put(w, `)</span>`)
	return ast.WalkContinue, nil
}

func (inert) link(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	to := string(n.(*ast.Link).Destination)
	safe := Link(to)
	switch {
	case safe != "" && entering:
		open(w, safe)
	case safe != "":
		put(w, `</a>`)
	case !entering:
		put(w, ` <span class="image">(`)
		text(w, to)
		put(w, `)</span>`)
	}
	return ast.WalkContinue, nil
}

func (inert) autoLink(w util.BufWriter, src []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	l := n.(*ast.AutoLink)
	if safe := Link(string(l.URL(src))); safe != "" && l.AutoLinkType == ast.AutoLinkURL {
		open(w, safe)
		text(w, string(l.Label(src)))
		put(w, `</a>`)
		return ast.WalkContinue, nil
	}
	text(w, string(l.Label(src)))
	return ast.WalkContinue, nil
}

// heading is no heading of the page, whose outline is ours.
func (inert) heading(w util.BufWriter, _ []byte, _ ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		put(w, `<p class="h">`)
	} else {
		put(w, "</p>\n")
	}
	return ast.WalkContinue, nil
}

func (inert) code(w util.BufWriter, src []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	put(w, `<pre class="text">`)
	for i := range n.Lines().Len() {
		s := n.Lines().At(i)
		put(w, string(Lines(string(s.Value(src)))))
	}
	put(w, "</pre>\n")
	return ast.WalkSkipChildren, nil
}

// Link returns where a link of an untrusted text may lead: by the leaving page to an https
// address with a host, or "".
func Link(to string) string {
	u, err := url.Parse(to)
	if err != nil || !strings.EqualFold(u.Scheme, "https") || u.Host == "" || u.User != nil || !plain(to, true) {
		return ""
	}
	return LeavePath + "?to=" + url.QueryEscape(u.String())
}

func open(w util.BufWriter, href string) {
	put(w, `<a class="out" rel="noopener noreferrer nofollow" href="`)
	text(w, href)
	put(w, `">`)
}

func put(w util.BufWriter, s string) { _, _ = w.WriteString(s) } // its errors come out of Convert

func text(w util.BufWriter, s string) {
	var b strings.Builder
	writeText(&b, s, false)
	put(w, b.String())
}

var _ gmrender.NodeRenderer = inert{}
