package tamper

import (
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/verify/syntax"
)

// waits are parts of words by which a test waits for what it started, or what it started says
// that it is through.
var waits = []string{"wait", "join", "sleep", "eventually", "done", "close", "stop", "shutdown", "drain", "collect", "select", "sync", "finish", "recv", "read", "get", "result", "accept", "serve", "write", "send", "dial", "do", "latch", "signal", "countdown", "invoke", "block", "lock", "barrier", "semaphore", "park", "until", "verify", "delay", "sleep", "take", "poll"}

// says reports a word with one of the parts between two tokens.
func (d *deadFinder) says(from, to int, parts ...string) bool {
	return slices.ContainsFunc(d.toks[min(from, len(d.toks)):min(to, len(d.toks))], func(t token) bool {
		w := strings.ToLower(t.Text)
		return t.Kind == syntax.Word && slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(w, p) })
	})
}

// launches reports what starts something beside the test.
func (d *deadFinder) launches(i int) bool {
	if !d.word(i) || d.gone[i] {
		return false
	}
	w, call := d.at(i), d.at(i+1) == "("
	switch d.l {
	case syntax.Go:
		return w == "go" && d.at(i+1) == "func"
	case syntax.JavaScript:
		switch w {
		case "then", "catch", "finally":
			return call && d.at(i-1) == "."
		case "async":
			return d.at(i-1) == "(" && d.starts(i-1)
		case "Promise":
			return call && d.at(i-1) == "new"
		}
		return call && slices.Contains([]string{"setTimeout", "setImmediate", "queueMicrotask", "nextTick"}, w)
	case syntax.Java:
		return call && (w == "Thread" && d.at(i-1) == "new" || w == "runAsync" || w == "supplyAsync")
	case syntax.CSharp:
		return call && (w == "Thread" && d.at(i-1) == "new" || w == "Run" && d.at(i-2) == "Task" || w == "StartNew" || w == "QueueUserWorkItem")
	case syntax.Rust:
		return call && w == "spawn"
	}
	return false
}

// unawaited buries what is started and not waited for: goroutines and threads, and the callbacks of
// a promise or a timer that the test neither returns nor awaits.
func (d *deadFinder) unawaited(i int) {
	body := slices.IndexFunc(d.toks, func(t token) bool { return t.Text == "{" && t.Kind == syntax.Punct })
	first := d.statement(i)
	if body < 0 || d.parent[first] != body {
		return // in a function or a loop of its own
	}
	end := d.ends(first)
	switch d.l {
	case syntax.Go:
		g := guarder{toks: d.toks, closing: d.closing, l: d.l}
		open := g.goLiteral(i + 1)
		for k := 1; k < len(d.toks); k++ { // a channel
			if d.at(k-1) == "<" && d.at(k) == "-" && d.toks[k-1].At+1 == d.toks[k].At {
				return
			}
		}
		if open > 0 && !d.says(0, i, waits...) && !d.says(d.closing[open], len(d.toks), waits...) && !d.says(open, d.closing[open], "done", "close", "wait") {
			d.bury(open, d.closing[open], whyAlone)
		}
	case syntax.JavaScript:
		if slices.Contains([]string{"return", "await", "const", "let", "var", "yield"}, d.at(first)) || slices.ContainsFunc(d.toks[first:i], func(t token) bool { return t.Text == "=" || t.Text == "await" }) || d.told(first, end, body) {
			return
		}
		if d.at(i) == "async" {
			d.bury(i, d.closing[i-1], whyAlone)
		} else {
			d.bury(i+1, d.closing[i+1], whyAlone)
		}
	default:
		if !slices.ContainsFunc(d.toks[first:i], func(t token) bool { return t.Text == "=" || t.Text == "await" || t.Text == "return" }) && !d.says(0, first, waits...) && !d.says(d.closing[i+1], len(d.toks), waits...) && !d.says(d.closing[i+1], len(d.toks), "await", "assert") {
			d.bury(i+1, d.closing[i+1], whyAlone)
		}
	}
}

// told reports a statement of a test in JavaScript that says when it is through, or that the test
// gives time.
func (d *deadFinder) told(first, end, body int) bool {
	for k := range body { // the first parameter of the test's own function
		if d.word(k) && d.at(k) != "async" && d.at(k) != "function" {
			if syntax.Has(d.toks[first:end], d.at(k)) {
				return true
			}
			break
		}
	}
	for k := first; k < end; k++ {
		if d.at(k) == "resolve" && d.at(k-2) != "Promise" {
			return true
		}
	}
	return d.says(first, end, "done", "next", "callback", "cb", "finish") || d.says(0, first, "plan", "assertions", "fake", "clock") ||
		d.says(end, len(d.toks), "await", "return", "tick", "timer", "advance", "clock", "plan", "flush", "yield")
}
