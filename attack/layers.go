package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// layer is a wall of the sandbox and the cases that must notice when it is gone.
type layer struct {
	name  string
	cases []string
}

// layersOfTheSandbox names each layer as the test-only build of the OCI adapter does.
func layersOfTheSandbox() []layer {
	return []layer{
		{"seccomp", []string{"SBX-08", "SBX-09", "SBX-10"}},
		{"network", []string{"NET-01"}},
		{"read-only", []string{"SBX-02"}},
		{"landlock", []string{"SBX-02"}},
		{"userns", []string{"SBX-05"}},
		{"nosuid", []string{"SBX-04"}},
		{"pids", []string{"SBX-15"}},
		{"cgroup", []string{"SBX-17", "SBX-18"}},
		{"capabilities", []string{"SBX-03"}},
		{"new-privileges", []string{"SBX-03"}},
		{"masked", []string{"SBX-14"}},
		{"ipc", []string{"SBX-24"}},
		{"uts", []string{"SBX-24"}},
		{"core", []string{"SBX-23"}},
	}
}

// attackLayers takes one layer after the other off, in a build that only tests can make, and
// wants every named case to turn red.
func attackLayers(ctx context.Context, g *gotest, out io.Writer) error {
	without := func(l layer) (red []string, err error) {
		cases := make([]Case, len(l.cases))
		for i, id := range l.cases {
			cases[i] = Case{ID: id}
		}
		got, err := g.run(ctx, []string{"internal/sandbox/oci"}, runPattern(cases), []string{"DAYBREAK_LAYER_OFF=" + l.name}, "-tags=layeroff")
		for _, r := range got {
			if r.Action == "fail" {
				red = append(red, idsOf(r.Test)...)
			}
		}
		slices.Sort(red)
		return slices.Compact(red), err
	}
	// A case that is red with every layer in place notices nothing.
	all := layer{}
	for _, l := range layersOfTheSandbox() {
		all.cases = append(all.cases, l.cases...)
	}
	if red, err := without(all); err != nil {
		return err
	} else if len(red) > 0 {
		return fmt.Errorf("cases that fail with every layer in place: %s", strings.Join(red, " "))
	}
	var bad []string
	for _, l := range layersOfTheSandbox() {
		red, err := without(l)
		if err != nil {
			return err
		}
		var green []string
		for _, id := range l.cases {
			if !slices.Contains(red, id) {
				green = append(green, id)
			}
		}
		said := "red: " + strings.Join(red, " ")
		if len(green) > 0 {
			said += "  NOT NOTICED BY: " + strings.Join(green, " ")
			bad = append(bad, l.name)
		}
		if _, err := fmt.Fprintf(out, "without %-15s %s\n", l.name, said); err != nil {
			return err
		}
	}
	if len(bad) > 0 {
		return errors.New("layers whose loss a named case did not notice: " + strings.Join(bad, ", "))
	}
	return nil
}
