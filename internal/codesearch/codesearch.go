// Package codesearch owns the index over a prepared tree and the queries on it: a trigram
// index of its text files, kept in segments that are mapped into memory, and a matcher that
// reads only the files which may match.
//
// Invariants: an answer is exactly what ripgrep says about the same files, and what the matcher
// cannot promise that for it names instead of guessing ([Answer.Ask]); the index never decides
// that a file matches, only that it cannot; a segment that is damaged is an error, never a wrong
// answer that goes unseen; a segment is complete or absent, and nothing writes to it afterwards.
//
// The index is the one of Russ Cox, "Regular Expression Matching with a Trigram Index" (2012),
// over text folded to lower case, so that a search without regard to case costs no more.
package codesearch

// MaxFileSize is the largest file that is searched, in bytes: ripgrep is told the same.
const MaxFileSize = 16 << 20

// Query says what to look for.
type Query struct {
	Pattern    string // RE2 syntax, within one line
	Literal    bool   // Pattern is plain text
	IgnoreCase bool
	Paths      []string // files or directories below the root, cleaned; none: everything
	Globs      []string // as ripgrep's --glob
	// MostAsk is how many files the caller would ask ripgrep about; where there are more, nothing is
	// read and the answer is [ErrAsk]. 0: any number.
	MostAsk int
}

// Count is how many lines of a file match.
type Count struct {
	Path  string
	Lines int
}

// Pick says which lines of the files to return.
type Pick struct {
	First  int     // matching lines of each file that are looked at, the first ones
	Around int     // lines before and behind each that is returned
	Only   [][]int // for each file the numbers, ascending, of those to return; nil: all that are looked at
	Bytes  int     // most of a line; 0: any number
}

// Line is one line of a file.
type Line struct {
	Number int    // from 1
	Match  bool   // it was picked; else it is near to one that was
	Text   []byte // without its line feed, as much as was wanted
	Size   int    // of the whole line; a carriage return at its end counts when Text has it
}

// Answer is what the index knows.
type Answer struct {
	Counts []Count // files whose matching lines were counted, by path
	// Ask are files that only ripgrep can judge, or far sooner: not UTF-8, with NUL bytes, where the
	// pattern means another thing for letters beyond ASCII, or with very long lines. By path.
	Ask   []string
	Files int // files that were read
}
