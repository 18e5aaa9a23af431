package prover

import (
	"context"

	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/policy/lockfile"
)

const (
	maxLockfiles     = 200
	maxLockfileBytes = 16 << 20
)

// KnownNames reads the names of packages out of a commit's lockfiles.
func KnownNames(ctx context.Context, g *git.Git, gitdir, commit string) (lockfile.Known, error) {
	list, err := g.ListTree(ctx, gitdir, commit)
	if err != nil {
		return lockfile.Known{}, err
	}
	var files []git.Entry
	for _, e := range list {
		if lockfile.Names(e.Path) && e.Mode&0o170000 == 0o100000 && len(files) < maxLockfiles {
			files = append(files, e)
		}
	}
	blobs, err := g.Blobs(ctx, gitdir, files, maxLockfileBytes)
	if err != nil {
		return lockfile.Known{}, err
	}
	var k lockfile.Known
	for _, f := range files {
		k.Add(f.Path, blobs[f.ID])
	}
	k.Done()
	return k, nil
}
