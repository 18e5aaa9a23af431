// Command attack runs every case of the threat model and says which held.
//
// Invariants: a case holds because a test that carries its id in its name passed, in this run;
// a case that needs a real sandbox or a real browser holds only if such a test ran one; what was not
// exercised is never counted as held and always has its reason; the cases live in cases.tsv, the attacks in
// the tests beside the code they attack.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "attack:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, log io.Writer) error {
	fs := flag.NewFlagSet("attack", flag.ContinueOnError)
	fs.SetOutput(log)
	asJSON := fs.Bool("json", false, "one JSON object a line, the last one the totals")
	runtimes := fs.String("runtimes", "runc,runsc", "which of the runtimes to run, with commas")
	layers := fs.Bool("layers", false, "take each layer of the sandbox off in a test-only build and see which case notices")
	only := fs.String("case", "", "only the cases whose id starts so")
	if err := fs.Parse(args); err != nil {
		return err
	}
	cases, err := catalogue()
	if err != nil {
		return err
	}
	cases = slices.DeleteFunc(cases, func(c Case) bool { return !strings.HasPrefix(c.ID, *only) })
	g := &gotest{log: log}
	if *layers {
		return attackLayers(ctx, g, out)
	}
	var columns []column
	for name := range strings.SplitSeq(*runtimes, ",") {
		columns = append(columns, column{Runtime: name, Why: unavailable(name)})
	}
	packages, err := holders(".")
	if err != nil {
		return err
	}
	if err := exercise(ctx, g, packages, cases, columns); err != nil {
		return err
	}
	rows := judge(cases, columns)
	if *asJSON {
		err = printJSON(out, rows, columns)
	} else {
		err = printTable(out, rows, columns)
	}
	return errors.Join(err, verdict(rows, columns))
}

// exercise runs the tests of all packages that hold cases: once for those that start no
// sandbox or are about the pages, for every runtime that is there for the others.
func exercise(ctx context.Context, g *gotest, packages []string, cases []Case, columns []column) error {
	var plain, real []string
	for _, p := range packages {
		switch {
		case isReal(p):
			real = append(real, p)
		case p != inBrowser:
			plain = append(plain, p)
		}
	}
	pattern := runPattern(cases)
	once, err := g.run(ctx, plain, suiteOf("")+pattern, nil)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(cases, func(c Case) bool { return strings.Contains(c.Kind, "B") }) {
		// Without a browser its tests say so and are skipped, in CI too.
		got, err := (&gotest{log: g.log, module: inBrowser}).run(ctx, []string{""}, pattern, []string{"CI="})
		if err != nil {
			return err
		}
		once = append(once, got...)
	}
	for i := range columns {
		c := &columns[i]
		if c.Why != "" {
			continue
		}
		c.results = append(c.results, once...)
		got, err := g.run(ctx, real, suiteOf(c.Runtime)+pattern, []string{"DAYBREAK_TEST_RUNTIME=" + c.Runtime, "DAYBREAK_ATTACK=1"}, "-p=1")
		if err != nil {
			return err
		}
		c.results = append(c.results, got...)
	}
	return nil
}
