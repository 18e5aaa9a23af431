package proposal

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// proofLine makes a fresh work tree at the base, adds the tests alone, expects failure, then
// takes the whole change and expects success. The work tree goes at the end, whatever came out.
// What a package manager installed in the clone is linked into it, and a runner that is not there
// is no failure of a test.
func proofLine(v task.Verdict, branch string) string {
	var runs, checks, red, green []string
	for _, r := range v.Reproduction {
		run := strings.Join(strings.FieldsFunc(r.Rerun, func(c rune) bool { return c == '\n' || c == '\r' }), " ")
		if run == "" || slices.Contains(runs, run) {
			continue
		}
		runs = append(runs, run)
		if c := runnerThere(run); c != "" && !slices.Contains(checks, c) {
			checks = append(checks, c)
		}
		red, green = append(red, fails(run, r.Base == task.Flaky)), append(green, "( "+run+" )")
	}
	if len(runs) == 0 || len(v.Tests) == 0 {
		return "git diff " + quote(v.Base) + " " + quote(branch)
	}
	steps := []string{
		"d=$(mktemp -d)", `trap 'cd "$r"; git worktree remove --force "$d" || rm -rf "$d"' EXIT`,
		`git worktree add -q --detach "$d" ` + quote(v.Base), `cd "$d"`,
		"git restore -q --source=" + quote(branch) + " --staged --worktree -- " + quoteAll(v.Tests),
	}
	if dirs := links(v); len(dirs) > 0 {
		steps = append(steps, "for m in "+quoteAll(dirs)+`; do [ ! -e "$r/$m" ] || [ -e "$m" ] || { mkdir -p "$(dirname "$m")" && ln -s "$r/$m" "$m"; }; done`)
	}
	steps = slices.Concat(steps, checks, red, []string{"git reset -q --hard", "git checkout -q --detach " + quote(branch)}, green)
	return "(r=$PWD; " + strings.Join(steps, " && ") + ")"
}

// fails wants the command to fail, and not because there is none. What does not fail each time
// may have some tries.
func fails(run string, sometimes bool) string {
	if sometimes {
		return "{ i=0; while ( " + run + " ); c=$?; [ $c = 0 ]; do [ $((i+=1)) -lt 20 ] || exit 1; done; [ $c != 126 ] && [ $c != 127 ]; }"
	}
	return "{ ( " + run + " ); case $? in 0|126|127) false;; esac; }"
}

// runners are those whose absence ends with a code that failing tests have as well.
var runners = []struct {
	in    *regexp.Regexp
	check string
}{
	{regexp.MustCompile(`\bnpx (jest|vitest|mocha)\b`), "npx --no-install $1 --version"},
	{regexp.MustCompile(`\b(python3? -m pytest)\b`), "$1 --version"},
	{regexp.MustCompile(`\b(bundle exec rspec)\b`), "$1 --version"},
}

var inDir = regexp.MustCompile(`^\((cd (?:[\w./@+-]+|'[^']*') && )`)

// runnerThere asks whether the command's runner is there; "" where its absence shows by itself.
func runnerThere(run string) string {
	for _, r := range runners {
		found := r.in.FindString(run)
		if found == "" {
			continue
		}
		cd := ""
		if m := inDir.FindStringSubmatch(run); m != nil {
			cd = m[1]
		}
		return "( " + cd + r.in.ReplaceAllString(found, r.check) + " ) >/dev/null"
	}
	return ""
}

// links are the folders of installed packages that the tests may need and the repository does not
// hold: those that package managers put beside or above them.
func links(v task.Verdict) []string {
	var names []string
	for _, r := range v.Reproduction {
		for _, l := range []struct {
			in    *regexp.Regexp
			names []string
		}{
			{regexp.MustCompile(`\b(?:npx|npm|node|yarn|pnpm|tsx?)\b`), []string{"node_modules"}},
			{regexp.MustCompile(`\bphp(?:unit)?\b`), []string{"vendor"}},
			{regexp.MustCompile(`\b(?:bundle|rspec|ruby)\b`), []string{".bundle", "vendor/bundle"}},
		} {
			if l.in.MatchString(r.Rerun) {
				names = append(names, l.names...)
			}
		}
	}
	slices.Sort(names)
	var out []string
	for _, n := range slices.Compact(names) {
		for _, t := range v.Tests {
			for dir := path.Dir(t); ; dir = path.Dir(dir) {
				if p := path.Join(dir, n); !strings.HasPrefix(p, "..") && !slices.Contains(out, p) && (n != "vendor/bundle" || dir == ".") {
					out = append(out, p)
				}
				if dir == "." || dir == "/" {
					break
				}
			}
		}
	}
	slices.Sort(out)
	return out[:min(len(out), maxLinks)]
}

// maxLinks bounds the line.
const maxLinks = 12

func quoteAll(list []string) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = quote(s)
	}
	return strings.Join(out, " ")
}

func quote(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+=:,@%") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
