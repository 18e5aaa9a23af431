package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// result is how one test ended.
type result struct {
	Package string
	Test    string // "": the package itself
	Action  string // "pass", "fail" or "skip"
	Reason  string // why it was skipped, or the first line of its failure
}

// gotest runs tests and reads what they report.
type gotest struct {
	log    io.Writer
	module string // the module's root, "" here
}

// notExercised marks the line in which a test says why it could not be made here.
const notExercised = "not exercised: "

// event is a line of test2json.
type event struct{ Action, Package, Test, Output, ImportPath string }

// run runs the tests of dirs, relative to the module's root, whose names fit pattern.
func (g *gotest) run(ctx context.Context, dirs []string, pattern string, env []string, flags ...string) ([]result, error) {
	if len(dirs) == 0 {
		return nil, nil
	}
	args := append([]string{"test", "-json", "-count=1", "-timeout=40m", "-run", pattern}, flags...)
	for _, d := range dirs {
		args = append(args, "./"+d)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = g.module
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = g.log
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the go command: %w", err)
	}
	out, err := read(pipe, func(r result) {
		if r.Action == "fail" && r.Test != "" {
			fmt.Fprintf(g.log, "failed: %s %s: %s\n", shortPackage(r.Package), r.Test, r.Reason)
		}
	})
	werr := cmd.Wait()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var exit *exec.ExitError
	if werr != nil && !errors.As(werr, &exit) {
		err = errors.Join(err, werr)
	}
	if err == nil && len(out) == 0 {
		err = errors.New("the go command reported no test")
	}
	return out, err
}

// read takes the end of every test out of a stream of test2json, and tells each as it comes.
func read(r io.Reader, tell func(result)) ([]result, error) {
	var out []result
	said := map[string]*bytes.Buffer{}
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 1<<20), 16<<20)
	for sc.Scan() {
		var e event
		if err := json.Unmarshal(sc.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("output of go test: %w: %.100q", err, sc.Bytes())
		}
		key := e.Package + "\x00" + e.Test
		switch e.Action {
		case "output", "build-output":
			if e.Action == "build-output" {
				key = strings.Fields(e.ImportPath + " ")[0] + "\x00"
			}
			if said[key] == nil {
				said[key] = &bytes.Buffer{}
			}
			said[key].WriteString(e.Output)
		case "pass", "fail", "skip":
			reason := ""
			if b := said[key]; b != nil && e.Action != "pass" {
				reason = why(b.String(), e.Action)
			}
			delete(said, key)
			out = append(out, result{Package: e.Package, Test: e.Test, Action: e.Action, Reason: reason})
			tell(out[len(out)-1])
		}
	}
	return out, sc.Err()
}

// why finds the reason in what a test printed.
func why(text, action string) string {
	first := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if _, after, ok := strings.Cut(line, notExercised); ok && action == "skip" {
			return after
		}
		if strings.HasPrefix(line, "===") || strings.HasPrefix(line, "---") || line == "" || line == "FAIL" {
			continue
		}
		if _, after, ok := strings.Cut(line, "_test.go:"); ok { // file_test.go:12: message
			_, line, _ = strings.Cut(after, ": ")
		}
		if first == "" {
			first = line
		}
	}
	return first
}
