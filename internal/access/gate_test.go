package access

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// hub is a forge of which only permissions are asked.
type hub struct {
	forge.Host
	asked atomic.Int32
	mu    sync.Mutex
	may   map[string]forge.Permission // by "repo login"
	err   error
}

func (h *hub) Name() string { return "hub" }

func (h *hub) Permission(_ context.Context, repo, user string) (forge.Permission, error) {
	h.asked.Add(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.may[repo+" "+user], h.err
}

func (h *hub) set(what string, p forge.Permission, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.may[what], h.err = p, err
}

const there = task.ID("t_01kh0000000000000000000001")

func newGate(h *hub) (*Gate, *time.Time) {
	clock := time.Now()
	return NewGate(GateConfig{
		Host: func(repo string) (forge.Host, bool) { return h, strings.HasPrefix(repo, "https://hub/") },
		Task: func(_ context.Context, id task.ID) (store.Task, error) {
			if id != there {
				return store.Task{}, &task.Error{Class: task.NotFound, Msg: "no task " + string(id)}
			}
			return store.Task{ID: id, Repo: "https://hub/a/shop"}, nil
		},
		Now: func() time.Time { return clock },
	}), &clock
}

func person(name string) Viewer {
	return Viewer{Name: name, Via: ViaOIDC, Scopes: []Scope{Read, Create, Steer, Budget, Approve}, Logins: map[string]string{"": name}}
}

// TestPermissions_WEB06: who may see and do what is what the forge says; what somebody may not read is
// answered like what is not there, word for word.
func TestPermissions_WEB06(t *testing.T) {
	h := &hub{may: map[string]forge.Permission{
		"https://hub/a/shop reader": forge.Read, "https://hub/a/shop writer": forge.Write, "https://hub/a/shop owner": forge.Admin, "https://hub/a/shop w-hub": forge.Write,
	}}
	g, _ := newGate(h)
	ctx := t.Context()
	mapped := person("other")
	mapped.Logins["hub"] = "w-hub"
	unmapped := person("writer")
	unmapped.Logins["hub"] = ""
	token := func(repo string, s ...Scope) Viewer {
		v := Viewer{Name: "ci", Via: ViaToken, All: true, Scopes: s}
		if repo != "" {
			v.Repos = []string{repo}
		}
		return v
	}
	for name, tt := range map[string]struct {
		v                                Viewer
		read, steer, create, queue, none bool
	}{
		"nobody":                {v: Viewer{}},
		"a stranger":            {v: person("stranger")},
		"a reader":              {v: person("reader"), read: true},
		"a writer":              {v: person("writer"), read: true, steer: true, create: true},
		"an owner":              {v: person("owner"), read: true, steer: true, create: true},
		"another name there":    {v: mapped, read: true, steer: true, create: true},
		"no account there":      {v: unmapped},
		"the operator":          {v: token("", Admin), read: true, steer: true, create: true, queue: true},
		"a token to read":       {v: token("", Read), read: true},
		"a token to create":     {v: token("", Create), create: true},
		"a token for this":      {v: token("https://hub/a/*", Read, Steer), read: true, steer: true},
		"a token for another":   {v: token("https://hub/b/*", Read, Steer, Create, Approve)},
		"an admin for one only": {v: token("https://hub/a/shop", Admin), read: true, steer: true, create: true},
	} {
		t.Run(name, func(t *testing.T) {
			_, readErr := g.Task(ctx, tt.v, there, Read)
			_, steerErr := g.Task(ctx, tt.v, there, Steer)
			createErr := g.MayAct(ctx, tt.v, "https://hub/a/shop", Create)
			if (readErr == nil) != tt.read || (steerErr == nil) != tt.steer || (createErr == nil) != tt.create || tt.v.Operates() != tt.queue {
				t.Errorf("read %v, steer %v, create %v, operates %v", readErr, steerErr, createErr, tt.v.Operates())
			}
			_, missing := g.Task(ctx, tt.v, "t_01kh0000000000000000000002", Read)
			if !tt.read && readErr.Error() != missing.Error() {
				t.Errorf("%q tells more than %q", readErr, missing)
			}
			if tt.read && steerErr != nil && !errors.Is(steerErr, ErrForbidden) {
				t.Errorf("who may read learns that they may not steer: %v", steerErr)
			}
			got, err := g.Readable(ctx, tt.v, []store.Task{{Repo: "https://hub/a/shop"}, {Repo: "/srv/local"}, {Repo: "https://hub/b/x"}, {Repo: "https://hub/a/shop"}})
			if err != nil || (len(got) > 1) != tt.read {
				t.Errorf("the list: %v %v", got, err)
			}
		})
	}
	if err := g.MayRead(ctx, person("owner"), "/srv/local"); task.ClassOf(err) != task.NotFound {
		t.Errorf("a repository on no forge is the operator's: %v", err)
	}
	for _, id := range []task.ID{"", "t_", "../x", there + "0"} {
		if _, err := g.Task(ctx, token("", Admin), id, Read); err.Error() != Gone().Error() {
			t.Errorf("%q: %v", id, err)
		}
	}
}

// TestFresh_WEB06: the forge is asked once for many, its word holds for [Fresh], and a permission that was
// taken away is gone after that, also for who watches.
func TestFresh_WEB06(t *testing.T) {
	h := &hub{may: map[string]forge.Permission{"https://hub/a/shop writer": forge.Write}}
	g, clock := newGate(h)
	ctx := t.Context()
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if err := g.MayAct(ctx, person("writer"), "https://hub/a/shop", Steer); err != nil {
				t.Error(err)
			}
		})
	}
	if all.Wait(); h.asked.Load() != 1 {
		t.Errorf("asked %d times", h.asked.Load())
	}
	_, may := g.Watcher(person("writer"), "https://hub/a/shop")
	h.set("https://hub/a/shop writer", forge.None, nil)
	*clock = clock.Add(Fresh)
	if err := may(ctx); task.ClassOf(err) != task.NotFound {
		t.Errorf("a stream goes on: %v", err)
	}
	h.set("https://hub/a/shop writer", forge.None, &task.Error{Class: task.Transient, Msg: "away"})
	*clock = clock.Add(Fresh)
	for range 2 { // an answer that failed is not remembered
		if err := g.MayRead(ctx, person("writer"), "https://hub/a/shop"); task.ClassOf(err) != task.Transient {
			t.Errorf("a forge that cannot say: %v", err)
		}
	}
	h.set("https://hub/a/shop writer", forge.Write, &task.Error{Class: task.Invalid, Msg: "not registered"})
	if err := g.MayRead(ctx, person("writer"), "https://hub/a/shop"); task.ClassOf(err) != task.NotFound {
		t.Errorf("a repository that is another one by now: %v", err)
	}
	v := person("writer")
	v.Expires = *clock
	if _, may := g.Watcher(v, "https://hub/a/shop"); task.ClassOf(may(ctx)) != task.NotFound {
		t.Error("a session that expired watches on")
	}
	for i := range maxAnswers + 10 {
		_ = g.MayRead(ctx, person("writer"), fmt.Sprint("https://hub/", i))
	}
	if len(g.answers) > maxAnswers {
		t.Errorf("%d answers are remembered", len(g.answers))
	}
}

// TestSignedOutStreams_WEB06: a stream ends when its session or its token does.
func TestSignedOutStreams_WEB06(t *testing.T) {
	l := newLab(t, nil)
	g, _ := newGate(&hub{may: map[string]forge.Permission{}})
	ctx := t.Context()
	cookie := l.signIn(t)
	_, secret, _ := strings.Cut(cookie, "=")
	bySession, err := l.session(ctx, secret)
	if err != nil {
		t.Fatal(err)
	}
	id, token, err := CreateToken(ctx, l.access, nil, l.now(), NewToken{Name: "ci", Scopes: []Scope{Read}})
	if err != nil {
		t.Fatal(err)
	}
	byToken, err := l.token(ctx, token)
	if err != nil {
		t.Fatal(err)
	}
	_, session := g.Watcher(bySession, "https://hub/a/shop")
	_, program := g.Watcher(byToken, "https://hub/a/shop")
	if err := errors.Join(session(ctx), program(ctx)); err != nil {
		t.Fatal(err)
	}
	if w := l.ask("POST", PathOut, "Host", "localhost", "Cookie", cookie, "Sec-Fetch-Site", "same-origin"); w.Code >= 400 {
		t.Fatal(w.Code)
	}
	if err := l.access.RevokeToken(ctx, id, l.now()); err != nil {
		t.Fatal(err)
	}
	if task.ClassOf(session(ctx)) != task.NotFound || task.ClassOf(program(ctx)) != task.NotFound {
		t.Errorf("%v %v", session(ctx), program(ctx))
	}
}
