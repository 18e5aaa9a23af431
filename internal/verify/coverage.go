package verify

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// hits says of lines that can run how often they did: by path below the work tree, then line.
// A line that is not in it is no statement.
type hits map[string]map[int]int

func (h hits) add(file string, line, n int) {
	if h[file] == nil {
		h[file] = map[int]int{}
	}
	h[file][line] = max(h[file][line], n)
}

// coverage runs the declared tests once more and counts which changed lines they run, where the
// runner has it. nil: nothing is known.
func (g *prober) coverage(ctx context.Context, files []changedFile) (*task.Coverage, error) {
	found := hits{}
	var tools []string
	for i := range g.p.plan.Suites {
		places := slices.DeleteFunc(g.p.declaredPlaces(), func(p Place) bool { return p.Suite != i })
		if len(places) == 0 || g.over() {
			continue
		}
		c, ok := g.p.covered(i, places, files)
		if !ok {
			continue
		}
		if err := g.ready(ctx); err != nil {
			return nil, err
		}
		limit := min(g.p.v.timeout(), max(probeLimit, probeSlowdown*g.normal))
		var out ran
		box := g.bench.box.Guest()
		if _, err := g.p.v.exec(ctx, box, c.command, g.p.v.Now().Add(limit), &out); err != nil {
			if box.Err() != nil && ctx.Err() == nil {
				return nil, g.end(ctx)
			}
			return nil, err
		}
		texts, err := g.p.v.reports(ctx, box, c.command, false)
		if err != nil {
			return nil, err
		}
		for _, t := range texts {
			c.read(t, found)
		}
		if len(texts) > 0 && !slices.Contains(tools, c.tool) {
			tools = append(tools, c.tool)
		}
	}
	return count(found, files, strings.Join(tools, ", ")), nil
}

// count sums over the changed lines that can run.
func count(found hits, files []changedFile, tool string) *task.Coverage {
	c := &task.Coverage{Tool: tool}
	var missed []string
	for _, f := range files {
		lines, known := found[f.change.Path]
		if !known {
			continue
		}
		for _, n := range sortedInts(f.lines) {
			k, statement := lines[n]
			if !statement {
				continue
			}
			c.Lines++
			if k > 0 {
				c.Run++
			} else if len(missed) < 5 {
				missed = append(missed, fmt.Sprintf("%s:%d", f.change.Path, n))
			}
		}
	}
	if c.Lines == 0 {
		return nil
	}
	c.Missed = strings.Join(missed, ", ")
	return c
}

func sortedInts(m map[int]bool) []int {
	out := make([]int, 0, len(m))
	for n := range m {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// coverRun is a run that leaves a coverage report, and how that is read.
type coverRun struct {
	command
	tool string
	read func([]byte, hits)
}

// covered is the run of the places that says which lines ran. ok is false where the runner, as
// it is installed, cannot say.
func (p *proof) covered(i int, places []Place, files []changedFile) (coverRun, bool) {
	s := p.plan.Suites[i]
	report := sandbox.TempDir + fmt.Sprintf("/daybreak-cover-%d", i)
	cs := p.plan.commands(i, places, nil, report)
	if len(cs) != 1 { // several processes would write over each other
		return coverRun{}, false
	}
	c := cs[0]
	switch s.Kind {
	case KindGo:
		var pkgs []string
		for _, f := range files {
			if pkg := s.goPackage(Place{File: f.change.Path}); strings.HasSuffix(f.change.Path, ".go") && !slices.Contains(pkgs, pkg) {
				pkgs = append(pkgs, pkg)
			}
		}
		if len(pkgs) == 0 {
			return coverRun{}, false
		}
		c.report = report + ".out"
		c.shell = strings.Replace(c.shell, "go test -json", "go test -coverprofile="+c.report+" -coverpkg="+quote(strings.Join(pkgs, ",")), 1)
		return coverRun{c, "go test -cover", func(b []byte, h hits) { goProfile(b, s, h) }}, true
	case KindPytest:
		if !slices.Contains(p.job.Baseline.Tools.Plugins, "pytest_cov") {
			return coverRun{}, false
		}
		c.report = report + ".json"
		c.env = append(c.env, "COVERAGE_FILE="+report+".data")
		c.shell = strings.Replace(c.shell, "-m pytest ", "-m pytest --cov=. --cov-report=json:"+c.report+" ", 1)
		return coverRun{c, "pytest-cov", func(b []byte, h hits) { coverageJSON(b, s, h) }}, true
	case KindNode, KindTAP, KindMocha:
		c.env = append(c.env, "NODE_V8_COVERAGE="+report)
		c.globs = []string{report + "/*.json"}
		sources := map[string][]byte{}
		for _, f := range files {
			sources[f.change.Path] = f.change.Content
		}
		root := p.v.root()
		return coverRun{c, "V8", func(b []byte, h hits) { v8Coverage(b, root, sources, h) }}, true
	}
	return coverRun{}, false
}

var profileLine = regexp.MustCompile(`^(.+):(\d+)\.\d+,(\d+)\.\d+ \d+ (\d+)$`)

// goProfile reads the profile of `go test -coverprofile`.
func goProfile(b []byte, s Suite, h hits) {
	scan := bufio.NewScanner(bytes.NewReader(b))
	for scan.Scan() {
		m := profileLine.FindStringSubmatch(scan.Text())
		if m == nil {
			continue
		}
		file, ok := strings.CutPrefix(m[1], s.Module+"/")
		if !ok {
			continue
		}
		from, _ := strconv.Atoi(m[2]) // digits, by the expression
		to, _ := strconv.Atoi(m[3])
		n, err := strconv.Atoi(m[4])
		if err != nil || to-from > 100_000 {
			continue
		}
		for l := from; l <= to; l++ {
			h.add(path.Join(s.Dir, file), l, n)
		}
	}
}

// coverageJSON reads coverage.py's JSON report.
func coverageJSON(b []byte, s Suite, h hits) {
	var doc struct {
		Files map[string]struct {
			Executed []int `json:"executed_lines"`
			Missing  []int `json:"missing_lines"`
		} `json:"files"`
	}
	if json.Unmarshal(b, &doc) != nil {
		return
	}
	for name, f := range doc.Files {
		file := path.Join(s.Dir, name)
		for _, n := range f.Executed {
			h.add(file, n, 1)
		}
		for _, n := range f.Missing {
			h.add(file, n, 0)
		}
	}
}

// v8Coverage reads what Node writes for NODE_V8_COVERAGE. Offsets count UTF-16 code units; of
// the ranges around a place the innermost says how often it ran.
func v8Coverage(b []byte, root string, sources map[string][]byte, h hits) {
	type span struct {
		Start int `json:"startOffset"`
		End   int `json:"endOffset"`
		Count int `json:"count"`
	}
	var doc struct {
		Result []struct {
			URL       string `json:"url"`
			Functions []struct {
				Ranges []span `json:"ranges"`
			} `json:"functions"`
		} `json:"result"`
	}
	if json.Unmarshal(b, &doc) != nil {
		return
	}
	for _, r := range doc.Result {
		u, err := url.Parse(r.URL)
		if err != nil || u.Scheme != "file" {
			continue
		}
		file := strings.TrimPrefix(u.Path, root+"/")
		text, ok := sources[file]
		if !ok {
			continue
		}
		var ranges []span
		for _, f := range r.Functions {
			ranges = append(ranges, f.Ranges...)
		}
		at := 0
		for i, line := range strings.SplitAfter(string(text), "\n") {
			code := at + units(line[:len(line)-len(strings.TrimLeft(line, " \t"))])
			at += units(line)
			inner := span{Start: -1, End: 1 << 40}
			for _, s := range ranges {
				if s.Start <= code && code < s.End && s.End-s.Start < inner.End-inner.Start {
					inner = s
				}
			}
			if inner.Start >= 0 {
				h.add(file, i+1, inner.Count)
			}
		}
	}
}

// units counts UTF-16 code units.
func units(s string) int {
	n := 0
	for _, r := range s {
		n++
		if r > 0xFFFF && r != utf8.RuneError {
			n++
		}
	}
	return n
}
