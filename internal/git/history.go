package git

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// Note is what a commit on a branch says of itself.
type Note struct {
	ID      string
	By      string // its author's name, which nobody vouches for
	At      time.Time
	Message string
}

// historyDepth bounds how far back a branch is read, in generations of commits.
const historyDepth = 1000

// Notes reads what the commits on a branch of src say, newest first, at most [historyDepth]
// generations and none from before since. It keeps commits without their files in gitdir, a
// bare repository of ours for this purpose alone, where src lets it. Classes are those of
// [Git.FetchCommit].
func (g *Git) Notes(ctx context.Context, gitdir, src, branch string, since time.Time) ([]Note, error) {
	if err := checkRev(branch); err != nil {
		return nil, err
	}
	if strings.ContainsAny(branch, ":*?[^~\\ ") {
		return nil, &task.Error{Class: task.Invalid, Msg: "not the name of a branch: " + oneLine(branch)}
	}
	s, err := parseSource(src)
	if err != nil {
		return nil, err
	}
	if err := g.EnsureBare(ctx, gitdir); err != nil {
		return nil, err
	}
	const ref = "refs/daybreak/history"
	args := []string{
		"--git-dir=" + gitdir, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules",
		"--no-auto-maintenance", "--filter=tree:0", "--depth=" + strconv.Itoa(historyDepth),
	}
	if s.local {
		args = append(args, "--upload-pack="+g.helper("upload-pack", "uploadpack.allowFilter=true"))
	}
	if _, err := g.run(ctx, call{args: append(args, "--", s.url, "+refs/heads/"+branch+":"+ref), asks: s.url}); err != nil {
		if f := (*failure)(nil); errors.As(err, &f) && strings.Contains(f.stderr, "couldn't find remote ref") {
			return nil, &task.Error{Class: task.NotFound, Msg: "no branch " + branch + " in " + s.shown}
		}
		return nil, remoteError(s, branch, err)
	}
	out, err := g.in(ctx, gitdir, "log", "-z", "--no-show-signature", "--since="+strconv.FormatInt(since.Unix(), 10), "--format=%H%n%ct%n%an%n%B", ref, "--")
	if err != nil {
		return nil, err
	}
	return parseNotes(out)
}

func parseNotes(out []byte) ([]Note, error) {
	var notes []Note
	for rec := range bytes.SplitSeq(out, []byte{0}) {
		if len(rec) == 0 {
			continue
		}
		f := strings.SplitN(strings.ToValidUTF8(string(rec), "\uFFFD"), "\n", 4)
		if len(f) < 4 || !IsID(f[0]) {
			return nil, &task.Error{Class: task.Internal, Msg: "git log printed what is not understood"}
		}
		at, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			return nil, &task.Error{Class: task.Internal, Msg: "git log printed what is not understood", Err: err}
		}
		notes = append(notes, Note{ID: f[0], At: time.Unix(at, 0).UTC(), By: f[2], Message: strings.TrimRight(f[3], "\n")})
	}
	return notes, nil
}
