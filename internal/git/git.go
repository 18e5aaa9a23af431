// Package git runs the git command line on bare repositories that only Daybreak writes:
// fetching a base commit, laying out a one-commit checkout, building a tree from exported
// files with plumbing alone, and making the commit that is pushed.
//
// Invariants: every invocation has a scrubbed environment, no system or global configuration,
// no hooks, no prompts, no filters; no repository, configuration, attribute or hook that a
// sandbox wrote is ever read; a built tree differs from its base by exactly the given changes,
// or an error says where.
package git

// Change is one changed path of a proposed commit. Paths are slash-separated and relative.
type Change struct {
	Path    string `json:"path"`
	Mode    uint32 `json:"mode,omitempty"` // 0o100644, 0o100755, 0o120000
	Content []byte `json:"content,omitempty"`
	Deleted bool   `json:"deleted,omitempty"`
}
