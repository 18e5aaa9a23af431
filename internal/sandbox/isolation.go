package sandbox

import "strings"

// What an isolation is, as [Info] and [Capabilities] name it. For an ordinary user the name
// begins with "rootless ".
const (
	Namespaces = "namespaces"
	GVisor     = "gvisor"
)

// Explain says what an isolation means to somebody who decides whether it is enough.
func Explain(isolation string) string {
	kind, rootless := strings.CutPrefix(isolation, "rootless ")
	ids := "its own range of user ids"
	if rootless {
		ids = "the worker's own user id"
	}
	switch kind {
	case Namespaces:
		return "it shares the host's kernel, behind namespaces, " + ids + " and a list of system calls"
	case GVisor:
		return "a user-space kernel of its own (gVisor) answers its system calls; that kernel runs on the host's in namespaces, " + ids + " and a list of system calls"
	}
	return ""
}
