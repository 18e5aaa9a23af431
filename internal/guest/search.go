package guest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	searchTimeout  = 60 * time.Second
	maxCollected   = 1_000   // matches that are returned
	maxLooked      = 20_000  // and that are looked at to choose them
	maxCountBytes  = 8 << 20 // of rg's counts
	maxContext     = 10
	maxLarge       = 5 // files that are named for their size
	maxSearchPaths = 100
)

// search answers a SearchRequest with runs of ripgrep: one that counts, and, when the files are
// few, one that reads their matches, and another for what stands around those that were chosen.
// All orders are fixed.
func (s *server) search(ctx context.Context, r SearchRequest) (SearchResult, error) {
	ctx, cancel := context.WithTimeout(ctx, searchTimeout)
	defer cancel()
	paths, problem := s.searchPaths(r.Paths)
	if problem != "" {
		return SearchResult{Error: problem}, nil
	}
	if r.Files {
		return s.listFiles(ctx, r, paths)
	}
	if r.Pattern == "" {
		return SearchResult{Error: "the pattern is empty"}, nil
	}
	if res, ok, err := s.searchIndexed(ctx, r, paths); ok || err != nil {
		return res, err
	}
	base := rgArgs(r)
	files, out, err := s.countLines(ctx, base, r.Pattern, paths)
	if err != nil {
		return SearchResult{}, err
	}
	if out != "" {
		return SearchResult{Error: out}, nil
	}
	named := make([]string, len(files))
	for i, f := range files {
		named[i] = "./" + f.Path
	}
	res, limit, total := shape(r, files, ctx.Err() != nil)
	if len(files) == 0 && !r.counts {
		res.Large, err = s.large(ctx, r, paths)
		return res, err
	}
	err = s.fill(&res, r, limit, total, func(w lines) ([]Match, string, error) {
		return s.matchingLines(ctx, base, r.Pattern, named, w)
	})
	return res, err
}

// large names the first files that a search passes over for their size.
func (s *server) large(ctx context.Context, r SearchRequest, paths []string) ([]string, error) {
	var out []string
	_, err := s.rg(ctx, listArgs(r, paths), func(in io.Reader) error {
		return eachName(in, func(name string) bool {
			st, err := s.tree.root.Lstat(name)
			if err == nil && st.Size() > MaxSearched && !slices.Contains(paths, "./"+name) {
				out = append(out, Escape([]byte(name), false))
			}
			return len(out) < MaxFiles
		})
	})
	slices.Sort(out)
	return out[:min(len(out), maxLarge)], err
}

func listArgs(r SearchRequest, paths []string) []string {
	args := []string{"--no-config", "--hidden", "--glob", "!.git", "--color", "never", "--files", "--null"}
	args = append(args, globArgs(r.Globs)...)
	return append(append(args, "--"), paths...)
}

// eachName reads names with a NUL behind each until yield returns false.
func eachName(in io.Reader, yield func(name string) bool) error {
	b := bufio.NewReaderSize(in, 64<<10)
	for {
		name, err := b.ReadSlice(0)
		if err != nil {
			return ignoreEOF(err)
		}
		if !yield(path.Clean(string(name[:len(name)-1]))) {
			return nil
		}
	}
}

// countLines runs ripgrep for the number of matching lines of each file, by its raw path.
func (s *server) countLines(ctx context.Context, args []string, pattern string, paths []string) (files []FileCount, complaint string, err error) {
	args = append(slices.Clone(args), "--count", "--null", "--with-filename", "-e", pattern, "--")
	complaint, err = s.rg(ctx, append(args, paths...), func(in io.Reader) error {
		var err error
		files, err = parseCounts(in)
		return err
	})
	slices.SortFunc(files, func(a, b FileCount) int { return strings.Compare(a.Path, b.Path) })
	return files, complaint, err
}

// lines says which lines of the files to read.
type lines struct {
	each    int              // matching lines of a file that are looked at, the first ones; 0: all
	context int              // lines around each
	only    map[string][]int // by escaped path the numbers of those that are wanted, ascending; nil: all
}

// wants reports whether a line is one of those or stands around one; a match that is not wanted
// itself is no more than that.
func (w lines) wants(m *Match) bool {
	if w.only == nil {
		return true
	}
	list := w.only[m.Path]
	i, found := slices.BinarySearch(list, m.Line)
	m.Context = !found
	return found || (i < len(list) && list[i]-m.Line <= w.context) || (i > 0 && m.Line-list[i-1] <= w.context)
}

// matchingLines runs ripgrep for the lines themselves.
func (s *server) matchingLines(ctx context.Context, args []string, pattern string, paths []string, w lines) (out []Match, complaint string, err error) {
	args = append(slices.Clone(args), "--json", "--sort", "path", "--context", strconv.Itoa(w.context))
	if w.each > 0 {
		args = append(args, "--max-count", strconv.Itoa(w.each))
	}
	args = append(args, "-e", pattern, "--")
	complaint, err = s.rg(ctx, append(args, paths...), func(in io.Reader) error {
		var err error
		out, err = parseMatches(in, w)
		return err
	})
	return out, complaint, err
}

// fill adds limit of the total of matching lines to an answer, as read finds them. When there are
// more, it looks at them before it chooses: what defines the name may be anywhere.
func (s *server) fill(res *SearchResult, r SearchRequest, limit, total int, read func(lines) ([]Match, string, error)) (err error) {
	around := min(max(r.Context, 0), maxContext)
	byPath := func(a, b Match) int { return strings.Compare(a.Path, b.Path) }
	if limit == 0 {
		return nil
	}
	if total <= limit {
		res.Matches, res.Error, err = read(lines{context: around})
		slices.SortStableFunc(res.Matches, byPath)
		return err
	}
	res.Truncated = true
	counts := make([]int, len(res.Files))
	for i, f := range res.Files {
		counts[i] = f.Count
	}
	deal, _ := share(counts, maxLooked)
	w := lines{each: slices.Max(deal)}
	all, complaint, err := read(w)
	if err != nil || complaint != "" {
		res.Error = complaint
		return err
	}
	slices.SortStableFunc(all, byPath)
	if res.Matches = RankingOf(r).choose(all, limit); around == 0 {
		return nil
	}
	w.context, w.only = around, make(map[string][]int)
	for _, m := range res.Matches {
		w.only[m.Path] = append(w.only[m.Path], m.Line)
	}
	res.Matches, res.Error, err = read(w)
	slices.SortStableFunc(res.Matches, byPath)
	return err
}

// shape makes the answer of the counts. limit is how many lines to read, none when there are too
// many files or none; total is how many there are.
func shape(r SearchRequest, files []FileCount, cut bool) (res SearchResult, limit, total int) {
	res.Files = slices.Clone(files)
	if len(files) >= MaxFiles || cut {
		res.Files, res.Truncated = res.Files[:min(len(files), MaxFiles)], true
	}
	for i, f := range res.Files {
		res.Files[i].Path = Escape([]byte(f.Path), false)
		total += f.Count
	}
	if len(files) == 0 || len(files) > MaxNarrow || r.counts {
		return res, 0, total
	}
	limit = r.Max
	if limit <= 0 || limit > maxCollected {
		limit = MaxMatches
	}
	return res, limit, total
}

func rgArgs(r SearchRequest) []string {
	args := []string{"--no-config", "--hidden", "--glob", "!.git", "--color", "never", "--max-filesize", strconv.Itoa(MaxSearched)}
	if r.Literal {
		args = append(args, "--fixed-strings")
	}
	switch r.Case {
	case "sensitive":
		args = append(args, "--case-sensitive")
	case "insensitive":
		args = append(args, "--ignore-case")
	default:
		args = append(args, "--smart-case")
	}
	return append(args, globArgs(r.Globs)...)
}

// globArgs selects files. To rg a --glob that selects overrides .gitignore, a file type does
// not; so patterns of plain names become a type.
func globArgs(globs []string) []string {
	plain := true
	for _, g := range globs {
		if !strings.HasPrefix(g, "!") && strings.ContainsAny(g, "/:") {
			plain = false
		}
	}
	var args []string
	typed := false
	for _, g := range globs {
		if plain && !strings.HasPrefix(g, "!") {
			args, typed = append(args, "--type-add", "wanted:"+g), true
			continue
		}
		args = append(args, "--glob", g)
	}
	if typed {
		args = append(args, "--type", "wanted")
	}
	return args
}

// searchPaths checks that each path lies in the tree, links included: rg follows a link that
// is named on its command line.
func (s *server) searchPaths(in []string) (paths []string, problem string) {
	if len(in) > maxSearchPaths {
		return nil, fmt.Sprintf("more than %d paths", maxSearchPaths)
	}
	for _, p := range in {
		rel, ok := s.tree.rel(p)
		if !ok || strings.ContainsRune(p, 0) {
			return nil, fmt.Sprintf("%s is outside the work tree; search it with run and rg", Escape([]byte(p), false))
		}
		if _, err := s.tree.root.Stat(rel); err != nil {
			if link, _ := s.tree.linkOn(p); link != "" {
				return nil, fmt.Sprintf("%s is a link that leaves the work tree or leads nowhere", Escape([]byte(link), false))
			}
			return nil, oneLine(plainPathError(p, err).Error())
		}
		paths = append(paths, "./"+rel)
	}
	if len(paths) == 0 {
		paths = []string{"./"}
	}
	return paths, ""
}

func (s *server) listFiles(ctx context.Context, r SearchRequest, paths []string) (SearchResult, error) {
	var res SearchResult
	out, err := s.rg(ctx, listArgs(r, paths), func(in io.Reader) error {
		return eachName(in, func(name string) bool {
			if res.Truncated = len(res.Files) == MaxFiles; !res.Truncated {
				res.Files = append(res.Files, FileCount{Path: Escape([]byte(name), false)})
			}
			return !res.Truncated
		})
	})
	if err != nil {
		return SearchResult{}, err
	}
	slices.SortFunc(res.Files, func(a, b FileCount) int { return strings.Compare(a.Path, b.Path) })
	res.Error = out
	res.Truncated = res.Truncated || ctx.Err() != nil
	return res, nil
}

// rg runs ripgrep; see helper. The text it returns is rg's complaint about the request.
func (s *server) rg(ctx context.Context, args []string, parse func(io.Reader) error) (complaint string, err error) {
	res, err := s.helper(ctx, append([]string{"rg"}, args...), parse)
	if err == nil && res.ExitCode == 2 && ctx.Err() == nil {
		return rgComplaint(res.Head), nil
	}
	return "", err
}

var errNoHelper = errors.New("cannot run in the sandbox")

// helper runs a program of ours and hands its output to parse, which may stop early: the program
// is then killed.
func (s *server) helper(ctx context.Context, argv []string, parse func(io.Reader) error) (ExecResult, error) {
	return s.helperFed(ctx, argv, nil, parse)
}

// helperFed is helper for a program that reads.
func (s *server) helperFed(ctx context.Context, argv []string, stdin []byte, parse func(io.Reader) error) (ExecResult, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return ExecResult{}, fmt.Errorf("make a pipe: %w", err)
	}
	defer read.Close()
	c, res, err := s.procs.startPiped(argv, stdin, write)
	write.Close()
	if err != nil {
		return ExecResult{}, err
	}
	if c == nil {
		return ExecResult{}, fmt.Errorf("%s %w: %s", argv[0], errNoHelper, res.Error)
	}
	stop := context.AfterFunc(ctx, func() { s.procs.killTree(c) })
	defer stop()
	err = parse(read)
	// Closing ends a program whose answer is not wanted to its end; a finished one keeps its code.
	read.Close()
	<-c.done
	if err != nil {
		return ExecResult{}, fmt.Errorf("read the answer of %s: %w", argv[0], err)
	}
	return c.res, nil
}

// rgComplaint is what rg says about a bad pattern or glob. That a file could not be read is
// no reason to fail a search.
func rgComplaint(b []byte) string {
	text := strings.TrimSpace(string(b))
	if strings.Contains(text, "os error") || text == "" {
		return ""
	}
	return Escape([]byte(text), true)
}

// parseCounts reads "path NUL count LF" pairs.
func parseCounts(in io.Reader) ([]FileCount, error) {
	b := bufio.NewReaderSize(io.LimitReader(in, maxCountBytes), 64<<10)
	var out []FileCount
	for len(out) < MaxFiles {
		name, err := b.ReadSlice(0)
		if err != nil {
			return out, ignoreEOF(err)
		}
		p := path.Clean(string(name[:len(name)-1]))
		count, err := b.ReadSlice('\n')
		if err != nil {
			return out, ignoreEOF(err)
		}
		n, err := strconv.Atoi(string(bytes.TrimSpace(count)))
		if err != nil || n < 0 {
			return out, fmt.Errorf("a count that is none: %.20q", count)
		}
		out = append(out, FileCount{Path: p, Count: n})
	}
	return out, nil
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, fs.ErrClosed) {
		return nil
	}
	return err
}
