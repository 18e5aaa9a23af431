// Package kit owns what the commands share: the streams, the flags that every command has,
// opening the installation, and exit codes.
//
// Invariants: a command reads its surroundings from [Env] only; an error reaches the person as
// one line.
package kit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/daybreak-agent/daybreak/internal/api/client"
	"github.com/daybreak-agent/daybreak/internal/app"
	"github.com/daybreak-agent/daybreak/internal/config"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Exit codes of every command.
const (
	OK          = 0 // a verified pull request, or the command did what it was asked
	Failure     = 1 // ours
	Usage       = 2
	Declined    = 3
	Exhausted   = 4
	Stopped     = 5
	NotVerified = 6
	Waits       = 7 // for a person's word: an approval, or an answer
)

// Program is the command that a person must type to start this program again: as it was typed
// when that was a path, else its name.
func Program() string {
	if len(os.Args) > 0 && filepath.Base(os.Args[0]) == "daybreak" {
		return os.Args[0]
	}
	return "daybreak"
}

// Env is a command's surroundings.
type Env struct {
	In         io.Reader
	Out, Err   io.Writer
	Getenv     func(string) string
	Now        func() time.Time
	Dir        string // --dir
	ConfigPath string // --config
	Verbose    bool   // --verbose
	ServerURL  string // --server
}

// ExitError ends the process with a code. Msg may be empty when everything was said.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit %d", e.Code)
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

// CodeOf maps an error to an exit code.
func CodeOf(err error) int {
	var exit *ExitError
	if errors.As(err, &exit) {
		return exit.Code
	}
	if err == nil {
		return OK
	}
	switch task.ClassOf(err) {
	case task.Invalid, task.NotFound:
		return Usage
	}
	return Failure
}

// Print writes the error as one line, unless there is nothing more to say.
func (e *Env) Print(err error) {
	var exit *ExitError
	if err == nil || errors.As(err, &exit) && exit.Err == nil {
		return
	}
	fmt.Fprintln(e.Err, "daybreak: "+strings.Join(strings.Fields(err.Error()), " "))
}

// Config reads the operator's file: --config, $DAYBREAK_CONFIG, or daybreak.yaml in the XDG
// configuration directory when there is one.
func (e *Env) Config() (config.Config, error) {
	path := e.ConfigPath
	if path == "" {
		path = e.Getenv("DAYBREAK_CONFIG")
	}
	if path == "" {
		dir := e.Getenv("XDG_CONFIG_HOME")
		if dir == "" && e.Getenv("HOME") != "" {
			dir = filepath.Join(e.Getenv("HOME"), ".config")
		}
		if p := filepath.Join(dir, "daybreak", "daybreak.yaml"); dir != "" {
			if _, err := os.Stat(p); err == nil {
				path = p
			}
		}
	}
	return config.Load(path)
}

// Directory is the data directory, absolute.
func (e *Env) Directory() (string, error) {
	if e.Dir != "" {
		return filepath.Abs(e.Dir)
	}
	if d := e.Getenv("DAYBREAK_DIR"); d != "" {
		return filepath.Abs(d)
	}
	return app.DefaultDir(e.Getenv)
}

// Open opens the installation. change may adjust what is opened, or be nil.
func (e *Env) Open(ctx context.Context, change func(*app.Options)) (*app.App, error) {
	cfg, err := e.Config()
	if err != nil {
		return nil, err
	}
	dir, err := e.Directory()
	if err != nil {
		return nil, err
	}
	o := app.Options{Dir: dir, Config: cfg, Getenv: e.Getenv, Now: e.Now, Logger: e.Logger()}
	if change != nil {
		change(&o)
	}
	return app.Open(ctx, o)
}

// Server is the caller of the service that --server, $DAYBREAK_SERVER or server: of the
// configuration names; nil when none does. It shows the token of $DAYBREAK_TOKEN.
func (e *Env) Server() (*client.Client, error) {
	name := e.ServerURL
	if name == "" {
		name = e.Getenv("DAYBREAK_SERVER")
	}
	if name == "" {
		cfg, err := e.Config()
		if err != nil || cfg.Server == "" {
			return nil, err
		}
		name = cfg.Server
	}
	return client.New(name, e.Getenv("DAYBREAK_TOKEN"))
}

// Logger writes to standard error; warnings only, unless --verbose is set.
func (e *Env) Logger() *slog.Logger {
	level := slog.LevelWarn
	if e.Verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(e.Err, &slog.HandlerOptions{Level: level}))
}

// Width returns the terminal's width, or 0 when out is no terminal.
func (e *Env) Width() int {
	f, ok := e.Out.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || e.Getenv("TERM") == "dumb" {
		return 0
	}
	w, _, err := term.GetSize(int(f.Fd()))
	if err != nil || w < 40 {
		return 80
	}
	return w
}
