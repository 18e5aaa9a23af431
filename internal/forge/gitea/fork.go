package gitea

import (
	"context"
	"strconv"
	"strings"

	sdk "code.gitea.io/sdk/gitea"

	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/forge/wire"
	"github.com/daybreak-agent/daybreak/internal/task"
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
	c, err := f.as(ctx, f.cfg.Fork.Token)
	owner, name, _ := strings.Cut(fork.Path, "/")
	return repo{Client: c, owner: owner, name: name, Repository: fork}, err
}

// askFork implements [wire.Forks].
func (f *Forge) askFork(ctx context.Context, path string) (forge.Repository, string, error) {
	c, err := f.as(ctx, f.cfg.Fork.Token)
	if err != nil {
		return forge.Repository{}, "", err
	}
	owner, name, _ := strings.Cut(path, "/")
	r, _, err := c.GetRepo(owner, name)
	if err != nil {
		return forge.Repository{}, "", err
	}
	parent := ""
	if r.Fork && r.Parent != nil {
		parent = strconv.FormatInt(r.Parent.ID, 10)
	}
	return f.repository(r), parent, nil
}

// fork makes the fork: of the token's own user, or of an organisation.
func (f *Forge) fork(ctx context.Context, of forge.Repository) error {
	c, err := f.as(ctx, f.cfg.Fork.Token)
	if err != nil {
		return err
	}
	me, _, err := c.GetMyUserInfo()
	if err != nil {
		return err
	}
	var opt sdk.CreateForkOption
	if !strings.EqualFold(me.UserName, f.forks.Owner) {
		opt.Organization = &f.forks.Owner
	}
	owner, name, _ := strings.Cut(of.Path, "/")
	_, _, err = c.CreateFork(owner, name, opt)
	if task.ClassOf(err) == task.Conflict { // another run was faster
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
	c, err := f.as(ctx, f.cfg.Fork.Token)
	if err != nil {
		return false, err
	}
	owner, name, _ := strings.Cut(path, "/")
	r, _, err := c.GetRepo(owner, name)
	if err != nil || r.Parent == nil {
		return false, err
	}
	return f.cfg.Pinned(r.Parent.FullName) == strconv.FormatInt(r.Parent.ID, 10), nil
}
