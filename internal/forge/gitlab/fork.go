package gitlab

import (
	"context"
	"strconv"
	"strings"

	sdk "gitlab.com/gitlab-org/api/client-go"

	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/forge/wire"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// branches is the project that branches go to.
func (f *Forge) branches(ctx context.Context, r forge.Repository) (forge.Repository, error) {
	if f.forks == nil {
		return r, nil
	}
	return f.forks.Of(ctx, r)
}

// askFork implements [wire.Forks].
func (f *Forge) askFork(ctx context.Context, path string) (forge.Repository, string, error) {
	p, _, err := f.home.Projects.GetProject(path, nil, with(ctx))
	if err != nil {
		return forge.Repository{}, "", err
	}
	parent := ""
	if p.ForkedFromProject != nil {
		parent = strconv.FormatInt(p.ForkedFromProject.ID, 10)
	}
	return f.repository(p), parent, nil
}

// fork makes the fork in the owner's namespace.
func (f *Forge) fork(ctx context.Context, of forge.Repository) error {
	_, _, err := f.home.Projects.ForkProject(of.ID, &sdk.ForkProjectOptions{NamespacePath: &f.forks.Owner}, with(ctx))
	if task.ClassOf(err) == task.Conflict { // another run was faster
		return nil
	}
	return err
}

// isFork reports whether an address is our fork of a registered project.
func (f *Forge) isFork(ctx context.Context, address string) (bool, error) {
	path, err := wire.Path(f.web, address, depth)
	if err != nil || f.forks == nil || !strings.HasPrefix(strings.ToLower(path), strings.ToLower(f.forks.Owner)+"/") || f.cfg.Pinned(path) != "" {
		return false, err
	}
	p, _, err := f.home.Projects.GetProject(path, nil, with(ctx))
	if err != nil || p.ForkedFromProject == nil {
		return false, err
	}
	return f.cfg.Pinned(p.ForkedFromProject.PathWithNamespace) == strconv.FormatInt(p.ForkedFromProject.ID, 10), nil
}
