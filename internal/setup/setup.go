// Package setup decides how a repository's dependencies are prepared: which commands run, where,
// in which order and why, from the base commit's manifests and lockfiles alone.
//
// Invariants: it is pure, it runs and opens nothing; what it reads comes from a stranger's
// repository, so every size, depth and count has a cap; a name from the repository reaches a
// command line only as one quoted word; two equal sets of inputs give the same plan and key.
package setup

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// Version is part of every key: plans of another version of detection are not comparable.
const Version = "daybreak-setup/1"

// Step is one command of a setup.
type Step struct {
	Name     string   `json:"name"`               // "npm", "go modules", …; for people
	Run      string   `json:"run"`                // command line of the sandbox's shell
	Short    string   `json:"short,omitempty"`    // for people, where Run has preparations of ours around it
	Dir      string   `json:"dir"`                // below the work tree; "." is its root
	Root     bool     `json:"root,omitempty"`     // runs as root of the sandbox, before all others
	Optional bool     `json:"optional,omitempty"` // its failure is a warning
	Why      string   `json:"why"`                // what made detection choose it
	Env      []string `json:"env,omitempty"`      // KEY=VALUE, for this command
	Needs    string   `json:"needs,omitempty"`    // program that must be installed
	Files    []string `json:"files,omitempty"`    // sorted; the result depends on these alone, or
	Whole    bool     `json:"whole,omitempty"`    // on every file, as the repository's own code runs

	part string // ecosystem, for [Plan.Settle]
}

// Line is the command as people want to see it.
func (s Step) Line() string {
	if s.Short != "" {
		return s.Short
	}
	return s.Run
}

// Plan is the whole setup. No step means that there is nothing to prepare.
type Plan struct {
	Steps []Step
	// Env is KEY=VALUE for every sandbox that starts from the result.
	Env []string
	// Path are directories that come first on PATH there.
	Path []string
	// Notes say what was seen and not done, one line each.
	Notes []string

	others []string // ecosystems at the top that need no step
}

// Tree is what detection may look at: the base commit.
type Tree struct {
	Files []string                 // regular files, sorted, slash-separated
	Read  func(path string) []byte // at most [MaxFile] bytes; nil when it is missing or larger
}

// Caps on what a repository can ask of detection.
const (
	MaxFile  = 1 << 20 // bytes of a manifest
	maxDepth = 4       // directories above a manifest
	maxSteps = 40      // of one plan
	maxNotes = 40
)

// Named is the plan of a repository that names its own steps. Root steps come first.
func Named(steps []Step) Plan {
	var p Plan
	for _, root := range []bool{true, false} {
		for _, s := range steps {
			if s.Root != root {
				continue
			}
			s.Name, s.Dir, s.Why = "setup", orDot(s.Dir), "named in .daybreak.yaml"
			s.Files = slices.Clone(s.Files)
			slices.Sort(s.Files)
			s.Whole = len(s.Files) == 0
			p.Steps = append(p.Steps, s)
		}
	}
	return p
}

func orDot(s string) string {
	if s == "" {
		return "."
	}
	return path.Clean(s)
}

// Key names what the plan's result depends on: its commands, the contents (ids) of the files it
// reads, and of the whole tree where a step runs the repository's own code. tree is the id of
// the base's tree. A pattern of a named step stands for every path it matches.
func (p Plan) Key(ids map[string]string, tree string) string {
	h := sha256.New()
	field := func(list ...string) {
		for _, s := range list {
			fmt.Fprintf(h, "%d:%s", len(s), s)
		}
		fmt.Fprint(h, ";")
	}
	field(Version)
	field(p.Env...)
	field(p.Path...)
	paths := make([]string, 0, len(ids))
	for f := range ids {
		paths = append(paths, f)
	}
	slices.Sort(paths)
	for _, s := range p.Steps {
		field(s.Run, s.Dir, fmt.Sprint(s.Root, s.Optional))
		field(s.Env...)
		if s.Whole {
			field(tree)
			continue
		}
		for _, f := range paths {
			if slices.Contains(s.Files, f) || slices.ContainsFunc(s.Files, func(g string) bool { return matches(g, f) }) {
				field(f, ids[f])
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// matches supports * and ? inside a name, and a trailing /** for all below a directory.
func matches(pattern, p string) bool {
	if dir, ok := strings.CutSuffix(pattern, "/**"); ok {
		return strings.HasPrefix(p, dir+"/")
	}
	ok, err := path.Match(pattern, p)
	return err == nil && ok
}

// Programs lists what the steps need, sorted.
func (p Plan) Programs() []string {
	var out []string
	for _, s := range p.Steps {
		if s.Needs != "" {
			out = append(out, s.Needs)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Settle takes out the steps whose program is not installed, with a note for each. When that
// leaves nothing of what the repository is mainly made of, it fails with class
// [task.Unavailable] and names the program.
func (p Plan) Settle(installed func(program string) bool) (Plan, error) {
	out := p
	out.Steps, out.Notes = nil, slices.Clone(p.Notes)
	var missing []Step
	for _, s := range p.Steps {
		if s.Needs == "" || installed(s.Needs) {
			out.Steps = append(out.Steps, s)
			continue
		}
		missing = append(missing, s)
		out.Notes = append(out.Notes, plainLine(fmt.Sprintf("%s is not installed on this host: `%s` was left out (%s)", s.Needs, s.Line(), s.Why)))
	}
	for _, s := range missing {
		depth := deep(s.Dir)
		rest := len(p.others) > 0 || slices.ContainsFunc(out.Steps, func(o Step) bool {
			return deep(o.Dir) < depth || deep(o.Dir) == depth && o.part != s.part
		})
		if !rest && !s.Optional {
			return out, &task.Error{
				Class: task.Unavailable, Msg: fmt.Sprintf("%s is not installed on this host, and %s", s.Needs, s.Why),
				Fix: "install it, or name the commands under setup in .daybreak.yaml",
			}
		}
	}
	return out, nil
}

func deep(dir string) int {
	if dir == "." {
		return 0
	}
	return strings.Count(dir, "/") + 1
}

// quote makes s one word of the shell, whatever bytes it holds.
func quote(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=@%+,-") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(strings.ReplaceAll(s, "\x00", ""), "'", `'\''`) + "'"
}
