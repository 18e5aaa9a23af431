package eval

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// CaseFile is the settings' path in every case's base.
const CaseFile = ".daybreak.yaml"

// WriteCase makes a repository with the case's base and its change as two commits. dir must not
// be there yet; limit is how long one run of the suite may take.
func WriteCase(ctx context.Context, dir string, c Case, limit time.Duration) (base, head string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", "", err
	}
	r := repo{dir: dir}
	if _, err := r.git(ctx, "init", "--quiet", "--initial-branch=main", "--template=", "."); err != nil {
		return "", "", err
	}
	settings := fmt.Sprintf("timeout: %s\n", limit)
	for i, files := range []map[string]string{c.Base, c.Head} {
		if i == 1 {
			for name := range c.Base {
				if err := os.Remove(filepath.Join(dir, filepath.FromSlash(name))); err != nil {
					return "", "", err
				}
			}
		}
		for name, text := range files {
			p := filepath.Join(dir, filepath.FromSlash(name))
			if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
				return "", "", err
			}
			if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
				return "", "", err
			}
		}
		if err := os.WriteFile(filepath.Join(dir, CaseFile), []byte(settings), 0o644); err != nil {
			return "", "", err
		}
		id, err := r.commitAll(ctx, fmt.Sprintf("%d", i))
		if err != nil {
			return "", "", err
		}
		base, head = head, id
	}
	return base, head, nil
}

// commitAll commits the work tree with a fixed author and time.
func (r repo) commitAll(ctx context.Context, message string) (string, error) {
	if _, err := r.git(ctx, "add", "--all", "--force", "."); err != nil {
		return "", err
	}
	args := []string{"-c", "user.name=Daybreak", "-c", "user.email=daybreak@localhost", "commit", "--quiet", "--allow-empty", "--message=" + message, "--date=2026-01-02T03:04:05Z"}
	if _, err := r.git(ctx, args...); err != nil {
		return "", err
	}
	id, err := r.git(ctx, "rev-parse", "HEAD")
	return strings.TrimSpace(string(id)), err
}
