package access

import (
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// idp is an identity provider that speaks the wire and can be told to lie.
type idp struct {
	*httptest.Server
	key *rsa.PrivateKey

	mu       sync.Mutex
	codes    map[string]url.Values // what a code was given for
	claims   func(map[string]any)  // changes what the next identity says
	sign     func(head, body string) (string, string)
	names    bool
	verifier string // that was shown last
}

func newIDP(t *testing.T) *idp {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p := &idp{key: key, codes: map[string]url.Values{}}
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{
			"issuer": p.URL, "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token", "jwks_uri": p.URL + "/keys",
			"id_token_signing_alg_values_supported": []string{"RS256", "HS256", "none"}, "authorization_response_iss_parameter_supported": p.names,
		})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"keys": []any{map[string]string{
			"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "one", "n": b64(key.N.Bytes()), "e": b64(big.NewInt(int64(key.E)).Bytes()),
		}}})
	})
	mux.HandleFunc("/token", p.token)
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// agree is what the provider does when a person agreed: a code for what was asked.
func (p *idp) agree(ask url.Values) (code string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	code = rand.Text()
	p.codes[code] = ask
	return code
}

func (p *idp) token(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ask, ok := p.codes[r.FormValue("code")]
	delete(p.codes, r.FormValue("code"))
	id, secret, basic := r.BasicAuth()
	sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	if !ok || !basic || id != "daybreak" || secret != "client-secret" || r.FormValue("redirect_uri") != ask.Get("redirect_uri") ||
		ask.Get("code_challenge_method") != "S256" || b64(sum[:]) != ask.Get("code_challenge") {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"error":"invalid_grant"}`))
		return
	}
	p.verifier = r.FormValue("code_verifier")
	now := time.Now()
	claims := map[string]any{
		"iss": p.URL, "aud": "daybreak", "sub": "1", "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(), "nonce": ask.Get("nonce"),
		"preferred_username": "olga", "email": "olga@corp.example", "email_verified": true, "groups": []string{"staff"},
	}
	if p.claims != nil {
		p.claims(claims)
	}
	b, _ := json.Marshal(claims)
	head, body := b64([]byte(`{"alg":"RS256","kid":"one"}`)), b64(b)
	sum = sha256.Sum256([]byte(head + "." + body))
	sig, _ := rsa.SignPKCS1v15(rand.Reader, p.key, crypto.SHA256, sum[:])
	signature := b64(sig)
	if p.sign != nil {
		head, signature = p.sign(head, body)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"access_token": "a", "token_type": "Bearer", "expires_in": 60, "id_token": head + "." + body + "." + signature})
}

func oidcLab(t *testing.T, p *idp, change func(*OIDC)) *lab {
	return newLab(t, func(c *GuardConfig) {
		c.URL = "https://daybreak.example"
		c.OIDC = &OIDC{
			Name: "Corp", Issuer: p.URL, ClientID: "daybreak", ClientSecret: "client-secret", Scopes: []string{"profile"}, Login: "preferred_username",
			GroupClaim: "groups", Operators: "daybreak-operators",
		}
		if change != nil {
			change(c.OIDC)
		}
	})
}

const ourHost = "daybreak.example"

// beginAt begins a sign-in and returns what the provider is asked and the browser's cookie.
func beginAt(t *testing.T, l *lab, next string) (url.Values, string) {
	t.Helper()
	w := l.ask("GET", pathOIDC+"?next="+url.QueryEscape(next), "Host", ourHost)
	if w.Code != http.StatusSeeOther {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	u, err := url.Parse(w.Header().Get("Location"))
	if err != nil {
		t.Fatal(err)
	}
	return u.Query(), cookieOf(t, w, "__Host-daybreak-sign-in")
}

func callback(q url.Values) string { return pathCallback + "?" + q.Encode() }

func TestOIDC(t *testing.T) {
	p := newIDP(t)
	l := oidcLab(t, p, func(o *OIDC) { o.Logins = map[string]string{"hub": "hub_login", "lab": "missing"} })
	if w := l.ask("GET", PathSignIn+"?next=/page", "Host", ourHost); !strings.Contains(w.Body.String(), `href="/sign-in/oidc?next=%2Fpage"`) || !strings.Contains(w.Body.String(), "Corp") {
		t.Errorf("the page: %s", w.Body)
	}
	ask, browser := beginAt(t, l, "/page?x=1")
	if ask.Get("response_type") != "code" || ask.Get("redirect_uri") != "https://daybreak.example/sign-in/oidc/callback" || ask.Get("scope") != "openid profile" || ask.Get("nonce") == "" ||
		ask.Get("state") == "" || ask.Get("code_challenge_method") != "S256" || ask.Get("client_id") != "daybreak" {
		t.Errorf("the provider is asked %v", ask)
	}
	p.claims = func(c map[string]any) { c["hub_login"] = "olga-hub" }
	back := url.Values{"state": {ask.Get("state")}, "code": {p.agree(ask)}}
	w := l.ask("GET", callback(back), "Host", ourHost, "Cookie", browser, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document")
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/page?x=1" {
		t.Fatalf("%d to %q: %s", w.Code, w.Header().Get("Location"), w.Body)
	}
	_, secret, _ := strings.Cut(cookieOf(t, w, "__Host-daybreak"), "=")
	v, err := l.session(t.Context(), secret)
	if err != nil || v.Name != "olga" || v.Via != ViaOIDC || v.All || v.Has(Admin) || !v.Has(Approve) || v.login("hub") != "olga-hub" || v.login("lab") != "" || v.login("other") != "olga" {
		t.Errorf("%+v %v", v, err)
	}
	if p.verifier == "" || strings.Contains(ask.Encode(), p.verifier) {
		t.Error("the verifier of PKCE went through the browser")
	}
	p.claims = func(c map[string]any) { c["groups"] = []string{"staff", "daybreak-operators"} }
	ask, browser = beginAt(t, l, "https://evil.example/")
	w = l.ask("GET", callback(url.Values{"state": {ask.Get("state")}, "code": {p.agree(ask)}}), "Host", ourHost, "Cookie", browser)
	if w.Header().Get("Location") != "/" {
		t.Errorf("an open redirect to %q", w.Header().Get("Location"))
	}
	if w := l.ask("GET", "/queue", "Host", ourHost, "Cookie", cookieOf(t, w, "__Host-daybreak")); w.Header().Get("X-Operates") != "yes" {
		t.Errorf("a member of the operators' group: %d", w.Code)
	}
}

// TestOIDCAttacks_WEB07: nothing but a fresh answer of this provider, for us, for this sign-in and this
// browser, signs anybody in.
func TestOIDCAttacks_WEB07(t *testing.T) {
	p := newIDP(t)
	der, err := x509.MarshalPKIXPublicKey(&p.key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	hs := func(key []byte) func(string, string) (string, string) {
		return func(_, body string) (string, string) {
			head := b64([]byte(`{"alg":"HS256","kid":"one"}`))
			m := hmac.New(sha256.New, key)
			m.Write([]byte(head + "." + body))
			return head, b64(m.Sum(nil))
		}
	}
	say := func(k string, v any) func(map[string]any) {
		return func(c map[string]any) {
			if v == nil {
				delete(c, k)
				return
			}
			c[k] = v
		}
	}
	mail := func(o *OIDC) { o.Domains = []string{"corp.example"} }
	stranger, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		good   bool
		change func(*OIDC)
		claims func(map[string]any)
		sign   func(head, body string) (string, string)
		names  bool
		back   func(url.Values)
		cookie func(string) string
		before func(l *lab, ask url.Values, back url.Values, browser string)
	}{
		{name: "as it should be", good: true},
		{name: "another audience", claims: say("aud", "other")},
		{name: "two audiences and nobody named", claims: say("aud", []string{"daybreak", "other"})},
		{name: "made for another program", claims: func(c map[string]any) { c["aud"], c["azp"] = []string{"daybreak", "other"}, "other" }},
		{name: "two audiences, for us", good: true, claims: func(c map[string]any) { c["aud"], c["azp"] = []string{"daybreak", "other"}, "daybreak" }},
		{name: "another issuer", claims: say("iss", "https://evil.example")},
		{name: "expired", claims: say("exp", time.Now().Add(-time.Minute).Unix())},
		{name: "no end", claims: say("exp", nil)},
		{name: "not yet", claims: say("nbf", time.Now().Add(time.Hour).Unix())},
		{name: "no nonce", claims: say("nonce", nil)},
		{name: "an empty nonce", claims: say("nonce", "")},
		{name: "another nonce", claims: say("nonce", "x")},
		{name: "alg none", sign: func(_, _ string) (string, string) { return b64([]byte(`{"alg":"none"}`)), "" }},
		{name: "alg None", sign: func(_, _ string) (string, string) { return b64([]byte(`{"alg":"None"}`)), "" }},
		{name: "HS256 with the public key", sign: hs(public)},
		{name: "HS256 with the modulus", sign: hs(p.key.N.Bytes())},
		{name: "HS256 with the client's secret", sign: hs([]byte("client-secret"))},
		{name: "no signature", sign: func(h, _ string) (string, string) { return h, "" }},
		{name: "a stranger's key", sign: func(h, b string) (string, string) {
			sum := sha256.Sum256([]byte(h + "." + b))
			sig, _ := rsa.SignPKCS1v15(rand.Reader, stranger, crypto.SHA256, sum[:])
			return h, b64(sig)
		}},
		{name: "no account", claims: say("preferred_username", nil)},
		{name: "an account that is a path", claims: say("preferred_username", "../olga")},
		{name: "an account that is no text", claims: say("preferred_username", 7)},
		{name: "an address that is not verified", claims: say("email_verified", false)},
		{name: "the same in quotes", claims: say("email_verified", "false")},
		{name: "an address that counts and nobody verified", change: mail, claims: say("email_verified", nil)},
		{name: "an address of another domain", change: mail, claims: say("email", "olga@evil.example")},
		{name: "an address that only begins well", change: mail, claims: say("email", "olga@corp.example@evil.example")},
		{name: "an address of the domain", good: true, change: mail},
		{name: "no state", back: func(q url.Values) { q.Del("state") }},
		{name: "another state", back: func(q url.Values) { q.Set("state", "x") }},
		{name: "no code", back: func(q url.Values) { q.Del("code") }},
		{name: "another code", back: func(q url.Values) { q.Set("code", "x") }},
		{name: "an error", back: func(q url.Values) { q.Set("error", "access_denied") }},
		{name: "another browser", cookie: func(string) string { return "__Host-daybreak-sign-in=x" }},
		{name: "no browser's cookie", cookie: func(string) string { return "a=b" }},
		{name: "the answer of another provider", back: func(q url.Values) { q.Set("iss", "https://evil.example") }},
		{name: "a provider that names itself, nameless", names: true},
		{name: "a provider that names itself", names: true, good: true, back: func(q url.Values) { q.Set("iss", p.URL) }},
		{name: "a state that was used", before: func(l *lab, _, back url.Values, browser string) {
			if w := l.ask("GET", callback(back), "Host", ourHost, "Cookie", browser); w.Code != http.StatusSeeOther {
				t.Errorf("the first time: %d", w.Code)
			}
		}},
		{name: "too late", before: func(l *lab, _, _ url.Values, _ string) { l.pass(flowFor) }},
		{name: "another verifier", before: func(_ *lab, ask, back url.Values, _ string) {
			other := url.Values{}
			for k, v := range ask {
				other[k] = v
			}
			other.Set("code_challenge", b64(make([]byte, 32)))
			back.Set("code", p.agree(other))
		}},
		{name: "a code for another sign-in", before: func(l *lab, _, back url.Values, _ string) {
			other, _ := beginAt(t, l, "/")
			back.Set("code", p.agree(other)) // of whom the attacker is
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p.mu.Lock()
			p.claims, p.sign, p.names = tt.claims, tt.sign, tt.names
			p.mu.Unlock()
			l := oidcLab(t, p, tt.change)
			ask, browser := beginAt(t, l, "/page")
			back := url.Values{"state": {ask.Get("state")}, "code": {p.agree(ask)}}
			if tt.back != nil {
				tt.back(back)
			}
			if tt.before != nil {
				tt.before(l, ask, back, browser)
			}
			if tt.cookie != nil {
				browser = tt.cookie(browser)
			}
			w := l.ask("GET", callback(back), "Host", ourHost, "Cookie", browser)
			signed := false
			for _, c := range w.Result().Cookies() {
				signed = signed || c.Name == "__Host-daybreak" && c.MaxAge >= 0
			}
			if signed != tt.good || tt.good != (w.Code == http.StatusSeeOther) || !tt.good && w.Code != http.StatusForbidden {
				t.Errorf("signed in %v, %d %s", signed, w.Code, w.Body)
			}
		})
	}
}

func TestOIDCConfig(t *testing.T) {
	good := OIDC{Issuer: "https://id.example", ClientID: "x", Login: "sub"}
	for name, change := range map[string]func(*OIDC, *string){
		"plain HTTP":        func(o *OIDC, _ *string) { o.Issuer = "http://id.example" },
		"no address":        func(o *OIDC, _ *string) { o.Issuer = "" },
		"no address of us":  func(_ *OIDC, u *string) { *u = "" },
		"no client":         func(o *OIDC, _ *string) { o.ClientID = "" },
		"no claim":          func(o *OIDC, _ *string) { o.Login = "" },
		"a group, no claim": func(o *OIDC, _ *string) { o.Operators = "x" },
		"a path in ours":    func(_ *OIDC, u *string) { *u = "https://daybreak.example/x" },
	} {
		o, u := good, "https://daybreak.example"
		change(&o, &u)
		if _, err := NewGuard(GuardConfig{OIDC: &o, URL: u}); task.ClassOf(err) != task.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := NewGuard(GuardConfig{OIDC: &good, URL: "https://daybreak.example/"}); err != nil {
		t.Error(err)
	}
	l := newLab(t, func(c *GuardConfig) {
		c.OIDC, c.URL = &OIDC{Issuer: "http://127.0.0.1:1", ClientID: "x", Login: "sub"}, "https://daybreak.example"
	})
	if w := l.ask("GET", pathOIDC, "Host", ourHost); w.Code != http.StatusServiceUnavailable {
		t.Errorf("a provider that does not answer: %d", w.Code)
	}
}
