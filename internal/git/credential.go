package git

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// Credential is what a server is shown for one repository.
type Credential struct{ Username, Secret string }

// give lets cmd show the credential to that one URL. It is handed over in a file that has no
// name, by descriptor: neither an argument, nor the environment, nor a file system holds it,
// and git's own helpers inherit it.
func (c Credential) give(cmd *exec.Cmd, remote string) (opts []string, done func(), err error) {
	u, err := url.Parse(remote)
	if err != nil || u.User != nil || strings.ContainsAny(remote, "\"\\\n\r\x00") || strings.ContainsAny(c.Username, ":\n\r\x00") || strings.ContainsAny(c.Secret, "\n\r\x00") {
		return nil, nil, &task.Error{Class: task.Invalid, Msg: "a credential cannot be given for " + RedactURL(remote)}
	}
	fd, err := unix.MemfdCreate("daybreak", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil, fmt.Errorf("make room for the credential: %w", err)
	}
	f := os.NewFile(uintptr(fd), "credential")
	basic := base64.StdEncoding.EncodeToString([]byte(c.Username + ":" + c.Secret))
	_, err = fmt.Fprintf(f, "[http %q]\n\textraHeader = Authorization: Basic %s\n", strings.TrimSuffix(remote, "/"), basic)
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("hand over the credential: %w", joinClose(err, f))
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	n := 2 + len(cmd.ExtraFiles)
	// A redirect could lead to another host, or to another repository of the same.
	return []string{"-c", fmt.Sprintf("include.path=/proc/self/fd/%d", n), "-c", "http.followRedirects=false"}, func() { _ = f.Close() }, nil
}

func joinClose(err error, f *os.File) error {
	_ = f.Close()
	return err
}
