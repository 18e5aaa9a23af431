package wire

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Path takes the "owner/name" out of a repository's URL, which must be below the forge's own.
// Names are of letters, digits, "-", "_" and "."; depth is how many parts a path may have.
func Path(web, repo string, depth int) (string, error) {
	bad := &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("%s is not the address of a repository at %s", clip(repo), web)}
	u, err := url.Parse(repo)
	w, werr := url.Parse(web)
	if err != nil || werr != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != w.Scheme || !strings.EqualFold(u.Host, w.Host) {
		return "", bad
	}
	rest, ok := strings.CutPrefix(u.Path, strings.TrimSuffix(w.Path, "/")+"/")
	if !ok || u.RawPath != "" {
		return "", bad
	}
	path := strings.TrimSuffix(strings.TrimSuffix(rest, "/"), ".git")
	parts := strings.Split(path, "/")
	if len(parts) < 2 || len(parts) > depth {
		return "", bad
	}
	name := regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$`)
	for _, p := range parts {
		if !name.MatchString(p) || strings.Contains(p, "..") {
			return "", bad
		}
	}
	return path, nil
}

// Pins holds repositories to the numbers they were registered with.
type Pins struct {
	// Of returns the number a repository was registered with, "" when it was not.
	Of func(path string) string
	// Ask reads the repository from the forge.
	Ask func(ctx context.Context, path string) (forge.Repository, error)
	Now func() time.Time

	mu   sync.Mutex
	seen map[string]pin
}

type pin struct {
	repo forge.Repository
	at   time.Time
}

// pinFor is how long an answer is believed.
const pinFor = time.Minute

// Check makes sure that the path still names the registered repository. A repository that was
// not registered is class Invalid, another one under the same name is class Conflict.
func (p *Pins) Check(ctx context.Context, path string) (forge.Repository, error) {
	want := p.Of(path)
	if want == "" {
		return forge.Repository{}, &task.Error{Class: task.Invalid, Msg: path + " is not registered", Fix: "register it with `daybreak repo add`"}
	}
	p.mu.Lock()
	got, ok := p.seen[path]
	p.mu.Unlock()
	if ok && p.Now().Sub(got.at) < pinFor && got.repo.ID == want {
		return got.repo, nil
	}
	r, err := p.Ask(ctx, path)
	if err != nil {
		return r, err
	}
	if r.ID != want || !strings.EqualFold(r.Path, path) {
		return r, &task.Error{
			Class: task.Conflict, Msg: fmt.Sprintf("%s is another repository (number %s) than the one that was registered (number %s)", path, r.ID, want),
			Fix: "register it again if that is meant",
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen == nil {
		p.seen = map[string]pin{}
	}
	p.seen[path] = pin{r, p.Now()}
	return r, nil
}
