package git

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// BranchPrefix starts every branch that Daybreak pushes; nothing else can be pushed.
const BranchPrefix = "daybreak/"

// CheckBranch refuses every name but "daybreak/" and components of lower-case letters, digits,
// "-" and "_" that start with a letter or digit. That is far narrower than git's own rule, so
// that a name can be part of a path, a URL and a refspec without quoting.
func CheckBranch(name string) error {
	bad := &task.Error{
		Class: task.Invalid, Msg: fmt.Sprintf("%q is not a branch that Daybreak may push", name),
		Fix: "use " + BranchPrefix + " and lower-case letters, digits, - and _",
	}
	rest, ok := strings.CutPrefix(name, BranchPrefix)
	if !ok || len(name) > 200 {
		return bad
	}
	for c := range strings.SplitSeq(rest, "/") {
		if c == "" || c[0] == '-' || c[0] == '_' || strings.Trim(c, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return bad
		}
	}
	return nil
}

// RemoteBranch returns the commit a branch points at in target (a directory or URL), or ""
// when there is no such branch. Any branch may be asked for.
func (g *Git) RemoteBranch(ctx context.Context, target, branch string) (string, error) {
	s, err := parseSource(target)
	if err != nil {
		return "", err
	}
	if err := checkRev(branch); err != nil {
		return "", err
	}
	args := []string{"ls-remote", "--quiet", "--refs"}
	if s.local {
		if _, err := os.Stat(s.url); err != nil {
			return "", &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("repository %s cannot be read", s.shown), Err: err}
		}
		args = append(args, "--upload-pack="+g.helper("upload-pack"))
	}
	ref := "refs/heads/" + branch
	out, err := g.run(ctx, call{args: append(args, "--", s.url, ref), max: 16 << 20, asks: s.url})
	if err != nil {
		return "", remoteError(s, branch, err)
	}
	return parseRefs(out)[ref], nil
}

// Push publishes commit as the branch of target, provided the branch is at expectedOld there
// ("": does not exist). found says that it was at commit already. Class Conflict: the branch
// is elsewhere, or checked out in a work tree of the target. On a directory no hook of the
// target runs and nothing but its objects and that one ref changes.
func (g *Git) Push(ctx context.Context, gitdir, target, commit, branch, expectedOld string) (found bool, err error) {
	if err := CheckBranch(branch); err != nil {
		return false, err
	}
	if !IsID(commit) || expectedOld != "" && !IsID(expectedOld) {
		return false, &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("cannot push %q over %q: full commit ids are needed", commit, expectedOld)}
	}
	s, err := parseSource(target)
	if err != nil {
		return false, err
	}
	if now, err := g.RemoteBranch(ctx, target, branch); err != nil || now == commit {
		return err == nil, err
	} else if now != expectedOld {
		return false, moved(s, branch, now, expectedOld)
	}
	ref := "refs/heads/" + branch
	args := []string{
		"--git-dir=" + gitdir, "push", "--porcelain", "--no-verify", "--no-signed", "--no-follow-tags",
		"--recurse-submodules=no", "--force-with-lease=" + ref + ":" + expectedOld,
	}
	if s.local {
		// One small pack instead of loose objects leaves no directory of another owner behind.
		args = append(args, "--receive-pack="+g.helper("receive-pack", "receive.denyCurrentBranch=refuse", "receive.autogc=false",
			"receive.unpackLimit=1", "receive.updateServerInfo=false", "receive.advertisePushOptions=false"))
	}
	out, err := g.run(ctx, call{args: append(args, "--", s.url, commit+":"+ref), max: 1 << 20, asks: s.url})
	if s.local {
		if aerr := g.adopt(ctx, s, branch); aerr != nil && err == nil {
			err = aerr
		}
	}
	var f *failure
	if !errors.As(err, &f) {
		return false, err
	}
	if strings.Contains(string(out)+f.stderr, "branch is currently checked out") {
		return false, &task.Error{Class: task.Conflict, Msg: fmt.Sprintf("branch %s is checked out in %s", branch, s.shown), Fix: "check out another branch there"}
	}
	// Another push may have come in between: what the branch is now decides.
	if now, rerr := g.RemoteBranch(ctx, target, branch); rerr == nil && now == commit {
		return true, nil
	} else if rerr == nil && now != expectedOld {
		return false, moved(s, branch, now, expectedOld)
	}
	return false, pushError(s, branch, string(out), f)
}

func pushError(s source, branch, out string, f *failure) error {
	why := oneLine(f.stderr)
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "!") {
			fields := strings.Split(strings.TrimSpace(line), "\t")
			why = oneLine(fields[len(fields)-1])
		}
	}
	err := remoteError(s, branch, f)
	var e *task.Error
	if errors.As(err, &e) {
		e.Msg, e.Err = fmt.Sprintf("cannot push %s to %s", branch, s.shown), errors.New(why)
	}
	return err
}

func moved(s source, branch, now, want string) error {
	name := func(id string) string {
		if id == "" {
			return "not there"
		}
		return "at " + id[:12]
	}
	return &task.Error{
		Class: task.Conflict, Msg: fmt.Sprintf("branch %s of %s is %s, expected it %s", branch, s.shown, name(now), name(want)),
		Fix: "somebody else changed it; look at that branch first",
	}
}

// adopt gives what a push by root wrote into somebody's repository to that repository's
// owner, who could otherwise not delete the branch.
func (g *Git) adopt(ctx context.Context, s source, branch string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	out, err := g.run(ctx, call{dir: s.url, args: []string{"rev-parse", "--path-format=absolute", "--git-common-dir"}, max: 64 << 10})
	if err != nil {
		return err
	}
	// All paths are resolved below the repository: a link that its owner put there cannot make
	// root give away anything else.
	root, err := os.OpenRoot(strings.TrimSuffix(string(out), "\n"))
	if err != nil {
		return err
	}
	defer root.Close()
	fi, err := root.Stat(".")
	if err != nil {
		return err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok || st.Uid == 0 {
		return nil
	}
	give := func(p string) error {
		fi, err := root.Lstat(p)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if own, ok := fi.Sys().(*syscall.Stat_t); ok && own.Uid == 0 {
			return root.Lchown(p, int(st.Uid), int(st.Gid))
		}
		return nil
	}
	ref := filepath.Join("refs/heads", branch)
	for ; ref != "refs/heads" && ref != "."; ref = filepath.Dir(ref) {
		if err := give(ref); err != nil {
			return err
		}
	}
	packs, err := fs.ReadDir(root.FS(), "objects/pack")
	if err != nil {
		return nil //nolint:nilerr // none, or kept elsewhere: not ours to give
	}
	for _, p := range packs {
		if !strings.HasPrefix(p.Name(), "pack-") {
			continue
		}
		if err := give("objects/pack/" + p.Name()); err != nil {
			return err
		}
	}
	return nil
}
