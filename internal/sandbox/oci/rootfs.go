package oci

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/sandbox"
)

// hostEtc is what toolchains read below /etc. Everything else of the host's /etc stays out:
// accounts, keys, host names, registry credentials.
var hostEtc = []string{
	"alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ssl/certs", "ssl/openssl.cnf",
	"ca-certificates", "ca-certificates.conf", "pki/tls/certs", "java*", "python3*", "perl", "maven",
	"mime.types", "magic", "localtime", "timezone", "services", "protocols", "os-release",
	"debian_version", "fonts", "xml", "sgml", "terminfo", "php", "ruby*", "gss", "locale.alias",
}

// ownEtc is written by us.
func ownEtc() map[string]string {
	return map[string]string{
		"passwd":        "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\nagent:x:1000:1000:agent:" + sandbox.HomeDir + ":/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		"group":         "root:x:0:\ntty:x:5:\nagent:x:1000:\nnogroup:x:65534:\n",
		"hosts":         "127.0.0.1 localhost sandbox\n::1 localhost\n",
		"nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n",
		"host.conf":     "multi on\n",
		"resolv.conf":   "",
	}
}

const maxEtcFile = 4 << 20

// etcTemplate builds the sandboxes' /etc once below dir and returns its path. The name holds
// a digest of what it was made from, so a host upgrade makes a new one.
func etcTemplate(dir, host string) (string, error) {
	var names []string
	for _, pattern := range hostEtc {
		m, err := filepath.Glob(filepath.Join(host, pattern))
		if err != nil {
			return "", err
		}
		names = append(names, m...)
	}
	sum := sha256.New()
	type item struct {
		rel  string
		info fs.FileInfo
	}
	var items []item
	for _, name := range names {
		err := filepath.WalkDir(name, func(p string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil //nolint // unreadable: not for sandboxes
			}
			info, err := d.Info()
			if err != nil {
				return nil
			}
			world := info.Mode().Perm()&0o004 != 0
			regular := info.Mode().IsRegular() && world && info.Size() <= maxEtcFile
			if !regular && !(d.IsDir() && world) && d.Type() != fs.ModeSymlink {
				if d.IsDir() {
					return fs.SkipDir
				}
				return nil
			}
			rel, err := filepath.Rel(host, p)
			if err != nil {
				return err
			}
			fmt.Fprintf(sum, "%s\x00%d\x00%d\x00%v\n", rel, info.Size(), info.ModTime().UnixNano(), info.Mode())
			items = append(items, item{rel, info})
			return nil
		})
		if err != nil {
			return "", err
		}
	}
	own := ownEtc()
	for _, k := range slices.Sorted(maps.Keys(own)) {
		fmt.Fprintf(sum, "%s\x00%s\n", k, own[k])
	}
	final := filepath.Join(dir, "etc-"+hex.EncodeToString(sum.Sum(nil)[:8]))
	if _, err := os.Stat(final); err == nil {
		return final, nil
	}
	tmp, err := os.MkdirTemp(dir, "etc-new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	for _, it := range items {
		if err := copyEtc(host, tmp, it.rel, it.info); err != nil {
			return "", err
		}
	}
	for name, text := range own {
		dst := filepath.Join(tmp, name)
		if err := errors.Join(os.WriteFile(dst, []byte(text), 0o644), os.Chmod(dst, 0o644)); err != nil {
			return "", err
		}
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return "", err
	}
	if err := os.Rename(tmp, final); err != nil && !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return final, nil
}

func copyEtc(host, dst, rel string, info fs.FileInfo) error {
	to := filepath.Join(dst, rel)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	switch {
	case info.IsDir():
		return os.MkdirAll(to, 0o755)
	case info.Mode()&fs.ModeSymlink != 0:
		text, err := os.Readlink(filepath.Join(host, rel))
		if err != nil {
			return err
		}
		return os.Symlink(text, to)
	}
	in, err := os.OpenFile(filepath.Join(host, rel), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, io.LimitReader(in, maxEtcFile))
	return errors.Join(err, out.Close())
}

// guestCopy copies the guest binary below dir, so that replacing the installed one disturbs
// nobody and its path is not seen inside.
func guestCopy(dir, binary string) (string, error) {
	in, err := os.Open(binary)
	if err != nil {
		return "", err
	}
	defer in.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, in); err != nil {
		return "", err
	}
	final := filepath.Join(dir, "guest-"+hex.EncodeToString(sum.Sum(nil)[:8]))
	if _, err := os.Stat(final); err == nil {
		return final, nil
	}
	if _, err := in.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	out, err := os.CreateTemp(dir, "guest-new-")
	if err != nil {
		return "", err
	}
	_, err = io.Copy(out, in)
	err = errors.Join(err, out.Chmod(0o555), out.Close())
	if err == nil {
		err = os.Rename(out.Name(), final)
	}
	if err != nil {
		os.Remove(out.Name())
	}
	return final, err
}

// reserved are the places that an operator's mount may not touch.
var reserved = []string{
	sandbox.WorkDir, sandbox.HomeDir, sandbox.TempDir, "/usr", "/etc", "/proc", "/sys", "/dev", "/.daybreak",
	"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
}

// checkTarget says whether target can be a mount point of an operator's directory: clean,
// absolute, not above or below anything of ours.
func checkTarget(target string) error {
	if !path.IsAbs(target) || path.Clean(target) != target || target == "/" || strings.ContainsRune(target, 0) {
		return fmt.Errorf("mount target %q is not a clean absolute path", target)
	}
	for _, r := range reserved {
		if target == r || strings.HasPrefix(target, r+"/") || strings.HasPrefix(r, target+"/") {
			return fmt.Errorf("mount target %q touches %s", target, r)
		}
	}
	return nil
}

// skeleton fills the fresh tmpfs at root with the directories and links of a root file system.
func skeleton(root, usr string) error {
	for _, d := range []string{"usr", "etc", "proc", "sys", "dev", "tmp", "var/tmp", "run", "workspace", "home/agent", ".daybreak"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return err
		}
	}
	if err := os.Remove(filepath.Join(root, "var/tmp")); err != nil {
		return err
	}
	if err := os.Symlink(sandbox.TempDir, filepath.Join(root, "var/tmp")); err != nil {
		return err
	}
	for _, l := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		if _, err := os.Lstat(filepath.Join(usr, l)); err != nil {
			continue
		}
		if err := os.Symlink("usr/"+l, filepath.Join(root, l)); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(root, ".daybreak/guest"), nil, 0o644)
}
