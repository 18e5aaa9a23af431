package story

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
)

func itoa(n int) string { return strconv.Itoa(n) }

// Took shows a duration in milliseconds with the precision that a reader wants.
func Took(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", ms)
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// Count shows a number with thousands separated.
func Count(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Plural counts things: "1 file", "1,200 files".
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return Count(int64(n)) + " " + what + "s"
}

// Age says how long ago something was.
func Age(d time.Duration) string {
	switch {
	case d < 0:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("%ds ago", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh ago", int(d.Hours()))
	}
	return fmt.Sprintf("%dd ago", int(d.Hours()/24))
}

// RepoName is the last element of a path or URL.
func RepoName(repo string) string {
	return strings.TrimSuffix(path.Base(strings.TrimRight(repo, "/")), ".git")
}

// Argument is the one argument of a call that says what it does, as recorded: untrusted.
func Argument(t event.Text) string {
	if t.Inline == "" {
		if t.Bytes == 0 {
			return ""
		}
		return fmt.Sprintf("(%s)", Plural(t.Bytes, "byte"))
	}
	var args map[string]json.RawMessage
	if json.Unmarshal([]byte(t.Inline), &args) != nil {
		return t.Inline
	}
	for _, name := range []string{"command", "cmd", "query", "pattern", "path", "file", "tests", "test", "title", "reason"} {
		raw, ok := args[name]
		if !ok {
			continue
		}
		var one string
		var many []string
		switch {
		case json.Unmarshal(raw, &one) == nil:
			return one
		case json.Unmarshal(raw, &many) == nil:
			return strings.Join(many, " ")
		}
	}
	var b bytes.Buffer
	if json.Compact(&b, []byte(t.Inline)) != nil || b.String() == "{}" {
		return ""
	}
	return b.String()
}

// Package names a package for a person: "npm left-pad 1.3.0".
func Package(ecosystem, name, version string) string {
	var parts []string
	for _, s := range []string{ecosystem, name, version} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	if len(parts) == 0 {
		return "a request"
	}
	return strings.Join(parts, " ")
}

// Short is the beginning of a commit or digest.
func Short(id string) string { return id[:min(12, len(id))] }

// Words turns a name of the code into words: "in_review" → "in review".
func Words[T ~string](name T) string { return strings.ReplaceAll(string(name), "_", " ") }
