// Package modelserve owns the command "model serve": a scripted model on a local address,
// for any client of the vendors' APIs.
//
// Invariants: it listens on loopback unless told otherwise; it ends when its context does,
// and cuts what is still streaming.
package modelserve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybreak-agent/daybreak/internal/cli/kit"
	"github.com/daybreak-agent/daybreak/internal/model/scripted"
	"github.com/daybreak-agent/daybreak/internal/model/scripted/transcript"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Options are what the flags set.
type Options struct {
	Script string
	Listen string
	Vars   []string // key=value
}

// NewCmd returns the command "serve", to be added below "model".
func NewCmd(env *kit.Env) *cobra.Command {
	var o Options
	cmd := &cobra.Command{
		Use:   "serve --script FILE",
		Short: "Play a transcript as a model server",
		Long: "Plays the turns of a transcript over Anthropic's Messages API and OpenAI's Responses and\n" +
			"Chat Completions APIs. A request that does not fit the transcript is refused with status\n" +
			"400 and the reason. Ctrl-C stops it.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), env, o) },
	}
	cmd.Flags().StringVar(&o.Script, "script", "", "transcript to play")
	cmd.Flags().StringVar(&o.Listen, "listen", "127.0.0.1:0", "address to listen on")
	cmd.Flags().StringArrayVar(&o.Vars, "var", nil, "value for a ${name} of the transcript, as name=value (repeatable)")
	_ = cmd.MarkFlagRequired("script") // the flag exists: it was defined above
	return cmd
}

func run(ctx context.Context, env *kit.Env, o Options) error {
	vars := map[string]string{}
	for _, v := range o.Vars {
		name, value, ok := strings.Cut(v, "=")
		if !ok || name == "" {
			return &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("--var %q is not name=value", v)}
		}
		vars[name] = value
	}
	script, err := load(o.Script)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return &task.Error{Class: task.Invalid, Msg: "cannot listen on " + o.Listen, Fix: "choose another --listen address", Err: err}
	}
	srv := &http.Server{
		Handler:           scripted.NewServer(script, scripted.Options{Vars: vars, OnError: func(err error) { _, _ = fmt.Fprintln(env.Err, err) }}),
		ReadHeaderTimeout: 10 * time.Second,
	}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	url := "http://" + l.Addr().String()
	if _, err := fmt.Fprintf(env.Out, "playing %d turns: anthropic base URL %s, openai base URL %s/v1\n", len(script.Turns), url, url); err != nil {
		_ = l.Close()
		return err
	}
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func load(path string) (transcript.Transcript, error) {
	f, err := os.Open(path)
	if err != nil {
		return transcript.Transcript{}, &task.Error{Class: task.Invalid, Msg: "cannot open the transcript", Err: err}
	}
	defer func() { _ = f.Close() }()
	t, err := transcript.Parse(f)
	var e *task.Error
	if errors.As(err, &e) {
		e.Msg = path + ": " + e.Msg
	}
	return t, err
}
