package main

import (
	"errors"
	"flag"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/daybreak-agent/daybreak/internal/guest"
)

// fenceFlags are what the worker expects of the sandbox before anything runs in it.
type fenceFlags struct {
	landlock *int
	write    *string
	masked   *string
	readOnly *string
	fenced   *bool
}

func addFenceFlags(flags *flag.FlagSet) fenceFlags {
	return fenceFlags{
		landlock: flags.Int("landlock", 0, "version of Landlock to fence with; 0: none"),
		write:    flags.String("write", "", "trees that stay writable, with colons between"),
		masked:   flags.String("masked", "", "paths that must be covered"),
		readOnly: flags.String("readonly", "", "paths that must be read-only"),
		fenced:   flags.Bool("fenced", false, "started by itself, behind the fence"),
	}
}

// apply fences and checks; an error names the layer. The guest starts itself again behind the
// fence, because the rules hold for one thread and for what it executes, and all threads must
// be of one domain to signal one another.
func (f fenceFlags) apply(args []string) error {
	if *f.landlock > 0 && !*f.fenced {
		runtime.LockOSThread()
		if err := guest.Fence(*f.landlock, split(*f.write)); err != nil {
			return err
		}
		return syscall.Exec("/proc/self/exe", slices.Concat([]string{os.Args[0], "serve", "--fenced"}, args), os.Environ())
	}
	return errors.Join(guest.CheckMasks(split(*f.masked)), guest.CheckReadOnly(split(*f.readOnly)))
}

func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ':' })
}
