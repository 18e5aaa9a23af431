// Package guest owns the helper that runs inside a sandbox and the wire between it and the
// worker: a framed protocol over the helper's standard input and output, the server that
// executes commands and edits files, and the client that the worker holds.
//
// Invariants: the client treats every byte from the guest as hostile (bounded frames, bounded
// counts, the connection closed on the first
// violation, a reply nobody asked for included); paths are opened
// component by component below the work tree and no link is followed out of it; files are
// edited as bytes; a command's process tree dies with it.
package guest

import (
	"time"

	"github.com/daybreak-agent/daybreak/internal/codesearch"
)

// ExecRequest starts a command.
type ExecRequest struct {
	Shell      string        `json:"shell,omitempty"` // run by `bash -c` (sh where there is no bash); or
	Argv       []string      `json:"argv,omitempty"`  // run as it is
	Dir        string        `json:"dir,omitempty"`   // default: the work tree
	Env        []string      `json:"env,omitempty"`   // added to the sandbox's
	Stdin      []byte        `json:"stdin,omitempty"` // default: empty
	Timeout    time.Duration `json:"timeout,omitempty"`
	Background bool          `json:"background,omitempty"` // answer at once with Running set; Timeout still kills
	Head       int           `json:"head,omitempty"`       // bytes of output kept from the start, default 15,000
	Tail       int           `json:"tail,omitempty"`       // and from the end, default 15,000
}

// ExecResult is a command's end, or where it stands.
type ExecResult struct {
	Proc     int           `json:"proc"` // number for Wait and Kill
	Running  bool          `json:"running,omitempty"`
	ExitCode int           `json:"exit_code"` // 128 + signal when killed by one
	Signal   string        `json:"signal,omitempty"`
	TimedOut bool          `json:"timed_out,omitempty"` // killed at its Timeout: not finished, never passed
	Error    string        `json:"error,omitempty"`     // could not be started
	Wall     time.Duration `json:"wall"`
	Head     []byte        `json:"head,omitempty"` // stdout and stderr, interleaved
	Tail     []byte        `json:"tail,omitempty"` // empty when all of it fits in Head
	Bytes    int64         `json:"bytes"`          // of the whole output
	Lines    int64         `json:"lines"`
	Log      string        `json:"log,omitempty"`      // path inside the sandbox of the whole output
	Children int           `json:"children,omitempty"` // processes left behind that were killed
	LogCut   bool          `json:"log_cut,omitempty"`  // the log is full: its end is missing
}

// ReadRequest reads text lines for the model.
type ReadRequest struct {
	Path   string `json:"path"`   // relative to the work tree, or absolute inside the sandbox
	Offset int    `json:"offset"` // first line, from 1
	Limit  int    `json:"limit"`  // lines, default 2,000
}

// FileKind names what a path is.
type FileKind string

// The kinds.
const (
	KindText   FileKind = "text"
	KindBinary FileKind = "binary"
	KindDir    FileKind = "directory"
	KindLFS    FileKind = "lfs_pointer"
	KindModule FileKind = "submodule"
	KindLink   FileKind = "link" // leaves the tree, or dangles
	KindOther  FileKind = "other"
)

// ReadResult is what was read.
type ReadResult struct {
	Kind    FileKind `json:"kind"`
	Lines   []string `json:"lines,omitempty"`   // without line ends; undecodable bytes and control characters escaped as \xNN; over-long lines cut with a note
	Total   int      `json:"total"`             // lines in the file
	Size    int64    `json:"size"`              //
	SHA256  string   `json:"sha256"`            // hex, of the whole file; what Edit and Write compare with
	Entries []string `json:"entries,omitempty"` // of a directory, "name/" for directories
	CRLF    bool     `json:"crlf,omitempty"`
	Latin1  bool     `json:"latin1,omitempty"` // not valid UTF-8
	Cut     bool     `json:"cut,omitempty"`    // the byte cap was reached before Limit
	Target  string   `json:"target,omitempty"` // of a link
}

// EditRequest replaces one exact, unique piece of a file.
type EditRequest struct {
	Path   string `json:"path"`
	Old    []byte `json:"old"`
	New    []byte `json:"new"`
	SHA256 string `json:"sha256"`        // of the file as the model last saw it; empty: never read, refused
	All    bool   `json:"all,omitempty"` // replace every occurrence
}

// EditResult says what happened. When OK is false nothing was written and Problem, with
// Nearest or Matches, says why.
type EditResult struct {
	OK         bool     `json:"ok"`
	Problem    string   `json:"problem,omitempty"`    // "no_match", "many_matches", "not_read", "changed", "lfs_pointer", "binary", "outside", "missing", "same", "directory", "link", "submodule", "not_directory", "other", "too_large", "empty_old"
	Matches    []int    `json:"matches,omitempty"`    // line numbers
	Nearest    []string `json:"nearest,omitempty"`    // numbered lines around the best candidate
	Whitespace bool     `json:"whitespace,omitempty"` // matched only after ignoring leading white space
	Replaced   int      `json:"replaced,omitempty"`
	Line       int      `json:"line,omitempty"`      // of the first change
	After      []string `json:"after,omitempty"`     // numbered lines around the change, as they are now
	SHA256     string   `json:"sha256,omitempty"`    // of the file now
	Syntax     []string `json:"syntax,omitempty"`    // syntax errors that the edit added
	Unescaped  bool     `json:"unescaped,omitempty"` // matched after \xNN was read as that byte
	Created    bool     `json:"created,omitempty"`   // Write: there was no such file
	KeptCRLF   bool     `json:"kept_crlf,omitempty"` // Write: line ends were made the old file's
	KeptBOM    bool     `json:"kept_bom,omitempty"`  // Write: the old file's byte-order mark was kept
	Target     string   `json:"target,omitempty"`    // of the link in the way
}

// WriteRequest creates or replaces a whole file.
type WriteRequest struct {
	Path    string `json:"path"`
	Content []byte `json:"content"`
	SHA256  string `json:"sha256,omitempty"` // of the file as last seen; must be set to replace an existing file
	Mode    uint32 `json:"mode,omitempty"`   // default: keep, or 0644
	Force   bool   `json:"force,omitempty"`  // harness only: replace whatever is there, create parents, no checks
	Link    bool   `json:"link,omitempty"`   // harness only: make a symbolic link whose text is Content
	Delete  bool   `json:"delete,omitempty"` // harness only: remove the path
}

// SearchRequest is a ripgrep search.
type SearchRequest struct {
	Pattern string   `json:"pattern"`
	Literal bool     `json:"literal,omitempty"`
	Paths   []string `json:"paths,omitempty"` // below the work tree
	Globs   []string `json:"globs,omitempty"` // rg -g
	Case    string   `json:"case,omitempty"`  // "smart" (default), "sensitive", "insensitive"
	Context int      `json:"context,omitempty"`
	Max     int      `json:"max,omitempty"`   // matches returned, default 200
	Files   bool     `json:"files,omitempty"` // list matching file names by glob instead of searching text

	counts bool // only the counts are wanted
}

// SearchResult is by path and line. When there are more matches than were asked for, it has those
// that define something before any others, and of both as many from every file as can be.
type SearchResult struct {
	Files     []FileCount `json:"files"` // every file with a match, up to 5,000
	Matches   []Match     `json:"matches,omitempty"`
	Large     []string    `json:"large,omitempty"` // when nothing matches, some files that were not searched for their size
	Truncated bool        `json:"truncated,omitempty"`
	Error     string      `json:"error,omitempty"`   // bad pattern, in rg's words
	Indexed   bool        `json:"indexed,omitempty"` // the search index answered, not ripgrep alone
}

// SymbolsRequest asks where a name is defined and used, or, without a Name, what Path defines.
type SymbolsRequest struct {
	Name string `json:"name,omitempty"` // may be qualified: "Type.Method", "pkg.Func", "a::b"
	Path string `json:"path,omitempty"` // a file or directory: with a Name, what is near to it comes first
	Refs int    `json:"refs,omitempty"` // lines that use Name to return; 0: only definitions
	Max  int    `json:"max,omitempty"`  // definitions or entries of an outline, default [MaxSymbols]
}

// SymbolsResult is what is known about a name or a file. Texts are escaped as in ReadResult.Lines.
type SymbolsResult struct {
	Symbols []Symbol    `json:"symbols,omitempty"` // definitions, nearest first; or the outline, by file and line
	More    int         `json:"more,omitempty"`    // that are not among them
	How     string      `json:"how,omitempty"`     // how the names are met when not exactly: "case", "prefix", "unqualified"
	Refs    []Ref       `json:"refs,omitempty"`    // by file, nearest first
	Uses    int         `json:"uses,omitempty"`    // lines that use the name, in all
	Files   []FileCount `json:"files,omitempty"`   // those that hold them, nearest first; of a Go directory's outline those that import it
	Package string      `json:"package,omitempty"` // of a Go file or directory
	Imports []string    `json:"imports,omitempty"` //
	Partial string      `json:"partial,omitempty"` // what was not looked at
	Error   string      `json:"error,omitempty"`
	Indexed bool        `json:"indexed,omitempty"` // answered from the prepared symbols
}

// Symbol is one definition.
type Symbol struct {
	Name  string `json:"name"`
	Path  string `json:"path"`
	Line  int    `json:"line"`
	Kind  string `json:"kind"`
	Scope string `json:"scope,omitempty"`
	Text  string `json:"text"` // the line as it is in the file, without leading white space
}

// Ref is one line that uses a name.
type Ref struct {
	Path string `json:"path"`
	Line int    `json:"line"`
	Text string `json:"text"`
	In   string `json:"in,omitempty"` // the definition that it is part of
}

// FileCount is a file and its number of matching lines.
type FileCount struct {
	Path  string `json:"path"`
	Count int    `json:"count"`
}

// Match is one line.
type Match struct {
	Path    string `json:"path"`
	Line    int    `json:"line"`
	Text    string `json:"text"` // cut to 400 bytes, escaped like ReadResult.Lines
	Context bool   `json:"context,omitempty"`
}

// Limits of the guest. The tools' descriptions are written from them.
const (
	DefaultKeep   = 15_000                 // bytes of output kept from the start, and from the end
	MaxKeep       = 1 << 20                // the most a request may ask for
	DefaultMaxLog = 64 << 20               // bytes of a command's log
	MaxBackground = 16                     // background commands at once
	MaxWrite      = 64 << 20               // bytes of a written file
	DefaultLines  = 2_000                  // lines of a read
	MaxReadBytes  = 60_000                 // bytes of a read, in the form the model sees
	MaxLineBytes  = 2_000                  // of one line of a read, the rest is cut with a note
	MaxMatchBytes = 400                    // of one line of a search
	MaxFiles      = 5_000                  // files a search counts
	MaxMatches    = 200                    // matches a search returns unless asked for fewer
	MaxSymbols    = 20                     // definitions that are returned unless asked for more
	MaxRefs       = 200                    // lines that use a name
	MaxSearched   = codesearch.MaxFileSize // bytes of a file that is searched without being named
	MaxNarrow     = 100                    // files whose matches a search reads; of more it only gives the counts
)

// procRequest names a command; For is used by Wait.
type procRequest struct {
	Proc int           `json:"proc"`
	For  time.Duration `json:"for,omitempty"`
}

// fetchRequest asks for a file's bytes.
type fetchRequest struct {
	Path string `json:"path"`
	From int64  `json:"from,omitempty"` // byte
	Max  int64  `json:"max"`
}
