package app

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/config"
	"github.com/daybreak-agent/daybreak/internal/mirror"
	"github.com/daybreak-agent/daybreak/internal/mirror/service"
	"github.com/daybreak-agent/daybreak/internal/network"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// MirrorArgs are the arguments with which this program is the package mirror's process.
func MirrorArgs() []string { return []string{"mirror"} }

// RunMirror is what this program does with [MirrorArgs].
func RunMirror(ctx context.Context, args []string, stderr io.Writer) error {
	return service.Run(ctx, args, stderr)
}

// Ports of the mirror on a sandbox's loopback.
const (
	routesPort = 4873
	frontPort  = 4874
)

// mirrorUID is the mirror's user where the caller is root: an id that distributions leave unused
// and that lies outside the ranges of sandboxes.
const mirrorUID = 61107

// registries opens ways to the package registries through the mirror's process. It implements
// network.Network.
type registries struct {
	keeper *service.Keeper
	cfg    config.Mirror
	tokens []string // planted ones and secrets, which no name may carry
	asked  *recent
}

// Network is the way of sandboxes to the package registries. Nothing is started before the first
// sandbox needs it.
func (a *App) Network() (network.Network, error) {
	if a.mirror == nil {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		uid := 0
		if os.Geteuid() == 0 {
			uid = mirrorUID
		}
		a.mirror = service.New(service.Config{
			Command: append([]string{self}, MirrorArgs()...), Store: filepath.Join(a.Dir, "mirror"), RunDir: mirrorRunDir(a.Dir), UID: uid,
			Settings: a.mirrorSettings, Logger: a.opts.Logger,
		})
		// The machine's clients take about a second to answer: by the time a sandbox needs the
		// answer it is there.
		go func() { _, _ = a.mirror.Configured(context.Background()) }() // its error is met by who needs it
	}
	r := &registries{keeper: a.mirror, cfg: a.Config.Mirror, asked: a.asked}
	for _, s := range a.secrets() {
		r.tokens = append(r.tokens, s.Value)
	}
	return r, nil
}

// mirrorRunDir is a short path for sockets that nobody else can enter.
func mirrorRunDir(dir string) string {
	if os.Geteuid() == 0 {
		return "/run/daybreak-mirror"
	}
	if run := fmt.Sprintf("/run/user/%d", os.Getuid()); isDir(run) {
		return filepath.Join(run, "daybreak-mirror")
	}
	return filepath.Join(dir, "mirror", "run")
}

func isDir(p string) bool {
	st, err := os.Stat(p)
	return err == nil && st.IsDir()
}

// MirrorFacts starts the mirror's process as a sandbox would have it and says what it is confined
// by and where packages come from. Without a registry both are empty.
func (a *App) MirrorFacts(ctx context.Context) (confined string, from []string, err error) {
	if _, err := a.Network(); err != nil {
		return "", nil, err
	}
	set, err := a.mirror.Configured(ctx)
	if err != nil || set.Empty() {
		return "", nil, err
	}
	s, err := a.mirror.Open(ctx, service.Request{
		About:  service.Description{Task: "doctor", Base: fmt.Sprintf("http://127.0.0.1:%d", routesPort), Offline: true},
		Record: func(context.Context, []mirror.Entry) error { return nil },
	})
	if err != nil {
		return "", nil, err
	}
	confined = fmt.Sprintf("a process of its own, as user %d", mirrorUID)
	if os.Geteuid() != 0 {
		confined = "a process of its own, under your own user id: namespaces and missing capabilities fence it, not a user of its own"
	}
	return confined + ", with a file system of its store and certificates alone", upstreams(set), s.Close(ctx)
}

// Open implements network.Network.
func (r *registries) Open(ctx context.Context, q network.Request) (*network.Way, error) {
	set, err := r.keeper.Configured(ctx)
	if err != nil {
		return nil, err
	}
	if set.Empty() {
		return nil, nil
	}
	l := r.cfg.Limits
	spent := network.Spent{}
	if q.Spent != nil {
		spent = q.Spent()
	}
	about := service.Description{
		Task: string(q.Task), Base: fmt.Sprintf("http://127.0.0.1:%d", routesPort),
		Known: ecosystems(q.Known.Names), KnownVersions: ecosystems(q.Known.Versions), GoSum: q.Known.GoSum,
		Allow: r.cfg.Allow, MinAge: r.cfg.MinAge, Offline: q.Mode == network.Store,
		SpentNames: spent.Names, SpentVersions: spent.Versions,
		Limits: mirror.Limits{
			NewNames: l.NewNames, NewVersions: l.NewVersions, Fetches: l.Fetches,
			Refusals: l.Refusals, Conns: l.Connections, PerSecond: l.PerSecond,
		},
	}
	watch := mirror.NewCanaryWatch(r.tokens)
	s, err := r.keeper.Open(ctx, service.Request{
		About: about, Front: q.Mode == network.Registries,
		Record: func(ctx context.Context, entries []mirror.Entry) error {
			for _, e := range entries {
				if e.New && (watch.Seen(e.Ecosystem, e.Name) || e.Version != "" && watch.Seen(e.Ecosystem, e.Version)) {
					return &mirror.Denial{Reason: mirror.ReasonCanary, Detail: "the name carries a secret of this installation"}
				}
				if e.New && q.Spent != nil && overspent(about.Limits, q.Spent(), e) {
					return &mirror.Denial{Reason: mirror.ReasonBudget, Detail: "another sandbox of this task used the budget of new names up"}
				}
			}
			if err := q.Record(ctx, lines(entries)); err != nil {
				return err
			}
			r.asked.add(entries)
			return nil
		},
	})
	if err != nil {
		return nil, err
	}
	return way(set, s, len(s.Authority) > 0), nil
}

// Outline implements network.Network.
func (r *registries) Outline(ctx context.Context, m network.Mode) (*network.Way, error) {
	set, err := r.keeper.Configured(ctx)
	if err != nil || set.Empty() || m == network.None {
		return nil, err
	}
	w := way(set, &service.Session{}, m == network.Registries && shown(set).Fronted())
	w.Close = nil
	return w, nil
}

// way is what a sandbox needs for a session, with or without a front.
func way(set service.Settings, s *service.Session, front bool) *network.Way {
	way := &network.Way{
		Forwards:  []sandbox.Forward{{Socket: s.Socket, Port: routesPort}},
		Upstreams: upstreams(set), Close: s.Close,
	}
	inside := mirror.Clients{Base: fmt.Sprintf("http://127.0.0.1:%d", routesPort), Home: sandbox.HomeDir, Config: shown(set), Keys: map[string][]byte{}}
	for _, d := range set.Debian {
		inside.Keys[d.ID] = d.Keys
	}
	if front {
		way.Forwards = append(way.Forwards, sandbox.Forward{Socket: s.Front, Port: frontPort})
		inside.Front, inside.Authority = fmt.Sprintf("http://127.0.0.1:%d", frontPort), s.Authority
		inside.Bundle = systemRoots()
	}
	way.Env = inside.Env()
	own := inside.Own()
	for path, text := range inside.Files() {
		f := sandbox.File{Path: path, Text: text, Own: slices.Contains(own, path)}
		if f.Own && len(s.Authority) == 0 {
			f.Text = nil
		}
		way.Files = append(way.Files, f)
	}
	slices.SortFunc(way.Files, func(a, b sandbox.File) int { return strings.Compare(a.Path, b.Path) })
	return way
}

// overspent reports whether a task has used its budget up meanwhile: each session counts from
// what was spent when it began, and several sandboxes of a task may run at once.
func overspent(l mirror.Limits, s network.Spent, e mirror.Entry) bool {
	most, used := l.NewNames, len(s.Names)
	if e.Version != "" {
		most, used = l.NewVersions, len(s.Versions)
	}
	return most > 0 && used >= most
}

// systemRoots are the machine's own certificates, as far as they fit into a sandbox's file.
func systemRoots() []byte {
	for _, name := range []string{mirror.SystemBundle, "/etc/pki/tls/certs/ca-bundle.crt"} {
		if b, err := os.ReadFile(name); err == nil && len(b) < 900<<10 {
			return b
		}
	}
	return nil
}

func ecosystems(in map[string][]string) map[mirror.Ecosystem][]string {
	out := make(map[mirror.Ecosystem][]string, len(in))
	for eco, names := range in {
		out[mirror.Ecosystem(eco)] = names
	}
	return out
}

func lines(entries []mirror.Entry) []network.Entry {
	out := make([]network.Entry, len(entries))
	for i, e := range entries {
		out[i] = network.Entry{
			Ecosystem: string(e.Ecosystem), Name: e.Name, Version: e.Version, New: e.New,
			Notes: e.Notes, Refused: string(e.Refused), Detail: e.Detail,
		}
	}
	return out
}

// shown is the configuration as clients inside need it: without credentials and addresses.
func shown(s service.Settings) *mirror.Config {
	c := &mirror.Config{Go: s.Go, NPM: s.NPM, PyPI: s.PyPI, Crates: s.Crates, Maven: s.Maven}
	for _, a := range s.Debian {
		c.Debian = append(c.Debian, a.Archive)
	}
	return c
}

// upstreams names the host of each ecosystem, for the record.
func upstreams(s service.Settings) []string {
	var out []string
	add := func(eco mirror.Ecosystem, raw string) {
		if u, err := url.Parse(raw); err == nil {
			out = append(out, string(eco)+" "+u.Host)
		}
	}
	if s.Go != nil {
		add(mirror.Go, s.Go.URL)
	}
	for eco, u := range map[mirror.Ecosystem]*mirror.Upstream{mirror.NPM: s.NPM, mirror.PyPI: s.PyPI, mirror.Crates: s.Crates, mirror.Maven: s.Maven} {
		if u != nil {
			add(eco, u.URL)
		}
	}
	for _, a := range s.Debian {
		add(mirror.Debian, a.URL)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// mirrorSettings joins what the operator set with what the machine's own clients say.
func (a *App) mirrorSettings(ctx context.Context) (service.Settings, error) {
	m := a.Config.Mirror
	cfg := mirror.Config{StoreBytes: int64(m.StoreSize)}
	var errs []error
	take := func(r *config.Registry) *mirror.Upstream {
		if r == nil {
			return nil
		}
		u, err := a.upstream(*r)
		errs = append(errs, err)
		return u
	}
	cfg.NPM, cfg.PyPI, cfg.Crates, cfg.Maven = take(m.NPM), take(m.PyPI), take(m.Crates), take(m.Maven)
	if m.Go != nil {
		cfg.Go = &mirror.GoUpstream{Upstream: *take(&m.Go.Registry), Unverified: m.Go.Private}
		if m.Go.SumDB != "" {
			cfg.Go.Sum = &mirror.SumDB{Key: m.Go.SumDB, URL: mirror.Origin{URL: m.Go.SumDBURL, Internal: m.Go.Internal}}
		}
	}
	for _, d := range m.Debian {
		up := take(&d.Registry)
		keys, err := mirror.ReadKeys(d.Keyring)
		errs = append(errs, err)
		cfg.Debian = append(cfg.Debian, mirror.Archive{
			ID: d.ID, Upstream: *up, Suites: d.Suites, Components: d.Components, Archs: d.Archs, Keyring: keys, KeyringPath: d.Keyring,
		})
	}
	if err := errors.Join(errs...); err != nil {
		return service.Settings{}, &task.Error{Class: task.Invalid, Msg: "the mirror's configuration", Err: err}
	}
	mirror.NewHost(a.opts.Getenv("HOME")).Upstreams(ctx, &cfg, m.Off...)
	s, err := service.FromConfig(&cfg)
	if err != nil {
		return s, err
	}
	roots := m.CAFile
	if roots == "" { // what the machine's administrator set for programs like this one
		roots = a.opts.Getenv("SSL_CERT_FILE")
	}
	if roots != "" {
		if s.Roots, err = os.ReadFile(roots); err != nil {
			return s, &task.Error{Class: task.Invalid, Msg: "cannot read the upstreams' certificates", Err: err}
		}
	}
	return s, nil
}

func (a *App) upstream(r config.Registry) (*mirror.Upstream, error) {
	u := &mirror.Upstream{Origin: mirror.Origin{URL: r.URL, Internal: r.Internal}, StandsFor: r.StandsFor}
	for _, c := range r.CDN {
		u.CDN = append(u.CDN, mirror.Origin{URL: c, Internal: r.Internal})
	}
	token, err := a.registryToken(r)
	if err != nil {
		return u, fmt.Errorf("the token of %s: %w", r.URL, err)
	}
	switch {
	case token == "":
	case r.User != "":
		u.Authorization = "Basic " + base64.StdEncoding.EncodeToString([]byte(r.User+":"+token))
	default:
		u.Authorization = "Bearer " + token
	}
	return u, nil
}

// registryToken reads the credential of an upstream; "" where none is named.
func (a *App) registryToken(r config.Registry) (string, error) {
	switch {
	case r.TokenFile != "":
		b, err := os.ReadFile(r.TokenFile)
		return strings.TrimSpace(string(b)), err
	case r.TokenEnv != "":
		if token := a.opts.Getenv(r.TokenEnv); token != "" {
			return token, nil
		}
		return "", fmt.Errorf("%s is not set", r.TokenEnv)
	}
	return "", nil
}

// registryTokens are the credentials of all upstreams, to be masked and watched for.
func (a *App) registryTokens() map[string]string {
	m, out := a.Config.Mirror, map[string]string{}
	take := func(name string, r *config.Registry) {
		if r == nil {
			return
		}
		if t, err := a.registryToken(*r); err == nil && t != "" {
			out[name+" registry token"] = t
		}
	}
	take("npm", m.NPM)
	take("pypi", m.PyPI)
	take("crates", m.Crates)
	take("maven", m.Maven)
	if m.Go != nil {
		take("go", &m.Go.Registry)
	}
	for i := range m.Debian {
		take("debian "+m.Debian[i].ID, &m.Debian[i].Registry)
	}
	return out
}
