package guest

import (
	"runtime"
	"sync"
)

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
