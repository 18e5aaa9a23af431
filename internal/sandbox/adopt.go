package sandbox

import "context"

// Ready is a sandbox that can be started before anybody needs it. No command has run in one that
// is adopted.
type Ready interface {
	Sandbox
	// Adopt durably makes it another owner's, before its first command: from then on it is found
	// under the task and purpose given.
	Adopt(ctx context.Context, task, purpose string) error
	// Held is the memory that it takes now, in bytes.
	Held() (int64, error)
}
