package result

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"
)

const (
	maxLine     = 1 << 20 // bytes of one line that are kept; the rest of the line is dropped
	maxProblems = 200
	maxProblem  = 400 // bytes
	maxMessage  = 2000
)

// rule rewrites one kind of detail that differs between identical runs.
type rule struct {
	re *regexp.Regexp
	to string
}

// The order matters: the longest forms go first.
var volatile = []rule{
	{regexp.MustCompile(`\x1b\[[0-9;]*[A-Za-z]`), ""},
	{regexp.MustCompile(`(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`), "UUID"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[ ]?[+-]\d\d:?\d\d)?( m=[+-][\d.]+)?`), "TIME"},
	{regexp.MustCompile(`\b\d{4}/\d\d/\d\d \d\d:\d\d:\d\d(\.\d+)?`), "TIME"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d(\.\d+)?\b`), "TIME"},
	{regexp.MustCompile(`(/private)?/(tmp|var/tmp|var/folders|dev/shm)/[^\s'":;,)\]}>]+`), "TMP"},
	{regexp.MustCompile(`\b0x[0-9a-fA-F]+\??`), "HEX"},
	{regexp.MustCompile(`\bgoroutine \d+`), "goroutine N"},
	{regexp.MustCompile(`(?i)\b(pid|process|tid|thread)([ =:#]+)\d+`), "${1}${2}N"},
	{regexp.MustCompile(`(127\.0\.0\.1|0\.0\.0\.0|localhost|\[::1?\]):\d+`), "${1}:PORT"},
	{regexp.MustCompile(`(?i)\bport([ =:]+)\d+`), "port${1}PORT"},
	{regexp.MustCompile(`\b(\d+h)?(\d+m)?\d+(\.\d+)?(ns|µs|us|ms|s)\b`), "DUR"},
	{regexp.MustCompile(`\b\d+(\.\d+)? (nano|micro|milli)?seconds?\b`), "DUR"},
	{regexp.MustCompile(`(?i)\bline \d+`), "line N"},
	{regexp.MustCompile(`(\.[A-Za-z]{1,5}):\d+(:\d+)?`), "${1}:N"},
	{regexp.MustCompile(`\(\d+:\d+\)`), "(N)"},
	{regexp.MustCompile(`[ \t]+`), " "},
}

// Signature is what two runs of the same failure have in common: the message and the frame
// without addresses, goroutines, durations, temporary paths, line numbers, times, process ids,
// ports and UUIDs. At most about 600 bytes.
func Signature(message, frame string) string {
	s := clip(message, 4*maxMessage)
	for _, r := range volatile {
		s = r.re.ReplaceAllString(s, r.to)
	}
	s = clip(strings.TrimSpace(s), 500)
	if f := frameFile(frame); f != "" {
		s += " @ " + clip(f, 100)
	}
	return strings.TrimSpace(s)
}

// frameFile is a frame without its line.
func frameFile(frame string) string {
	for _, r := range volatile {
		if r.to == "${1}:N" {
			return strings.TrimSuffix(r.re.ReplaceAllString(frame, "${1}"), ":")
		}
	}
	return frame
}

// clip cuts s to at most n bytes at a rune's border.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

var ansi = regexp.MustCompile(`\x1b\[[0-9;]*[A-Za-z]`)

// plain takes colours out and makes the text valid UTF-8.
func plain(s string) string {
	return strings.ToValidUTF8(ansi.ReplaceAllString(s, ""), "\uFFFD")
}

// oneLine makes a problem of at most maxProblem bytes.
func oneLine(s string) string {
	return clip(strings.Join(strings.Fields(plain(clip(s, 8*maxProblem))), " "), maxProblem)
}

// problem appends a line; the list is bounded.
func (r *Report) problem(format string, args ...any) {
	switch n := len(r.Problems); {
	case n < maxProblems:
		r.Problems = append(r.Problems, oneLine(fmt.Sprintf(format, args...)))
	case n == maxProblems:
		r.Problems = append(r.Problems, "more problems were left out")
	}
}

// meter stops reading at the limit.
type meter struct {
	r    io.Reader
	left int64
	over bool
}

func (m *meter) Read(p []byte) (int, error) {
	if m.left < 0 {
		m.over = true
		return 0, io.EOF
	}
	if int64(len(p)) > m.left+1 {
		p = p[:m.left+1]
	}
	n, err := m.r.Read(p)
	m.left -= int64(n)
	if m.left < 0 {
		m.over = true
		return max(n-1, 0), io.EOF
	}
	return n, err
}

// refuse is the report on an input above the limit.
func refuse(o Options) Report {
	return Report{Outcome: NoReport, Problems: []string{fmt.Sprintf(
		"the report is larger than %d MB and was not read: make the tests print less or split the run", o.MaxBytes>>20)}}
}

// lines reads text line by line, whatever the length of a line.
type lines struct {
	br  *bufio.Reader
	err error // what ended the reading, when it is not the end of the file
}

func newLines(r io.Reader) *lines { return &lines{br: bufio.NewReaderSize(r, 64<<10)} }

// next returns a line without its end; ended is false for a last line without one.
func (l *lines) next() (line string, ended, ok bool) {
	var buf []byte
	for {
		part, err := l.br.ReadSlice('\n')
		if room := maxLine - len(buf); room > 0 {
			buf = append(buf, part[:min(room, len(part))]...)
		}
		if err == bufio.ErrBufferFull {
			continue
		}
		if err != nil && err != io.EOF {
			l.err = err
		}
		ended = err == nil
		if !ended && len(buf) == 0 {
			return "", false, false
		}
		return strings.TrimRight(string(buf), "\r\n"), ended, true
	}
}

// headTail keeps the first and the last half of what is written to it.
type headTail struct {
	max        int
	head, tail []byte
	cut        int
}

func (h *headTail) WriteString(s string) {
	half := h.max / 2
	if room := half - len(h.head); room > 0 {
		n := min(room, len(s))
		h.head = append(h.head, s[:n]...)
		s = s[n:]
	}
	h.tail = append(h.tail, s...)
	if over := len(h.tail) - half; over > half { // shifting at twice the size keeps it linear
		h.tail = append(h.tail[:0], h.tail[over:]...)
		h.cut += over
	}
}

func (h *headTail) String() string {
	tail, cut := h.tail, h.cut
	if over := len(tail) - h.max/2; over > 0 {
		tail, cut = tail[over:], cut+over
	}
	s := string(h.head)
	if cut > 0 {
		s += fmt.Sprintf("\n[%d bytes left out]\n", cut)
	}
	return plain(s + string(tail))
}

// firstFrame finds the first frame of a stack that is in the repository. JavaScript and Java
// frames are read innermost first, Python's innermost last.
func (o Options) firstFrame(stack string) string {
	stack = clip(stack, 64<<10)
	if all := pyFrame.FindAllStringSubmatch(stack, 400); len(all) > 0 {
		for i := len(all) - 1; i >= 0; i-- {
			if o.ours(all[i][1]) {
				return o.rel(all[i][1]) + ":" + all[i][2]
			}
		}
	}
	if all := pytestFrame.FindAllStringSubmatch(stack, 400); len(all) > 0 {
		for i := len(all) - 1; i >= 0; i-- {
			if o.ours(all[i][1]) {
				return o.rel(all[i][1]) + ":" + all[i][2]
			}
		}
	}
	for _, m := range jsFrame.FindAllStringSubmatch(stack, 400) {
		if o.ours(m[1]) {
			return o.rel(m[1]) + ":" + m[2]
		}
	}
	for _, m := range javaFrame.FindAllStringSubmatch(stack, 400) {
		if !foreignJava.MatchString(m[1]) {
			return m[2] + ":" + m[3]
		}
	}
	return ""
}

var (
	pyFrame     = regexp.MustCompile(`File "([^"\n]+)", line (\d+)`)
	pytestFrame = regexp.MustCompile(`(?m)^([^\s:][^:\n]*\.py):(\d+): `)
	jsFrame     = regexp.MustCompile(`(?m)^\s*(?:at )?(?:.*\()?((?:file://)?[^\s()]+\.[cm]?[jt]sx?):(\d+)(?::\d+)?\)?\s*$`)
	javaFrame   = regexp.MustCompile(`(?m)^\s*at (?:[\w.@$-]*/+)*([\w.$]+)\(([\w$]+\.(?:java|kt|scala|groovy)):(\d+)\)`)
	foreignJava = regexp.MustCompile(`^(java|javax|jdk|sun|org\.junit|org\.hamcrest|org\.assertj|org\.opentest4j|org\.apache\.maven|org\.gradle|kotlin)\.`)
)

// ours reports whether a path of a stack belongs to the repository rather than to a runtime
// or a dependency.
func (o Options) ours(p string) bool {
	for _, part := range []string{"node_modules/", "site-packages/", "dist-packages/", "/lib/python", "node:", "<frozen", "/usr/lib/", "/usr/local/go/src/", "/pkg/mod/"} {
		if strings.Contains(p, part) {
			return false
		}
	}
	return !strings.HasPrefix(p, "/") || o.Root == "" || strings.HasPrefix(p, strings.TrimSuffix(o.Root, "/")+"/")
}
