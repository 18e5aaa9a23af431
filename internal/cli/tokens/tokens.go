// Package tokens owns `daybreak token` and `daybreak login-link`: who may ask the service.
//
// Invariants: a secret is printed once, when it is made; both are for the one who may read the
// data directory, since they open the store.
package tokens

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/user"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybreak-agent/daybreak/internal/access"
	"github.com/daybreak-agent/daybreak/internal/app"
	"github.com/daybreak-agent/daybreak/internal/cli/kit"
	"github.com/daybreak-agent/daybreak/internal/cli/taskview"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// NewCmd makes `daybreak token`.
func NewCmd(env *kit.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "token", Short: "Make, list and revoke the tokens that programs show the service"}
	cmd.AddCommand(create(env), list(env), revoke(env))
	return cmd
}

// NewLinkCmd makes `daybreak login-link`.
func NewLinkCmd(env *kit.Env) *cobra.Command {
	return &cobra.Command{
		Use: "login-link", Short: "Print a link that signs you in to the service's pages, once", Args: cobra.NoArgs,
		Long: fmt.Sprintf("Prints a link that makes whoever opens it first the operator in that browser. It is good once, for %.0f minutes.", access.LinkFor.Minutes()),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(cmd.Context(), env, func(a *app.App, _ store.Access) error {
				link, err := a.SignInLink(cmd.Context(), a.Address())
				if err != nil {
					return err
				}
				fmt.Fprintln(env.Out, link)
				if !answers(cmd.Context(), a.Address()) {
					fmt.Fprintf(env.Err, "daybreak: nothing answers at %s from here; start the service with `daybreak serve`, which prints a link itself, before you open this one\n", a.Address())
				}
				return nil
			})
		},
	}
}

// answers reports whether a service is reached at an address.
func answers(ctx context.Context, base string) bool {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/healthz", nil)
	if err != nil {
		return false
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK
}

func create(env *kit.Env) *cobra.Command {
	var (
		name, expires string
		scopes, repos []string
		asJSON        bool
	)
	cmd := &cobra.Command{
		Use: "create", Short: "Make a token; it is printed once", Args: cobra.NoArgs,
		Long: "Scopes are read, create, steer (also stop and retry), budget, approve and admin (everything, and the installation itself).\n" +
			"With --repos a token is for repositories whose address fits one of the globs.",
		Example: "  daybreak token create --name jira --scopes read,create --repos 'https://git.example.com/shop/*' --expires 90d",
		RunE: func(cmd *cobra.Command, _ []string) error {
			n := access.NewToken{Name: name, Repos: repos, By: person()}
			for _, s := range scopes {
				n.Scopes = append(n.Scopes, access.Scope(strings.TrimSpace(s)))
			}
			var err error
			if n.Expires, err = until(expires, env.Now()); err != nil {
				return err
			}
			return with(cmd.Context(), env, func(a *app.App, acc store.Access) error {
				id, secret, err := access.CreateToken(cmd.Context(), acc, nil, env.Now(), n)
				if task.ClassOf(err) == task.Conflict {
					return &task.Error{Class: task.Invalid, Msg: err.Error(), Fix: "choose another --name; `daybreak token ls` shows all"}
				}
				if err != nil {
					return err
				}
				if asJSON {
					return json.NewEncoder(env.Out).Encode(map[string]string{"id": id, "name": name, "token": secret})
				}
				_, err = fmt.Fprintln(env.Out, secret)
				return err
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&name, "name", "", "what it is for")
	f.StringSliceVar(&scopes, "scopes", nil, "what it may do")
	f.StringSliceVar(&repos, "repos", nil, "globs of the repositories that it is for (default: all)")
	f.StringVar(&expires, "expires", "90d", "when it ends: a time ahead such as 90d or 12h, a day such as 2027-01-31, or never")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// until reads when a token ends; zero for never.
func until(s string, now time.Time) (time.Time, error) {
	if s == "never" {
		return time.Time{}, nil
	}
	if at, err := time.Parse(time.DateOnly, s); err == nil {
		return at, nil
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n > 0 && n <= 36500 {
			return now.UTC().AddDate(0, 0, n), nil
		}
	}
	if d, err := time.ParseDuration(s); err == nil && d > 0 {
		return now.UTC().Add(d), nil
	}
	return time.Time{}, &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("--expires is %.40q; use a time ahead such as 90d or 12h, a day such as 2027-01-31, or never", s)}
}

func list(env *kit.Env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "ls", Short: "List the tokens, without what is secret", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(cmd.Context(), env, func(_ *app.App, acc store.Access) error {
				ts, err := acc.Tokens(cmd.Context())
				if err != nil {
					return err
				}
				if !asJSON && len(ts) == 0 {
					_, err := fmt.Fprintln(env.Out, "no tokens; make one with `daybreak token create`")
					return err
				}
				return print(env, ts, asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line")
	return cmd
}

func print(env *kit.Env, ts []store.Token, asJSON bool) error {
	tw := tabwriter.NewWriter(env.Out, 0, 0, 2, ' ', 0)
	if !asJSON {
		fmt.Fprintln(tw, "ID\tNAME\tSCOPES\tREPOSITORIES\tMADE\tUSED\tENDS")
	}
	for _, t := range ts {
		if asJSON {
			err := json.NewEncoder(env.Out).Encode(struct {
				ID      string    `json:"id"`
				Name    string    `json:"name"`
				Scopes  []string  `json:"scopes"`
				Repos   []string  `json:"repos"`
				By      string    `json:"by"`
				Created time.Time `json:"created"`
				Expires time.Time `json:"expires,omitzero"`
				Revoked time.Time `json:"revoked,omitzero"`
				Used    time.Time `json:"used,omitzero"`
			}{t.ID, t.Name, t.Scopes, t.Repos, t.By, t.Created, t.Expires, t.Revoked, t.Used})
			if err != nil {
				return err
			}
			continue
		}
		ends := day(t.Expires, "never")
		if !t.Revoked.IsZero() {
			ends = "revoked"
		} else if !t.Expires.IsZero() && !env.Now().Before(t.Expires) {
			ends = "expired"
		}
		repos := "all"
		if len(t.Repos) > 0 {
			repos = strings.Join(t.Repos, ",")
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", t.ID, taskview.Escape(t.Name), strings.Join(t.Scopes, ","), taskview.Escape(repos), day(t.Created, "-"), day(t.Used, "never"), ends)
	}
	return tw.Flush()
}

func day(t time.Time, none string) string {
	if t.IsZero() {
		return none
	}
	return t.UTC().Format(time.DateOnly)
}

func revoke(env *kit.Env) *cobra.Command {
	return &cobra.Command{
		Use: "revoke TOKEN", Short: "Make a token worth nothing, by its id or name", Args: kit.Takes,
		RunE: func(cmd *cobra.Command, args []string) error {
			return with(cmd.Context(), env, func(_ *app.App, acc store.Access) error {
				ts, err := acc.Tokens(cmd.Context())
				if err != nil {
					return err
				}
				for _, t := range ts {
					if t.ID != args[0] && (t.Name != args[0] || !t.Revoked.IsZero()) {
						continue
					}
					if err := acc.RevokeToken(cmd.Context(), t.ID, env.Now()); err != nil {
						return err
					}
					_, err := fmt.Fprintf(env.Out, "token %s (%s) is worth nothing any more\n", t.ID, taskview.Escape(t.Name))
					return err
				}
				return &task.Error{Class: task.NotFound, Msg: fmt.Sprintf("no token %.100q", args[0]), Fix: "see `daybreak token ls`"}
			})
		},
	}
}

func person() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "unknown"
}

func with(ctx context.Context, env *kit.Env, f func(*app.App, store.Access) error) error {
	a, err := env.Open(ctx, nil)
	if err != nil {
		return err
	}
	acc, err := a.Access()
	if err == nil {
		err = f(a, acc)
	}
	return errors.Join(err, a.Close())
}
