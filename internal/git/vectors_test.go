package git

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/git/gittest"
)

// vector is one way in which a .git that somebody else wrote runs a program.
type vector struct {
	name   string
	files  map[string]string // TRAP stands for the program
	config string
	ready  func(t *testing.T, dir string)
	fire   []string // arguments of plain git that fall for it
	in     string   // where to run it, below the repository
}

func vectors() []vector {
	attributes := map[string]string{".git/info/attributes": "* filter=trap diff=trap merge=trap\n"}
	other := func(t *testing.T, dir string) { write(t, dir, map[string]string{"a.txt": "other\n"}) }
	return []vector{
		{name: "fsmonitor", config: "[core]\n\tfsmonitor = TRAP\n", fire: []string{"status"}},
		{name: "hook", files: map[string]string{".git/hooks/post-checkout": "#!/bin/sh\nTRAP\n"}, fire: []string{"checkout", "-f"}},
		{name: "hooksPath", config: "[core]\n\thooksPath = theirs\n", files: map[string]string{"theirs/pre-commit": "#!/bin/sh\nTRAP\n"}, fire: []string{"commit", "--allow-empty", "-m", "x"}},
		{name: "clean filter", files: attributes, config: "[filter \"trap\"]\n\tclean = TRAP\n", ready: other, fire: []string{"add", "a.txt"}},
		{name: "smudge filter", files: attributes, config: "[filter \"trap\"]\n\tsmudge = TRAP\n", ready: other, fire: []string{"checkout", "-f", "HEAD", "--", "a.txt"}},
		{name: "process filter", files: attributes, config: "[filter \"trap\"]\n\tprocess = TRAP\n", ready: other, fire: []string{"add", "a.txt"}},
		{name: "external diff", config: "[diff]\n\texternal = TRAP\n", ready: other, fire: []string{"diff"}},
		{name: "diff driver", files: attributes, config: "[diff \"trap\"]\n\tcommand = TRAP\n", ready: other, fire: []string{"diff"}},
		{name: "textconv", files: attributes, config: "[diff \"trap\"]\n\ttextconv = TRAP\n", ready: other, fire: []string{"diff"}},
		{name: "merge driver", files: attributes, config: "[merge \"trap\"]\n\tdriver = TRAP\n", fire: []string{"merge", "side"}, ready: func(t *testing.T, dir string) {
			gittest.Run(t, dir, "checkout", "-q", "-b", "side")
			write(t, dir, map[string]string{"a.txt": "side\n"})
			gittest.Run(t, dir, "commit", "-qam", "side")
			gittest.Run(t, dir, "checkout", "-q", "main")
			write(t, dir, map[string]string{"a.txt": "main\n"})
			gittest.Run(t, dir, "commit", "-qam", "main")
		}},
		{name: "alias", config: "[alias]\n\tst = !TRAP\n", fire: []string{"st"}},
		{name: "ssh command", config: "[core]\n\tsshCommand = TRAP\n", fire: []string{"fetch", "ssh://nowhere.invalid/x"}},
		{name: "ext remote", config: "[protocol \"ext\"]\n\tallow = always\n[remote \"origin\"]\n\turl = ext::TRAP\n\tfetch = +refs/heads/*:refs/x/*\n", fire: []string{"fetch", "origin"}},
		{name: "credential helper", config: "[credential]\n\thelper = !TRAP\n[credential \"https://nowhere.invalid\"]\n\tusername = x\n", fire: []string{"credential", "fill"}},
		{name: "signing program", config: "[gpg]\n\tprogram = TRAP\n", fire: []string{"commit", "-S", "--allow-empty", "-m", "x"}},
		{name: "include", config: "[include]\n\tpath = elsewhere\n", files: map[string]string{".git/elsewhere": "[core]\n\tfsmonitor = TRAP\n"}, fire: []string{"status"}},
		{name: "editor", config: "[core]\n\teditor = TRAP\n", fire: []string{"commit", "--allow-empty"}},
		{name: "sequence editor", config: "[sequence]\n\teditor = TRAP\n", fire: []string{"rebase", "-i", "--root"}},
		{name: "embedded bare repository", in: "assets", files: map[string]string{
			"assets/HEAD": "ref: refs/heads/main\n", "assets/config": "[core]\n\tbare = false\n\tworktree = \"..\"\n\tfsmonitor = TRAP\n\trepositoryformatversion = 0\n",
			"assets/refs/x": "", "assets/objects/x": "",
		}, fire: []string{"status"}},
		{name: "git file", ready: func(t *testing.T, dir string) {
			if err := os.Rename(filepath.Join(dir, ".git"), filepath.Join(dir, "evil")); err != nil {
				t.Fatal(err)
			}
			write(t, dir, map[string]string{".git": "gitdir: evil\n"})
		}, config: "[core]\n\tfsmonitor = TRAP\n", fire: []string{"status"}},
		{name: "upload pack", config: "[remote \"origin\"]\n\turl = .\n\tuploadpack = TRAP\n\tfetch = +refs/heads/*:refs/x/*\n", fire: []string{"fetch", "origin"}},
		{name: "git proxy", config: "[core]\n\tgitProxy = TRAP\n", fire: []string{"fetch", "git://nowhere.invalid/x"}},
	}
}

// plant makes a repository with one vector in it. The program leaves the marker.
func plant(t *testing.T, v vector) (dir, marker string) {
	t.Helper()
	dir = repository(t, map[string]string{"a.txt": "one\n"})
	marker = filepath.Join(t.TempDir(), "marker")
	trap := filepath.Join(t.TempDir(), "trap.sh")
	if err := os.WriteFile(trap, []byte("#!/bin/sh\n: >> "+marker+"\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, ".git", "config")
	for name, text := range v.files {
		write(t, dir, map[string]string{name: strings.ReplaceAll(text, "TRAP", trap)})
		if err := os.Chmod(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if v.ready != nil {
		v.ready(t, dir)
	}
	if st, err := os.Lstat(filepath.Join(dir, ".git")); err == nil && st.Mode().IsRegular() {
		config = filepath.Join(dir, "evil", "config")
	}
	f, err := os.OpenFile(config, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(strings.ReplaceAll(v.config, "TRAP", trap)); err != nil {
		t.Fatal(err)
	}
	return dir, marker
}

// Every one of the vectors catches plain git, and none of them catches us: what we do with a
// repository of others is fetch from it and push to it.
func TestEveryVectorCatchesPlainGitAndNotUs_EXP01(t *testing.T) {
	g := newGit(t)
	all := vectors()
	if len(all) < 20 {
		t.Fatalf("%d vectors", len(all))
	}
	for _, v := range all {
		t.Run(v.name, func(t *testing.T) {
			dir, marker := plant(t, v)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // a guard against hanging for ever
			defer cancel()
			cmd := exec.CommandContext(ctx, "git", v.fire...)
			cmd.WaitDelay = time.Second
			cmd.Dir = filepath.Join(dir, v.in)
			cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=P", "GIT_AUTHOR_EMAIL=p@x", "GIT_COMMITTER_NAME=P", "GIT_COMMITTER_EMAIL=p@x", "GIT_TERMINAL_PROMPT=0"}
			cmd.Stdin = strings.NewReader("protocol=https\nhost=nowhere.invalid\n\n")
			out, _ := cmd.CombinedOutput()
			if _, err := os.Stat(marker); err != nil {
				t.Fatalf("not exercised: plain git does not fall for it: git %v: %s", v.fire, out)
			}
			dir, marker = plant(t, v)
			ours(t, g, dir)
			if _, err := os.Stat(marker); err == nil {
				t.Error("it ran")
			}
		})
	}
}

// ours does what Daybreak does with a repository of others. That it fails is no matter here.
func ours(t *testing.T, g *Git, src string) {
	t.Helper()
	ctx := t.Context()
	gitdir := filepath.Join(t.TempDir(), "m.git")
	if err := g.EnsureBare(ctx, gitdir); err != nil {
		t.Fatal(err)
	}
	base, err := g.FetchCommit(ctx, gitdir, src, "HEAD")
	if err != nil {
		t.Logf("fetch: %v", err)
		return
	}
	dest := filepath.Join(t.TempDir(), "w")
	if _, err := g.Checkout(ctx, gitdir, base, dest); err != nil {
		t.Fatal(err)
	}
	tree, err := g.BuildTree(ctx, gitdir, base, []Change{{Path: "a.txt", Mode: ModeFile, Content: []byte("two\n")}})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := g.Diff(ctx, gitdir, base, tree, DiffOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := g.Ignored(ctx, gitdir, base, dest, []string{"b.txt"}); err != nil {
		t.Error(err)
	}
	commit, err := g.Commit(ctx, gitdir, tree, base, CommitInfo{"A", "a@example.com", time.Unix(1, 0), "m"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Push(ctx, gitdir, src, commit, "daybreak/x", ""); err != nil {
		t.Logf("push: %v", err)
	}
}
