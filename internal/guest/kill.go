package guest

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// killPatience bounds one round of killing; what survives it is in uninterruptible sleep.
const killPatience = 2 * time.Second

// procKey names a process beyond the reuse of its pid.
type procKey struct {
	pid   int
	start uint64
}

// procStat is what /proc says of one process.
type procStat struct {
	procKey
	ppid, pgid, sid int
	state           byte
}

// listProcs reads /proc.
func listProcs() []procStat {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil && len(names) == 0 {
		return nil
	}
	var out []procStat
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if st, ok := readStat(pid); ok {
			out = append(out, st)
		}
	}
	return out
}

func readStat(pid int) (procStat, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return procStat{}, false
	}
	// The name in parentheses may hold anything, so fields are counted from the last one.
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return procStat{}, false
	}
	f := strings.Fields(string(b[i+1:]))
	if len(f) < 20 {
		return procStat{}, false
	}
	n := func(i int) int { v, _ := strconv.Atoi(f[i]); return v }
	start, _ := strconv.ParseUint(f[19], 10, 64)
	return procStat{procKey: procKey{pid, start}, state: f[0][0], ppid: n(1), pgid: n(2), sid: n(3)}, true
}

// marked reports whether a process carries the command's variable.
func marked(pid int, mark string) bool {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	for v := range bytes.SplitSeq(env, []byte{0}) {
		if string(v) == mark {
			return true
		}
	}
	return false
}

// members finds a command's processes: its leader's session and group, the descendants, those
// that were members before, and daemons by the variable they inherited.
func (c *proc) members(all []procStat) []procStat {
	self := os.Getpid()
	leader := c.cmd.Process.Pid
	in := make(map[int]bool)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, st := range all {
		if st.pid == self {
			continue
		}
		// The leader's pid stays taken as a session's and a group's id while one member lives.
		if st.sid == leader || st.pgid == leader || c.seen[st.procKey] || st.pid == leader && !c.ended {
			in[st.pid] = true
		}
	}
	for grown := true; grown; {
		grown = false
		for _, st := range all {
			if !in[st.pid] && st.pid != self && in[st.ppid] {
				in[st.pid], grown = true, true
			}
		}
	}
	var out []procStat
	for _, st := range all {
		if st.pid == self {
			continue
		}
		if !in[st.pid] && st.state != 'Z' && marked(st.pid, c.mark) {
			in[st.pid] = true
		}
		if in[st.pid] {
			c.seen[st.procKey] = true
			out = append(out, st)
		}
	}
	return out
}

// killTree kills a running command: its processes are stopped first so that none can fork
// away while the others are killed.
func (p *procs) killTree(c *proc) {
	for _, st := range c.members(listProcs()) {
		_ = unix.Kill(st.pid, unix.SIGSTOP)
	}
	p.killMembers(c)
}

// killRest kills what a command left behind after its leader's end and returns how many
// processes that were.
func (p *procs) killRest(c *proc) int {
	n := p.killMembers(c)
	if !p.opts.OwnNamespace {
		return n
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.leaders) > 0 {
		p.reapLocked()
		return n
	}
	// Nothing of ours runs: whatever is alive escaped from a command that is over.
	n += p.killEscapedLocked()
	p.reapLocked()
	return n
}

// killEscapedLocked kills every process but this one and those that were put into the
// namespace from outside, with what they started. It returns how many it saw.
func (p *procs) killEscapedLocked() int {
	self := os.Getpid()
	seen := make(map[procKey]bool)
	pause := time.Millisecond
	for end := time.Now().Add(killPatience); time.Now().Before(end); {
		all := listProcs()
		foreign := make(map[int]bool)
		for grown := true; grown; {
			grown = false
			for _, st := range all {
				if !foreign[st.pid] && st.pid != self && (st.ppid == 0 || foreign[st.ppid]) {
					foreign[st.pid], grown = true, true
				}
			}
		}
		alive := false
		for _, st := range all {
			if st.pid != self && !foreign[st.pid] && st.state != 'Z' && st.state != 'X' {
				alive, seen[st.procKey] = true, true
				_ = unix.Kill(st.pid, unix.SIGKILL)
			}
		}
		if !alive {
			break
		}
		if len(foreign) == 0 && self == 1 {
			// One call for all of them, which no fork outruns.
			_ = unix.Kill(-1, unix.SIGKILL)
		}
		time.Sleep(pause)
		pause = min(2*pause, 20*time.Millisecond)
	}
	return len(seen)
}

// killMembers kills until no member is alive and returns how many were.
func (p *procs) killMembers(c *proc) int {
	killed := make(map[procKey]bool)
	pause := time.Millisecond
	for end := time.Now().Add(killPatience); ; {
		alive := false
		for _, st := range c.members(listProcs()) {
			if st.state == 'Z' || st.state == 'X' {
				p.reap(st)
				continue
			}
			alive = true
			killed[st.procKey] = true
			_ = unix.Kill(st.pid, unix.SIGKILL)
		}
		if !alive || time.Now().After(end) {
			return len(killed)
		}
		time.Sleep(pause)
		pause = min(2*pause, 20*time.Millisecond)
	}
}

// reap collects a dead orphan that was given to us.
func (p *procs) reap(st procStat) {
	if st.ppid != os.Getpid() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.leaders[st.pid] {
		_, _ = syscall.Wait4(st.pid, nil, syscall.WNOHANG, nil)
	}
}

// reapLocked collects every dead orphan. Only for a guest in its own process namespace:
// elsewhere a child may be somebody else's to wait for.
func (p *procs) reapLocked() {
	for _, st := range listProcs() {
		if st.state == 'Z' && st.ppid == os.Getpid() && !p.leaders[st.pid] {
			_, _ = syscall.Wait4(st.pid, nil, syscall.WNOHANG, nil)
		}
	}
}

func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return s.String()
}
