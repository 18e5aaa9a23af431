// Package sandbox is the seam to the isolated place where every command of a task runs.
// Adapters live in sandbox/<runtime>, the suite that each passes in sandbox/sandboxtest.
//
// Invariants: a launch that cannot set up one of its layers is refused and names the layer,
// there is no weaker mode; a sandbox has no network but its own loopback and what is forwarded to it; it sees no secret
// and no host path; after [Sandbox.Destroy] no process of it is alive and nothing of it is
// mounted; the host reads what a sandbox wrote only through [Sandbox.Export].
package sandbox

import (
	"context"
	"time"

	"github.com/daybreak-agent/daybreak/internal/guest"
)

// Paths inside every sandbox.
const (
	WorkDir = "/workspace"  // the checkout, writable
	HomeDir = "/home/agent" // HOME, writable, caches live here
	TempDir = "/tmp"        // writable, noexec is not set: test binaries run there
	UID     = 1000          // of every process in the sandbox
	GID     = 1000          //
)

// Path is PATH in every sandbox whose spec says nothing else.
const Path = "/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// GuestPath is our helper inside; every command may start it.
const GuestPath = "/.daybreak/guest"

// IndexDir is where the helper finds [Spec.Index].
const IndexDir = "/.daybreak/index"

// Spec says what to start.
type Spec struct {
	Task    string // owner; orphans are found by it
	Purpose string // "agent", "probe", "baseline", "red", "green", "prepare", "index", "build", "exec"
	Tree    string // host directory, read-only lowest layer of WorkDir; may be empty
	Work    Layers // over Tree: what preparing the checkout left in it, such as node_modules
	Home    Layers
	Once    bool   // no other like it will be asked for: nothing is kept ready for it
	Group   string // what it is one of, such as the sandboxes of one repository: how often those are asked for says how many are kept ready
	Index   string // host directory with the search index of Tree and Work, read-only at IndexDir; may be empty
	// System are layers over the root file system's /usr, /etc and /var: packages that setup
	// installed. A sandbox with System.Keep is one for setup: its commands run as root of its
	// own user namespace, with the few capabilities of a package manager, and may write there.
	// In every other sandbox the root is read-only. What it keeps of HOME and WorkDir belongs to
	// the agent's user at the end. Refused where the host's files cannot be given to a sandbox's
	// root: to an ordinary user.
	System Layers
	Mounts []Mount
	// Forwards are the only way out of the network namespace.
	Forwards []Forward
	// Files are made before the first command: read-only outside HomeDir, the agent's own below it.
	Files  []File
	Env    []string // KEY=VALUE, added to a fixed minimal environment
	Limits Limits
}

// Layers are what lies below a writable place, and where its changes go. A kept directory is
// empty before, belongs to ids of the sandbox after, and lies below one that no other user of
// the host may enter; who writes more into it than the limit of that place is ended.
type Layers struct {
	Lower []string // read-only host directories, lowest first; each was the Keep of an earlier sandbox
	Keep  string   // host directory that receives what this sandbox writes there; empty: memory, gone at the end
}

// Forward is a Unix socket of the host that answers at a port of the sandbox's loopback. It
// answers when Start returns and until Destroy. The socket exists before Start, stays the same
// file for as long as the sandbox lives (who listens anew at another file is not found), and
// has mode 0666, because the sandbox's user is nobody to the host; who else may connect is
// decided by its directory, which the sandbox does not pass through. Its path below its file
// system's root shows inside, in the list of mounts: it should say nothing.
type Forward struct {
	Socket string // absolute host path, not over a link at its end
	Port   int    // on 127.0.0.1, 1024 or above
}

// File is one small file of configuration. It may take the place of a file of the sandbox's
// /etc, and of one in a layer of HOME. At most 256 files, 8 MiB together.
type File struct {
	Path string // absolute, inside; not below WorkDir, TempDir, /usr, /proc, /sys, /dev or a mount
	Text []byte // at most 1 MiB
	// Own says that no other sandbox has this text, such as a certificate that it alone trusts. The
	// path is below /etc. One that is started without it gets it with [Ready.Adopt], and is not
	// to run a command before.
	Own bool
}

// Mount is a read-only bind of an operator's directory.
type Mount struct {
	Source string // absolute host path
	Target string // absolute path inside, outside WorkDir, HomeDir and TempDir
}

// Limits are hard caps. A zero field takes the adapter's default.
type Limits struct {
	Memory    int64 // bytes, swap included
	Pids      int64
	CPU       float64       // cores
	WorkBytes int64         // written below WorkDir
	HomeBytes int64         //
	TempBytes int64         //
	Wall      time.Duration // of the whole sandbox; 0: none
}

// Handle finds a sandbox again after the worker died. It is a capability: the id holds 128
// random bits.
type Handle struct {
	ID      string    `json:"id"`
	Task    string    `json:"task"`
	Purpose string    `json:"purpose"`
	Runtime string    `json:"runtime"`
	Owner   string    `json:"owner"` // process that started it
	Started time.Time `json:"started"`
}

// Info is what the record and the pull request say about isolation.
type Info struct {
	Runtime   string // "runc 1.5.3"
	Isolation string // "namespaces", "rootless namespaces", "gvisor"
	Profile   string // digest of namespaces, seccomp, mounts, caps and rlimits
	Limits    string // one line for people
	Rootless  bool
	Landlock  int           // version of the kernel's Landlock that fences commands too; 0: it has none, or the sandbox's kernel is its own
	Ready     time.Duration // from Start's call to the guest's first answer
	Stood     bool          // it was started before it was asked for
}

// Capabilities says what a runtime can do on this host.
type Capabilities struct {
	Runtime   string
	Isolation string
	OwnKernel bool // system calls are answered by a kernel of the sandbox's own
	Rootless  bool
	Cgroup    string   // "v1", "hybrid", "v2", "none"
	Missing   []string // each one line: what is missing and how to get it; empty when usable
	Notes     []string
	Facts     []string
}

// Runtime starts sandboxes.
type Runtime interface {
	// Capabilities inspects the host. It starts nothing.
	Capabilities(ctx context.Context) Capabilities
	// Start returns when the guest answers. A refusal is a *[RefusedError].
	Start(ctx context.Context, spec Spec) (Sandbox, error)
	// Recover reattaches to what is left of a sandbox whose worker died: its files can be
	// exported and it can be destroyed. Its processes are killed first.
	Recover(ctx context.Context, id string) (Sandbox, error)
	// List returns every sandbox on this host, dead or alive.
	List(ctx context.Context) ([]Handle, error)
}

// Sandbox is one running sandbox.
type Sandbox interface {
	Handle() Handle
	Info() Info
	// Guest is the channel for commands and files. Nil after Recover.
	Guest() *guest.Client
	// Export freezes the sandbox, reads the changed files below WorkDir from a second,
	// read-only sandbox, and thaws it.
	Export(ctx context.Context, limits ExportLimits) (Manifest, error)
	// Destroy kills every process, waits until none is left, and removes all files and
	// mounts. It is idempotent.
	Destroy(ctx context.Context) error
}

// ExportLimits caps an export. A zero field takes the default.
type ExportLimits struct {
	Files int   // changed paths, default 2,000
	Bytes int64 // of all contents, default 64 MiB
	// Ignored is asked only when the change is over a limit: of all changed paths (new
	// directories end in a slash) it returns those to leave out, with all below them. Build
	// output must not keep a small change from leaving. May be nil.
	Ignored func(ctx context.Context, paths []string) ([]string, error)
}

// Manifest is the change below WorkDir since the start, sorted by path. ".git" at the top is
// never part of it.
type Manifest struct {
	Entries []Entry
	Skipped []string // sockets, devices, fifos: named, not exported
	Left    []string // what Ignored named, topmost paths
}

// Entry is one changed path.
type Entry struct {
	Path    string // relative, slash-separated, as raw bytes; not validated: that is policy's work
	Mode    uint32 // git's: 0o100644, 0o100755, 0o120000; 0 when deleted
	Content []byte // file bytes, or link text
	Deleted bool
}

// RefusedError says which layer could not be set up.
type RefusedError struct {
	Layer string // "user namespace", "cgroup", "seccomp", "overlay", "runtime", …
	Fix   string
	Err   error
}

func (e *RefusedError) Error() string {
	s := "sandbox refused: " + e.Layer
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if e.Fix != "" {
		s += "; " + e.Fix
	}
	return s
}

func (e *RefusedError) Unwrap() error { return e.Err }
