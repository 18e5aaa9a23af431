// Package snapshot owns the prepared, read-only file trees that sandboxes start from: a bare
// mirror per repository and, per (repository, base commit, environment), a one-commit
// checkout and the caches that the suite filled; and beside them, per (repository, environment,
// lockfiles and commands), the layers that installing dependencies left.
//
// Invariants: snapshots and layers are complete or absent (built aside, renamed into place);
// nothing writes to them afterwards; a layer never changes or hides what the base tracks; its checkout holds one commit and no other object, ref or reflog;
// the source repository's work tree, index and configuration are never touched.
package snapshot

// Snapshot is one prepared tree.
type Snapshot struct {
	Digest   string   // of repository, base and environment
	Base     string   // commit id
	Tree     string   // host directory of the checkout, with a one-commit .git
	Home     string   // host directory for HOME's lower layer (build caches); may not exist yet
	GitDir   string   // bare mirror that has Base
	Files    int      //
	Bytes    int64    //
	Warnings []string // submodules, LFS pointers, links that leave the tree, case collisions: one line each
	Cached   bool     // it was there already
	Rebuilt  string   // why the mirror or the snapshot had to be made anew; "" for the usual

	Environment string // digest, as asked for
	Layers      Layers // prepared dependencies, see [Snapshot.With]
	Built       string // host directory over Home, see [Store.Aside]; "" for none
	Index       string // host directory of the search index, see [Store.Index]; "" for none
}
