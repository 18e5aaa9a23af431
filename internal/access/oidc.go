package access

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// OIDC is a company's identity provider (OpenID Connect Core 1.0, authorization code flow with
// PKCE).
type OIDC struct {
	Name         string // for the button
	Issuer       string // its address, exactly as it names itself
	ClientID     string
	ClientSecret string            // may be "" for a public client
	Scopes       []string          // beside openid
	Login        string            // the claim that is the account on the forges
	Logins       map[string]string // the claim for a forge, by the forge's name, where it is another
	GroupClaim   string            // the claim with a person's groups
	Operators    string            // the group whose members operate the installation; "": nobody
	Domains      []string          // of e-mail addresses that may sign in; empty: whoever the provider knows
	Client       *http.Client      // may be nil
}

// flowFor is how long a person may take at the provider.
const flowFor = 10 * time.Minute

// Signatures that only the provider's private key can make. One by a shared secret, or none, is
// never accepted.
func algorithms() []string {
	return []string{oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.EdDSA}
}

// provider is the identity provider, asked what it is when somebody first signs in.
type provider struct {
	cfg      OIDC
	redirect string
	client   *http.Client

	mu    sync.Mutex
	found *oidc.Provider
	names bool // it names itself in its answers (RFC 9207)
}

func newProvider(cfg OIDC, base string) (*provider, error) {
	u, err := url.Parse(cfg.Issuer)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && !loopback(u):
		return nil, &task.Error{Class: task.Invalid, Msg: "serve.oidc.issuer is " + cfg.Issuer, Fix: "write its https address"}
	case base == "":
		return nil, &task.Error{Class: task.Invalid, Msg: "serve.oidc needs serve.url", Fix: "write the address that people open"}
	case cfg.ClientID == "" || cfg.Login == "":
		return nil, &task.Error{Class: task.Invalid, Msg: "serve.oidc needs client_id and login_claim"}
	case cfg.Operators != "" && cfg.GroupClaim == "":
		return nil, &task.Error{Class: task.Invalid, Msg: "serve.oidc.operators needs serve.oidc.group_claim"}
	}
	p := &provider{cfg: cfg, redirect: strings.TrimSuffix(base, "/") + pathCallback, client: cfg.Client}
	if p.client == nil {
		p.client = &http.Client{Timeout: 10 * time.Second}
	}
	return p, nil
}

func loopback(u *url.URL) bool {
	return u.Scheme == "http" && (u.Hostname() == "127.0.0.1" || u.Hostname() == "localhost" || u.Hostname() == "::1")
}

// ask finds out what the provider is, once.
func (p *provider) ask(ctx context.Context) (*oidc.Provider, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.found != nil {
		return p.found, nil
	}
	// Its keys are fetched later, when this request is long over.
	found, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), p.client), p.cfg.Issuer)
	if err != nil {
		return nil, err
	}
	var more struct {
		Iss bool `json:"authorization_response_iss_parameter_supported"`
	}
	if err := found.Claims(&more); err != nil {
		return nil, err
	}
	p.found, p.names = found, more.Iss
	return found, nil
}

func (p *provider) oauth(found *oidc.Provider) *oauth2.Config {
	return &oauth2.Config{
		ClientID: p.cfg.ClientID, ClientSecret: p.cfg.ClientSecret, Endpoint: found.Endpoint(), RedirectURL: p.redirect,
		Scopes: append([]string{oidc.ScopeOpenID}, p.cfg.Scopes...),
	}
}

// flow is a sign-in that is under way. What opens it is its state.
type flow struct {
	Issuer   string `json:"issuer"`
	Nonce    string `json:"nonce"`
	Verifier string `json:"verifier"` // of PKCE
	Browser  []byte `json:"browser"`  // hash of the cookie of the browser that began it
	Next     string `json:"next"`
}

// begin sends a browser to the provider.
func (g *Guard) begin(w http.ResponseWriter, r *http.Request) {
	p := g.oidc
	found, err := p.ask(r.Context())
	if err != nil {
		g.cfg.Logger.ErrorContext(r.Context(), "the identity provider does not answer", "issuer", p.cfg.Issuer, "error", err)
		g.say(w, r, http.StatusServiceUnavailable, "The identity provider does not answer now. Try again in a while.")
		return
	}
	var secrets [4]string // state, nonce, verifier, browser
	var hashes [4][]byte
	for i := range secrets {
		if secrets[i], hashes[i], err = newSecret(g.cfg.Rand); err != nil {
			g.broken(w, r, err)
			return
		}
	}
	body, err := json.Marshal(flow{Issuer: p.cfg.Issuer, Nonce: secrets[1], Verifier: secrets[2], Browser: hashes[3], Next: local(r.URL.Query().Get("next"))})
	if err != nil {
		g.broken(w, r, err)
		return
	}
	now := g.cfg.Now()
	g.sweep(r.Context(), now) // anybody may come here
	if err := g.cfg.Access.PutGrant(r.Context(), store.Grant{Hash: hashes[0], Kind: kindOIDC, Body: body, Created: now, Expires: now.Add(flowFor)}); err != nil {
		g.broken(w, r, err)
		return
	}
	http.SetCookie(w, g.cookie(flowCookie, secrets[3], flowFor))
	http.Redirect(w, r, p.oauth(found).AuthCodeURL(secrets[0], oidc.Nonce(secrets[1]), oauth2.S256ChallengeOption(secrets[2])), http.StatusSeeOther)
}

// finish takes up what the provider sent the browser back with. Whatever is wrong, the flow is over.
func (g *Guard) finish(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	refuse := func(why string, err error) {
		g.cfg.Logger.WarnContext(r.Context(), "a sign-in was refused", "why", why, "error", err, "remote", r.RemoteAddr)
		g.say(w, r, http.StatusForbidden, "Signing in did not work: "+why+".")
	}
	browser := g.cookieValue(r, flowCookie)
	http.SetCookie(w, g.cookie(flowCookie, "", 0))
	grant, err := g.cfg.Access.TakeGrant(r.Context(), kindOIDC, hashOf(q.Get("state")), g.cfg.Now())
	if err != nil && task.ClassOf(err) != task.NotFound {
		g.broken(w, r, err)
		return
	}
	if err != nil {
		refuse("it was not begun here, was finished before, or took too long", err)
		return
	}
	var f flow
	if err := json.Unmarshal(grant.Body, &f); err != nil {
		g.broken(w, r, err)
		return
	}
	if subtle.ConstantTimeCompare(hashOf(browser), f.Browser) != 1 {
		refuse("it was begun in another browser", nil)
		return
	}
	p := g.oidc
	found, err := p.ask(r.Context())
	if err != nil {
		g.broken(w, r, err)
		return
	}
	if iss := q.Get("iss"); f.Issuer != p.cfg.Issuer || iss != "" && iss != f.Issuer || iss == "" && p.names {
		refuse("the answer is another provider's", nil) // RFC 9207, section 2.4
		return
	}
	if e := q.Get("error"); e != "" || q.Get("code") == "" {
		refuse("the provider did not agree", &task.Error{Class: task.Auth, Msg: clip(e)})
		return
	}
	v, err := p.viewer(r.Context(), found, q.Get("code"), f, g.cfg.Now)
	if err != nil {
		refuse(reason(err), err)
		return
	}
	if err := g.start(w, r, v); err != nil {
		g.broken(w, r, err)
		return
	}
	http.Redirect(w, r, f.Next, http.StatusSeeOther)
}

// reason is what a person may know of an error: ours say it, the library's may quote the token.
func reason(err error) string {
	if task.ClassOf(err) == task.Auth {
		return err.Error()
	}
	return "the provider's answer does not prove who you are"
}

func clip(s string) string {
	if len(s) > 100 {
		s = s[:100]
	}
	return strings.ToValidUTF8(s, "?")
}

// viewer exchanges the code and believes what a token says that the provider signed for us, for
// this sign-in, and that is good now.
func (p *provider) viewer(ctx context.Context, found *oidc.Provider, code string, f flow, now func() time.Time) (Viewer, error) {
	no := func(msg string) (Viewer, error) { return Viewer{}, &task.Error{Class: task.Auth, Msg: msg} }
	ctx = oidc.ClientContext(ctx, p.client)
	tokens, err := p.oauth(found).Exchange(ctx, code, oauth2.VerifierOption(f.Verifier))
	if err != nil {
		return Viewer{}, err
	}
	raw, ok := tokens.Extra("id_token").(string)
	if !ok {
		return no("the provider sent no identity")
	}
	id, err := found.Verifier(&oidc.Config{ClientID: p.cfg.ClientID, SupportedSigningAlgs: algorithms(), Now: now}).Verify(ctx, raw)
	if err != nil {
		return Viewer{}, err
	}
	if id.Nonce == "" || subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(f.Nonce)) != 1 {
		return no("the identity is of another sign-in")
	}
	var claims map[string]any
	if err := id.Claims(&claims); err != nil {
		return Viewer{}, err
	}
	if azp, ok := claims["azp"].(string); ok && azp != p.cfg.ClientID || !ok && len(id.Audience) > 1 {
		return no("the identity was made for another program")
	}
	if err := p.checkMail(claims); err != nil {
		return Viewer{}, err
	}
	v := Viewer{Via: ViaOIDC, Scopes: []Scope{Read, Create, Steer, Budget, Approve}, Logins: map[string]string{}}
	if v.Name, err = login(claims, p.cfg.Login); err != nil {
		return Viewer{}, err
	}
	v.Logins[""] = v.Name
	for forge, claim := range p.cfg.Logins {
		if v.Logins[forge], err = login(claims, claim); err != nil {
			v.Logins[forge] = "" // no account there
		}
	}
	if p.cfg.Operators != "" && slices.Contains(words(claims[p.cfg.GroupClaim]), p.cfg.Operators) {
		v.All, v.Scopes = true, []Scope{Admin}
	}
	return v, nil
}

// checkMail refuses an address that nobody has proven to be the person's, wherever it would count.
func (p *provider) checkMail(claims map[string]any) error {
	mail, _ := claims["email"].(string)
	verified, said := claims["email_verified"].(bool)
	if s, ok := claims["email_verified"].(string); ok { // some providers quote it
		verified, said = s == "true", true
	}
	if said && !verified {
		return &task.Error{Class: task.Auth, Msg: "your e-mail address is not verified"}
	}
	counts := p.cfg.Login == "email" || len(p.cfg.Domains) > 0
	for _, c := range p.cfg.Logins {
		counts = counts || c == "email"
	}
	if !counts {
		return nil
	}
	if mail == "" || !verified {
		return &task.Error{Class: task.Auth, Msg: "your e-mail address is not verified"}
	}
	_, domain, _ := strings.Cut(mail, "@")
	if len(p.cfg.Domains) > 0 && !slices.ContainsFunc(p.cfg.Domains, func(d string) bool { return strings.EqualFold(d, domain) }) {
		return &task.Error{Class: task.Auth, Msg: "your e-mail address is of none of the domains that may sign in"}
	}
	return nil
}

// login is a claim that can be an account's name.
func login(claims map[string]any, claim string) (string, error) {
	s, _ := claims[claim].(string)
	if s == "" || len(s) > 255 || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune(`/\?#%"<>`, r) }) {
		return "", &task.Error{Class: task.Auth, Msg: "the provider names no account: " + claim + " is missing or no account's name"}
	}
	return s, nil
}

// words are the texts of a claim that is a text or a list of them.
func words(claim any) []string {
	switch c := claim.(type) {
	case string:
		return []string{c}
	case []any:
		var out []string
		for _, x := range c {
			if s, ok := x.(string); ok {
				out = append(out, s)
			}
		}
		return out
	}
	return nil
}
