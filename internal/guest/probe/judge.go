package probe

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Facts are what the host knows of the sandbox that was tried.
type Facts struct {
	OwnKernel  bool              // a kernel of the sandbox's own answers system calls
	Rootless   bool              // the sandbox belongs to an ordinary user
	Namespaces map[string]string // the host's, by kind
	Env        []string          // names that the operator gave
	Mounts     []string          // where the operator's directories are
	Writable   map[string]int64  // places that take writes, with their cap in bytes
	Ports      []int             // of loopback, that are forwarded
}

// Finding is an observation and what was expected.
type Finding struct {
	Observation
	Want     string `json:"want"`
	Expected bool   `json:"expected"`
}

// want is an expectation: in words, and as a test.
type want struct {
	text string
	met  func(got string) bool
}

// one of these outcomes.
func one(of ...string) want {
	return want{strings.Join(of, " or "), func(got string) bool { return slices.Contains(of, got) }}
}

// among: nothing but these words.
func among(text string, words ...string) want {
	return want{text, func(got string) bool {
		return !slices.ContainsFunc(strings.Fields(got), func(w string) bool { return !slices.Contains(words, w) })
	}}
}

func within(text string, most uint64) want {
	return want{text, func(got string) bool {
		n, err := strconv.ParseUint(got, 10, 64)
		return err == nil && n <= most
	}}
}

// Judge says of each observation whether it was expected of such a sandbox. What nothing is
// expected of is unexpected, and so is a self-test without its end.
func Judge(observations []Observation, f Facts) []Finding {
	var out []Finding
	seen := map[[2]string]bool{}
	for _, o := range observations {
		w, known := f.expect(o)
		key := [2]string{o.Area, o.Name}
		switch {
		case !known:
			w.text = "nothing of this name"
		case seen[key]:
			known, w.text = false, "to be told once"
		}
		seen[key] = true
		out = append(out, Finding{o, w.text, known && w.met(o.Got)})
	}
	if n := len(observations); n == 0 || observations[n-1].Area != areaEnd {
		out = append(out, Finding{Observation{areaEnd, "end", "make every attempt", "cut short"}, "ok", false})
	}
	return out
}

func (f Facts) expect(o Observation) (want, bool) {
	unseen := one("ENOENT", "EACCES", "EPERM", "ENOTDIR")
	unchanged := one("EROFS", "EACCES", "EPERM", "ENOENT", "ENOTDIR", "EISDIR")
	switch o.Area {
	case areaDescriptors:
		return one("0 1 2"), o.Name == "open"
	case areaIdentity:
		return f.identity(o.Name)
	case areaHost:
		switch {
		case o.Name == "/":
			return f.rootEntries(), true
		case o.Name == "/home":
			return one("agent"), true
		case o.Name == "/sys":
			return want{"empty", func(got string) bool { return got == "" }}, true
		case strings.HasPrefix(o.Name, "see "):
			return unseen, true
		}
		return unchanged, strings.HasPrefix(o.Name, "write ") || strings.HasPrefix(o.Name, "change ")
	case areaTasks:
		return f.tasks(o.Name)
	case areaMounts:
		if size, ok := f.Writable[o.Name]; ok {
			return f.capped(size), true
		}
		w := one("EROFS", "EACCES", "EPERM", "ENOENT", "ENOTDIR", "socket")
		w.text = "no writes"
		return w, strings.HasPrefix(o.Name, "/")
	case areaProc:
		if strings.HasPrefix(o.Name, "read ") {
			w := one("empty", "ENOENT", "EACCES", "EPERM")
			if f.OwnKernel { // its own kernel's words
				w = want{"nothing of the host", func(string) bool { return true }}
			}
			return w, true
		}
		w := one("EROFS", "EACCES", "EPERM", "ENOENT", "covered by /dev/null")
		return w, strings.HasPrefix(o.Name, "change ")
	case areaNamespaces:
		return f.namespaces(o.Name)
	case areaCalls:
		if o.Name == "clone3" {
			return one("ENOSYS"), true
		}
		return one("EPERM"), true
	case areaSockets:
		if slices.Contains([]string{"unix", "inet", "inet6", "netlink"}, o.Name) {
			return one("ok"), true
		}
		return one("EPERM"), true
	case areaNetwork:
		return f.network(o.Name)
	case areaMirror:
		if strings.HasSuffix(o.Name, ": GET /") {
			return status("an answer", '2', '3', '4'), true
		}
		return status("a refusal", '4', '5'), true
	case areaDevices:
		if o.Name == "list" {
			return f.devices(), true
		}
		return one("EPERM"), strings.HasPrefix(o.Name, "make")
	case areaEnvironment:
		return among("the names that Daybreak and the operator set", append(knownNames(), f.Env...)...), true
	case areaLimits:
		return f.limits(o.Name)
	}
	return one("ok"), o.Area == areaEnd
}

func (f Facts) identity(name string) (want, bool) {
	switch name {
	case "user":
		return one("1000 1000 []"), true
	case "uid map":
		return f.uidMap(), true
	case "no new privileges":
		return one("1"), true
	case "seccomp":
		return want{"2, a filter", func(got string) bool { return got == "2" }}, true
	case "setuid", "setgid":
		return one("EPERM"), true
	case "landlock":
		return want{"any: it only fences further", func(string) bool { return true }}, true
	case "terminal":
		return one("ENXIO", "ENOENT", "EACCES"), true
	}
	return want{"none", func(got string) bool { return got != "" && strings.Trim(got, "0") == "" }}, strings.HasPrefix(name, "capabilities, ")
}

// uidMap: nobody here is a user of the host, but for the one whose sandbox it is.
func (f Facts) uidMap() want {
	return want{map[bool]string{true: "ids of its own kernel", false: "ids that are not the host's"}[f.OwnKernel], func(got string) bool {
		n := strings.Fields(got)
		if f.OwnKernel {
			return got == "0 0 4294967295"
		}
		if len(n) == 0 || len(n)%3 != 0 {
			return false
		}
		for i := 0; i < len(n); i += 3 {
			first, err := strconv.ParseUint(n[i+1], 10, 32)
			own := f.Rootless && n[i] == "1000" && n[i+2] == "1"
			if err != nil || first == 0 && !own {
				return false
			}
		}
		return true
	}}
}

func (f Facts) rootEntries() want {
	words := []string{
		".daybreak", "bin", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "proc", "run", "sbin", "sys", "tmp", "usr", "var", "workspace",
	}
	for _, m := range f.Mounts {
		top, _, _ := strings.Cut(strings.TrimPrefix(m, "/"), "/")
		words = append(words, top)
	}
	return among("the sandbox's own directories", words...)
}

func (f Facts) tasks(name string) (want, bool) {
	switch name {
	case "processes":
		return among("its own", "guest"), true
	case "host name":
		return one("sandbox"), true
	case "abstract sockets", "shared memory":
		return one("none"), true
	}
	return one("EACCES", "EPERM"), strings.HasPrefix(name, "process 1, ")
}

// capped: writable, of at most size bytes and with a cap on files. gVisor's own memory has
// none: its files count as memory.
func (f Facts) capped(size int64) want {
	return want{fmt.Sprintf("writable, at most %d MiB", size>>20), func(got string) bool {
		var mib, files int64
		n, err := fmt.Sscanf(got, "writable, %d MiB, %d files", &mib, &files)
		return err == nil && n == 2 && mib > 0 && mib <= size>>20 && (f.OwnKernel || files > 0 && files <= 1<<20)
	}}
}

func (f Facts) namespaces(name string) (want, bool) {
	if strings.HasPrefix(name, "new ") || strings.HasPrefix(name, "enter ") {
		return one("EPERM"), true
	}
	host, known := f.Namespaces[name]
	return want{"not the host's", func(got string) bool {
		return got != host && (strings.HasPrefix(got, name+":[") || f.OwnKernel && got == "ENOENT")
	}}, known && slices.Contains(namespaceKinds, name)
}

func (f Facts) network(name string) (want, bool) {
	switch name {
	case "interfaces":
		return one("lo"), true
	case "routes", "resolvers":
		return one("none"), true
	case "dns":
		return one("ECONNREFUSED"), true
	case "loopback":
		return one("ok"), true
	case "listeners":
		ports := slices.Sorted(slices.Values(f.Ports))
		if len(ports) == 0 {
			return one("none"), true
		}
		return one(strings.Trim(fmt.Sprint(ports), "[]")), true
	}
	return one("ENETUNREACH", "EHOSTUNREACH", "EADDRNOTAVAIL"), strings.HasPrefix(name, "tcp ") || strings.HasPrefix(name, "udp ")
}

func status(text string, classes ...byte) want {
	return want{text, func(got string) bool {
		f := strings.Fields(got)
		return len(f) >= 2 && strings.HasPrefix(f[0], "HTTP/1.") && len(f[1]) == 3 && slices.Contains(classes, f[1][0])
	}}
}

func (f Facts) devices() want {
	words := []string{"full", "null", "ptmx", "pts/ptmx", "random", "tty", "urandom", "zero", "console"}
	if f.OwnKernel { // of its own making; mounting and configuring them takes privileges
		words = append(words, "fuse", "net/tun")
	}
	return among("those of every program", words...)
}

func (f Facts) limits(name string) (want, bool) {
	switch name {
	case "core dumps":
		return one("0"), true
	case "locked memory":
		return within("at most 65536", 65536), true
	case "open files":
		return within("at most 65536", 65536), true
	}
	return one("EPERM"), name == "raise"
}

// knownNames are the names of every command's environment.
func knownNames() []string {
	return strings.Fields(`PATH HOME USER LOGNAME SHELL LANG TMPDIR TERM PWD HOSTNAME
		CI NO_COLOR PAGER GIT_PAGER MANPAGER SYSTEMD_PAGER GIT_TERMINAL_PROMPT GIT_EDITOR EDITOR VISUAL DEBIAN_FRONTEND
		PIP_NO_INPUT PIP_PROGRESS_BAR PIP_DISABLE_PIP_VERSION_CHECK PYTHONUNBUFFERED
		NPM_CONFIG_PROGRESS NPM_CONFIG_FUND NPM_CONFIG_UPDATE_NOTIFIER DAYBREAK_PROC`)
}

// HostNamespaces are the namespaces of this process, by kind: a [Facts] of the host.
func HostNamespaces() map[string]string {
	out := map[string]string{}
	for _, n := range namespaceKinds {
		out[n], _ = os.Readlink("/proc/self/ns/" + n) // unreadable: no sandbox has it
	}
	return out
}
