package git

import (
	"context"
	"errors"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// MaxConflicts is how many paths [Git.MergeTrees] names.
const MaxConflicts = 100

// MergeTrees merges two trees that come from base, all three given as commits or trees of our own
// repository, which need no history. It returns the merged tree, and in conflicts, sorted by git,
// the paths that a person must settle: the tree is then none to publish. Nothing is checked out and
// no driver of the repository runs.
func (g *Git) MergeTrees(ctx context.Context, gitdir, base, theirs, ours string) (tree string, conflicts []string, err error) {
	var commits [3]string
	for i, rev := range []string{base, theirs, ours} {
		id, err := g.TreeID(ctx, gitdir, rev)
		if err != nil {
			return "", nil, err
		}
		parent := commits[0] // of the base none: history is not needed, and not there
		if commits[i], err = g.Commit(ctx, gitdir, id, parent, neutral()); err != nil {
			return "", nil, err
		}
	}
	// The same tree twice makes the same commit twice, which git merges like any other.
	out, err := g.in(ctx, gitdir, "merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", commits[1], commits[2])
	var f *failure
	if errors.As(err, &f) && f.code == 1 {
		err = nil
	}
	if err != nil {
		return "", nil, err
	}
	fields := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	if !IsID(fields[0]) || f == nil && len(fields) > 1 || f != nil && len(fields) < 2 {
		return "", nil, &task.Error{Class: task.Internal, Msg: "git merge-tree printed what is not understood"}
	}
	return fields[0], fields[1:min(len(fields), 1+MaxConflicts)], nil
}
