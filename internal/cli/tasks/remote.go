package tasks

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"io"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/api"
	"github.com/daybreak-agent/daybreak/internal/api/client"
	"github.com/daybreak-agent/daybreak/internal/cli/kit"
	"github.com/daybreak-agent/daybreak/internal/cli/taskview"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// far does f with the task on the server that is set; ok is false when none is.
func far(ctx context.Context, env *kit.Env, args []string, f func(c *client.Client, id task.ID) error) (ok bool, err error) {
	c, err := env.Server()
	if c == nil || err != nil {
		return err != nil, err
	}
	name := ""
	if len(args) > 0 {
		name = args[0]
	}
	id, err := find(ctx, c, name)
	if err != nil {
		return true, err
	}
	return true, f(c, id)
}

// record is the log of one task on a server.
type record struct {
	*client.Client
	id task.ID
}

// Blob implements taskview.Records.
func (r record) Blob(ctx context.Context, digest string) ([]byte, error) {
	return r.Client.Blob(ctx, r.id, digest)
}

func (r record) load(ctx context.Context) func(event.Text) (string, error) {
	return func(t event.Text) (string, error) {
		if t.Blob == "" {
			return t.Inline, nil
		}
		b, err := r.Blob(ctx, t.Blob)
		return string(b), err
	}
}

func farShow(ctx context.Context, env *kit.Env, c *client.Client, id task.ID, asJSON, full bool) error {
	if asJSON {
		res, err := c.Result(ctx, id)
		if err != nil {
			return err
		}
		return jsonLine(env.Out, res)
	}
	events, err := c.Events(ctx, id, 0, 0)
	if err != nil {
		return err
	}
	return taskview.Show(env.Out, events, record{c, id}.load(ctx), taskview.Options{Full: full})
}

func farDiff(ctx context.Context, env *kit.Env, c *client.Client, id task.ID) error {
	s, err := c.Diff(ctx, id)
	if err != nil {
		return err
	}
	if env.Width() > 0 { // a terminal would obey what the change holds
		s = taskview.EscapeLines(s)
	}
	_, err = io.WriteString(env.Out, s)
	return err
}

// farVerify checks the log here; only the key is the server's word, which --key replaces.
func farVerify(ctx context.Context, env *kit.Env, c *client.Client, id task.ID, keyFile string) error {
	events, err := c.Events(ctx, id, 0, 0)
	if err != nil {
		return err
	}
	var pub ed25519.PublicKey
	if keyFile != "" {
		if pub, err = kit.PublicKey(keyFile); err != nil {
			return err
		}
	} else {
		me, err := c.Me(ctx)
		if err != nil {
			return err
		}
		b, err := base64.StdEncoding.DecodeString(me.Key)
		if err != nil || len(b) != ed25519.PublicKeySize {
			return &task.Error{Class: task.Unavailable, Msg: c.Name() + " names no key", Fix: "give --key"}
		}
		pub = b
	}
	return verifyEvents(env.Out, id, events, pub)
}

// farSay gives a word to a task on a server.
func farSay(ctx context.Context, env *kit.Env, c *client.Client, id task.ID, kind, text string) error {
	n, err := c.Say(ctx, id, kind, api.Word{Text: text})
	switch {
	case err != nil:
		return err
	case kind == "approve":
		_, err = fmt.Fprintf(env.Out, "approved; %s publishes it within a minute\n", c.Name())
	case kind == "answer":
		_, err = fmt.Fprintf(env.Out, "answered; the task goes on within a minute\n")
	case !n.Running:
		_, err = fmt.Fprintf(env.Out, "noted; no worker has the task now, so it is taken up when it goes on\n")
	case kind == "stop":
		_, err = fmt.Fprintf(env.Out, "noted; the task stops at once\n")
	default:
		_, err = fmt.Fprintf(env.Out, "noted; the task takes it up before its next step\n")
	}
	return err
}

func farBudget(ctx context.Context, env *kit.Env, c *client.Client, id task.ID, asked task.Limits) error {
	b := api.Budget{Steps: asked.Steps, Tokens: asked.Tokens, USD: asked.Cost.USD()}
	if asked.Wall > 0 {
		b.Wall = asked.Wall.String()
	}
	if _, err := c.Budget(ctx, id, b); err != nil {
		return err
	}
	_, err := fmt.Fprintln(env.Out, "raised; the task takes it up at once, or when it goes on")
	return err
}

// rows is where tasks are listed: a store or a server.
type rows interface {
	Task(ctx context.Context, id task.ID) (store.Task, error)
	Tasks(ctx context.Context, f store.Filter) ([]store.Task, error)
}

func words(args []string) string { return strings.Join(args, " ") }
