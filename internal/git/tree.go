package git

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha1" //nolint:gosec // git's object ids are SHA-1
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// BuildTree stores the contents and returns the tree that is base with the changes made. No
// patch text, checkout or hook is involved: the blobs arrive as one pack, the tree comes from
// an index of its own. The result's difference from base must then be the changes exactly,
// path for path, mode and bytes; otherwise an error of class Invalid names the first path.
// A change that changes nothing is such a difference: see [Git.DropUnchanged].
func (g *Git) BuildTree(ctx context.Context, gitdir, base string, changes []Change) (string, error) {
	baseTree, err := g.TreeID(ctx, gitdir, base)
	if err != nil {
		return "", err
	}
	want, err := expected(changes)
	if err != nil {
		return "", err
	}
	if len(changes) == 0 {
		return baseTree, nil
	}
	if err := g.storeBlobs(ctx, gitdir, changes); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(gitdir, "tmp-index-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	env := []string{"GIT_INDEX_FILE=" + filepath.Join(tmp, "index")}
	at := func(stdin io.Reader, args ...string) ([]byte, error) {
		return g.run(ctx, call{args: append([]string{"--git-dir=" + gitdir}, args...), env: env, stdin: stdin})
	}
	if _, err := at(nil, "read-tree", baseTree); err != nil {
		return "", err
	}
	if _, err := at(indexInfo(changes, want), "update-index", "-z", "--index-info"); err != nil {
		return "", &task.Error{Class: task.Invalid, Msg: "the change does not fit the base tree", Err: err}
	}
	out, err := at(nil, "write-tree")
	if err != nil {
		return "", &task.Error{Class: task.Invalid, Msg: "the change gives no valid tree", Err: err}
	}
	tree := strings.TrimSpace(string(out))
	if err := g.checkTree(ctx, gitdir, baseTree, tree, want); err != nil {
		return "", err
	}
	return tree, nil
}

// entry is what a changed path must be in the new tree; the zero value is "gone".
type entry struct {
	mode uint32
	id   string
}

// expected turns the changes into the wanted difference, refusing what no tree can hold.
func expected(changes []Change) (map[string]entry, error) {
	want := make(map[string]entry, len(changes))
	for _, c := range changes {
		if _, twice := want[c.Path]; twice {
			return nil, badPath(c.Path, "is in the change twice")
		}
		if !plain(c.Path) {
			return nil, badPath(c.Path, "is not a relative path of ordinary names")
		}
		if c.Deleted {
			want[c.Path] = entry{}
			continue
		}
		switch c.Mode {
		case ModeFile, ModeExecutable, ModeLink:
		default:
			return nil, badPath(c.Path, fmt.Sprintf("has mode %06o; only files, executables and links are taken", c.Mode))
		}
		want[c.Path] = entry{c.Mode, BlobID(c.Content)}
	}
	return want, nil
}

func badPath(path, what string) error {
	return &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("path %q %s", path, what)}
}

// indexInfo lists deletions first, so that a file can give way to a directory of its name.
func indexInfo(changes []Change, want map[string]entry) io.Reader {
	var gone, new bytes.Buffer
	for _, c := range changes {
		e := want[c.Path]
		if c.Deleted {
			fmt.Fprintf(&gone, "0 %s\t%s\x00", strings.Repeat("0", 40), c.Path)
			continue
		}
		fmt.Fprintf(&new, "%06o %s\t%s\x00", e.mode, e.id, c.Path)
	}
	return io.MultiReader(&gone, &new)
}

// checkTree compares the two trees and demands the wanted difference.
func (g *Git) checkTree(ctx context.Context, gitdir, base, tree string, want map[string]entry) error {
	got, err := g.ChangedPaths(ctx, gitdir, base, tree)
	if err != nil {
		return err
	}
	seen := make(map[string]bool, len(got))
	for _, d := range got {
		w, ok := want[d.Path]
		switch {
		case !ok:
			return badPath(d.Path, "would change without being in the change")
		case w.mode != d.NewMode || (w.mode != 0 && w.id != d.NewID):
			return badPath(d.Path, "did not reach the tree as exported")
		}
		seen[d.Path] = true
	}
	paths := make([]string, 0, len(want))
	for p := range want {
		if !seen[p] {
			paths = append(paths, p)
		}
	}
	if len(paths) == 0 {
		return nil
	}
	sort.Strings(paths)
	return badPath(paths[0], "did not reach the tree: git does not take this name, or nothing about it changes")
}

// DropUnchanged leaves out changes that would change nothing: the same bytes and mode as in
// base, or the deletion of a path that base does not have.
func (g *Git) DropUnchanged(ctx context.Context, gitdir, base string, changes []Change) ([]Change, error) {
	entries, err := g.ListTree(ctx, gitdir, base)
	if err != nil {
		return nil, err
	}
	have := make(map[string]entry, len(entries))
	for _, e := range entries {
		have[e.Path] = entry{e.Mode, e.ID}
	}
	var out []Change
	for _, c := range changes {
		old, ok := have[c.Path]
		if c.Deleted && !ok || !c.Deleted && ok && old == (entry{c.Mode, BlobID(c.Content)}) {
			continue
		}
		out = append(out, c)
	}
	return out, nil
}

// BlobID is the object id of a file with this content.
func BlobID(content []byte) string {
	h := sha1.New() //nolint:gosec // git's object ids are SHA-1
	fmt.Fprintf(h, "blob %d\x00", len(content))
	h.Write(content)
	return hex.EncodeToString(h.Sum(nil))
}

// storeBlobs gives all contents to one git process as a pack: a process per blob would cost
// a millisecond and more each. Few become loose objects, many stay a pack.
func (g *Git) storeBlobs(ctx context.Context, gitdir string, changes []Change) error {
	blobs := map[string][]byte{}
	for _, c := range changes {
		if !c.Deleted {
			blobs[BlobID(c.Content)] = c.Content
		}
	}
	if len(blobs) == 0 {
		return nil
	}
	args := []string{"--git-dir=" + gitdir, "unpack-objects", "-q"}
	if len(blobs) > 100 {
		args = []string{"--git-dir=" + gitdir, "index-pack", "--stdin"}
	}
	pr, pw := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		pw.CloseWithError(writePack(pw, blobs))
	}()
	_, err := g.run(ctx, call{args: args, stdin: pr, max: 1 << 20})
	pr.CloseWithError(io.ErrClosedPipe)
	<-done
	return err
}

// writePack writes a version 2 pack of whole blobs (gitformat-pack(5)).
func writePack(w io.Writer, blobs map[string][]byte) error {
	sum := sha1.New() //nolint:gosec // the pack trailer is SHA-1
	bw := bufio.NewWriterSize(w, 64<<10)
	out := io.MultiWriter(bw, sum)
	ids := make([]string, 0, len(blobs))
	for id := range blobs {
		ids = append(ids, id)
	}
	sort.Strings(ids)
	var head [12]byte
	copy(head[:], "PACK")
	binary.BigEndian.PutUint32(head[4:], 2)
	binary.BigEndian.PutUint32(head[8:], uint32(len(ids)))
	if _, err := out.Write(head[:]); err != nil {
		return err
	}
	for _, id := range ids {
		if err := writePackBlob(out, blobs[id]); err != nil {
			return err
		}
	}
	return finishPack(bw, sum)
}

func writePackBlob(out io.Writer, content []byte) error {
	const blobType = 3
	n := uint64(len(content))
	b := byte(blobType<<4) | byte(n&15)
	n >>= 4
	var head []byte
	for n > 0 {
		head = append(head, b|0x80)
		b, n = byte(n&0x7f), n>>7
	}
	if _, err := out.Write(append(head, b)); err != nil {
		return err
	}
	z, err := zlib.NewWriterLevel(out, zlib.BestSpeed)
	if err != nil {
		return err
	}
	if _, err := z.Write(content); err != nil {
		return err
	}
	return z.Close()
}

func finishPack(bw *bufio.Writer, sum hash.Hash) error {
	if _, err := bw.Write(sum.Sum(nil)); err != nil {
		return err
	}
	return bw.Flush()
}

// CommitInfo is everything of a commit but its tree and parent.
type CommitInfo struct {
	AuthorName  string // also the committer
	AuthorEmail string
	When        time.Time // whole seconds, written as UTC
	Message     string
}

func neutral() CommitInfo {
	return CommitInfo{"Daybreak", "daybreak@localhost", time.Unix(checkoutTime, 0), "Base\n"}
}

// Commit stores a commit of the tree and returns its id; the same arguments give the same id.
// Parents may be "" and are left out then; with two of them it is a merge.
func (g *Git) Commit(ctx context.Context, gitdir, tree, parent string, info CommitInfo, merged ...string) (string, error) {
	parents := slices.DeleteFunc(append([]string{parent}, merged...), func(p string) bool { return p == "" })
	for _, id := range append([]string{tree}, parents...) {
		if !IsID(id) {
			return "", &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("%q is not an object id", id)}
		}
	}
	name, email := identity(info.AuthorName, "Daybreak"), identity(info.AuthorEmail, "daybreak@localhost")
	when := fmt.Sprintf("@%d +0000", info.When.Unix())
	args := []string{"--git-dir=" + gitdir, "commit-tree", "-F", "-"}
	for _, p := range parents {
		args = append(args, "-p", p)
	}
	out, err := g.run(ctx, call{args: append(args, tree), stdin: strings.NewReader(strings.ReplaceAll(info.Message, "\x00", "")), env: []string{
		"GIT_AUTHOR_NAME=" + name, "GIT_AUTHOR_EMAIL=" + email, "GIT_AUTHOR_DATE=" + when,
		"GIT_COMMITTER_NAME=" + name, "GIT_COMMITTER_EMAIL=" + email, "GIT_COMMITTER_DATE=" + when,
	}})
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(out)), nil
}

// identity drops what would end the field in a commit's header.
func identity(s, fallback string) string {
	s = strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == '<' || r == '>' || r == 0x7f {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "")))
	if strings.Trim(s, ".,:;\"'\\ ") == "" {
		return fallback
	}
	return s
}
