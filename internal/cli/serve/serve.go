// Package serve owns `daybreak serve` and `daybreak worker`: the service, and more workers for
// it.
//
// Invariants: the first SIGTERM or ctrl-C lets each task finish its step and hands it over, the
// second stops at once; either way nothing that was recorded is lost; a process that cannot do
// its work says so in one line and ends before it listens.
package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/daybreak-agent/daybreak/internal/access"
	"github.com/daybreak-agent/daybreak/internal/app"
	"github.com/daybreak-agent/daybreak/internal/cli/kit"
	"github.com/daybreak-agent/daybreak/internal/config"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// NewCmd makes `daybreak serve`.
func NewCmd(env *kit.Env) *cobra.Command {
	var listen string
	var storybook bool
	workers := -1
	cmd := &cobra.Command{
		Use: "serve", Args: cobra.NoArgs,
		Short: "Run the service: take tasks in, schedule and work on them",
		Long: "Takes tasks in over HTTP, schedules them and works on them, until SIGTERM or ctrl-C: then each task finishes its\n" +
			"step and is handed over; a second signal stops at once. With the SQLite store one process serves; with PostgreSQL\n" +
			"any number, beside `daybreak worker`.\n\n" +
			"Its pages show the tasks; on the loopback a link that signs you in is printed. Programs use the API with the token of\n" +
			"serve.token_env or one of `daybreak token create`. /healthz and /readyz are for an orchestrator.",
		Example: "  DAYBREAK_TOKEN=$(openssl rand -hex 32) daybreak serve --config daybreak.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd.Context(), env, workers, storybook, func(a *app.App) (string, error) {
				if listen == "" {
					listen = a.Config.Serve.Listen
				}
				return listen, nil
			})
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "", "address of the HTTP listener (default: serve.listen)")
	cmd.Flags().IntVar(&workers, "workers", -1, "tasks worked at once by this process (default: serve.workers)")
	cmd.Flags().Lookup("workers").DefValue = "0" // not shown: the help says what it is
	cmd.Flags().BoolVar(&storybook, "storybook", false, "for development: pages of tasks in hard states at /storybook/")
	return cmd
}

// NewWorkerCmd makes `daybreak worker`.
func NewWorkerCmd(env *kit.Env) *cobra.Command {
	workers := -1
	cmd := &cobra.Command{
		Use: "worker", Args: cobra.NoArgs,
		Short: "Work on tasks of a service that runs elsewhere, on the same PostgreSQL store",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd.Context(), env, workers, false, func(a *app.App) (string, error) {
				if a.Config.Store.Engine != config.Postgres {
					return "", &task.Error{
						Class: task.Invalid, Msg: "one SQLite file has one owning process, so there are no further workers for it",
						Fix: "raise serve.workers of `daybreak serve`, or set store.engine to postgres",
					}
				}
				return "", nil
			})
		},
	}
	cmd.Flags().IntVar(&workers, "workers", -1, "tasks worked at once by this process (default: serve.workers)")
	cmd.Flags().Lookup("workers").DefValue = "0" // not shown: the help says what it is
	return cmd
}

// run is a process of the service. prepare checks the installation and names the address to
// listen at, "" for none.
func run(ctx context.Context, env *kit.Env, workers int, storybook bool, prepare func(*app.App) (string, error)) error {
	log := logger(env)
	a, err := env.Open(ctx, func(o *app.Options) { o.Dispatch, o.Logger = true, log })
	if err != nil {
		return err
	}
	defer func() {
		if err := a.Close(); err != nil {
			log.Error("close", "error", err)
		}
	}()
	listen, err := prepare(a)
	if err != nil {
		return err
	}
	if workers < 0 {
		workers = a.Config.Serve.Workers
	}
	if workers > config.MaxWorkers {
		return &kit.ExitError{Code: kit.Usage, Err: fmt.Errorf("--workers is %d; use at most %d", workers, config.MaxWorkers)}
	}
	draining := make(chan struct{})
	mail, err := a.Mail()
	if err != nil {
		return err
	}
	d, err := a.Dispatcher(workers, draining, a.Chores(mail)...)
	if err != nil {
		return err
	}
	var l net.Listener
	if listen != "" {
		if l, err = net.Listen("tcp", listen); err != nil {
			return &task.Error{Class: task.Unavailable, Msg: "cannot listen", Err: err, Fix: "choose another address with serve.listen or --listen"}
		}
		defer func() { _ = l.Close() }()
	}
	if err := d.Start(ctx); err != nil {
		return err
	}
	if workers > 0 {
		var upkeep sync.WaitGroup
		working, stopUpkeep := context.WithCancel(context.WithoutCancel(ctx))
		upkeep.Go(func() { a.Upkeep(working) })
		defer func() { stopUpkeep(); upkeep.Wait() }() // it works on this machine's disk, unlike the dispatcher's periodic work
	}
	web, stopWeb := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWeb()
	var serving sync.WaitGroup
	failed := make(chan error, 1)
	if at := a.Config.Telemetry.Listen; at != "" {
		numbers, err := net.Listen("tcp", at)
		if err != nil {
			return errors.Join(&task.Error{Class: task.Unavailable, Msg: "cannot listen for /metrics", Err: err, Fix: "choose another address with telemetry.listen"}, d.Stop(ctx))
		}
		serving.Go(func() {
			if err := a.ServeMetrics(web, numbers); err != nil {
				log.Error("/metrics is not served", "error", err)
			}
		})
		log.Info("metrics", "address", numbers.Addr().String())
	}
	if l != nil {
		hub := a.Hub()
		defer hub.Close()
		context.AfterFunc(web, hub.Close) // live streams would hold the server's end up
		s, err := a.Server(web, ready(a, draining), hub, mail, storybook)
		if err != nil {
			return errors.Join(err, d.Stop(ctx))
		}
		if err := tellAddress(ctx, env, a, log, l.Addr()); err != nil {
			return errors.Join(err, d.Stop(ctx))
		}
		if mail != nil {
			serving.Go(func() { _ = mail.Run(web) }) // ends with web, without an error
		}
		serving.Go(func() { failed <- s.Serve(web, l) })
		log.Info("listening", "address", l.Addr().String())
	}
	log.Info("working", "workers", workers, "store", a.Config.Store.Engine, "lease", a.Config.Serve.Lease)
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	close(draining)
	err = errors.Join(err, drain(ctx, log, d.Stop))
	stopWeb()
	serving.Wait()
	return err
}

// drain stops, at once when a second signal comes.
func drain(ctx context.Context, log *slog.Logger, stop func(context.Context) error) error {
	log.Info("stopping: each task finishes its step; a second signal stops at once")
	again := make(chan os.Signal, 1)
	signal.Notify(again, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(again)
	end, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	go func() {
		select {
		case <-again:
			log.Warn("stopping at once")
			cancel()
		case <-end.Done():
		}
	}()
	return stop(end)
}

// ready says why the process cannot do its work now.
func ready(a *app.App, draining <-chan struct{}) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-draining:
			return errors.New("stopping")
		default:
		}
		_, err := a.Store.Tasks(ctx, store.Filter{Limit: 1})
		return err
	}
}

// tellAddress says where people go, and how the one who started a service that only this machine
// reaches signs in.
func tellAddress(ctx context.Context, env *kit.Env, a *app.App, log *slog.Logger, at net.Addr) error {
	base := app.BaseURL(a.Config.Serve, at.String())
	if err := a.KeepAddress(base); err != nil {
		return err
	}
	if token, err := a.Token(); err != nil {
		return err
	} else if token == "" {
		log.Warn("no operator's token is set: programs need one of `daybreak token create`", "variable", a.Config.Serve.TokenEnv)
	}
	tcp, ok := at.(*net.TCPAddr)
	if !ok || !tcp.IP.IsLoopback() || a.Config.Serve.OIDC != nil {
		fmt.Fprintf(env.Out, "pages at %s\n", base)
		return nil
	}
	link, err := a.SignInLink(ctx, base)
	if err != nil {
		return err
	}
	fmt.Fprintf(env.Out, "open %s\n(signs you in once, within %.0f minutes; `daybreak login-link` prints another)\n", link, access.LinkFor.Minutes())
	return nil
}

// logger says more than those of commands that a person watches.
func logger(env *kit.Env) *slog.Logger {
	level := slog.LevelInfo
	if env.Verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(env.Err, &slog.HandlerOptions{Level: level}))
}
