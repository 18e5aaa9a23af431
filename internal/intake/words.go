package intake

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// words are what a comment says to Daybreak.
type words struct {
	command   string // "stop", "retry", "budget", "approve", or ""
	mentioned bool
	args      string // what follows /budget on its line
}

// read takes a comment apart. What is quoted or code is somebody else's word, or an example.
func read(body, bot string) words {
	var w words
	at := regexp.MustCompile(`(?i)(^|[^\w@/.-])@` + regexp.QuoteMeta(bot) + `($|[^\w/-])`)
	for _, line := range spoken(body) {
		if bot != "" && at.MatchString(line) {
			w.mentioned = true
		}
		if bot != "" { // "@bot /stop" is "/stop"
			line = regexp.MustCompile(`(?i)^\s*@`+regexp.QuoteMeta(bot)+`[:,]?\s+`).ReplaceAllString(line, "")
		}
		first, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch c := strings.ToLower(first); c {
		case "/stop", "/retry", "/budget", "/approve":
			if w.command == "" {
				w.command = c[1:]
				if c == "/budget" {
					w.args = strings.TrimSpace(rest)
				}
			}
		}
	}
	return w
}

// spoken are the lines of a comment without fenced and indented code, quotes, inline code and
// HTML comments.
func spoken(body string) []string {
	body = regexp.MustCompile(`(?s)<!--.*?(-->|$)`).ReplaceAllString(body, " | ")
	inline := regexp.MustCompile("`+[^`]*`+")
	var out []string
	fence := ""
	for line := range strings.Lines(body) {
		line = strings.TrimRight(line, "\r\n")
		t := strings.TrimLeft(line, " ")
		if len(line)-len(t) <= 3 && (strings.HasPrefix(t, "```") || strings.HasPrefix(t, "~~~")) {
			mark := t[:len(t)-len(strings.TrimLeft(t, t[:1]))]
			switch {
			case fence == "":
				fence = mark
			case strings.HasPrefix(mark, fence) && strings.TrimSpace(t[len(mark):]) == "":
				fence = ""
			}
			continue
		}
		if fence != "" || strings.HasPrefix(t, ">") || strings.HasPrefix(line, "    ") || strings.HasPrefix(line, "\t") {
			continue
		}
		out = append(out, inline.ReplaceAllString(line, "`")) // in its place, so that nothing new comes together
	}
	return out
}

// readBudget reads what follows /budget: new totals such as "usd=20 steps=200 tokens=9000000
// wall=2h", or "$20". Class Invalid when it is anything else.
func readBudget(args string) (l task.Limits, err error) {
	bad := func(what string) error {
		return &task.Error{Class: task.Invalid, Msg: what + " is no budget", Fix: "write for example: /budget usd=20 steps=200 wall=2h"}
	}
	for _, word := range strings.Fields(args) {
		name, value, ok := strings.Cut(strings.ToLower(word), "=")
		if dollars, is := strings.CutPrefix(word, "$"); is && !ok {
			name, value = "usd", dollars
		}
		var n int64
		var err error
		switch name {
		case "usd":
			var usd float64
			if usd, err = strconv.ParseFloat(value, 64); err == nil && !(usd > 0 && usd <= 1e9) {
				err = strconv.ErrRange
			}
			l.Cost = task.MicroUSD(math.Round(usd * 1e6))
		case "steps":
			n, err = strconv.ParseInt(value, 10, 32)
			l.Steps = int(n)
		case "tokens":
			n, err = strconv.ParseInt(value, 10, 64)
			l.Tokens = n
		case "wall":
			l.Wall, err = time.ParseDuration(value)
		default:
			err = strconv.ErrSyntax
		}
		if err != nil {
			return task.Limits{}, bad(word)
		}
	}
	return l, nil
}
