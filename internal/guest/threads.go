package guest

import (
	"os"
	"runtime"
	"strconv"
	"sync"
)

// offerToOOM makes the kernel take a command, and what it starts from now on, before the
// guest when the sandbox is out of memory. Where that cannot be set the guest is one victim
// among many, as before.
func offerToOOM(pid int) {
	_ = os.WriteFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", []byte("1000"), 0)
}

// WarmThreads makes n threads, which the runtime then keeps. At the sandbox's process limit no
// more can be made, and a Go program that wants one dies: a fork bomb would end the guest.
func WarmThreads(n int) {
	var all, up sync.WaitGroup
	up.Add(n)
	for range n {
		all.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			up.Done()
			up.Wait()
		})
	}
	all.Wait()
}
