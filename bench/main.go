// Command bench measures what Daybreak costs beside the model and the tools: time and
// processor per step, starting, sandboxes, memory, prompt size, durable writes.
//
// Invariants: what is measured is the built program with a real sandbox, a real database and
// a scripted model over HTTP, nothing is stubbed; each figure has beside it something plain
// that was measured in the same run on the same machine, because a busy machine slows both;
// nothing is left behind.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", strings.Join(strings.Fields(err.Error()), " "))
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, in io.Reader, out, progress io.Writer) error {
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	var (
		only       = fs.String("only", "", "measure only these, by comma: "+strings.Join(names(), ","))
		files      = fs.Int("files", 50_000, "files of the large snapshot")
		tasks      = fs.Int("tasks", 200, "tasks that wait for the model at once")
		runs       = fs.Int("runs", 15, "runs of what takes long")
		bin        = fs.String("bin", "bin", "folder of the built programs")
		hold       = fs.String("hold", "", "used by bench itself: the directory in which to hold waiting tasks")
		verify     = fs.String("changes", "", "for cost: changes to verify, each `name=repository base head`, by semicolons")
		toolchains = fs.String("config", "", "for cost: the operator's configuration")
		url        = fs.String("url", "", "with -hold: the model's address")
	)
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *hold != "" {
		return holdTasks(ctx, *bin, *hold, *url, in, out)
	}
	w, err := newWorld(ctx, *bin, *files, *tasks, *runs)
	if err != nil {
		return err
	}
	w.toolchains = *toolchains
	for c := range strings.SplitSeq(*verify, ";") {
		if c = strings.TrimSpace(c); c != "" {
			w.changes = append(w.changes, c)
		}
	}
	fmt.Fprintf(out, "%s, %s\n\n", machine(), load())
	var t table
	for _, m := range measures() {
		if named := strings.Contains(","+*only+",", ","+m.name+","); !named && (*only != "" || m.download) {
			continue
		}
		fmt.Fprintf(progress, "bench: %s …\n", m.about)
		if err = m.measure(ctx, w, &t); err != nil {
			err = fmt.Errorf("%s: %w", m.about, err)
			break
		}
	}
	t.write(out)
	fmt.Fprintf(out, "\n%s at the end. On %d cores a higher load stretches the times; the figures beside them were stretched as well.\n", load(), runtime.NumCPU())
	return errors.Join(err, w.close(context.WithoutCancel(ctx)))
}

type measure struct {
	name, about string
	measure     func(context.Context, *world, *table) error
	download    bool // fetches something large: only when named
}

func measures() []measure {
	return []measure{
		{"step", "60 steps of `true`", measureStep, false},
		{"work", "60 steps of reading, searching and running", measureWork, false},
		{"start", "from the process's start to the first request", measureStart, false},
		{"sandbox", "sandbox start on a large snapshot", measureSandbox, false},
		{"append", "durable appends", measureAppend, false},
		{"memory", "tasks that wait for the model", measureMemory, false},
		{"fleet", "30 and 300 tasks on one store, with two dispatchers", measureFleet, false},
		{"cost", "what verifying changes of real projects costs (-changes)", measureCost, true},
		{"monorepo", "a snapshot and sandboxes of a tree of 2.45 million lines", measureMonorepo, true},
		{"search", "searches and names in a tree of 2.45 million lines", measureSearch, true},
		{"large", "a tree of " + largeFiles + " files (20,000), with what is odd in trees", measureLarge, true},
	}
}

func names() []string {
	var out []string
	for _, m := range measures() {
		out = append(out, m.name)
	}
	return out
}

// machine says what the figures were measured on.
func machine() string {
	kernel := ""
	var u syscall.Utsname
	if syscall.Uname(&u) == nil {
		for _, c := range u.Release {
			if c == 0 {
				break
			}
			kernel += string(rune(c))
		}
	}
	return fmt.Sprintf("%d cores, Linux %s, %s", runtime.NumCPU(), kernel, runtime.Version())
}

func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "load unknown"
	}
	return "load " + strings.Join(strings.Fields(string(b))[:3], " ")
}
