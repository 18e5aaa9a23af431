package tool

import (
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// maxResult is about how many bytes of text one result holds.
const maxResult = 30_000

// failed is an error result.
func failed(text string) Result { return Result{Text: text, IsError: true} }

// fromGuest tells what the guest refused, which the model can act on, from a failure of the
// sandbox, which it cannot.
func fromGuest(err error) (Result, error) {
	if task.ClassOf(err) == task.Invalid {
		return failed(sentence(clean(err.Error()))), nil
	}
	return Result{}, err
}

// sentence gives a guest's short message the form of the other results.
func sentence(s string) string {
	if s == "" || strings.HasSuffix(s, ".") {
		return s
	}
	return s + "."
}

// clean escapes what a guest sent: it is not trusted to have done so.
func clean(s string) string { return guest.Escape([]byte(s), true) }

// cleanAll escapes single lines.
func cleanAll(lines []string) []string {
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = guest.Escape([]byte(l), false)
	}
	return out
}

// clip shortens a text at a rune's border.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// number writes n with thousands apart.
func number[T int | int64](n T) string {
	s := strconv.FormatInt(int64(n), 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// count writes "1 line", "2,000 lines".
func count[T int | int64](n T, one string) string {
	many := one + "s"
	if strings.HasSuffix(one, "ch") || strings.HasSuffix(one, "ss") {
		many = one + "es"
	}
	if n == 1 {
		return "1 " + one
	}
	return number(n) + " " + many
}

// seconds writes a duration as a person says it.
func seconds(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d < 10*time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	}
	return fmt.Sprintf("%.0f min", d.Minutes())
}

// key is the path under which Seen keeps a file's digest.
func key(p string) string {
	p = path.Clean(p)
	return strings.TrimPrefix(p, sandbox.WorkDir+"/")
}

// colours are the terminal sequences that only paint.
var colours = regexp.MustCompile("\x1b\\[[0-9;]*[mK]")

// visible turns raw output into what a terminal would have left on the screen, escaped:
// colours are dropped, of a line that was written over and over the last state stays.
func visible(b []byte) string {
	b = colours.ReplaceAll(b, nil)
	lines := strings.SplitAfter(string(b), "\n")
	var out strings.Builder
	for _, l := range lines {
		end := ""
		if body, ok := strings.CutSuffix(l, "\n"); ok {
			l, end = body, "\n"
		}
		l = strings.TrimRight(l, "\r")
		if i := strings.LastIndexByte(l, '\r'); i >= 0 {
			l = l[i+1:]
		}
		out.WriteString(guest.Escape([]byte(l), false))
		out.WriteString(end)
	}
	return out.String()
}

// Remember notes a file's digest as the model last saw it. Paths inside the work tree may be
// absolute or relative.
func (e *Env) Remember(p, sha256 string) {
	if e.Seen == nil {
		e.Seen = make(map[string]string)
	}
	e.Seen[key(p)] = sha256
}

func (e *Env) seen(p string) string { return e.Seen[key(p)] }
