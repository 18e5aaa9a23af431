package intake

import (
	"regexp"
	"strings"
)

// words are what a comment says to Daybreak.
type words struct {
	command   string // "stop", "retry", "budget", "approve", or ""
	mentioned bool
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
		first, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch c := strings.ToLower(first); c {
		case "/stop", "/retry", "/budget", "/approve":
			if w.command == "" {
				w.command = c[1:]
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
