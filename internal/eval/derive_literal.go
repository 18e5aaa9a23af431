package eval

import (
	"context"
	_ "embed" // the programs that record calls
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/git"
)

// maxLiterals is how many answers are written into a source at most.
const maxLiterals = 40

var (
	//go:embed scripts/record.py
	recordPython string
	//go:embed scripts/record.js
	recordNode string
)

// hardCoded is the base with the answers of its tests written into it: the calls that the tests
// make of a function are recorded on the base and with the fix, and those that differ are
// answered by comparison with the very arguments.
func (d *deriver) hardCoded(ctx context.Context) (*Derived, error) {
	if d.i.Language != "py" && d.i.Language != "js" || d.i.unittest() {
		return nil, no("no way to record the calls of its tests is known")
	}
	before, err := d.calls(ctx, d.tests)
	if err != nil {
		return nil, err
	}
	after, err := d.calls(ctx, slices.Concat(d.tests, d.source))
	if err != nil {
		return nil, err
	}
	fresh := slices.DeleteFunc(after, func(call string) bool { return slices.Contains(before, call) })
	if len(fresh) == 0 || len(fresh) > maxLiterals {
		return nil, no("its tests make no calls with another plain answer than before")
	}
	files := map[string]string{}
	for _, call := range fresh {
		name, edited, ok := d.answer(ctx, files, call)
		if !ok {
			return nil, no("the answers of its tests cannot be written into the source")
		}
		files[name] = edited
	}
	c := &Derived{How: fmt.Sprintf("%d answers of its tests written into the source", len(fresh)), Changes: slices.Clone(d.tests), Tests: d.i.declared()}
	for _, name := range sortedKeys(files) {
		c.Changes = append(c.Changes, text(name, files[name]))
	}
	o, err := d.try(ctx, c.Changes, d.own(), d.patience())
	if err == nil && !o.all(d.ids, passed) {
		err = no("with the answers in the source its tests still fail")
	}
	return c, err
}

// calls records what the tests call, one JSON array a call.
func (d *deriver) calls(ctx context.Context, changes []git.Change) ([]string, error) {
	var files, run []string
	for _, id := range d.ids {
		where, name, _ := strings.Cut(id, "::")
		if d.i.Language == "js" {
			files = append(files, "node -r ./eval-record.js "+shellQuote(where)+" 2>&1 | grep '^#called '")
			continue
		}
		node := d.i.pythonID(where, name)
		file, _, _ := strings.Cut(node, "::")
		files, run = append(files, file), append(run, shellQuote(node))
	}
	slices.Sort(files)
	files = slices.Compact(files)
	shell, recorder := strings.Join(files, "; "), text("eval-record.js", recordNode)
	if d.i.Language == "py" {
		recorder = text("eval_record.py", recordPython)
		shell = "PYTHONPATH=. /usr/bin/python3 eval_record.py " + shellQuote(strings.Join(files, ",")) + " " + strings.Join(run, " ") + " 2>&1 | grep '^#called '"
	}
	t, err := d.bench.Try(ctx, append(slices.Clone(changes), recorder), shell, d.patience())
	var out []string
	for line := range strings.Lines(t.Output) {
		if call, ok := strings.CutPrefix(strings.TrimSpace(line), "#called "); ok {
			out = append(out, call)
		}
	}
	return out, err
}

// answer writes one recorded call into the source on the base, or what files has of it already.
func (d *deriver) answer(ctx context.Context, files map[string]string, call string) (name, edited string, ok bool) {
	var parts []json.RawMessage
	if json.Unmarshal([]byte(call), &parts) != nil || len(parts) < 3 || json.Unmarshal(parts[0], &name) != nil {
		return "", "", false
	}
	source, have := files[name]
	if !have {
		f, err := d.r.read(ctx, d.i.Base, name)
		if err != nil || f.absent {
			return "", "", false
		}
		source = string(f.content)
	}
	if d.i.Language == "js" {
		edited = answerNode(source, parts)
	} else {
		edited = answerPython(source, parts)
	}
	return name, edited, edited != ""
}

// answerPython puts a comparison at the top of the function. parts are the file, the function, its
// arguments as pairs of name and literal, and the result.
func answerPython(source string, parts []json.RawMessage) string {
	var function, result string
	var args [][2]string
	if len(parts) != 4 || json.Unmarshal(parts[1], &function) != nil || json.Unmarshal(parts[2], &args) != nil || json.Unmarshal(parts[3], &result) != nil {
		return ""
	}
	head := regexp.MustCompile(`(?m)^def ` + regexp.QuoteMeta(function) + `\([^)]*\)[^:\n]*:[ \t]*\n`)
	at := head.FindStringIndex(source)
	if at == nil || len(args) == 0 {
		return ""
	}
	var tests []string
	for _, a := range args {
		tests = append(tests, a[0]+" == "+a[1])
	}
	return source[:at[1]] + "    if " + strings.Join(tests, " and ") + ":\n        return " + result + "\n" + source[at[1]:]
}

var (
	nodeExport = regexp.MustCompile(`module\.exports = (?:function\s*\w*\s*)?\(([^()]*)\)\s*(?:=>)?\s*\{`)
	nodeNamed  = regexp.MustCompile(`module\.exports = (\w+);?\s`)
	nodeParam  = regexp.MustCompile(`^(\w+)(?:\s*=.*)?$`)
)

// answerNode does so in a module that is a function. parts are the file, the arguments and the result.
func answerNode(source string, parts []json.RawMessage) string {
	var args []json.RawMessage
	if len(parts) != 3 || json.Unmarshal(parts[1], &args) != nil || len(args) == 0 {
		return ""
	}
	at := nodeExport.FindStringSubmatchIndex(source)
	if at == nil {
		named := nodeNamed.FindStringSubmatch(source)
		if named == nil {
			return ""
		}
		at = regexp.MustCompile(`(?:(?:const|var|let) ` + named[1] + ` = (?:function\s*\w*\s*)?|function ` + named[1] + `)\(([^()]*)\)\s*(?:=>)?\s*\{`).FindStringSubmatchIndex(source)
	}
	if at == nil {
		return ""
	}
	params := strings.Split(source[at[2]:at[3]], ",")
	if len(params) < len(args) {
		return ""
	}
	var tests []string
	for n, a := range args {
		m := nodeParam.FindStringSubmatch(strings.TrimSpace(params[n]))
		if m == nil {
			return ""
		}
		test := m[1] + " === " + string(a)
		if a[0] == '{' || a[0] == '[' {
			test = "JSON.stringify(" + m[1] + ") === " + quoted(string(a))
		}
		tests = append(tests, test)
	}
	return source[:at[1]] + "\n    if (" + strings.Join(tests, " && ") + ") { return " + string(parts[2]) + "; }" + source[at[1]:]
}

func sortedKeys(m map[string]string) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
