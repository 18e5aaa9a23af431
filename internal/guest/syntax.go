package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"
)

const (
	syntaxTimeout = 5 * time.Second
	maxSyntaxFile = 2 << 20
	maxSyntax     = 10 // errors reported
)

// newSyntaxErrors returns the syntax errors of after that before did not have. A language
// without a checker in the sandbox has none.
func (s *server) newSyntaxErrors(ctx context.Context, rel string, before, after []byte) []string {
	if len(after) > maxSyntaxFile {
		return nil
	}
	check := s.checker(ctx, rel)
	if check == nil {
		return nil
	}
	now := check(after)
	if len(now) == 0 {
		return nil
	}
	old := make(map[string]int)
	if len(before) > 0 {
		for _, e := range check(before) {
			old[e.text]++
		}
	}
	var out []string
	for _, e := range now {
		if old[e.text] > 0 {
			old[e.text]--
			continue
		}
		if len(out) == maxSyntax {
			out = append(out, "… and more")
			break
		}
		out = append(out, e.String())
	}
	return out
}

// syntaxError is compared without its line, which every edit moves.
type syntaxError struct {
	line int
	text string
}

func (e syntaxError) String() string {
	if e.line <= 0 {
		return e.text
	}
	return fmt.Sprintf("line %d: %s", e.line, e.text)
}

func (s *server) checker(ctx context.Context, rel string) func([]byte) []syntaxError {
	base := path.Base(rel)
	switch ext := path.Ext(rel); ext {
	case ".go":
		return checkGo
	case ".json":
		// These allow comments by custom.
		if strings.HasPrefix(base, "tsconfig") || strings.HasPrefix(base, "jsconfig") || strings.Contains(rel, ".vscode/") {
			return nil
		}
		return checkJSON
	case ".py":
		return s.external(ctx, "python3", func(file string) [][]string {
			const compile = "import ast,sys\ntry: ast.parse(open(sys.argv[1],'rb').read())\nexcept (SyntaxError,ValueError) as e: print('%s:%s' % (getattr(e,'lineno',0) or 0, getattr(e,'msg',e))); sys.exit(1)"
			return [][]string{{"-I", "-c", compile, file + ext}}
		}, ext)
	case ".js", ".mjs", ".cjs":
		exts := map[string][]string{".js": {".cjs", ".mjs"}, ".mjs": {".mjs"}, ".cjs": {".cjs"}}[ext]
		return s.external(ctx, "node", func(file string) [][]string {
			var tries [][]string
			for _, e := range exts {
				tries = append(tries, []string{"--check", file + e})
			}
			return tries
		}, exts...)
	case ".sh", ".bash":
		return s.external(ctx, "bash", func(file string) [][]string { return [][]string{{"-n", file + ext}} }, ext)
	}
	return nil
}

func checkGo(b []byte) []syntaxError {
	_, err := parser.ParseFile(token.NewFileSet(), "", b, parser.AllErrors|parser.SkipObjectResolution)
	var list scanner.ErrorList
	if !errors.As(err, &list) {
		return nil
	}
	var out []syntaxError
	for _, e := range list {
		out = append(out, syntaxError{e.Pos.Line, e.Msg})
	}
	return out
}

func checkJSON(b []byte) []syntaxError {
	b = []byte(strings.TrimPrefix(string(b), string(bom)))
	if len(strings.TrimSpace(string(b))) == 0 {
		return nil
	}
	var v json.RawMessage
	err := json.Unmarshal(b, &v)
	var se *json.SyntaxError
	if !errors.As(err, &se) {
		return nil
	}
	return []syntaxError{{1 + strings.Count(string(b[:min(int(se.Offset), len(b))]), "\n"), se.Error()}}
}

// external checks with an interpreter of the sandbox, on copies named file plus each of exts. When there are several ways to run it,
// a file that passes one of them is good, and the first one's words are reported. A file the
// interpreter refused before the edit as well is not worth a word: it names one error only.
func (s *server) external(ctx context.Context, program string, tries func(file string) [][]string, exts ...string) func([]byte) []syntaxError {
	if _, err := exec.LookPath(program); err != nil || s.opts.LogDir == "" {
		return nil
	}
	return func(b []byte) []syntaxError {
		dir, err := os.MkdirTemp(s.opts.LogDir, "syntax-*")
		if err != nil {
			return nil
		}
		defer os.RemoveAll(dir)
		for _, e := range exts {
			if err := os.WriteFile(filepath.Join(dir, "file"+e), b, 0o600); err != nil {
				return nil
			}
		}
		var first []syntaxError
		for i, args := range tries(filepath.Join(dir, "file")) {
			res, err := s.procs.run(ctx, ExecRequest{Argv: append([]string{program}, args...), Dir: dir, Timeout: syntaxTimeout}, true)
			if err != nil || res.Error != "" || res.TimedOut || res.ExitCode == 0 || res.ExitCode > 125 {
				return nil
			}
			if i == 0 {
				first = []syntaxError{parseComplaint(program, string(res.Head))}
			}
		}
		return first
	}
}

// parseComplaint takes the line and the message out of an interpreter's output.
func parseComplaint(program, out string) syntaxError {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var e syntaxError
	switch program {
	case "python3":
		fmt.Sscanf(lines[0], "%d:", &e.line)
		_, e.text, _ = strings.Cut(lines[0], ":")
	case "node":
		if i := strings.LastIndexByte(lines[0], ':'); i >= 0 {
			fmt.Sscanf(lines[0][i+1:], "%d", &e.line)
		}
		for _, l := range lines {
			if strings.HasPrefix(l, "SyntaxError") {
				e.text = l
			}
		}
	default:
		if _, rest, ok := strings.Cut(lines[0], ": line "); ok {
			fmt.Sscanf(rest, "%d:", &e.line)
			_, e.text, _ = strings.Cut(rest, ": ")
		}
	}
	if e.text == "" {
		e.text = "does not parse"
	}
	e.text = oneLine(e.text)
	return e
}
