package eval

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/eval/edit"
	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// How much is tried before a case is given up, and how long one run may take where nothing is
// known yet.
const (
	maxBreaks = 10 // runs in search of an edit that an old test notices
	maxTries  = 12 // runs of a few tests
	tryLimit  = 10 * time.Minute
)

// Derived is a change made from an instance, with a label that runs of the tests have shown.
type Derived struct {
	ID       string             `json:"id"` // instance.fault
	Instance string             `json:"instance"`
	Language string             `json:"language"`
	Fault    Fault              `json:"fault"`
	How      string             `json:"how"` // what was done, in a line
	Changes  []git.Change       `json:"changes"`
	Tests    []string           `json:"tests"` // as their author would name them
	Wanted   []task.VerdictKind `json:"wanted"`
	Limit    time.Duration      `json:"limit"` // of one run of the suite; 0: what is asked for
}

// Omitted is a case that an instance does not give.
type Omitted struct {
	Instance string `json:"instance"`
	Fault    Fault  `json:"fault"`
	Why      string `json:"why"`
}

// deriver makes the cases of one instance.
type deriver struct {
	i      Instance
	r      repo
	bench  Bench
	seed   uint64
	tests  []git.Change // the historical test
	source []git.Change // and the fix with what goes along
	ids    []string     // of the tests that go from fail to pass, as outcomes have them
	near   string       // runs the files and packages with tests of the instance
	base   outcomes     // of that, on the base
	fixed  outcomes     // and with the fix
	broken *breakage    // what findBreak found
	sought bool
}

// no says why a case is not made; an error is of the machinery.
type no string

func (n no) Error() string { return string(n) }

// Derive makes from the instance a case for each of the faults that it can carry. What a case is
// said to be has been seen: its tests were run, on the base and with the change, by their own
// runner. The same seed gives the same cases, as long as the tests do not depend on chance.
func (i Instance) Derive(ctx context.Context, repoDir string, bench Bench, seed uint64, faults []Fault) ([]Derived, []Omitted, error) {
	d := &deriver{i: i, r: repo{dir: repoDir}, bench: bench, seed: seed}
	var cases []Derived
	var left []Omitted
	err := d.prepare(ctx)
	for _, f := range faults {
		var c *Derived
		why := err
		if err == nil {
			if c, why = d.make(ctx, f); why == nil {
				c.ID, c.Instance, c.Language, c.Fault = i.ID+"."+string(f), i.ID, i.Language, f
				if c.Wanted == nil {
					c.Wanted = f.Wanted()
				}
				cases = append(cases, *c)
				continue
			}
		}
		reason, ok := why.(no)
		if !ok {
			return cases, left, why
		}
		left = append(left, Omitted{i.ID, f, string(reason)})
	}
	return cases, left, nil
}

// Sample chooses at most n of the faults for the instance, beside the true fix, by the seed; with
// n = 0 all of them.
func (i Instance) Sample(seed uint64, n int) []Fault {
	all := Faults()
	shuffle(seed, i.ID, all[1:])
	if n > 0 && n < len(all)-1 {
		all = all[:n+1]
	}
	return all
}

// Gold is the instance's own fix as a case.
func (i Instance) Gold(ctx context.Context, repoDir string) (Derived, error) {
	d := &deriver{i: i, r: repo{dir: repoDir}}
	if err := d.load(ctx); err != nil {
		return Derived{}, err
	}
	return Derived{
		ID: i.ID + "." + string(TrueFix), Instance: i.ID, Language: i.Language, Fault: TrueFix, How: "the historical test and fix",
		Changes: slices.Concat(d.tests, d.source), Tests: i.declared(), Wanted: TrueFix.Wanted(),
	}, nil
}

func change(f file) git.Change {
	mode := git.ModeFile
	if f.executable {
		mode = git.ModeExecutable
	}
	return git.Change{Path: f.path, Mode: mode, Content: f.content, Deleted: f.absent}
}

func (d *deriver) load(ctx context.Context) error {
	if err := d.r.check(ctx, d.i.Base, d.i.Fix); err != nil {
		return err
	}
	for _, l := range []struct {
		paths []string
		into  *[]git.Change
	}{{d.i.TestFiles, &d.tests}, {slices.Concat(d.i.SourceFiles, d.i.OtherFiles), &d.source}} {
		files, err := d.r.readAll(ctx, d.i.Fix, l.paths)
		if err != nil {
			return err
		}
		for _, f := range files {
			*l.into = append(*l.into, change(f))
		}
	}
	for _, id := range d.i.FailToPass {
		if !slices.Contains(d.ids, id) {
			d.ids = append(d.ids, id)
		}
	}
	return nil
}

// prepare reads the instance and makes sure that its tests fail on the base and pass with the fix.
func (d *deriver) prepare(ctx context.Context) error {
	if err := d.load(ctx); err != nil {
		return err
	}
	files, err := d.testFiles(ctx)
	if err != nil {
		return err
	}
	targets := d.targets()
	for _, c := range files {
		targets = append(targets, target{c.Path, ""})
	}
	for n := range targets {
		targets[n].name = ""
	}
	d.near = d.i.command(targets)
	if d.base, err = d.try(ctx, nil, d.near, tryLimit); err != nil {
		return err
	}
	red, err := d.try(ctx, d.tests, d.own(), tryLimit)
	if err != nil {
		return err
	}
	if d.fixed, err = d.try(ctx, slices.Concat(d.tests, d.source), d.near, tryLimit); err != nil {
		return err
	}
	for _, id := range d.ids {
		switch {
		case red.of[id] == passed:
			return no("its test passes on the base here")
		case d.fixed.of[id] != passed:
			return no("its test does not pass with the fix here")
		}
	}
	return nil
}

func (d *deriver) try(ctx context.Context, changes []git.Change, shell string, limit time.Duration) (outcomes, error) {
	t, err := d.bench.Try(ctx, changes, shell, limit)
	return d.i.read(t), err
}

// own runs the tests that go from fail to pass, and what cannot be told from them.
func (d *deriver) own() string { return d.i.command(d.targets()) }

func (d *deriver) targets() []target {
	var targets []target
	for _, id := range d.ids {
		where, name, _ := strings.Cut(id, "::")
		switch d.i.Language {
		case "go":
			top, _, _ := strings.Cut(name, "/")
			targets = append(targets, target{path.Join(d.dir(where), "x_test.go"), top})
		case "js":
			targets = append(targets, target{where, ""})
		default:
			for _, f := range d.i.TestFiles {
				if strings.HasSuffix(f, ".py") && strings.HasPrefix(where+".", strings.ReplaceAll(strings.TrimSuffix(f, ".py"), "/", ".")+".") {
					targets = append(targets, target{f, ""})
				}
			}
		}
	}
	return targets
}

// dir is the folder of a Go package: what its path has beyond the module's.
func (d *deriver) dir(where string) string {
	rest := strings.SplitN(where, "/", 3)
	if len(rest) < 3 {
		return "."
	}
	dir := rest[2]
	if major, below, found := strings.Cut(dir, "/"); goMajor.MatchString(major) {
		if dir = below; !found {
			dir = "."
		}
	}
	return dir
}

// builds reports whether the historical test builds on the base, which everything that rests on it
// needs: what does not is sent back before the fix is looked at.
func (d *deriver) builds() error {
	if d.i.FailureKind == "compile" || d.i.FailureKind == "collect" {
		return no("its test does not build on the base, which is answered first")
	}
	return nil
}

func (d *deriver) make(ctx context.Context, f Fault) (*Derived, error) {
	if slices.Contains([]Fault{NoFixAtAll, WrongFix, PartialFix, Weakened, Deleted, Skipped, Faked, Regressed, Hangs, HardCoded, Inverted, XFailed, WrappedAway}, f) {
		if err := d.builds(); err != nil {
			return nil, err
		}
	}
	switch f {
	case TrueFix:
		c, err := d.i.Gold(ctx, d.r.dir)
		return &c, err
	case NoFixAtAll:
		return &Derived{How: "the historical test alone", Changes: d.tests, Tests: d.i.declared()}, nil
	case WrongFix:
		return d.wrongFix(ctx)
	case PartialFix:
		return d.partialFix(ctx)
	case Hangs:
		return d.hang(ctx)
	case HardCoded:
		return d.hardCoded(ctx)
	case Faked:
		return d.faked(ctx)
	case Regressed:
		return d.regressed(ctx)
	case Weakened, Deleted, Skipped, Inverted, XFailed, WrappedAway:
		return d.lost(ctx, f)
	case PassesAlso:
		return d.passesAlso(ctx)
	case CompileOnly, WrongReason, FlakyTest:
		return d.odd(ctx, f)
	}
	return nil, no("no way to make it is known")
}

// code are the changed source files in the instance's language, by place in d.source.
func (d *deriver) code() []int {
	var out []int
	for n, c := range d.source {
		if !c.Deleted && slices.Contains(d.i.SourceFiles, c.Path) && path.Ext(c.Path) == "."+d.i.Language {
			out = append(out, n)
		}
	}
	return out
}

// with is the list with one change's content replaced.
func with(list []git.Change, n int, text string) []git.Change {
	out := slices.Clone(list)
	out[n].Content = []byte(text)
	return out
}

// candidate is a fix with an edit.
type candidate struct {
	source []git.Change
	how    string
}

// edited makes candidates from every changed source file: edits of the lines that the fix changed,
// or of the others.
func (d *deriver) edited(ctx context.Context, changed bool, how string, edits func(language, text string, use func(int) bool) []string) ([]candidate, error) {
	var out []candidate
	for _, n := range d.code() {
		c := d.source[n]
		spans, err := d.r.spans(ctx, d.i.Base, d.i.Fix, c.Path)
		if err != nil {
			return nil, err
		}
		use := func(line int) bool {
			return changed == slices.ContainsFunc(spans, func(s span) bool { return line >= s.new && line < s.new+s.m })
		}
		for _, text := range edits(d.i.Language, string(c.Content), use) {
			out = append(out, candidate{with(d.source, n, text), how + " in " + c.Path})
		}
	}
	shuffle(d.seed, d.i.ID+how, out)
	return out, nil
}

// shuffle puts the list into an order that follows from the seed and the name.
func shuffle[T any](seed uint64, name string, list []T) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	rand.New(rand.NewPCG(seed, h.Sum64())).Shuffle(len(list), func(a, b int) { list[a], list[b] = list[b], list[a] })
}

// stillRed returns the first candidate with which a test of the instance fails, and everything
// builds.
func (d *deriver) stillRed(ctx context.Context, all []candidate) (*Derived, error) {
	for _, c := range all[:min(len(all), maxTries)] {
		o, err := d.try(ctx, slices.Concat(d.tests, c.source), d.own(), d.patience())
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(d.ids, func(id string) bool { return o.of[id] == failed }) && !o.broken && !o.timedOut {
			return &Derived{How: c.how, Changes: slices.Concat(d.tests, c.source), Tests: d.i.declared()}, nil
		}
	}
	return nil, nil
}

// patience is how long a few tests may take before they count as hanging.
func (d *deriver) patience() time.Duration { return max(time.Minute, 3*d.fixed.took) }

func (d *deriver) wrongFix(ctx context.Context) (*Derived, error) {
	all, err := d.edited(ctx, true, "the fix with one line made wrong", edit.Wrong)
	if err != nil {
		return nil, err
	}
	c, err := d.stillRed(ctx, all)
	if c != nil || err != nil {
		return c, err
	}
	files, err := d.r.readAll(ctx, d.i.Base, d.i.SourceFiles)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if !f.absent && path.Ext(f.path) == "."+d.i.Language {
			f.content = []byte(edit.Remark(d.i.Language, string(f.content)))
			return &Derived{How: "a comment in " + f.path + " for a fix", Changes: append(slices.Clone(d.tests), change(f)), Tests: d.i.declared()}, nil
		}
	}
	return nil, no("the fix changes no file of the base")
}

func (d *deriver) partialFix(ctx context.Context) (*Derived, error) {
	var all []candidate
	places := 0
	for _, n := range d.code() {
		c := d.source[n]
		was, err := d.r.read(ctx, d.i.Base, c.Path)
		if err != nil {
			return nil, err
		}
		spans, err := d.r.spans(ctx, d.i.Base, d.i.Fix, c.Path)
		if err != nil {
			return nil, err
		}
		places += len(spans)
		for _, s := range spans {
			all = append(all, candidate{with(d.source, n, string(without(was.content, c.Content, s))), fmt.Sprintf("the fix without its place at line %d of %s", s.new, c.Path)})
		}
	}
	if places < 2 {
		return nil, no("the fix is at one place")
	}
	shuffle(d.seed, d.i.ID+"places", all)
	c, err := d.stillRed(ctx, all)
	if c == nil && err == nil {
		err = no("no place can be left out so that all builds and a test fails")
	}
	return c, err
}

func (d *deriver) hang(ctx context.Context) (*Derived, error) {
	all, err := d.edited(ctx, true, "the fix with a loop that does not end", edit.Endless)
	if err != nil {
		return nil, err
	}
	for _, c := range all[:min(len(all), maxTries)] {
		o, err := d.try(ctx, slices.Concat(d.tests, c.source), d.own(), d.patience())
		if err != nil {
			return nil, err
		}
		if o.timedOut && !o.broken && !slices.ContainsFunc(d.ids, func(id string) bool { return o.of[id] == passed }) {
			return &Derived{
				How: c.how, Changes: slices.Concat(d.tests, c.source), Tests: d.i.declared(), Limit: max(2*time.Minute, 6*d.fixed.took).Round(time.Second),
			}, nil
		}
	}
	return nil, no("no loop could be put where its tests run through it")
}

func (d *deriver) faked(ctx context.Context) (*Derived, error) {
	files, err := d.r.readAll(ctx, d.i.Fix, d.i.TestFiles)
	if err != nil {
		return nil, err
	}
	if files, err = d.i.fake(ctx, d.r, files); task.ClassOf(err) == task.Invalid {
		return nil, no(strings.TrimPrefix(err.Error(), d.i.ID+": "))
	} else if err != nil {
		return nil, err
	}
	c := &Derived{How: "the historical test with a hook that reports success", Tests: d.i.declared()}
	for _, f := range files {
		c.Changes = append(c.Changes, change(f))
	}
	return c, nil
}
