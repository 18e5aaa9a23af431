package verify

import (
	"context"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/verify/impact"
)

// selection is which tests the change can reach, and how they are run.
type selection struct {
	tests  map[string]Place // that pass on the base and are not declared
	places []Place          // that run them, and the declared ones
	how    string           // what chose them
	asked  bool             // the runner itself finds more
	whole  string           // why the whole suite is run at once instead
}

// chooser chooses tests for one change.
type chooser struct {
	p      *proof
	reach  impact.Reach
	builds []impact.Build
	of     map[int]int                 // suite → build
	dirs   map[string]bool             // of Go's tests, which are known by package
	stems  map[int]map[string][]string // suite → the stem of a file's name → files
	files  []string
}

// selected asks of each suite what the change can reach: the imports of its files, the build tool's
// own files, or the build tool itself.
func (p *proof) selected(ctx context.Context, rec *task.PhaseRecord) (selection, error) {
	if i := slices.IndexFunc(p.plan.Suites, func(s Suite) bool { return s.Kind == KindBazel }); i >= 0 {
		return p.selectedByBazel(ctx, i, rec)
	}
	root, err := os.OpenRoot(p.job.Snapshot.Tree)
	if err != nil {
		return selection{whole: "the base checkout cannot be opened"}, nil
	}
	defer root.Close()
	texts, paths := map[string][]byte{}, []string{}
	for _, c := range p.job.Changes {
		if c.Mode == 0o120000 {
			return selection{whole: c.Path + " is a link"}, nil
		}
		texts[c.Path] = c.Content
		paths = append(paths, c.Path)
	}
	fsys := root.FS()
	c := chooser{p: p, of: map[int]int{}, dirs: map[string]bool{}, stems: map[int]map[string][]string{}, files: overlay(p.parts.files, p.job.Changes)}
	tree := impact.Tree{Files: c.files, Read: func(f string) []byte {
		if text, ok := texts[f]; ok {
			return text
		}
		return []byte(readSome(fsys, f))
	}}
	for i, s := range p.plan.Suites {
		read := map[Kind]func(impact.Tree, string) impact.Build{KindCargo: impact.Cargo, KindMaven: impact.Maven, KindGradle: impact.Gradle}[s.Kind]
		if read != nil {
			c.of[i] = len(c.builds)
			c.builds = append(c.builds, read(tree, s.Dir))
		}
	}
	c.reach = impact.Reached(tree, c.builds, paths)
	if c.reach.Whole != "" {
		return selection{whole: c.reach.Whole}, nil
	}
	return c.choose(), nil
}

func (c *chooser) choose() selection {
	for f := range c.reach.Files {
		if strings.HasSuffix(f, "_test.go") {
			c.dirs[path.Dir(f)] = true
		}
	}
	out := selection{tests: map[string]Place{}}
	base, plan := c.p.job.Baseline, c.p.plan
	for id, pl := range base.Where {
		if base.Tests[id] == task.Pass && pl.Suite < len(plan.Suites) && !c.p.declared(id) && c.in(pl) {
			out.tests[id] = pl
		}
	}
	byBuild := map[int]map[string]bool{} // suite → what its build tool is asked for
	broad := map[int]bool{}              // suites of Maven in which not all is known
	for i := range c.of {
		byBuild[i] = map[string]bool{}
	}
	declared := c.p.declaredPlaces()
	for _, pl := range slices.Concat(groups(out.tests), declared) {
		names, narrow := c.named(pl)
		for _, n := range names {
			byBuild[pl.Suite][n] = true
		}
		kind := plan.Suites[pl.Suite].Kind
		if !narrow || kind == KindMaven { // Maven takes classes and modules together
			out.places = append(out.places, pl)
		}
		broad[pl.Suite] = broad[pl.Suite] || !narrow && kind == KindMaven
	}
	var hows []string
	for i, names := range byBuild {
		for _, n := range sortedKeys(names) {
			if !broad[i] {
				out.places = append(out.places, Place{Suite: i, Reach: n})
			}
		}
		if len(names) > 0 {
			hows = append(hows, fmt.Sprintf("in what needs the changed parts by %s's build: %s", plan.Suites[i].Kind, some(sortedKeys(names))))
		}
	}
	slices.Sort(hows)
	if len(c.reach.Files) > 0 || len(hows) == 0 {
		hows = append([]string{"in files that import what changed"}, hows...)
	}
	for i, s := range plan.Suites {
		if related := c.related(i); len(related) > 0 {
			out.places, out.asked = append(out.places, related...), true
			hows = append(hows, "and what "+string(s.Kind)+" itself relates to it")
		}
	}
	out.how = strings.Join(slices.Compact(hows), ", ")
	return out
}

// related are the changed files that the suite's runner is asked about itself.
func (c *chooser) related(i int) (out []Place) {
	s := c.p.plan.Suites[i]
	if s.Kind != KindJest && s.Kind != KindVitest {
		return nil
	}
	for _, ch := range c.p.job.Changes {
		if !ch.Deleted && impact.Script(ch.Path) && (s.Dir == "." || strings.HasPrefix(ch.Path, s.Dir+"/")) {
			out = append(out, Place{Suite: i, Reach: ch.Path})
		}
	}
	return out
}

// in reports whether the change can reach a test.
func (c *chooser) in(pl Place) bool {
	s := c.p.plan.Suites[pl.Suite]
	if i, ok := c.of[pl.Suite]; ok {
		if len(c.reach.Parts[i]) == 0 {
			return false
		}
		parts := c.parts(pl)
		return len(parts) == 0 || slices.ContainsFunc(parts, func(n int) bool { return c.reach.Parts[i][n] })
	}
	if s.Kind == KindGo && pl.File == "" {
		return c.dirs[path.Join(s.Dir, strings.TrimPrefix(pl.Group, s.Module))]
	}
	return c.reach.Files[pl.File]
}

// parts are the parts of its build that a test may be in: several where what the runner says of it
// does not tell, none where it says nothing.
func (c *chooser) parts(pl Place) []int {
	s, b := c.p.plan.Suites[pl.Suite], &c.builds[c.of[pl.Suite]]
	var out []int
	if s.Kind == KindCargo {
		m := cargoGroup.FindStringSubmatch(pl.Group)
		if m == nil {
			return nil
		}
		for i, p := range b.Parts {
			_, there := slices.BinarySearch(c.files, path.Join(p.Dir, m[2]))
			named := slices.Contains(p.Programs, m[1])
			if m[2] == "doc" && named || there && (named || !strings.HasPrefix(m[2], "src/") || strings.HasPrefix(m[2], "src/bin/")) {
				out = append(out, i)
			}
		}
		return out
	}
	if c.stems[pl.Suite] == nil {
		c.stems[pl.Suite] = map[string][]string{}
		for _, f := range c.files {
			if slices.Contains(s.Kind.nativeExts(), path.Ext(f)) && (s.Dir == "." || strings.HasPrefix(f, s.Dir+"/")) {
				stem := strings.TrimSuffix(path.Base(f), path.Ext(f))
				c.stems[pl.Suite][stem] = append(c.stems[pl.Suite][stem], f)
			}
		}
	}
	class := pl.class()
	class, _, _ = strings.Cut(class[strings.LastIndexByte(class, '.')+1:], "$")
	for _, f := range c.stems[pl.Suite][class] {
		out = append(out, b.Owners(f)...)
	}
	return out
}

// named are the parts of a test as its build tool selects them. It reports false where that cannot
// be said of all.
func (c *chooser) named(pl Place) (names []string, ok bool) {
	i, built := c.of[pl.Suite]
	if !built {
		return nil, false
	}
	s := c.p.plan.Suites[pl.Suite]
	for _, n := range c.parts(pl) {
		p := c.builds[i].Parts[n]
		if !p.Tested {
			return nil, false
		}
		if s.Kind == KindMaven {
			p.Name = s.local(p.Dir)
		}
		names = append(names, p.Name)
	}
	return names, len(names) > 0
}

// plainLabel is a path that needs no quoting in Bazel's query language.
var plainLabel = regexp.MustCompile(`^[\w][\w./+@=-]*$`)

// selectedByBazel asks Bazel which tests depend on the changed files, on a bench with the change.
func (p *proof) selectedByBazel(ctx context.Context, i int, rec *task.PhaseRecord) (out selection, err error) {
	s := p.plan.Suites[i]
	var paths []string
	for _, c := range p.job.Changes {
		base := path.Base(c.Path)
		switch {
		case c.Deleted || c.Mode == 0o120000 || !plainLabel.MatchString(c.Path):
			return selection{whole: c.Path + " is nothing that Bazel can be asked about"}, nil
		case slices.Contains([]string{"BUILD", "BUILD.bazel", "WORKSPACE", "WORKSPACE.bazel", "MODULE.bazel", "MODULE.bazel.lock", ".bazelversion", ".bazelrc", ".bazelignore"}, base), strings.HasSuffix(base, ".bzl"), strings.HasSuffix(base, ".bazelrc"):
			return selection{whole: c.Path + " decides what is built"}, nil
		}
		paths = append(paths, c.Path)
	}
	b, err := p.v.open(ctx, "green", p.job.Snapshot, false)
	if err != nil {
		return out, err
	}
	defer func() {
		if e := b.close(ctx, "green"); err == nil {
			err = e
		}
	}()
	g := b.box.Guest()
	if err := place(ctx, g, p.job.Changes); err != nil {
		return out, err
	}
	query := "tests(rdeps(//..., set(" + strings.Join(paths, " ") + ")))"
	c := s.bazelQuery(i, query)
	var saw ran
	res, err := p.v.exec(ctx, g, c, p.v.Now().Add(p.v.timeout()), &saw)
	if err != nil && g.Err() != nil && ctx.Err() == nil {
		return selection{whole: "Bazel's answer ended with the sandbox"}, nil
	}
	if err != nil {
		return out, err
	}
	r := task.RunRecord{Command: c.human, ExitCode: res.ExitCode, Millis: res.Wall.Milliseconds(), Outcome: "complete"}
	if res.TimedOut {
		r.Outcome = "timeout"
	}
	if r.Log, err = p.v.Lab.Log(ctx, logText(c, res, nil)); err != nil {
		return out, fmt.Errorf("store the log of %q: %w", c.human, err)
	}
	rec.Runs = append(rec.Runs, r)
	if res.ExitCode != 0 || res.TimedOut || len(res.Tail) > 0 {
		return selection{whole: "Bazel does not say what depends on the change: " + oneLine(errorLine(output(res)), 200)}, nil
	}
	labels := bazelLabels(res)
	out = selection{tests: map[string]Place{}, how: "that bazel query says depend on what changed"}
	for id, pl := range p.job.Baseline.Where {
		if p.job.Baseline.Tests[id] == task.Pass && !p.declared(id) && (labels[pl.Group] || !strings.HasPrefix(pl.Group, "//")) {
			out.tests[id] = pl
		}
	}
	out.places = append(groups(out.tests), p.declaredPlaces()...)
	return out, nil
}

// bazelLabels reads one label a line; what else Bazel says is on lines of other forms.
func bazelLabels(res guest.ExecResult) map[string]bool {
	out := map[string]bool{}
	for l := range strings.Lines(string(res.Head)) {
		if l = strings.TrimSpace(l); strings.HasPrefix(l, "//") && !strings.ContainsAny(l, " \t") {
			out[l] = true
		}
	}
	return out
}
