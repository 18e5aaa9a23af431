package sandbox

import "context"

// Ready is a sandbox that can be started before anybody needs it. No command has run in one that
// is adopted.
type Ready interface {
	Sandbox
	// Adopt makes it another owner's, once, before its first command: from then on it is
	// found under the task and purpose given.
	Adopt(ctx context.Context, a Adoption) error
	// Held is the memory that it takes now, in bytes.
	Held() (int64, error)
}

// Adoption is what a sandbox gets with its owner.
type Adoption struct {
	Task    string
	Purpose string
	// Files are those of its specification with [File.Own], in that order, with their texts.
	Files []File
}

// Expecter is a runtime that starts sandboxes before they are asked for.
type Expecter interface {
	// Expect says that one of the specification will be asked for soon. It starts nothing before
	// it returns. Where forwards lead and the texts of files of its own need not be known yet.
	Expect(spec Spec)
}
