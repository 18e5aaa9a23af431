package guest

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// maxEdit is the longest file that can be edited, in bytes.
const maxEdit = 8 << 20

// around is how many lines before and after a change are shown.
const around = 3

// target is a file that a tool wants to change.
type target struct {
	rel     string
	content []byte
	mode    fs.FileMode
	exists  bool
}

// load opens the file of an edit or a write. A non-empty problem says why it cannot be
// changed; only a failure of the file system is an error.
func (t *tree) load(p string) (target, string, error) {
	rel, ok := t.rel(p)
	if !ok || bytes.ContainsRune([]byte(p), 0) {
		return target{}, "outside", nil
	}
	if rel == "." {
		return target{}, "directory", nil
	}
	f := target{rel: rel, mode: 0o644}
	if t.isSubmodule(rel) {
		return f, "submodule", nil
	}
	st, err := t.root.Lstat(rel)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return f, "missing", nil
	case err != nil:
		if link, _ := t.linkOn(p); link != "" {
			return f, "link", nil
		}
		if errors.Is(err, unix.ENOTDIR) {
			return f, "not_directory", nil
		}
		return f, "", plainPathError(p, err)
	case st.Mode()&fs.ModeSymlink != 0:
		return f, "link", nil
	case st.IsDir():
		return f, "directory", nil
	case !st.Mode().IsRegular():
		return f, "other", nil
	case st.Size() > maxEdit:
		return f, "too_large", nil
	}
	file, err := t.root.OpenFile(rel, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return f, "", plainPathError(p, err)
	}
	defer file.Close()
	if st, err = file.Stat(); err != nil || !st.Mode().IsRegular() {
		return f, "other", err
	}
	f.content, err = io.ReadAll(io.LimitReader(file, maxEdit+1))
	if err != nil {
		return f, "", plainPathError(p, err)
	}
	f.mode, f.exists = st.Mode().Perm(), true
	switch {
	case len(f.content) > maxEdit:
		return f, "too_large", nil
	case looksLFS(f.content):
		return f, "lfs_pointer", nil
	case looksBinary(f.content):
		return f, "binary", nil
	}
	return f, "", nil
}

// edit answers an EditRequest. Edits and writes happen one at a time, so that the digest a
// request names is compared and replaced as one act.
func (s *server) edit(ctx context.Context, r EditRequest) (EditResult, error) {
	s.files.Lock()
	defer s.files.Unlock()
	f, problem, err := s.tree.load(r.Path)
	if err != nil {
		return EditResult{}, err
	}
	if problem != "" {
		return s.refuse(r.Path, problem), nil
	}
	now := digest(f.content)
	switch {
	case len(r.Old) == 0:
		return EditResult{Problem: "empty_old"}, nil
	case bytes.Equal(r.Old, r.New):
		return EditResult{Problem: "same"}, nil
	case r.SHA256 == "":
		return EditResult{Problem: "not_read", Nearest: nearest(f.content, r.Old), SHA256: now}, nil
	case r.SHA256 != now:
		return EditResult{Problem: "changed", Nearest: nearest(f.content, r.Old), SHA256: now}, nil
	}
	m := match(f.content, r.Old, r.New, r.All)
	if m.problem != "" {
		return EditResult{Problem: m.problem, Matches: m.lines, Nearest: m.nearest, SHA256: now}, nil
	}
	if bytes.Equal(m.after, f.content) {
		return EditResult{Problem: "same", SHA256: now}, nil
	}
	if len(m.after) > maxEdit {
		return EditResult{Problem: "too_large", SHA256: now}, nil
	}
	if err := s.tree.replace(f.rel, m.after, f.mode); err != nil {
		return EditResult{}, plainPathError(r.Path, err)
	}
	line := 1 + bytes.Count(f.content[:m.at], []byte{'\n'})
	lines := splitLines(m.after)
	return EditResult{
		OK:         true,
		Whitespace: m.whitespace,
		Unescaped:  m.unescaped,
		Replaced:   m.count,
		Line:       line,
		After:      numbered(lines, line-around, line+min(lineCount(m.inserted), 40)-1+around),
		SHA256:     digest(m.after),
		Syntax:     s.newSyntaxErrors(ctx, f.rel, f.content, m.after),
	}, nil
}

// refuse fills in what there is to say about a path that cannot be changed.
func (s *server) refuse(p, problem string) EditResult {
	res := EditResult{Problem: problem}
	if problem == "link" {
		_, res.Target = s.tree.linkOn(p)
	}
	return res
}

// write answers a WriteRequest.
func (s *server) write(ctx context.Context, r WriteRequest) (EditResult, error) {
	s.files.Lock()
	defer s.files.Unlock()
	if len(r.Content) > MaxWrite {
		return EditResult{}, fmt.Errorf("file of %d bytes is over the limit of %d", len(r.Content), MaxWrite)
	}
	if r.Force {
		return s.force(r)
	}
	if r.Link || r.Delete {
		return EditResult{}, errors.New("links and deletions need force")
	}
	f, problem, err := s.tree.load(r.Path)
	if err != nil {
		return EditResult{}, err
	}
	if problem != "" && problem != "missing" {
		return s.refuse(r.Path, problem), nil
	}
	if len(r.Content) > maxEdit {
		return EditResult{Problem: "too_large"}, nil
	}
	res := EditResult{OK: true, Line: 1, Created: !f.exists}
	content := r.Content
	if f.exists {
		now := digest(f.content)
		switch r.SHA256 {
		case "":
			return EditResult{Problem: "not_read", SHA256: now}, nil
		case now:
		default:
			return EditResult{Problem: "changed", SHA256: now}, nil
		}
		content, res.KeptCRLF, res.KeptBOM = keepForm(f.content, content)
		if bytes.Equal(content, f.content) {
			return EditResult{Problem: "same", SHA256: now}, nil
		}
	} else if dir := path.Dir(f.rel); dir != "." {
		if err := s.tree.root.MkdirAll(dir, 0o755); err != nil {
			if link, target := s.tree.linkOn(dir); link != "" {
				return EditResult{Problem: "link", Target: target}, nil
			}
			return EditResult{}, plainPathError(r.Path, err)
		}
	}
	mode := f.mode
	if r.Mode != 0 {
		mode = fs.FileMode(r.Mode).Perm()
	}
	if err := s.tree.replace(f.rel, content, mode); err != nil {
		return EditResult{}, plainPathError(r.Path, err)
	}
	res.Replaced = lineCount(content)
	res.SHA256 = digest(content)
	res.Syntax = s.newSyntaxErrors(ctx, f.rel, f.content, content)
	return res, nil
}

// keepForm gives a new content the line ends and the byte-order mark of the old one, where
// the new one does not choose for itself.
func keepForm(old, content []byte) (out []byte, crlf, mark bool) {
	if usesCRLF(old) && bytes.IndexByte(content, '\n') >= 0 && bytes.IndexByte(content, '\r') < 0 {
		content, crlf = toCRLF(content), true
	}
	if bytes.HasPrefix(old, bom) && !bytes.HasPrefix(content, bom) {
		content, mark = append(bytes.Clone(bom), content...), true
	}
	return content, crlf, mark
}

// force does what the harness asks: whatever is at the path gives way.
func (s *server) force(r WriteRequest) (EditResult, error) {
	rel, ok := s.tree.rel(r.Path)
	if !ok || rel == "." {
		return EditResult{Problem: "outside"}, nil
	}
	root := s.tree.root
	if r.Delete {
		if err := root.RemoveAll(rel); err != nil {
			return EditResult{}, plainPathError(r.Path, err)
		}
		return EditResult{OK: true}, nil
	}
	if err := s.tree.makeParents(path.Dir(rel)); err != nil {
		return EditResult{}, plainPathError(r.Path, err)
	}
	if st, err := root.Lstat(rel); err == nil && (r.Link || !st.Mode().IsRegular()) {
		if err := root.RemoveAll(rel); err != nil {
			return EditResult{}, plainPathError(r.Path, err)
		}
	}
	if r.Link {
		if err := root.Symlink(string(r.Content), rel); err != nil {
			return EditResult{}, plainPathError(r.Path, err)
		}
		return EditResult{OK: true}, nil
	}
	mode := fs.FileMode(0o644)
	if r.Mode != 0 {
		mode = fs.FileMode(r.Mode).Perm()
	} else if st, err := root.Lstat(rel); err == nil {
		mode = st.Mode().Perm()
	}
	if err := s.tree.replace(rel, r.Content, mode); err != nil {
		return EditResult{}, plainPathError(r.Path, err)
	}
	return EditResult{OK: true, Line: 1, Replaced: lineCount(r.Content), SHA256: digest(r.Content)}, nil
}

// makeParents makes dir; a file or a link in its way is removed.
func (t *tree) makeParents(dir string) error {
	if dir == "." {
		return nil
	}
	if err := t.makeParents(path.Dir(dir)); err != nil {
		return err
	}
	st, err := t.root.Lstat(dir)
	if err == nil && st.IsDir() {
		return nil
	}
	if err == nil {
		if err := t.root.Remove(dir); err != nil {
			return err
		}
	}
	return t.root.Mkdir(dir, 0o755)
}

// replace puts content at rel with one rename, so that a reader sees the old file or the new.
func (t *tree) replace(rel string, content []byte, mode fs.FileMode) error {
	temp := path.Join(path.Dir(rel), ".daybreak-"+rand.Text())
	file, err := t.root.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err == nil {
		err = file.Chmod(mode) // past the umask
	}
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = t.root.Rename(temp, rel)
	}
	if err != nil {
		_ = t.root.Remove(temp)
	}
	return err
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
