package git

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"
)

// Damaged reports whether a bare repository of ours cannot be read: objects that its references
// need are missing, or files of it are no git's. It reads every object.
func (g *Git) Damaged(ctx context.Context, gitdir string) bool {
	return g.fsck(ctx, gitdir)
}

// Disconnected is [Git.Damaged] without a look into the files' contents: fast enough for every
// day.
func (g *Git) Disconnected(ctx context.Context, gitdir string) bool {
	return g.fsck(ctx, gitdir, "--connectivity-only")
}

// fsck reports whether git found something wrong; a check that did not get to its end found nothing.
func (g *Git) fsck(ctx context.Context, gitdir string, more ...string) bool {
	args := append([]string{"--git-dir=" + gitdir, "fsck", "--no-dangling", "--no-progress", "--no-reflogs"}, more...)
	_, err := g.run(ctx, call{args: args, max: 64 << 20})
	var f *failure
	return errors.As(err, &f) && f.code > 0 && !errors.Is(err, syscall.ENOSPC) && !strings.Contains(f.stderr, "ut of memory")
}

// Unpin lets go of commits that [Git.FetchCommit] brought.
func (g *Git) Unpin(ctx context.Context, gitdir string, commits []string) error {
	var in strings.Builder
	for _, c := range commits {
		if !IsID(c) {
			return badPath(c, "is no commit")
		}
		fmt.Fprintf(&in, "delete refs/daybreak/base/%s\n", c)
	}
	if in.Len() == 0 {
		return nil
	}
	_, err := g.run(ctx, call{args: []string{"--git-dir=" + gitdir, "update-ref", "--stdin"}, stdin: strings.NewReader(in.String())})
	return err
}

// Tidy packs a bare repository of ours where git thinks it worth the while, and removes objects
// that nothing has referred to for as long as keep. Others may use it meanwhile.
func (g *Git) Tidy(ctx context.Context, gitdir string, keep time.Duration) error {
	_, err := g.run(ctx, call{args: []string{
		"--git-dir=" + gitdir, "-c", "gc.auto=2000", "-c", "gc.autoPackLimit=30", "-c", "gc.autoDetach=false", "-c", "gc.packRefs=false",
		"gc", "--auto", "--quiet", "--cruft", fmt.Sprintf("--prune=%d.seconds.ago", int64(keep.Seconds())),
	}})
	return err
}
