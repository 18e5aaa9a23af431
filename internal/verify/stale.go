package verify

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// trust is how much of what was built of the base may be taken for what the change would build.
// Build tools compare times and know only of the files that were read before: a file that comes
// first on a search path, one that a macro reads, or a link to an old file is none they look for.
type trust int

// From the most to the least.
const (
	trustAll     trust = iota // the tool sees every changed file by itself
	trustForeign              // cargo: what is not of the tree; its own sources are all taken for changed
	trustNone                 // the build starts from nothing
)

// trusted says how far the suite's build tool sees through the changes.
func (s Suite) trusted(changes []git.Change, p *parts) trust {
	files := p.files
	least := p.builders[s.Kind]
	for _, c := range changes {
		if strings.HasSuffix(c.Path, ".md") && c.Mode != git.ModeLink && (s.Kind == KindCTest || !strings.Contains(c.Path, "/")) {
			continue // a macro of cargo's world may take in a directory of them
		}
		_, old := slices.BinarySearch(files, c.Path)
		switch s.Kind {
		case KindCargo:
			least = max(least, cargoTrust(c, old, files))
		case KindCTest:
			least = max(least, cTrust(c, old, files))
		}
	}
	return least
}

var (
	cmakeSteps = regexp.MustCompile(`(?i)\badd_custom_command\s*\(|\badd_custom_target\s*\(\s*\S+\s+ALL\b|\b(ExternalProject|FetchContent)\w*\s*\(`)
	procMacro  = regexp.MustCompile(`["']proc-macro["']|\bproc[-_]macro\s*=\s*true|\bbuild["']?\s*=`)
)

// builders says of the base's own steps of a build, which read what they like, how far the build
// can be trusted at the most.
func builders(fsys fs.FS, files []string) map[Kind]trust {
	out := map[Kind]trust{}
	for _, f := range files {
		base := path.Base(f)
		switch {
		case base == "CMakeLists.txt" || strings.HasSuffix(base, ".cmake"):
			if cmakeSteps.MatchString(readSome(fsys, f)) {
				out[KindCTest] = trustNone
			}
		case base == "build.rs", base == "Cargo.toml" && procMacro.MatchString(readSome(fsys, f)):
			out[KindCargo] = trustForeign
		}
	}
	return out
}

func cargoTrust(c git.Change, old bool, files []string) trust {
	for dir := path.Dir(c.Path); dir != "."; dir = path.Dir(dir) {
		if _, vendored := slices.BinarySearch(files, dir+"/.cargo-checksum.json"); vendored {
			return trustNone // cargo takes it for what it was as long as its version is
		}
	}
	switch {
	case c.Mode == git.ModeLink: // what it leads to, or what lies below that, may be old
		return trustNone
	case !old && c.Deleted: // what was a link
		return trustForeign
	case path.Ext(c.Path) == ".rs" && old && !c.Deleted:
		return trustAll
	case path.Ext(c.Path) == ".rs" && !c.Deleted && path.Base(path.Dir(c.Path)) == "tests":
		if _, crate := slices.BinarySearch(files, path.Join(path.Dir(c.Path), "../Cargo.toml")); crate {
			return trustAll // a program of its own, which cargo looks for each time
		}
	}
	return trustForeign
}

func cTrust(c git.Change, old bool, files []string) trust {
	ext := path.Ext(c.Path)
	unit := slices.Contains([]string{".c", ".cc", ".cpp", ".cxx", ".m"}, ext)
	header := slices.Contains([]string{".h", ".hh", ".hpp", ".hxx", ".inl"}, ext)
	switch {
	case c.Mode == git.ModeLink:
		return trustNone
	case old && !c.Deleted && (unit || header), old && c.Deleted && unit:
		return trustAll
	case !old && !c.Deleted && unit && !slices.ContainsFunc(files, func(f string) bool { return path.Base(f) == path.Base(c.Path) }):
		return trustAll
	}
	return trustNone // a build file, a header that comes or goes, data that a step of the build may read
}

var cParts = regexp.MustCompile(`(?i)\.(c|cc|cpp|cxx|m|mm|h|hh|hpp|hxx|inl|inc|def|s|a|o|so)$`)

// cgoMark is a preprocessor's word that only trees with the C of the changes have; "" for none.
// Go's build cache takes a package with C in it for what it was, whatever it includes or links from
// other directories; it does look at the options.
func cgoMark(base string, changes []git.Change) string {
	var of []git.Change
	for _, c := range changes {
		if c.Mode == git.ModeLink || cParts.MatchString(c.Path) {
			of = append(of, c)
		}
	}
	if len(of) == 0 {
		return ""
	}
	return "DAYBREAK_" + strings.TrimPrefix(treeDigest(base, of), "sha256:")[:16]
}

// buildDir is where the suite's build is kept, as a word of the shell; "" where it is none of ours.
func (s Suite) buildDir(i int) string {
	switch s.Kind {
	case KindCargo:
		return buildHome + fmt.Sprintf(`/cargo-%d"`, i)
	case KindCTest:
		return buildHome + fmt.Sprintf(`/cmake-%d"`, i)
	}
	return ""
}

// age gives the placed files the time of their placing, and takes away what was built before where
// the build tool would not see that it is old. at is that time.
func (v *Verifier) age(ctx context.Context, g *guest.Client, q request) (at time.Time, err error) {
	if at = q.built; at.IsZero() {
		at = v.Now()
	}
	if q.parts == nil || len(q.place) == 0 || !slices.ContainsFunc(q.plan.Suites, func(s Suite) bool { return s.buildDir(0) != "" }) {
		return at, nil
	}
	var placed []byte
	for _, c := range q.place {
		if !c.Deleted {
			placed = append(placed, c.Path+"\x00"...)
		}
	}
	stamp := fmt.Sprintf("@%d.%09d", at.Unix(), at.Nanosecond())
	script := []string{"set -e", "sed -z 's|^|./|' | xargs -0r touch -h -d " + stamp + " --"}
	for i, s := range q.plan.Suites {
		dir := s.buildDir(i)
		if dir == "" {
			continue
		}
		t := s.trusted(q.place, q.parts)
		switch {
		case !q.built.IsZero():
		case t == trustNone:
			script = append(script, "rm -rf "+dir)
		default: // a clock that was put back would make old programs look new
			script = append(script, `if [ -n "$(find `+dir+` -newermt `+stamp+` -print -quit 2>/dev/null)" ]; then rm -rf `+dir+`; fi`)
			if s.Kind == KindCTest { // it remembers what it asked the compiler about the base
				script = append(script, "rm -f "+dir+"/CMakeCache.txt")
			}
		}
		if t == trustForeign { // of the whole tree: crates beside the suite may be part of it
			script = append(script, "find . -name '*.rs' -type f -exec touch -d "+stamp+" {} +")
		}
	}
	res, err := g.Exec(ctx, guest.ExecRequest{Argv: []string{"bash", "-c", strings.Join(script, "\n")}, Env: v.Env, Stdin: placed, Timeout: 5 * time.Minute, Head: maxCaseOutput})
	if err != nil {
		return at, fmt.Errorf("set the times of placed files: %w", err)
	}
	if res.ExitCode != 0 || res.TimedOut {
		return at, &task.Error{Class: task.Internal, Msg: "the times of the placed files cannot be set: " + oneLine(output(res), 300)}
	}
	return at, nil
}
