package repo

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybreak-agent/daybreak/internal/app"
	"github.com/daybreak-agent/daybreak/internal/cli/kit"
	"github.com/daybreak-agent/daybreak/internal/cli/taskview"
	"github.com/daybreak-agent/daybreak/internal/prover"
	"github.com/daybreak-agent/daybreak/internal/snapshot"
	"github.com/daybreak-agent/daybreak/internal/story"
)

func prepare(env *kit.Env) *cobra.Command {
	var base string
	var bare bool
	cmd := &cobra.Command{
		Use: "prepare URL|PATH", Args: kit.Takes,
		Short: "Make a repository ready for tasks: mirror, snapshot, dependencies and search index",
		Long: "Makes what a task on that commit would make first: the repository's mirror, a snapshot of the commit (advanced from the nearest\n" +
			"one that is there), its dependencies, installed in a sandbox, and its search index. What is there already is not made again.\n" +
			"At its end what nobody used for long, or what is too much for cache.disk or for the disk, is removed.",
		Example: "  daybreak repo prepare https://git.example.com/shop/cart --base main",
		RunE: func(cmd *cobra.Command, args []string) error {
			return with(cmd.Context(), env, func(a *app.App) error {
				defer a.Tidy(context.WithoutCancel(cmd.Context()))
				bar := newBar(env)
				defer bar.end()
				return makeReady(cmd.Context(), env, bar, a, args[0], base, bare)
			})
		},
	}
	cmd.Flags().StringVar(&base, "base", "", "commit, branch or tag (default: HEAD)")
	cmd.Flags().BoolVar(&bare, "bare", false, "the mirror and the snapshot only: no sandbox is started")
	return cmd
}

// part is one of the things that make a repository ready.
type part struct {
	name string
	made bool // now; else it was there
	took time.Duration
}

func makeReady(ctx context.Context, env *kit.Env, bar *bar, a *app.App, repo, base string, bare bool) error {
	begin := env.Now()
	if _, err := os.Stat(repo); err == nil {
		if repo, err = filepath.Abs(repo); err != nil {
			return err
		}
	}
	bar.status("fetching the commit")
	snap, err := a.Snapshots.Prepare(ctx, snapshot.Source{Repo: repo, Ref: base, Environment: a.Environment(), Progress: bar.at})
	bar.clear()
	if err != nil {
		return err
	}
	if snap.Rebuilt != "" {
		fmt.Fprintln(env.Out, taskview.Escape("made anew: "+snap.Rebuilt))
	}
	for _, w := range snap.Warnings {
		fmt.Fprintln(env.Out, taskview.Escape("note: "+w))
	}
	parts := []part{{"snapshot", !snap.Cached, env.Now().Sub(begin)}}
	if !bare {
		more, err := furnish(ctx, env, bar, a, snap)
		if err != nil {
			return err
		}
		parts = append(parts, more...)
	}
	bar.note("linking the files for the next commit's snapshot")
	err = a.Snapshots.Twin(ctx, snap)
	bar.clear()
	if err != nil && ctx.Err() != nil {
		return err
	}
	if err != nil { // everything else is ready
		fmt.Fprintln(env.Out, taskview.Escape("note: the snapshot of the next commit will take longer: "+err.Error()))
	}
	fmt.Fprintf(env.Out, "%s %s: %d files, %s, in %s%s\n", snap.Base[:12], how(parts), snap.Files, taskview.Size(snap.Bytes),
		story.Took(env.Now().Sub(begin).Milliseconds()), costs(parts))
	return nil
}

// furnish adds the dependencies and the search index.
func furnish(ctx context.Context, env *kit.Env, bar *bar, a *app.App, snap snapshot.Snapshot) (parts []part, err error) {
	p, err := a.Prover()
	if err != nil {
		return nil, err
	}
	c, err := p.Settings(ctx, snap)
	if err != nil {
		return nil, err
	}
	begin := env.Now()
	snap, done, err := p.Setup(ctx, snap, c, nil, bar.note)
	bar.clear()
	if err != nil {
		return nil, err
	}
	for _, w := range done.Warnings {
		fmt.Fprintln(env.Out, taskview.Escape("note: "+w))
	}
	if len(done.Commands) > 0 {
		parts = append(parts, part{"dependencies", !done.Cached, env.Now().Sub(begin)})
	}
	made, err := furnishIndex(ctx, env, bar, p, snap)
	return append(parts, made...), err
}

// furnishIndex adds the search index, where tasks use one.
func furnishIndex(ctx context.Context, env *kit.Env, bar *bar, p *prover.Prover, snap snapshot.Snapshot) ([]part, error) {
	if snap.Bytes < prover.IndexFrom {
		return nil, nil
	}
	begin := env.Now()
	_, index, err := p.Indexed(snap)
	damage := index.Trouble
	if err == nil && !index.Cached {
		bar.note("building the search index")
		_, index, err = p.IndexTelling(ctx, snap, bar.at)
		bar.clear()
	}
	if err != nil {
		return nil, err
	}
	if why := cmp.Or(index.Trouble, damage); why != "" {
		fmt.Fprintln(env.Out, taskview.Escape("note: "+why))
	}
	if !index.Built && !index.Cached {
		return nil, nil
	}
	return []part{{"search index of " + taskview.Size(index.Bytes), index.Built, env.Now().Sub(begin)}}, nil
}

// how says whether anything had to be made.
func how(parts []part) string {
	for _, p := range parts {
		if p.made {
			return "prepared"
		}
	}
	return "was prepared"
}

// costs says of each part what making it took, when there is something to tell apart.
func costs(parts []part) string {
	var words []string
	for _, p := range parts {
		if p.made {
			words = append(words, p.name+" "+story.Took(p.took.Milliseconds()))
		} else {
			words = append(words, p.name+" was there")
		}
	}
	if len(words) < 2 || how(parts) == "was prepared" {
		return ""
	}
	return " (" + strings.Join(words, ", ") + ")"
}
