package repo

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybreak-agent/daybreak/internal/app"
	"github.com/daybreak-agent/daybreak/internal/cli/kit"
	"github.com/daybreak-agent/daybreak/internal/cli/taskview"
	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/snapshot"
	"github.com/daybreak-agent/daybreak/internal/story"
	"github.com/daybreak-agent/daybreak/internal/task"
)

func forget(env *kit.Env) *cobra.Command {
	var commit string
	cmd := &cobra.Command{
		Use: "forget URL|PATH", Args: kit.Takes,
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
	cmd.Flags().StringVar(&commit, "commit", "", "only what this `COMMIT` left: its id, or the beginning of one that daybreak repo ls --disk lists")
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
		fmt.Fprintln(w, "KIND\tDIGEST\tREPOSITORY\tCOMMIT\tFILES\tCONTENT\tINDEX\tON DISK\tOWN\tTOOK\tAGE\tUSED\tSTATE")
	}
	now, total := env.Now(), int64(0)
	for _, k := range kept {
		total += k.Disk
		state := "free"
		if k.InUse {
			state = "in use"
		}
		files, content, index, took := "-", "-", "-", "-"
		if k.Kind == "snapshot" {
			files, content = fmt.Sprint(k.Files), taskview.Size(k.Bytes)
		}
		if k.Index > 0 {
			index = taskview.Size(k.Index)
		}
		if k.Took > 0 {
			took = story.Took(k.Took.Milliseconds())
		}
		commit, repo := k.Base[:min(12, len(k.Base))], k.Repo
		if commit == "" {
			commit = "-"
		}
		if repo == "" {
			repo = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s ago\t%s\n", k.Kind, k.Digest[:12], taskview.Escape(repo), commit, files, content, index,
			taskview.Size(k.Disk), taskview.Size(k.Own), took, age(now, k.Made), age(now, k.Used), state)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, note := range notes(kept) {
		fmt.Fprintln(env.Out, taskview.Escape("note: "+note))
	}
	limit := "no limit is set (cache.disk)"
	if d := int64(a.Config.Cache.Disk); d > 0 {
		limit = "of " + taskview.Size(d)
	}
	if free, size, err := a.Snapshots.Room(); err == nil {
		limit += fmt.Sprintf("; the disk has %s of %s free", taskview.Size(free), taskview.Size(size))
	}
	fmt.Fprintf(env.Out, "%d kept, %s %s\n", len(kept), taskview.Size(total), limit)
	return nil
}

// notes are the warnings of snapshots, each once for a repository: with the newest commit that has it.
func notes(kept []snapshot.Kept) (out []string) {
	newest := slices.Clone(kept)
	slices.SortStableFunc(newest, func(a, b snapshot.Kept) int { return b.Made.Compare(a.Made) })
	said := map[string]bool{}
	for _, k := range newest {
		for _, w := range k.Warnings {
			if key := k.Repo + "\x00" + w; !said[key] {
				said[key] = true
				out = append(out, fmt.Sprintf("%s%s: %s", k.Repo, strings.Replace(of(k), " of ", " ", 1), w))
			}
		}
	}
	return out
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
