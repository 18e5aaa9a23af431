// Package demo holds the story that "daybreak demo" tells: a small checkout service with its
// git history, an issue about it with a pasted log, and the transcript of a model that works
// on the issue.
//
// Invariants: the repository is the same everywhere, down to its commit ids; every edit of the
// transcript fits its files byte for byte; the log's injected instructions name only hosts that
// cannot exist.
package demo

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/txtar"
)

// Base is the commit id of the sample repository's tip, on branch main. [WriteRepo] refuses to
// end anywhere else.
const Base = "db9c62894aae5a90e5030545c009431834635e46"

// One archive a commit, in the order of their names. The comment of an archive is the author,
// the date and the message; its files are the ones that the commit adds or replaces.
//
//go:embed history/*.txtar
var history embed.FS

//go:embed issue.md
var issue string

//go:embed transcript.yaml
var script []byte

// Issue is the text of the issue, as a customer-facing colleague wrote it: Markdown whose first
// line is the title. Its log holds instructions to an agent that nobody should follow.
func Issue() string { return issue }

// Transcript is what the scripted model says and does, as YAML for the scripted server.
func Transcript() []byte { return bytes.Clone(script) }

type commit struct {
	author, date, message string
	files                 []txtar.File
}

// WriteRepo creates the sample repository in dir, which must be empty or absent, and returns
// its base commit. It needs git on the PATH; no configuration of the machine is read.
func WriteRepo(ctx context.Context, dir string) (base string, err error) {
	if err := emptyDir(dir); err != nil {
		return "", err
	}
	commits, err := readHistory()
	if err != nil {
		return "", err
	}
	if _, err := runGit(ctx, dir, nil, "init", "--quiet", "--initial-branch=main", "--object-format=sha1", "--template="); err != nil {
		return "", err
	}
	for _, c := range commits {
		if err := writeFiles(dir, c.files); err != nil {
			return "", err
		}
		if _, err := runGit(ctx, dir, nil, "add", "--all", "--force", "."); err != nil {
			return "", err
		}
		if _, err := runGit(ctx, dir, c.identity(), "commit", "--quiet", "--no-verify", "--no-gpg-sign", "--message="+c.message); err != nil {
			return "", err
		}
	}
	head, err := runGit(ctx, dir, nil, "rev-parse", "HEAD")
	if err != nil {
		return "", err
	}
	if head = strings.TrimSpace(head); head != Base {
		return "", fmt.Errorf("the sample repository ended at commit %s, not %s: its history was edited, so set demo.Base", head, Base)
	}
	return head, nil
}

func emptyDir(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("cannot make the sample repository's folder: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("cannot read the sample repository's folder: %w", err)
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s is not empty: name a folder that is, or one that does not exist", dir)
	}
	return nil
}

func readHistory() ([]commit, error) {
	names, err := fs.Glob(history, "history/*.txtar")
	if err != nil {
		return nil, err
	}
	commits := make([]commit, 0, len(names))
	for _, name := range names {
		data, err := history.ReadFile(name)
		if err != nil {
			return nil, err
		}
		c, err := parseCommit(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		commits = append(commits, c)
	}
	return commits, nil
}

func parseCommit(data []byte) (commit, error) {
	archive := txtar.Parse(data)
	header, message, ok := strings.Cut(string(archive.Comment), "\n\n")
	if !ok {
		return commit{}, errors.New("want a header, a blank line and a message")
	}
	c := commit{message: message, files: archive.Files}
	for line := range strings.Lines(header) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "author":
			c.author = value
		case "date":
			c.date = value
		default:
			return commit{}, fmt.Errorf("unknown header %q", key)
		}
	}
	if c.author == "" || c.date == "" || len(c.files) == 0 {
		return commit{}, errors.New("want an author, a date and at least one file")
	}
	return c, nil
}

// identity is the commit's author, who also committed it, in git's environment variables.
func (c commit) identity() []string {
	name, rest, _ := strings.Cut(c.author, " <")
	mail := strings.TrimSuffix(rest, ">")
	return []string{
		"GIT_AUTHOR_NAME=" + name, "GIT_AUTHOR_EMAIL=" + mail, "GIT_AUTHOR_DATE=" + c.date,
		"GIT_COMMITTER_NAME=" + name, "GIT_COMMITTER_EMAIL=" + mail, "GIT_COMMITTER_DATE=" + c.date,
	}
}

func writeFiles(dir string, files []txtar.File) error {
	for _, f := range files {
		if !fs.ValidPath(f.Name) || path.Clean(f.Name) != f.Name {
			return fmt.Errorf("the sample's history names a bad path %q", f.Name)
		}
		target := filepath.Join(dir, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(target, f.Data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// runGit runs git in dir without any of the machine's configuration and returns its output.
func runGit(ctx context.Context, dir string, env []string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.DevNull, "LC_ALL=C", "TZ=UTC",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_TERMINAL_PROMPT=0",
		"GIT_CONFIG_COUNT=3",
		"GIT_CONFIG_KEY_0=core.autocrlf", "GIT_CONFIG_VALUE_0=false",
		"GIT_CONFIG_KEY_1=core.hooksPath", "GIT_CONFIG_VALUE_1=" + os.DevNull,
		"GIT_CONFIG_KEY_2=gc.auto", "GIT_CONFIG_VALUE_2=0",
	}, env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		return "", fmt.Errorf("git %s for the sample repository: %w: %s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}
