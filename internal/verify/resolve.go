package verify

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// resolved is one declared test and the stable ids it stands for.
type resolved struct {
	declared string
	ids      []string // sorted; several for a parametrised test or a whole file
	near     []string // the most similar ids where there is none
}

// resolve finds the stable ids that a loosely given test means. Exact ids win; then the ids
// whose words end with the declared ones ("TestX", "pkg.TestX", "tests/test_a.py::test_b",
// "describe name"); then, for a test with parameters or subtests, all of its instances. Several
// different tests for one name is not a guess to make: all of them are taken.
func resolve(declared string, cases map[string]Case) resolved {
	r := resolved{declared: declared}
	if _, ok := cases[declared]; ok {
		r.ids = []string{declared}
		return r
	}
	want := idWords(declared)
	if len(want) == 0 {
		return r
	}
	ids := sortedKeys(cases)
	for _, id := range ids {
		if endsWith(idWords(id), want) {
			r.ids = append(r.ids, id)
		}
	}
	if len(r.ids) == 0 {
		for _, id := range ids {
			if slices.Equal(instanceWords(id, cases[id]), want) || endsWith(instanceWords(id, cases[id]), want) || endsWith(placeWords(cases[id].Place), want) || endsWith(groupWords(cases[id].Place), want) {
				r.ids = append(r.ids, id)
			}
		}
	}
	if len(r.ids) == 0 {
		for _, id := range ids {
			if f := cases[id].Place.File; f != "" && f == path.Clean(strings.TrimPrefix(declared, "./")) {
				r.ids = append(r.ids, id)
			}
		}
	}
	if len(r.ids) == 0 {
		r.near = nearest(want, ids)
	}
	return r
}

var (
	wordSplit = regexp.MustCompile(`[^\p{L}\p{N}_$+\-]+`)
	goRunFlag = regexp.MustCompile(`-(?:run|k|t)[= ]+['"]?\^?\(?([^'")$]+)\)?\$?['"]?(?:\s+(\S+))?`)
	fileEnd   = regexp.MustCompile(`\.(py|js|mjs|cjs|ts|tsx|jsx|go|rb|php|java|rs)\b`)
)

// idWords splits an id at everything that runners disagree about. A whole command line given
// for an id is read for its test filter.
func idWords(id string) []string {
	if m := goRunFlag.FindStringSubmatch(id); m != nil && strings.Contains(id, " test ") {
		id = m[2] + " " + m[1]
	}
	id = strings.TrimPrefix(id, "python3 -m pytest ")
	id = strings.TrimPrefix(id, "pytest ")
	id = fileEnd.ReplaceAllString(id, "")
	out := slices.DeleteFunc(wordSplit.Split(id, -1), func(w string) bool { return w == "" || w == "-" })
	if n := len(out); n > 2 && out[n-1] == out[n-2] {
		out = out[:n-1] // "pkg.Class.test_x::test_x", as some reports say it
	}
	return out
}

// instanceWords is the id without its parameters or subtest.
func instanceWords(id string, c Case) []string {
	if c.Place.Param == "" {
		return nil
	}
	return idWords(strings.TrimRight(strings.Replace(id, c.Place.Param, "", 1), "[]/ "))
}

// placeWords is file and name, for ids that hold a class but not the file.
func placeWords(p Place) []string { return idWords(path.Clean(p.File) + " " + p.Name) }

// groupWords is package, class or program and name, for ids that hold a path between them.
func groupWords(p Place) []string {
	group, _, _ := strings.Cut(p.Group, " (")
	return idWords(group + " " + p.Name)
}

func endsWith(have, want []string) bool {
	return len(want) > 0 && len(have) >= len(want) && slices.Equal(have[len(have)-len(want):], want)
}

// nearest lists up to five ids that share most of the rarer words with the declared one.
func nearest(want []string, ids []string) []string {
	type scored struct {
		id    string
		score int
	}
	last := strings.ToLower(want[len(want)-1])
	var all []scored
	for _, id := range ids {
		s := 0
		low := strings.ToLower(id)
		for _, w := range want {
			if len(w) > 2 && strings.Contains(low, strings.ToLower(w)) {
				s += 2
			}
		}
		s += commonPrefix(strings.ToLower(path.Base(strings.ReplaceAll(id, "::", "/"))), last) / 4
		if s > 0 {
			all = append(all, scored{id, s})
		}
	}
	slices.SortStableFunc(all, func(a, b scored) int { return b.score - a.score })
	var out []string
	for _, s := range all[:min(5, len(all))] {
		out = append(out, s.id)
	}
	return out
}

func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

var goTestName = regexp.MustCompile(`\b((?:Test|Fuzz|Example)(?:[^a-z\s/'"$)|][\w]*)?)(?:$|[\s/'"$)|])`)

// scope is where to look for the declared tests before their stable ids are known: the places
// of known tests with such a name, and the packages or files of the change's tests. nil means
// the whole suite.
func scope(plan Plan, declared []string, p parts, base Baseline) []Place {
	known := map[string]Case{}
	for id, pl := range base.Where {
		known[id] = Case{ID: id, Place: pl}
	}
	var out []Place
	names := goNames(declared)
	add := func(pl Place) {
		if !slices.Contains(out, pl) {
			out = append(out, pl)
		}
	}
	for _, d := range declared {
		for _, id := range resolve(d, known).ids {
			pl := base.Where[id]
			pl.Param = ""
			add(pl)
		}
	}
	for _, c := range p.tests {
		if c.Deleted {
			continue
		}
		i := owningSuite(plan, c.Path)
		if i < 0 {
			continue
		}
		s := plan.Suites[i]
		switch s.Kind {
		case KindGo:
			if !strings.HasSuffix(c.Path, "_test.go") {
				continue
			}
			if len(declared) == 0 || len(names) < len(declared) {
				add(Place{Suite: i, File: c.Path})
				continue
			}
			for _, n := range names {
				add(Place{Suite: i, File: c.Path, Name: n})
			}
		case KindPytest, KindUnittest:
			if pyTestFile.MatchString(c.Path) {
				add(Place{Suite: i, File: c.Path})
			}
		case KindCustom:
			if s.TestOne == "" {
				return nil
			}
			for _, d := range declared {
				add(Place{Suite: i, File: c.Path, Name: d})
			}
		case KindCargo, KindMaven, KindGradle, KindCTest, KindDotnet, KindRSpec, KindPHPUnit, KindBazel:
			if pl, ok := s.nativeScope(i, c.Path); ok {
				add(pl)
			}
		default:
			if (len(s.Globs) == 0 && jsTestFile.MatchString(c.Path)) || (len(s.Globs) > 0 && len(s.match([]string{c.Path})) > 0) {
				add(Place{Suite: i, File: c.Path})
			}
		}
	}
	return out
}

var jsTestFile = regexp.MustCompile(`\.[cm]?[jt]sx?$`)

func goNames(declared []string) []string {
	var out []string
	for _, d := range declared {
		if m := goTestName.FindAllStringSubmatch(d, -1); len(m) > 0 {
			out = append(out, m[0][1])
		}
	}
	return out
}

// owningSuite is the suite that a test file belongs to, or -1.
func owningSuite(plan Plan, file string) int {
	best := -1
	for i, s := range plan.Suites {
		if s.Dir != "." && !strings.HasPrefix(file, s.Dir+"/") {
			continue
		}
		fits := false
		switch s.Kind {
		case KindGo:
			fits = strings.HasSuffix(file, ".go")
		case KindPytest, KindUnittest:
			fits = strings.HasSuffix(file, ".py")
		case KindCustom, KindBazel:
			fits = true
		case KindCargo, KindMaven, KindGradle, KindCTest, KindDotnet, KindRSpec, KindPHPUnit:
			fits = slices.Contains(s.Kind.nativeExts(), path.Ext(file))
		default:
			fits = jsTestFile.MatchString(file)
		}
		if fits && (best < 0 || len(s.Dir) > len(plan.Suites[best].Dir) || plan.Suites[best].Dir == ".") {
			best = i
		}
	}
	return best
}

// hadTrouble reports whether the run could not build, import or collect what the declared test
// is in, and quotes it.
func hadTrouble(r ran, declared string, p parts) (string, bool) {
	if len(r.buildFailed) == 0 {
		return "", false
	}
	for _, f := range r.buildFailed {
		for _, c := range p.tests {
			if f == c.Path || cargoGroup.MatchString(f) && path.Ext(c.Path) == ".rs" || strings.HasSuffix(f, path.Dir(c.Path)) || path.Dir(c.Path) == "." ||
				strings.HasSuffix(strings.ReplaceAll(f, ".", "/"), strings.TrimSuffix(c.Path, path.Ext(c.Path))) {
				return f, true
			}
		}
		if strings.Contains(declared, f) {
			return f, true
		}
	}
	return r.buildFailed[0], r.count(task.Pass, task.Fail) == 0
}
