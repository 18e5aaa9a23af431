// Command daybreak-guest is the helper inside a sandbox: "serve" answers the worker on standard
// input and output until the input ends, "export" writes the change of a work tree, "limit" is
// run by the OCI runtime while it makes a sandbox, "probe" tries from inside what a sandbox must
// not allow, "index" builds the search index of the work tree.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/guest/probe"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "daybreak-guest:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	verb := ""
	if len(args) > 0 {
		verb, args = args[0], args[1:]
	}
	if verb != "probe" { // which is to see what any command sees
		// Not dumpable: no other process of the sandbox may read its memory or open its descriptors.
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
			return err
		}
	}
	flags := flag.NewFlagSet(verb, flag.ContinueOnError)
	switch verb {
	case "serve":
		root := flags.String("root", "/workspace", "work tree")
		logs := flags.String("logs", "/tmp/.daybreak", "directory of command output")
		index := flags.String("index", "/.daybreak/index", "directory of the search index, where there is one")
		var forwards []guest.Forward
		flags.Func("forward", "PORT=SOCKET, may be repeated", func(s string) error {
			f, err := guest.ParseForward(s)
			forwards = append(forwards, f)
			return err
		})
		fence := addFenceFlags(flags)
		if err := flags.Parse(args); err != nil {
			return err
		}
		if err := fence.apply(args); err != nil {
			return err
		}
		guest.WarmThreads(32)
		return guest.Serve(context.Background(), os.Stdin, os.Stdout, guest.ServerOptions{Root: *root, LogDir: *logs, Forwards: forwards, Index: *index})
	case "export":
		var o guest.ExportOptions
		flags.StringVar(&o.Lower, "lower", "", "base tree")
		flags.StringVar(&o.Upper, "upper", "", "changed part")
		flags.StringVar(&o.Merged, "merged", "", "work tree")
		flags.IntVar(&o.Files, "files", 0, "cap on paths")
		flags.Int64Var(&o.Bytes, "bytes", 0, "cap on content")
		flags.BoolVar(&o.Names, "names", false, "names alone")
		leave := flags.Bool("leave", false, "read a list of paths to leave out")
		err := flags.Parse(args)
		if err == nil && *leave {
			o.Leave, err = guest.ReadLeave(os.Stdin)
		}
		if err != nil {
			return err
		}
		return guest.ExportServe(os.Stdout, o)
	case "index":
		return index(flags, args)
	case "limit":
		return guest.LimitUserNamespaces()
	case "probe":
		var o probe.Options
		flags.Func("port", "port of loopback at which a mirror answers, may be repeated", func(s string) error {
			n, err := strconv.ParseUint(s, 10, 16)
			o.Ports = append(o.Ports, int(n))
			return err
		})
		if err := flags.Parse(args); err != nil {
			return err
		}
		return probe.Run(os.Stdout, o)
	}
	return fmt.Errorf("unknown verb %q; use serve, export, index, limit or probe", verb)
}

// index builds the search index. With --from it reads what changed since.
func index(flags *flag.FlagSet, args []string) error {
	o := guest.IndexOptions{Progress: guest.WriteProgress(os.Stderr)}
	flags.StringVar(&o.Root, "root", "/workspace", "work tree")
	flags.StringVar(&o.Out, "out", "", "directory to make")
	flags.StringVar(&o.From, "from", "", "an earlier index")
	err := flags.Parse(args)
	if err == nil && o.From != "" {
		o.Changed, err = guest.ReadChanges(os.Stdin)
	}
	if err != nil {
		return err
	}
	return guest.BuildIndex(context.Background(), o, os.Stdout)
}
