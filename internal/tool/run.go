package tool

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/model"
)

//go:embed run.md
var runText string

const (
	runTimeout  = 10 * time.Minute // of a command that names none
	maxTimeout  = 60 * time.Minute
	waitTimeout = time.Minute // of a wait that names none
	firstLook   = time.Second // how long a background command is watched before the answer
	maxCommand  = 64 << 10
	progress    = 4_000 // bytes shown of a command that still runs
)

// run executes shell commands in the sandbox.
type run struct{ schema }

func newRun() Tool {
	return run{schema{
		{name: "command", kind: "string", max: maxCommand, about: "bash command line, run in the work tree"},
		{
			name: "timeout_s", kind: "integer", max: int(maxTimeout / time.Second),
			about: fmt.Sprintf("limit in seconds, default %d; with wait: how long to wait, default %d", int(runTimeout/time.Second), int(waitTimeout/time.Second)),
		},
		{name: "background", kind: "boolean", about: "answer at once and let it run"},
		{name: "wait", kind: "integer", about: "instead of command: process number to wait for"},
		{name: "kill", kind: "integer", about: "instead of command: process number to kill"},
	}}
}

func (t run) Spec() model.ToolSpec {
	return model.ToolSpec{Name: "run", Schema: t.JSON(), Description: describe(runText, map[string]any{
		"default_min": int(runTimeout / time.Minute), "max_min": int(maxTimeout / time.Minute),
		"background": guest.MaxBackground, "bytes": number(2 * guest.DefaultKeep),
	})}
}

type runInput struct {
	Command    string `json:"command"`
	Timeout    int    `json:"timeout_s"`
	Background bool   `json:"background"`
	Wait       int    `json:"wait"`
	Kill       int    `json:"kill"`
}

func (t run) Call(ctx context.Context, env *Env, input json.RawMessage) (Result, error) {
	if hint := literalHint(commandOf(input)); hint != "" {
		return failed(hint), nil
	}
	var in runInput
	if problem := t.decode("run", input, &in); problem != "" {
		return failed(problem), nil
	}
	asked := 0
	for _, set := range []bool{strings.TrimSpace(in.Command) != "", in.Wait != 0, in.Kill != 0} {
		if set {
			asked++
		}
	}
	if asked != 1 {
		return failed("run needs exactly one of: command (a shell command line), wait (a process number), kill (a process number)."), nil
	}
	if strings.ContainsRune(in.Command, 0) {
		return failed("run: the command holds a NUL byte, which no shell can take."), nil
	}
	res, limit, err := execute(ctx, env.Guest, in)
	if err != nil {
		return fromGuest(err)
	}
	return shapeRun(res, limit), nil
}

func execute(ctx context.Context, g *guest.Client, in runInput) (guest.ExecResult, time.Duration, error) {
	given := time.Duration(in.Timeout) * time.Second
	switch {
	case in.Kill != 0:
		res, err := g.Kill(ctx, in.Kill)
		return res, 0, err
	case in.Wait != 0:
		if given == 0 {
			given = waitTimeout
		}
		res, err := g.Wait(ctx, in.Wait, int64(given))
		return res, 0, err
	}
	limit := given
	switch {
	case limit == 0 && in.Background:
		limit = maxTimeout
	case limit == 0:
		limit = runTimeout
	}
	res, err := g.Exec(ctx, guest.ExecRequest{Shell: in.Command, Timeout: limit, Background: in.Background})
	if err == nil && res.Running {
		// A server that cannot start says so within a moment.
		res, err = g.Wait(ctx, res.Proc, int64(firstLook))
	}
	return res, limit, err
}

// commandOf returns the raw command parameter, decoded when it is a string.
func commandOf(input json.RawMessage) string {
	var in struct {
		Command json.RawMessage `json:"command"`
	}
	if len(input) > maxInput || depth(input) > maxDepth || json.Unmarshal(input, &in) != nil {
		return ""
	}
	var s string
	if json.Unmarshal(in.Command, &s) == nil {
		return s
	}
	return string(in.Command)
}

// literalHint recognises a JSON literal where a command line belongs.
func literalHint(command string) string {
	command = strings.TrimSpace(command)
	if command == "" || command[0] != '{' && command[0] != '[' || !json.Valid([]byte(command)) {
		return ""
	}
	want := ""
	var list []string
	var object struct {
		Command string `json:"command"`
		Cmd     string `json:"cmd"`
	}
	switch {
	case json.Unmarshal([]byte(command), &list) == nil && len(list) > 0:
		if len(list) == 3 && strings.HasSuffix(list[0], "sh") && strings.HasPrefix(list[1], "-") {
			want = list[2]
		} else {
			want = strings.Join(list, " ")
		}
	case json.Unmarshal([]byte(command), &object) == nil:
		want = object.Command + object.Cmd
	}
	hint := "run: command is a JSON literal, not a shell command line, so it was not run."
	if want != "" {
		hint += fmt.Sprintf(" Put the line itself there: %s", guest.Escape([]byte(clip(want, 200)), true))
	}
	return hint
}

// shapeRun always says how the command ended, how long it took and what it printed.
func shapeRun(r guest.ExecResult, limit time.Duration) Result {
	if r.Error != "" {
		return failed("The command could not be started: " + sentence(clean(r.Error)))
	}
	var b strings.Builder
	out := Result{Wall: r.Wall}
	switch {
	case r.Running:
		fmt.Fprintf(&b, "process %d is running · %s so far · %s\n", r.Proc, seconds(r.Wall), printed(r))
		b.WriteString("Look again with wait, end it with kill.\n")
	case r.TimedOut:
		fmt.Fprintf(&b, "NOT FINISHED: killed at its limit of %s; this is not a pass · %s\n", seconds(r.Wall.Round(time.Second)), printed(r))
		if limit > 0 && limit < maxTimeout {
			fmt.Fprintf(&b, "Give it a higher timeout_s (up to %d), or run it in the background and wait for it.\n", int(maxTimeout/time.Second))
		}
		out.ExitCode, out.IsError = &r.ExitCode, true
	default:
		signal := ""
		if r.Signal != "" {
			signal = " (killed by " + clean(clip(r.Signal, 20)) + ")"
		}
		fmt.Fprintf(&b, "exit code %d%s · %s · %s\n", r.ExitCode, signal, seconds(r.Wall), printed(r))
		out.ExitCode = &r.ExitCode
	}
	if r.Children > 0 {
		fmt.Fprintf(&b, "%s left behind by the command %s killed; start servers with background.\n", processes(r.Children), wasWere(r.Children))
	}
	b.WriteString(outputText(r))
	out.Text = b.String()
	return out
}

func printed(r guest.ExecResult) string {
	if r.Bytes == 0 {
		return "no output"
	}
	return count(r.Lines, "line") + " of output"
}

func processes(n int) string {
	if n == 1 {
		return "1 process"
	}
	return number(n) + " processes"
}

func wasWere(n int) string {
	if n == 1 {
		return "was"
	}
	return "were"
}

// outputText is the output's head and tail, with what is missing between them.
func outputText(r guest.ExecResult) string {
	head, tail := visible(r.Head), visible(r.Tail)
	room := guest.DefaultKeep
	if r.Running {
		// What a running command says last is what matters.
		if tail == "" {
			head, tail = "", head
		} else {
			head = ""
		}
		room = progress
	}
	whole := len(r.Tail) == 0 && len(head)+len(tail) <= 2*room
	if r.Running {
		whole = len(r.Tail) == 0 && len(tail) <= room
	}
	if whole {
		return endLine(head + tail)
	}
	if tail == "" {
		// All of it came as head, and grew by its escapes.
		head, tail = head[:len(head)/2], head[len(head)/2:]
	}
	head, tail = firstBytes(head, room), lastBytes(tail, room)
	shown := int64(len(head) + len(tail))
	note := "[… output cut here"
	if left := r.Bytes - shown; left > 0 {
		note = fmt.Sprintf("[… about %s cut here", count(left, "byte"))
	}
	if r.Log != "" {
		note += fmt.Sprintf("; all %s are in %s", count(r.Lines, "line"), clean(r.Log))
		if r.LogCut {
			note += fmt.Sprintf(", up to its limit of %d MiB", guest.DefaultMaxLog>>20)
		}
	}
	return endLine(head) + note + "]\n" + endLine(tail)
}

func endLine(s string) string {
	if s != "" && !strings.HasSuffix(s, "\n") {
		s += "\n"
	}
	return s
}

// firstBytes cuts at the end of a line where one is near, else at a rune's border.
func firstBytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	if i := strings.LastIndexByte(s[:n], '\n'); i > n/2 {
		return s[:i+1]
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

func lastBytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	from := len(s) - n
	if i := strings.IndexByte(s[from:], '\n'); i >= 0 && i < n/2 {
		return s[from+i+1:]
	}
	for from < len(s) && !utf8.RuneStart(s[from]) {
		from++
	}
	return s[from:]
}
