package git

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// source is a parsed repository location.
type source struct {
	url   string // what git is given
	local bool   // a directory of this machine
	shown string // for messages, without credentials
}

// parseSource decides between a directory and a URL. Only file, http, https and ssh are
// spoken; "transport::address" and anything like an option are refused.
func parseSource(s string) (source, error) {
	bad := func(what string) (source, error) {
		return source{}, &task.Error{
			Class: task.Invalid, Msg: fmt.Sprintf("repository %q %s", RedactURL(s), what),
			Fix: "give a directory or an https, ssh or file URL",
		}
	}
	switch {
	case s == "":
		return bad("is empty")
	case strings.HasPrefix(s, "-"):
		return bad("looks like an option")
	case strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return bad("has control characters")
	}
	if p, ok := strings.CutPrefix(s, "file://"); ok {
		s = p
		if !filepath.IsAbs(s) {
			return bad("is not an absolute file URL")
		}
	}
	if scheme, _, ok := strings.Cut(s, "://"); ok {
		switch scheme {
		case "http", "https", "ssh":
			return source{url: s, shown: RedactURL(s)}, nil
		}
		return bad("uses a transport that is not allowed")
	}
	abs, err := filepath.Abs(s)
	if err != nil {
		return source{}, err
	}
	if _, err := os.Stat(abs); err == nil || strings.HasPrefix(s, "/") || strings.HasPrefix(s, ".") {
		return source{url: abs, local: true, shown: s}, nil
	}
	if strings.Contains(s, "::") {
		return bad("uses a transport that is not allowed")
	}
	if host, path, ok := strings.Cut(s, ":"); ok && path != "" && !strings.Contains(host, "/") {
		return source{url: s, shown: s}, nil // user@host:path
	}
	return source{url: abs, local: true, shown: s}, nil
}

// helper is the command line of git's other end on this machine. git clears its own settings
// before it starts that end, so they are given again.
func (g *Git) helper(name string, more ...string) string {
	var b strings.Builder
	b.WriteString(quote(g.bin))
	for _, s := range append(settings(), more...) {
		b.WriteString(" -c " + quote(s))
	}
	return b.String() + " " + name
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// FetchCommit brings the commit that ref names in src, with its tree and without its history,
// into our bare repository and returns its id. src is a directory (bare, work tree, dirty or
// not: only commits are read) or a URL; ref is anything git resolves there, or for a URL a
// branch, a tag or a full commit id. Classes: Invalid (src or ref unusable), NotFound (no
// such commit), Transient (a URL that did not answer).
func (g *Git) FetchCommit(ctx context.Context, gitdir, src, ref string) (string, error) {
	if ref == "" {
		ref = "HEAD"
	}
	if err := checkRev(ref); err != nil {
		return "", err
	}
	s, err := parseSource(src)
	if err != nil {
		return "", err
	}
	if IsID(ref) { // pinned before: the source is not needed any more
		if got, err := g.Resolve(ctx, gitdir, "refs/daybreak/base/"+ref); err == nil && got == ref {
			return ref, nil
		}
	}
	resolve := g.resolveRemote
	if s.local {
		resolve = g.resolveLocal
	}
	id, err := resolve(ctx, s, ref)
	if err != nil {
		return "", err
	}
	pin := "refs/daybreak/base/" + id
	if got, err := g.Resolve(ctx, gitdir, pin); err == nil && got == id {
		return id, nil
	}
	args := []string{
		"--git-dir=" + gitdir, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head",
		"--no-recurse-submodules", "--no-auto-maintenance", "--depth=1",
	}
	if s.local {
		args = append(args, "--upload-pack="+g.helper("upload-pack", "uploadpack.allowAnySHA1InWant=true"))
	}
	if g.cfg.progress != nil {
		args = append(slices.DeleteFunc(args, func(a string) bool { return a == "--quiet" }), "--progress")
	}
	_, err = g.run(ctx, call{args: append(args, "--", s.url, "+"+id+":"+pin), asks: s.url, tells: g.cfg.progress != nil})
	if err != nil {
		return "", remoteError(s, ref, err)
	}
	return g.Resolve(ctx, gitdir, pin)
}

func (g *Git) resolveLocal(ctx context.Context, s source, ref string) (string, error) {
	fi, err := os.Stat(s.url)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("repository %s does not exist", s.shown)}
	case err != nil:
		return "", &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("repository %s cannot be read", s.shown), Err: err}
	case !fi.IsDir():
		return "", &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("repository %s is not a directory", s.shown)}
	}
	at := func(args ...string) ([]byte, error) { return g.local(ctx, s, args...) }
	var f *failure
	shallow, err := at("rev-parse", "--is-shallow-repository")
	if errors.As(err, &f) {
		return "", &task.Error{
			Class: task.Invalid, Msg: fmt.Sprintf("%s is not a readable git repository", s.shown), Err: errors.New(oneLine(f.stderr)),
			Fix: "give the top directory of a work tree, a bare repository or a URL",
		}
	}
	if err != nil {
		return "", err
	}
	out, err := at("rev-parse", "--verify", "--quiet", "--end-of-options", ref+"^{commit}")
	if err == nil {
		id := strings.TrimSpace(string(out))
		if !IsID(id) {
			return "", &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("%s has SHA-256 object ids", s.shown), Fix: "only SHA-1 repositories are supported yet"}
		}
		return id, nil
	}
	if !errors.As(err, &f) {
		return "", err
	}
	if ref == "HEAD" {
		return "", &task.Error{Class: task.NotFound, Msg: fmt.Sprintf("%s has no commits", s.shown), Fix: "commit something, or name a branch with --base"}
	}
	e := &task.Error{Class: task.NotFound, Msg: fmt.Sprintf("no commit %q in %s", ref, s.shown), Fix: "give a branch, a tag or a commit id that it has"}
	if strings.TrimSpace(string(shallow)) == "true" {
		e.Fix = "the repository is a shallow clone: run `git fetch --unshallow` in it, or name a commit that it has"
	}
	return "", e
}

// local asks a repository of this machine something. The ceiling keeps a plain directory inside
// some other repository from being taken for that one.
func (g *Git) local(ctx context.Context, s source, args ...string) ([]byte, error) {
	return g.run(ctx, call{dir: s.url, env: []string{"GIT_CEILING_DIRECTORIES=" + filepath.Dir(s.url)}, args: args, max: 1 << 20})
}

// Dir is the git directory of a repository of this machine, for reading. Class Invalid for
// anything else.
func (g *Git) Dir(ctx context.Context, src string) (string, error) {
	s, err := parseSource(src)
	if err != nil {
		return "", err
	}
	if !s.local {
		return "", &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("%s is not a directory of this machine", s.shown), Fix: "clone it and give the clone"}
	}
	out, err := g.local(ctx, s, "rev-parse", "--absolute-git-dir")
	if err != nil {
		return "", &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("%s is not a readable git repository", s.shown), Err: err}
	}
	return strings.TrimSpace(string(out)), nil
}

// MergeBase is the commit from which head left base's line, in a repository of this machine.
// For a URL, whose history is not fetched, it is "". Class NotFound: the two share no history
// that is there.
func (g *Git) MergeBase(ctx context.Context, src, base, head string) (string, error) {
	s, err := parseSource(src)
	if err != nil || !s.local {
		return "", err
	}
	var ids [2]string
	for i, ref := range []string{base, head} {
		if err := checkRev(ref); err != nil {
			return "", err
		}
		if ids[i], err = g.resolveLocal(ctx, s, ref); err != nil {
			return "", err
		}
	}
	out, err := g.local(ctx, s, "merge-base", ids[0], ids[1])
	var f *failure
	if errors.As(err, &f) {
		return "", &task.Error{
			Class: task.NotFound, Msg: fmt.Sprintf("%q and %q share no history in %s", base, head, s.shown),
			Fix: "fetch the whole history (`git fetch --unshallow`), or compare exactly these two commits with --exact",
		}
	}
	return strings.TrimSpace(string(out)), err
}

func (g *Git) resolveRemote(ctx context.Context, s source, ref string) (string, error) {
	if IsID(ref) {
		return ref, nil
	}
	patterns := []string{ref}
	if ref != "HEAD" && !strings.HasPrefix(ref, "refs/") {
		patterns = []string{"refs/heads/" + ref, "refs/tags/" + ref + "^{}", "refs/tags/" + ref}
	}
	out, err := g.run(ctx, call{args: append([]string{"ls-remote", "--quiet", "--", s.url}, patterns...), max: 16 << 20, asks: s.url})
	if err != nil {
		return "", remoteError(s, ref, err)
	}
	refs := parseRefs(out)
	for _, p := range patterns {
		if id := refs[p]; id != "" {
			return id, nil
		}
	}
	if ref == "HEAD" {
		return "", &task.Error{Class: task.NotFound, Msg: fmt.Sprintf("%s has no commits", s.shown)}
	}
	return "", &task.Error{Class: task.NotFound, Msg: fmt.Sprintf("no branch or tag %q in %s", ref, s.shown), Fix: "over a URL give a branch, a tag or a full commit id"}
}

// TargetBranch returns the branch that ref stands for in src, for a pull request to aim at:
// the branch of that name, or for "" and "HEAD" the one that is checked out or the default.
// It is "" when ref is a commit or a tag, or HEAD is on no branch.
func (g *Git) TargetBranch(ctx context.Context, src, ref string) (string, error) {
	s, err := parseSource(src)
	if err != nil {
		return "", err
	}
	head := ref == "" || ref == "HEAD"
	if !head {
		if err := checkRev(ref); err != nil || strings.ContainsAny(ref, "*?[~^:@ ") || IsID(ref) {
			return "", err
		}
		name := strings.TrimPrefix(ref, "refs/heads/")
		id, err := g.RemoteBranch(ctx, src, name)
		if err != nil || id == "" {
			return "", err
		}
		return name, nil
	}
	args := []string{"ls-remote", "--quiet", "--symref"}
	if s.local {
		args = append(args, "--upload-pack="+g.helper("upload-pack"))
	}
	out, err := g.run(ctx, call{args: append(args, "--", s.url, "HEAD"), max: 1 << 20, asks: s.url})
	if err != nil {
		return "", remoteError(s, "HEAD", err)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	name, ok := strings.CutPrefix(strings.TrimSuffix(line, "\tHEAD"), "ref: refs/heads/")
	if !ok {
		return "", nil
	}
	return name, nil
}

// parseRefs reads the output of ls-remote.
func parseRefs(out []byte) map[string]string {
	refs := map[string]string{}
	for line := range strings.Lines(string(out)) {
		id, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if ok && IsID(id) {
			refs[name] = id
		}
	}
	return refs
}

// remoteError turns the other end's failure into one line with a class.
func remoteError(s source, ref string, err error) error {
	var f *failure
	if !errors.As(err, &f) {
		return err
	}
	if errors.Is(err, syscall.ENOSPC) {
		return &task.Error{Class: task.Unavailable, Msg: fmt.Sprintf("no room for what %s has", s.shown), Fix: "make room on the disk of the data directory, or set a smaller cache.disk", Err: syscall.ENOSPC}
	}
	e := &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("cannot read %s", s.shown), Err: errors.New(oneLine(f.stderr))}
	has := func(parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(f.stderr, p) {
				return true
			}
		}
		return false
	}
	if why := sshSaid(f.stderr); why != "" {
		e.Err = errors.New(why)
	}
	switch {
	case has("Host key verification failed"):
		e.Class, e.Fix = task.Auth, "connect to that host once with ssh, as the user that runs this, and accept its key"
	case has("lazy fetching disabled", "promisor"):
		e.Fix = "it is a partial clone that lacks files of this commit: run `git fetch --refetch --no-filter` in it, or name its origin"
	case has("not our ref", "couldn't find remote ref", "remote did not send all necessary objects", "missing object"):
		e.Class, e.Msg, e.Err = task.NotFound, fmt.Sprintf("no commit %q in %s", ref, s.shown), nil
		e.Fix = "give a commit that was pushed there"
	case has("mismatched algorithms", "unsupported hash algorithm", "object-format"):
		e.Fix = "only SHA-1 repositories are supported yet"
	case has("Authentication failed", "could not read Username", "Permission denied", "returned error: 403"):
		e.Class, e.Fix = task.Auth, "check the credentials for that repository"
	case has("returned error: 429"):
		e.Class = task.RateLimited
	case has("returned error: 3", "returned error: 4"): // a redirect that is not followed, or not there
	case !s.local && has("Could not resolve", "Connection", "timed out", "returned error: 5", "early EOF", "unable to access", "hung up"):
		e.Class = task.Transient
	}
	return e
}

// sshSaid is why ssh gave up, which it says before git says that nothing came: "" when it was not
// ssh, or said nothing.
func sshSaid(stderr string) string {
	before, _, ok := strings.Cut(stderr, "fatal: Could not read from remote repository.")
	if !ok {
		return ""
	}
	said := ""
	for line := range strings.Lines(before) {
		// A server's banner and ssh's warnings come first.
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "@@") {
			said = line
		}
	}
	if said == "" {
		return ""
	}
	return oneLine(said)
}
