package oci

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/sandbox"
)

// templateForm changes with what systemTemplate writes.
const templateForm = 1

// systemTemplate makes what package managers expect below /etc and /var, and the host's list
// of installed packages, because its /usr is the sandbox's. It is made once for each state of
// what it is made of.
func (r *Runtime) systemTemplate() (string, error) {
	usr := filepath.Clean(r.cfg.RootFS)
	dpkg := filepath.Join(filepath.Dir(usr), "var/lib/dpkg")
	accounts := filepath.Join(usr, "share/base-passwd")
	keys := filepath.Join(r.cfg.Etc, "apt/trusted.gpg.d")
	sum := sha256.New()
	fmt.Fprintln(sum, templateForm)
	for _, name := range []string{filepath.Join(dpkg, "status"), filepath.Join(accounts, "passwd.master"), filepath.Join(accounts, "group.master"), keys} {
		if st, err := os.Stat(name); err == nil {
			fmt.Fprintf(sum, "%s %d %d\n", name, st.Size(), st.ModTime().UnixNano())
		}
	}
	dir := filepath.Join(r.cfg.Dir, "system")
	final := filepath.Join(dir, hex.EncodeToString(sum.Sum(nil)[:8]))
	if now := r.cfg.Now(); os.Chtimes(final, now, now) == nil { // it is there, and in use
		return final, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(dir, "new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if err := errors.Join(systemEtc(filepath.Join(tmp, "etc"), accounts, keys), systemVar(filepath.Join(tmp, "var"), dpkg)); err != nil {
		return "", err
	}
	if err := os.Rename(tmp, final); err != nil && !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return final, nil
}

func systemVar(dir, dpkg string) error {
	var errs []error
	for _, d := range []string{"lib/apt/lists/partial", "lib/misc", "cache/apt/archives/partial", "cache/debconf", "log/apt", "spool", "local", "opt"} {
		errs = append(errs, os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	errs = append(errs, os.Symlink(sandbox.TempDir, filepath.Join(dir, "tmp")), os.Symlink("/run", filepath.Join(dir, "run")))
	if _, err := os.Stat(filepath.Join(dpkg, "status")); err == nil {
		at := filepath.Join(dir, "lib/dpkg")
		errs = append(errs, os.CopyFS(at, os.DirFS(dpkg)))
		// Of accounts that the sandbox does not have.
		errs = append(errs, os.WriteFile(filepath.Join(at, "statoverride"), nil, 0o644))
	}
	return errors.Join(errs...)
}

// systemEtc writes the accounts that a distribution begins with, none of the host's, and the
// public keys of its archives.
func systemEtc(dir, accounts, keys string) error {
	var errs []error
	for _, d := range []string{"apt/apt.conf.d", "apt/preferences.d", "apt/sources.list.d", "apt/keyrings", "dpkg/dpkg.cfg.d", "default", "init.d", "skel"} {
		errs = append(errs, os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	// A layer counts when its sandbox has ended well: a crash leaves nothing to recover.
	errs = append(errs, os.WriteFile(filepath.Join(dir, "dpkg/dpkg.cfg.d/daybreak"), []byte("force-unsafe-io\n"), 0o644))
	if _, err := os.Stat(keys); err == nil {
		errs = append(errs, os.CopyFS(filepath.Join(dir, "apt/trusted.gpg.d"), os.DirFS(keys)))
	}
	own := ownEtc()
	for _, f := range []struct{ name, master, shadow, locked string }{
		{"passwd", "passwd.master", "shadow", ":*:19000:0:99999:7:::\n"},
		{"group", "group.master", "gshadow", ":*::\n"},
	} {
		known := map[string]bool{}
		var text, shadow strings.Builder
		master, _ := os.ReadFile(filepath.Join(accounts, f.master)) // not of every distribution
		for line := range strings.Lines(own[f.name] + string(master)) {
			name, rest, ok := strings.Cut(strings.TrimSpace(line), ":")
			if !ok || known[name] {
				continue
			}
			known[name] = true
			_, rest, _ = strings.Cut(rest, ":")
			fmt.Fprintf(&text, "%s:x:%s\n", name, rest)
			shadow.WriteString(name + f.locked)
		}
		errs = append(errs,
			os.WriteFile(filepath.Join(dir, f.name), []byte(text.String()), 0o644),
			os.WriteFile(filepath.Join(dir, f.shadow), []byte(shadow.String()), 0o600))
	}
	return errors.Join(errs...)
}

// CollectTemplates removes the templates that no sandbox was started from since before, and that
// none which lives now can stand on.
func (r *Runtime) CollectTemplates(ctx context.Context, before time.Time) error {
	alive, err := r.List(ctx)
	if err != nil {
		return err
	}
	for _, h := range alive {
		if h.Started.Before(before) { // of a damaged record it is zero: nothing goes
			before = h.Started
		}
	}
	dir := filepath.Join(r.cfg.Dir, "system")
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		if fi, err := e.Info(); err == nil && fi.ModTime().Before(before) {
			errs = append(errs, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}
