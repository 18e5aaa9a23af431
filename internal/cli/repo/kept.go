package repo

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybreak-agent/daybreak/internal/app"
	"github.com/daybreak-agent/daybreak/internal/cli/kit"
	"github.com/daybreak-agent/daybreak/internal/cli/taskview"
	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/snapshot"
	"github.com/daybreak-agent/daybreak/internal/task"
)

func prepare(env *kit.Env) *cobra.Command {
	var base string
	var bare bool
	cmd := &cobra.Command{
		Use: "prepare URL|PATH", Args: cobra.ExactArgs(1),
		Short: "Make a repository ready for tasks: mirror, snapshot, dependencies and search index",
		Long: "Makes what a task on that commit would make first: the repository's mirror, a snapshot of the commit (advanced from the nearest\n" +
			"one that is there), its dependencies, installed in a sandbox, and its search index. What is there already is not made again.",
		Example: "  daybreak repo prepare https://git.example.com/shop/cart --base main",
		RunE: func(cmd *cobra.Command, args []string) error {
			return with(cmd.Context(), env, func(a *app.App) error { return makeReady(cmd.Context(), env, a, args[0], base, bare) })
		},
	}
	cmd.Flags().StringVar(&base, "base", "", "commit, branch or tag (default: HEAD)")
	cmd.Flags().BoolVar(&bare, "bare", false, "the mirror and the snapshot only: no sandbox is started")
	return cmd
}

func makeReady(ctx context.Context, env *kit.Env, a *app.App, repo, base string, bare bool) error {
	begin := env.Now()
	bar := newBar(env)
	snap, err := a.Snapshots.Prepare(ctx, snapshot.Source{Repo: repo, Ref: base, Environment: a.Environment(), Progress: bar.at})
	bar.end()
	if err != nil {
		return err
	}
	if snap.Rebuilt != "" {
		fmt.Fprintln(env.Out, taskview.Escape("the mirror was made anew: "+snap.Rebuilt))
	}
	for _, w := range snap.Warnings {
		fmt.Fprintln(env.Out, taskview.Escape("note: "+w))
	}
	if !bare {
		if snap, err = furnish(ctx, env, a, snap); err != nil {
			return err
		}
	}
	how := "prepared"
	if snap.Cached {
		how = "was prepared"
	}
	fmt.Fprintf(env.Out, "%s %s: %d files, %s, in %s\n", snap.Base[:12], how, snap.Files, taskview.Size(snap.Bytes), env.Now().Sub(begin).Round(time.Millisecond))
	return nil
}

// furnish adds the dependencies and the search index.
func furnish(ctx context.Context, env *kit.Env, a *app.App, snap snapshot.Snapshot) (snapshot.Snapshot, error) {
	p, err := a.Prover()
	if err != nil {
		return snap, err
	}
	c, err := p.Settings(ctx, snap)
	if err != nil {
		return snap, err
	}
	snap, done, err := p.Setup(ctx, snap, c, nil, func(note string) { fmt.Fprintln(env.Err, taskview.Escape(note)) })
	if err != nil {
		return snap, err
	}
	for _, w := range done.Warnings {
		fmt.Fprintln(env.Out, taskview.Escape("note: "+w))
	}
	snap, index, err := p.Index(ctx, snap)
	if err == nil && index.Trouble != "" {
		fmt.Fprintln(env.Out, taskview.Escape("note: "+index.Trouble))
	}
	return snap, err
}

func forget(env *kit.Env) *cobra.Command {
	var commit string
	cmd := &cobra.Command{
		Use: "forget URL|PATH", Args: cobra.ExactArgs(1),
		Short: "Remove what is kept of a repository on disk; its registration stays",
		Long: "Removes the snapshots, build caches, prepared dependencies and the mirror of a repository; they are made again when a task needs\n" +
			"them. With --commit it removes what that commit's code could have written to: its snapshots and caches, the dependencies that\n" +
			"were prepared from it, and every snapshot that used those. Nothing that an unfinished task uses is removed.",
		Example: "  daybreak repo forget https://git.example.com/shop/cart --commit 1f0c…",
		RunE: func(cmd *cobra.Command, args []string) error {
			return with(cmd.Context(), env, func(a *app.App) error {
				ctx := cmd.Context()
				if commit != "" && !git.IsID(commit) {
					kept, err := a.Kept(ctx)
					if err != nil {
						return err
					}
					if commit, err = whole(commit, kept); err != nil {
						return err
					}
				}
				gone, err := a.Forget(ctx, args[0], commit)
				bytes := int64(0)
				for _, k := range gone {
					bytes += k.Own
					fmt.Fprintf(env.Out, "removed %s %s%s\n", k.Kind, k.Digest[:12], of(k))
				}
				if len(gone) == 0 && err == nil {
					fmt.Fprintln(env.Out, "nothing is kept of it")
				} else if len(gone) > 0 {
					fmt.Fprintf(env.Out, "%s are free\n", taskview.Size(bytes))
				}
				return err
			})
		},
	}
	cmd.Flags().StringVar(&commit, "commit", "", "only what this commit left (its id, or the beginning of one that `daybreak repo ls --disk` lists)")
	return cmd
}

// whole is the one commit of what is kept whose id begins with part.
func whole(part string, kept []snapshot.Kept) (string, error) {
	found := ""
	for _, k := range kept {
		switch {
		case k.Base == found || !strings.HasPrefix(k.Base, part):
		case found != "":
			return "", &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("%q fits several commits", part), Fix: "write more of the id"}
		default:
			found = k.Base
		}
	}
	if found == "" {
		return "", &task.Error{Class: task.NotFound, Msg: fmt.Sprintf("nothing is kept of a commit %q", part), Fix: "see `daybreak repo ls --disk`, or write the full id"}
	}
	return found, nil
}

func of(k snapshot.Kept) string {
	if k.Base == "" {
		return ""
	}
	return " of " + k.Base[:min(12, len(k.Base))]
}

// listKept says what is on disk. The last line counts it together.
func listKept(ctx context.Context, env *kit.Env, a *app.App) error {
	kept, err := a.Kept(ctx)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(env.Out, 0, 4, 2, ' ', 0)
	if env.Width() > 0 {
		fmt.Fprintln(w, "KIND\tDIGEST\tREPOSITORY\tCOMMIT\tFILES\tCONTENT\tON DISK\tOWN\tAGE\tUSED\tSTATE")
	}
	now, total := env.Now(), int64(0)
	for _, k := range kept {
		total += k.Disk
		state := "free"
		if k.InUse {
			state = "in use"
		}
		files, content := "-", "-"
		if k.Kind == "snapshot" {
			files, content = fmt.Sprint(k.Files), taskview.Size(k.Bytes)
		}
		commit, repo := k.Base[:min(12, len(k.Base))], k.Repo
		if commit == "" {
			commit = "-"
		}
		if repo == "" {
			repo = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s ago\t%s\n", k.Kind, k.Digest[:12], taskview.Escape(repo), commit, files, content,
			taskview.Size(k.Disk), taskview.Size(k.Own), age(now, k.Made), age(now, k.Used), state)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	limit := "no limit is set (cache.disk)"
	if d := int64(a.Config.Cache.Disk); d > 0 {
		limit = "of " + taskview.Size(d)
	}
	fmt.Fprintf(env.Out, "%d kept, %s %s\n", len(kept), taskview.Size(total), limit)
	return nil
}

func age(now, then time.Time) string {
	if then.IsZero() {
		return "-"
	}
	d := max(now.Sub(then), 0)
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%dd", int(d.Hours())/24)
	case d >= time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	case d >= time.Minute:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	}
	return fmt.Sprintf("%ds", int(d.Seconds()))
}

// bar shows how far long work is, on a terminal.
type bar struct {
	env   *kit.Env
	width int

	mu    sync.Mutex
	drawn time.Time
	shown bool
}

func newBar(env *kit.Env) *bar { return &bar{env: env, width: env.Width()} }

// at implements git.Progress.
func (b *bar) at(stage string, done, total int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.env.Now()
	if b.width == 0 || total <= 0 || b.shown && done < total && now.Sub(b.drawn) < 50*time.Millisecond {
		return
	}
	b.drawn, b.shown = now, true
	fmt.Fprint(b.env.Out, "\r\x1b[K"+line(stage, done, total, b.width))
}

// line is the bar as text, at most width columns.
func line(stage string, done, total, width int) string {
	done = min(max(done, 0), total)
	counts := fmt.Sprintf(" %3d%% %d/%d", done*100/total, done, total)
	room := min(max(width-len(stage)-len(counts)-4, 0), 40)
	full := done * room / total
	return fmt.Sprintf("%s [%s%s]%s", stage, strings.Repeat("█", full), strings.Repeat("░", room-full), counts)
}

func (b *bar) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shown {
		fmt.Fprint(b.env.Out, "\r\x1b[K")
	}
}
