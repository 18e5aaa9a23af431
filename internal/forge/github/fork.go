package github

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/google/go-github/v88/github"

	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/forge/wire"
)

// home is the repository that branches go to, spoken to with the token that is for it.
func (f *Forge) home(ctx context.Context, r repo) (repo, error) {
	if f.forks == nil {
		return r, nil
	}
	fork, err := f.forks.Of(ctx, r.Repository)
	if err != nil {
		return repo{}, err
	}
	c, err := f.client(f.cfg.Fork.Token)
	owner, name, _ := strings.Cut(fork.Path, "/")
	return repo{Client: c, owner: owner, name: name, Repository: fork}, err
}

func (f *Forge) readFork(ctx context.Context, path string) (*github.Repository, error) {
	c, err := f.client(f.cfg.Fork.Token)
	if err != nil {
		return nil, err
	}
	owner, name, _ := strings.Cut(path, "/")
	r, _, err := c.Repositories.Get(ctx, owner, name)
	return r, err
}

// askFork implements [wire.Forks].
func (f *Forge) askFork(ctx context.Context, path string) (forge.Repository, string, error) {
	r, err := f.readFork(ctx, path)
	if err != nil {
		return forge.Repository{}, "", err
	}
	parent := ""
	if r.GetFork() && r.Parent != nil {
		parent = strconv.FormatInt(r.GetParent().GetID(), 10)
	}
	return f.repository(r), parent, nil
}

// fork makes the fork: of the token's own user, or of an organisation.
func (f *Forge) fork(ctx context.Context, of forge.Repository) error {
	c, err := f.client(f.cfg.Fork.Token)
	if err != nil {
		return err
	}
	me, _, err := c.Users.Get(ctx, "")
	if err != nil {
		return err
	}
	opt := &github.RepositoryCreateForkOptions{DefaultBranchOnly: true}
	if !strings.EqualFold(me.GetLogin(), f.forks.Owner) {
		opt.Organization = f.forks.Owner
	}
	owner, name, _ := strings.Cut(of.Path, "/")
	_, _, err = c.Repositories.CreateFork(ctx, owner, name, opt)
	var later *github.AcceptedError
	if errors.As(err, &later) {
		return nil
	}
	return err
}

// isFork reports whether an address is our fork of a registered repository.
func (f *Forge) isFork(ctx context.Context, address string) (bool, error) {
	path, err := wire.Path(f.web, address, 2)
	if err != nil || f.forks == nil || !strings.HasPrefix(strings.ToLower(path), strings.ToLower(f.forks.Owner)+"/") || f.cfg.Pinned(path) != "" {
		return false, err
	}
	r, err := f.readFork(ctx, path)
	if err != nil || r.Parent == nil {
		return false, err
	}
	return f.cfg.Pinned(r.GetParent().GetFullName()) == strconv.FormatInt(r.GetParent().GetID(), 10), nil
}
