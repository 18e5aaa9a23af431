package app

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"github.com/daybreak-agent/daybreak/internal/model"
	"github.com/daybreak-agent/daybreak/internal/replay"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/store/sqlite"
	"github.com/daybreak-agent/daybreak/internal/worker"
)

// Replay runs a recorded task again, without a provider and without a forge, in stores that are
// gone afterwards. What cfg has of Scratch, Worker and Info is filled in.
func (a *App) Replay(ctx context.Context, name string, cfg replay.Config, progress func(stage, note string)) (rep replay.Report, err error) {
	dir, err := os.MkdirTemp("", "daybreak-replay-")
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if cfg.Worker, err = a.localConfig(Hooks{Progress: progress}); err != nil {
		return rep, err
	}
	cfg.Worker.Questions = worker.Questions{Most: a.Config.Questions.Most, Wait: a.Config.Questions.Wait}
	n := 0
	cfg.Scratch = func(ctx context.Context) (store.Store, error) {
		n++
		return sqlite.Open(ctx, filepath.Join(dir, strconv.Itoa(n)+".db"), sqlite.Options{Now: a.Now, Logger: a.opts.Logger})
	}
	cfg.Info = a.modelInfo(name)
	return replay.Run(ctx, cfg)
}

// modelInfo is what the catalogue and the operator say about a model; its name alone where they
// say nothing.
func (a *App) modelInfo(name string) model.Info {
	provider, id, err := cutModel(name)
	if err != nil {
		return model.Info{Model: name}
	}
	known, _ := a.known().With(override(provider, id, a.Config.Providers[provider])).Lookup(provider, id)
	return model.Info{Provider: provider, Model: id, Context: known.Context, MaxOutput: known.MaxOutput, Price: known.Price, Priced: known.Priced}
}
