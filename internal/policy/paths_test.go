package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const file = 0o100644

func TestRefusedPaths_EXP06_EXP11(t *testing.T) {
	long := strings.Repeat("x", 256)
	for _, c := range []struct {
		change PathChange
		says   string
	}{
		{PathChange{Path: ""}, "empty"},
		{PathChange{Path: ".."}, ".."},
		{PathChange{Path: "a/../b"}, ".."},
		{PathChange{Path: "./a"}, ". or .."},
		{PathChange{Path: "a//b"}, "empty component"},
		{PathChange{Path: "a/"}, "empty component"},
		{PathChange{Path: "/etc/passwd"}, "absolute"},
		{PathChange{Path: ".git"}, "git's own"},
		{PathChange{Path: ".git/hooks/post-commit"}, "git's own"},
		{PathChange{Path: "sub/.GIT/config"}, "git's own"},
		{PathChange{Path: "git~1/config"}, "git's own"},
		{PathChange{Path: "GIT~12"}, "git's own"},
		{PathChange{Path: ".g\u200cit/config"}, "git's own"},
		{PathChange{Path: "\ufeff.git"}, "git's own"},
		{PathChange{Path: ".gi\u202et"}, "git's own"},
		{PathChange{Path: ".git./x"}, "git's own"},
		{PathChange{Path: ".git /x"}, "git's own"},
		{PathChange{Path: ".git. . /x"}, "git's own"},
		{PathChange{Path: ".git::$INDEX_ALLOCATION/x"}, "git's own"},
		{PathChange{Path: ".git:stream"}, "git's own"},
		{PathChange{Path: "a."}, "dot or a space"},
		{PathChange{Path: "a /b"}, "dot or a space"},
		{PathChange{Path: "a.txt:stream"}, "colon"},
		{PathChange{Path: "C:/x"}, "drive"},
		{PathChange{Path: "c:x"}, "drive"},
		{PathChange{Path: `a\b`}, "backslash"},
		{PathChange{Path: "a\nb"}, "control"},
		{PathChange{Path: "a\x00b"}, "control"},
		{PathChange{Path: "a\x7f"}, "control"},
		{PathChange{Path: "a\u0085"}, "control"},
		{PathChange{Path: "a\xff"}, "UTF-8"},
		{PathChange{Path: long}, "255"},
		{PathChange{Path: strings.Repeat("dir/", 1100) + "x"}, "4096"},
		{PathChange{Path: "vendor/lib", Mode: 0o160000}, "submodule"},
		{PathChange{Path: ".gitmodules"}, "submodules"},
		{PathChange{Path: ".GitModules"}, "submodules"},
		{PathChange{Path: "GITMOD~1"}, "submodules"},
		{PathChange{Path: ".gitmodules", Deleted: true}, "submodules"},
		{PathChange{Path: ".git\u200bmodules\r"}, "control"},
	} {
		t.Run(fmt.Sprintf("%.40q", c.change.Path), func(t *testing.T) {
			if c.change.Mode == 0 {
				c.change.Mode = file
			}
			d := review([]PathChange{c.change}, nil)
			if len(d.Refused) != 1 || len(d.Allowed)+len(d.Held) != 0 {
				t.Fatalf("decision %+v", d)
			}
			f, blocked := d.Blocked()
			if !blocked || !strings.Contains(f.Detail, c.says) {
				t.Errorf("finding %+v does not say %q", f, c.says)
			}
			if strings.ContainsAny(f.Path+f.Detail, "\n\r\x00\u200c\u202e") {
				t.Errorf("finding shows raw characters: %+v", f)
			}
		})
	}
}

func TestAllowedPaths(t *testing.T) {
	for _, p := range []string{
		"a", "src/main.go", "git", "gitx/config", ".gitignore", ".gitkeep", "docs/größe.md", "日本語/読.txt", "a b/c-d_e+f.txt",
		"digit~1", "...", "x/github/workflows.go", "ownership.go", "environment.go", strings.Repeat("y", 255),
	} {
		if p == "..." {
			continue // ends with a dot
		}
		if d := review([]PathChange{{Path: p, Mode: file}}, nil); len(d.Allowed) != 1 {
			t.Errorf("%q: %+v", p, d)
		}
	}
	// A name that the base has already may be changed and deleted.
	r := Rules{Existing: []string{"testdata/a:b", "odd."}}
	if d := r.Review([]PathChange{{Path: "testdata/a:b", Mode: file}, {Path: "odd.", Deleted: true}}); len(d.Allowed) != 2 {
		t.Errorf("%+v", d)
	}
}

func TestCollisions_EXP06(t *testing.T) {
	for _, c := range []struct {
		name     string
		existing []string
		changes  []PathChange
		refused  []string
	}{
		{"case", []string{"README.md"}, []PathChange{{Path: "readme.md"}}, []string{"readme.md"}},
		{"case of a directory", []string{"src/a.go"}, []PathChange{{Path: "SRC/b.go"}}, []string{"SRC/b.go"}},
		{"normal form", []string{"caf\u00e9"}, []PathChange{{Path: "cafe\u0301"}}, []string{"cafe\u0301"}},
		{"folding of sharp s", []string{"STRASSE"}, []PathChange{{Path: "straße"}}, []string{"straße"}},
		{"long s", []string{"test"}, []PathChange{{Path: "te\u017ft"}}, []string{"te\u017ft"}},
		{"invisible", []string{"main.go"}, []PathChange{{Path: "main\u200b.go"}}, []string{"main[U+200B].go"}},
		{"both new", nil, []PathChange{{Path: "n/A"}, {Path: "n/a"}}, []string{"n/a"}},
		{"file against a directory's name", []string{"Lib/x"}, []PathChange{{Path: "lib"}}, []string{"lib"}},
		{"a rename that changes case", []string{"Readme"}, []PathChange{{Path: "README"}, {Path: "Readme", Deleted: true}}, nil},
		{"the base collides already", []string{"a/x", "A/x"}, []PathChange{{Path: "A/y"}, {Path: "a/x"}}, nil},
		{"ordinary", []string{"a/x"}, []PathChange{{Path: "a/x"}, {Path: "a/y"}, {Path: "b"}}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := Rules{Existing: c.existing}.Review(c.changes)
			if !slices.Equal(d.Refused, c.refused) {
				t.Errorf("refused %q, want %q", d.Refused, c.refused)
			}
		})
	}
}

func TestLinks_EXP04(t *testing.T) {
	for _, c := range []struct {
		at, to string
		ok     bool
	}{
		{"l", "a", true},
		{"d/l", "../a", true},
		{"d/e/l", "../../a/b", true},
		{"l", "./a", true},
		{"l", "missing", true},
		{"l", "/etc/passwd", false},
		{"l", "..", false},
		{"d/l", "../../x", false},
		{"l", "a/../../x", false},
		{"l", "a/../b", false},
		{"l", ".git/config", false},
		{"d/l", "../.GIT", false},
		{"l", `..\x`, false},
		{"l", "C:/x", false},
		{"l", "a\nb", false},
		{"l", "a\x00", false},
		{"l", "", false},
		{"l", "a\xff", false},
		{"l", strings.Repeat("a/", 3000), false},
	} {
		d := review([]PathChange{{Path: c.at, Mode: 0o120000, Link: c.to}}, nil)
		if ok := len(d.Allowed) == 1; ok != c.ok {
			t.Errorf("link %q → %.40q: allowed %v: %+v", c.at, c.to, ok, d.Findings)
		}
	}
}

func TestHeldPaths_EXP09(t *testing.T) {
	held := []string{
		".github/workflows/ci.yml", ".github/dependabot.yml", ".gitea/workflows/x.yml", ".forgejo/workflows/x", ".gitlab-ci.yml", "sub/.gitlab-ci.yml", ".gitlab/ci/x.yml",
		".circleci/config.yml", ".travis.yml", ".drone.yml", ".woodpecker.yml", ".woodpecker/x.yml", "azure-pipelines.yml", "ci/azure-pipelines-release.yaml",
		"bitbucket-pipelines.yml", "Jenkinsfile", "Jenkinsfile.release", "appveyor.yml", ".buildkite/pipeline.yml", ".cirrus.yml", "cloudbuild.yaml", ".builds/x.yml", ".ci/run", ".tekton/x",
		"CODEOWNERS", "docs/CODEOWNERS", ".github/CODEOWNERS", ".gitlab/CODEOWNERS",
		".gitattributes", "a/b/.gitattributes", ".lfsconfig",
		".husky/pre-commit", ".githooks/x", ".pre-commit-config.yaml", "lefthook.yml", ".lefthook.toml", ".overcommit.yml", "package/.lintstagedrc.json",
		".vscode/tasks.json", "sub/.vscode/settings.json", ".idea/workspace.xml", "x.code-workspace", ".vimrc", ".exrc", ".dir-locals.el", ".zed/tasks.json",
		".devcontainer/devcontainer.json", ".devcontainer.json", ".envrc", ".env", ".env.local", "mise.toml",
		"AGENTS.md", "sub/AGENTS.md", "CLAUDE.md", ".claude/settings.json", ".cursor/rules/x.mdc", ".cursorrules", ".windsurfrules", ".clinerules/a.md", "GEMINI.md", ".mcp.json", ".daybreak.yaml", ".aider.conf.yml",
		".npmrc", ".yarnrc", ".yarnrc.yml", ".yarn/releases/yarn.cjs", ".pnpmfile.cjs", "pnpmfile.js", "pip.conf", ".cargo/config.toml", "NuGet.Config", ".mvn/extensions.xml",
		"go.env", "go.work", ".nvmrc", ".python-version", "rust-toolchain.toml", ".tool-versions", "global.json",
		// other spellings of the same
		".GitHub/Workflows/CI.yml", "codeowner\u017f", ".vs\u200bcode/tasks.json", "CLAUDE.MD", "a\u00adgents.md", ".n\u2060pmrc",
	}
	for _, p := range held {
		for _, c := range []PathChange{{Path: p, Mode: file}, {Path: p, Mode: 0o100755}, {Path: p, Deleted: true}, {Path: p, Mode: 0o120000, Link: "x"}} {
			d := review([]PathChange{c}, nil)
			if !slices.Equal(d.Held, []string{p}) {
				t.Errorf("%q (%o, deleted %v): %+v", p, c.Mode, c.Deleted, d)
			} else if f := d.Findings[0]; f.Kind != "held_path" || f.Severity != "warn" || f.Detail == "" {
				t.Errorf("%q: finding %+v", p, f)
			}
		}
	}
	// The directory itself replaced by a link is held as well.
	if d := review([]PathChange{{Path: ".github", Mode: 0o120000, Link: "x"}}, nil); len(d.Held) != 1 {
		t.Errorf("%+v", d)
	}
}

func TestExtraProtected(t *testing.T) {
	for _, c := range []struct {
		pattern, path string
		held          bool
	}{
		{"deploy/", "deploy/prod.yaml", true},
		{"deploy", "x/deploy/prod.yaml", true},
		{"/deploy", "x/deploy", false},
		{"*.tf", "infra/main.tf", true},
		{"infra/**/secret.go", "infra/a/b/secret.go", true},
		{"infra/**/secret.go", "infra/secret.go", true},
		{"infra/*.go", "infra/a/b.go", false},
		{"Billing/Core", "billing/core/x.go", true},
		{"a/**", "a/b/c", true},
		{"", "a", false},
		{"[", "a", false},
		{"a/b", "c/a/b", false},
	} {
		d := review([]PathChange{{Path: c.path, Mode: file}}, []string{c.pattern})
		if held := len(d.Held) == 1; held != c.held {
			t.Errorf("%q on %q: held %v", c.pattern, c.path, held)
		}
	}
}

func TestCaps_EXP14(t *testing.T) {
	many := make([]PathChange, DefaultMaxFiles+1)
	for i := range many {
		many[i] = PathChange{Path: fmt.Sprintf("f%d", i), Mode: file, Size: 1}
	}
	if f, blocked := review(many, nil).Blocked(); !blocked || f.Kind != "cap" || !strings.Contains(f.Detail, "501 files") {
		t.Errorf("%+v", f)
	}
	if _, blocked := review(many[1:], nil).Blocked(); blocked {
		t.Error("exactly the cap is refused")
	}
	d := Rules{MaxFileBytes: 10}.Review([]PathChange{{Path: "a", Mode: file, Size: 11}, {Path: "b", Mode: file, Size: 10}, {Path: "c", Mode: file, Size: -1}, {Path: "d", Deleted: true, Size: 99}})
	if !slices.Equal(d.Refused, []string{"a", "c"}) || !slices.Equal(d.Allowed, []string{"b", "d"}) {
		t.Errorf("%+v", d)
	}
	d = Rules{MaxTotalBytes: 15}.Review([]PathChange{{Path: "a", Mode: file, Size: 8}, {Path: "b", Mode: file, Size: 8}})
	if f, blocked := d.Blocked(); !blocked || !strings.Contains(f.Detail, "16 bytes") {
		t.Errorf("%+v", d)
	}
}

func FuzzReview(f *testing.F) {
	for _, s := range []string{".git", "a/b", "A\u200b", "\xff", "a\\b", "café", ".GITHUB/x", "é/é"} {
		f.Add(s, "link", uint32(file))
	}
	f.Fuzz(func(t *testing.T, p, link string, mode uint32) {
		d := Rules{Existing: []string{"a/b", "README"}}.Review([]PathChange{{Path: p, Link: link, Mode: mode}})
		if len(d.Allowed)+len(d.Held)+len(d.Refused) != 1 {
			t.Fatalf("%q is in %d lists", p, len(d.Allowed)+len(d.Held)+len(d.Refused))
		}
		for _, f := range d.Findings {
			if !utf8.ValidString(f.Path) || strings.ContainsAny(f.Path, "\n\x00\x1b") {
				t.Fatalf("finding shows raw bytes: %q", f.Path)
			}
		}
		if len(d.Refused) == 1 {
			return
		}
		for comp := range strings.SplitSeq(strings.ToLower(p), "/") {
			if comp == ".git" || comp == ".." || comp == "." || comp == "" {
				t.Fatalf("%q got through", p)
			}
		}
		if !utf8.ValidString(p) || strings.ContainsAny(p, "\\\x00\n") {
			t.Fatalf("%q got through", p)
		}
	})
}

func BenchmarkReviewAgainst50kNames(b *testing.B) {
	var existing []string
	for i := range 50000 {
		existing = append(existing, fmt.Sprintf("pkg%d/sub/file%d.go", i/100, i))
	}
	r := Rules{Existing: existing}
	for b.Loop() {
		r.Review([]PathChange{{Path: "pkg1/sub/new.go", Mode: file}})
	}
}

// TestHostileProtectedPattern ends at once, or the test's own time limit ends it.
func TestHostileProtectedPattern(t *testing.T) {
	p := strings.Repeat("a/", 1500) + "c"
	d := review([]PathChange{{Path: p, Mode: 0o100644}}, []string{strings.Repeat("**/a/", 500) + "b", "/" + strings.Repeat("a/**/", 300) + "c"})
	if len(d.Held) != 1 {
		t.Errorf("held %d, refused %q, findings %v", len(d.Held), d.Refused, d.Findings)
	}
}

func review(changes []PathChange, protected []string) Decision {
	return Rules{Protected: protected}.Review(changes)
}
