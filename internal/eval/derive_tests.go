package eval

import (
	"context"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/eval/edit"
	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/task"
)

var goMajor = regexp.MustCompile(`^v\d+$`)

// oldTest is a test of the base that the instance leaves as it is and that passes throughout.
type oldTest struct {
	file git.Change // with the historical test in it, where that is its file
	test edit.Test
	ids  []string // its results
}

// testFiles are the files in which old tests are looked for: those of the instance, or where they
// hold data alone, those beside them.
func (d *deriver) testFiles(ctx context.Context) ([]git.Change, error) {
	ext := "." + d.i.Language
	var out []git.Change
	for _, c := range d.tests {
		if !c.Deleted && path.Ext(c.Path) == ext && len(edit.Tests(d.i.Language, string(c.Content))) > 0 {
			out = append(out, c)
		}
	}
	if len(out) > 0 || d.i.Language != "go" {
		return out, nil
	}
	where, _, _ := strings.Cut(d.ids[0], "::")
	names, err := d.r.list(ctx, d.i.Base, d.dir(where))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			f, err := d.r.read(ctx, d.i.Base, name)
			if err != nil {
				return nil, err
			}
			out = append(out, change(f))
		}
	}
	return out, nil
}

// oldTests lists the old tests, in an order that the seed decides.
func (d *deriver) oldTests(ctx context.Context) ([]oldTest, error) {
	files, err := d.testFiles(ctx)
	if err != nil {
		return nil, err
	}
	var out []oldTest
	for _, c := range files {
		was, err := d.r.read(ctx, d.i.Base, c.Path)
		if err != nil {
			return nil, err
		}
		for _, t := range edit.Tests(d.i.Language, string(c.Content)) {
			if !strings.Contains(string(was.content), t.Text(string(c.Content))) {
				continue
			}
			o := oldTest{file: c, test: t}
			for id, state := range d.base.of {
				if state == passed && d.fixed.of[id] == passed && !slices.Contains(d.ids, id) && d.defines(c.Path, t, id) {
					o.ids = append(o.ids, id)
				}
			}
			if slices.Sort(o.ids); len(o.ids) > 0 && !d.holdsNew(string(c.Content), t) {
				out = append(out, o)
			}
		}
	}
	shuffle(d.seed, d.i.ID+"old", out)
	return out, nil
}

// holdsNew reports whether one of the instance's own tests is inside.
func (d *deriver) holdsNew(text string, t edit.Test) bool {
	return slices.ContainsFunc(d.ids, func(id string) bool {
		_, name, _ := strings.Cut(id, "::")
		return d.i.Language != "c" && strings.Contains(t.Text(text), name)
	})
}

// defines reports whether the test in the file is what the id names.
func (d *deriver) defines(file string, t edit.Test, id string) bool {
	where, name, _ := strings.Cut(id, "::")
	switch d.i.Language {
	case "go":
		top, _, _ := strings.Cut(name, "/")
		return top == t.Name && d.dir(where) == path.Dir(file)
	case "py":
		name, _, _ = strings.Cut(name, "[")
		module := strings.ReplaceAll(strings.TrimSuffix(file, ".py"), "/", ".")
		return name == t.Name && strings.HasPrefix(where+".", module+".") && (t.Param == "self") == (where != module)
	case "js":
		return where == file && name == t.Name
	}
	return strings.TrimSuffix(path.Base(file), ".c") == where
}

// replace is the historical test with one file's text changed.
func (d *deriver) replace(c git.Change, text string) []git.Change {
	c.Content = []byte(text)
	out := slices.DeleteFunc(slices.Clone(d.tests), func(have git.Change) bool { return have.Path == c.Path })
	return append(out, c)
}

// breakage is the fix with an edit that old tests notice.
type breakage struct {
	candidate
	fails []string
}

// findBreak looks for an edit of the changed files, beside the fix, with which the instance's own
// tests pass and old ones fail, twice.
func (d *deriver) findBreak(ctx context.Context) (*breakage, error) {
	if d.sought {
		return d.broken, nil
	}
	d.sought = true
	all, err := d.edited(ctx, false, "the fix, and something else made wrong", edit.Wrong)
	if err != nil {
		return nil, err
	}
	for _, c := range all[:min(len(all), maxBreaks)] {
		changes := slices.Concat(d.tests, c.source)
		var fails []string
		for range 2 {
			o, err := d.try(ctx, changes, d.near, d.patience())
			if err != nil {
				return nil, err
			}
			fails = slices.DeleteFunc(d.fixed.worse(o), func(id string) bool { return d.base.of[id] != passed || o.of[id] != failed })
			if o.broken || o.timedOut || len(fails) == 0 || !o.all(d.ids, passed) {
				fails = nil
				break
			}
		}
		if len(fails) > 0 {
			d.broken = &breakage{c, fails}
			return d.broken, nil
		}
	}
	return nil, nil
}

func (d *deriver) regressed(ctx context.Context) (*Derived, error) {
	b, err := d.findBreak(ctx)
	if err != nil {
		return nil, err
	}
	if b == nil {
		return nil, no("no edit was found that an old test notices and the new one does not")
	}
	return &Derived{How: b.how + "; fails " + b.fails[0], Changes: slices.Concat(d.tests, b.source), Tests: d.i.declared()}, nil
}

// lost weakens, deletes or skips an old test: the one that notices a break, where there is exactly
// one such, or any.
func (d *deriver) lost(ctx context.Context, f Fault) (*Derived, error) {
	old, err := d.oldTests(ctx)
	if err != nil {
		return nil, err
	}
	if len(old) == 0 {
		return nil, no("no old test whose form is known is in its files")
	}
	b, err := d.findBreak(ctx)
	if err != nil {
		return nil, err
	}
	tries := 0
	for _, hide := range hides(f) {
		source, how := d.source, "the fix, and "
		if hide {
			if b == nil {
				continue
			}
			source, how = b.source, b.how+", and "
		}
		for _, o := range old {
			if hide && slices.ContainsFunc(b.fails, func(id string) bool { return !slices.Contains(o.ids, id) }) {
				continue
			}
			for _, text := range d.losing(f, o) {
				if tries++; tries > maxTries {
					return nil, no("no edit of an old test left everything else as it was")
				}
				changes := slices.Concat(d.replace(o.file, text), source)
				good, err := d.loses(ctx, f, o, changes, d.near)
				if good && hide { // nobody else notices the break either
					good, err = d.loses(ctx, f, o, changes, d.i.suiteCommand())
				}
				if err != nil {
					return nil, err
				}
				if good {
					return d.losingCase(f, how, o, changes, hide), nil
				}
			}
		}
	}
	return nil, no("no edit of an old test left everything else as it was")
}

// hides are the ways in which an old test may be lost: beside something made wrong that it alone
// notices, or beside nothing. A test that passes all the same must hide something to be a case.
func hides(f Fault) []bool {
	switch f {
	case Inverted, WrappedAway:
		return []bool{true}
	case XFailed:
		return []bool{false}
	}
	return []bool{true, false}
}

func (d *deriver) losingCase(f Fault, how string, o oldTest, changes []git.Change, hide bool) *Derived {
	c := &Derived{How: how + map[Fault]string{
		Weakened: "an assertion loosened in ", Deleted: "deleted ", Skipped: "skipped ",
		Inverted: "turned round ", XFailed: "not held to pass any longer: ", WrappedAway: "not listened to any longer: ",
	}[f] + o.test.Name, Changes: changes, Tests: d.i.declared(), Wanted: f.Wanted()}
	if f == Deleted || d.i.Language == "c" && f == Skipped {
		// One of the new tests may be what became of it; and a program of tests in C has one result.
		c.Wanted = append(c.Wanted, task.NeedsHuman)
	}
	if f == Weakened { // it may have been the only assertion
		c.Wanted = append(c.Wanted, task.TestLost)
	}
	if hide { // the test that was lost fails, as the base has it
		c.Wanted = append(c.Wanted, task.Regression)
	}
	return c
}

// losing are the texts of the file with which the test is no longer what it was.
func (d *deriver) losing(f Fault, o oldTest) []string {
	text := string(o.file.Content)
	if f == Deleted {
		return []string{edit.Delete(d.i.Language, text, o.test)}
	}
	edits := map[Fault]func(language, text string, t edit.Test) string{Skipped: edit.Skip, Inverted: edit.Invert, XFailed: edit.MayFail, WrappedAway: edit.Unheard}
	if change := edits[f]; change != nil {
		if text = change(d.i.Language, text, o.test); text != "" {
			return []string{text}
		}
		return nil
	}
	all := edit.Loosen(d.i.Language, text, o.test)
	return all[:min(len(all), 3)]
}

// loses reports whether, with the change, the test is gone, skipped or passing, as the fault says, and all
// others are as with the fix.
func (d *deriver) loses(ctx context.Context, f Fault, o oldTest, changes []git.Change, shell string) (bool, error) {
	got, err := d.try(ctx, changes, shell, tryLimit)
	if err != nil || got.broken || got.timedOut || !got.all(d.ids, passed) {
		return false, err
	}
	for id, state := range got.of { // a test elsewhere that fails is not known to have passed
		if _, known := d.fixed.of[id]; !known && state == failed && !slices.Contains(d.i.FlakySeen, id) {
			return false, nil
		}
	}
	for _, id := range d.fixed.worse(got) {
		if d.base.of[id] == passed && !slices.Contains(o.ids, id) && !slices.Contains(d.i.FlakySeen, id) {
			return false, nil
		}
	}
	states := map[Fault]string{Deleted: "", Skipped: skipped}
	want, ok := states[f]
	if !ok || d.i.Language == "c" {
		want = passed
	}
	return got.all(o.ids, want), nil
}

// passesAlso is the fix with a copy of an old test for a reproduction.
func (d *deriver) passesAlso(ctx context.Context) (*Derived, error) {
	old, err := d.oldTests(ctx)
	if err != nil {
		return nil, err
	}
	for _, o := range old[:min(len(old), maxTries)] {
		was, err := d.r.read(ctx, d.i.Base, o.file.Path)
		if err != nil {
			return nil, err
		}
		name := o.test.Name + map[string]string{"go": "Again", "py": "_again", "js": " again", "c": "_again"}[d.i.Language]
		text := string(was.content)
		at := strings.Index(text, o.test.Text(string(o.file.Content)))
		for _, t := range edit.Tests(d.i.Language, text) {
			if t.Start != at {
				continue
			}
			c := change(was)
			c.Content = []byte(edit.Copy(d.i.Language, text, t, name))
			got, err := d.try(ctx, []git.Change{c}, d.i.command([]target{{c.Path, name}}), d.patience())
			if err != nil {
				return nil, err
			}
			for id, state := range got.of {
				if _, n, _ := strings.Cut(id, "::"); state == passed && (n == name || d.i.Language == "c" && d.defines(c.Path, t, id)) {
					return &Derived{How: "the fix with " + o.test.Name + " once more for a test", Changes: append([]git.Change{c}, d.source...), Tests: []string{d.named(n, name)}}, nil
				}
			}
		}
	}
	return nil, no("no old test could be copied so that it passes")
}

// named is how the copy's author would call it.
func (d *deriver) named(id, name string) string {
	if d.i.Language == "c" {
		return id
	}
	return name
}
