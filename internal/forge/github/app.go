package github

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-github/v88/github"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// ParseKey reads the private key that GitHub gave for an App: RSA in PEM, PKCS#1 or PKCS#8.
func ParseKey(text []byte) (*rsa.PrivateKey, error) {
	bad := &task.Error{Class: task.Invalid, Msg: "the App's key is no RSA key in PEM", Fix: "use the file that GitHub made for the App"}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, bad
	}
	if k, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return k, nil
	}
	k, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, bad
	}
	key, ok := k.(*rsa.PrivateKey)
	if !ok {
		return nil, bad
	}
	return key, nil
}

// jwt proves who the App is, for nine minutes from a minute ago.
// https://docs.github.com/apps/creating-github-apps/authenticating-with-a-github-app/generating-a-json-web-token-jwt-for-a-github-app
func (a *App) jwt(now time.Time) (string, error) {
	enc := base64.RawURLEncoding
	claims, err := json.Marshal(map[string]any{"iat": now.Add(-time.Minute).Unix(), "exp": now.Add(8 * time.Minute).Unix(), "iss": strconv.FormatInt(a.ID, 10)})
	if err != nil {
		return "", err
	}
	text := enc.EncodeToString([]byte(`{"alg":"RS256","typ":"JWT"}`)) + "." + enc.EncodeToString(claims)
	sum := sha256.Sum256([]byte(text))
	sig, err := rsa.SignPKCS1v15(rand.Reader, a.Key, crypto.SHA256, sum[:])
	return text + "." + enc.EncodeToString(sig), err
}

// minted is a token and how long it is good; zero is without a known end.
type minted struct {
	secret string
	until  time.Time
}

// fresh is how much of its life a token must have left.
const fresh = 10 * time.Minute

// token is the configured one, or one that the App made for this repository alone.
func (f *Forge) token(ctx context.Context, path string) (minted, error) {
	if f.cfg.App == nil {
		return minted{secret: f.cfg.Token}, nil
	}
	f.mu.Lock()
	t, ok := f.tokens[path]
	f.mu.Unlock()
	if ok && t.until.Sub(f.cfg.Now()) > fresh {
		return t, nil
	}
	c, err := f.asApp()
	if err != nil {
		return minted{}, err
	}
	owner, name, _ := strings.Cut(path, "/")
	inst, _, err := c.Apps.GetRepositoryInstallation(ctx, owner, name)
	if task.ClassOf(err) == task.NotFound {
		return minted{}, &task.Error{Class: task.Auth, Msg: "the App is not installed on " + path, Fix: "install it there"}
	}
	if err != nil {
		return minted{}, err
	}
	write := github.Ptr("write")
	ask := &github.InstallationTokenOptions{
		Repositories: []string{name},
		Permissions:  &github.InstallationPermissions{Contents: github.Ptr(f.contents()), Issues: write, PullRequests: write, Checks: write, Metadata: github.Ptr("read")},
	}
	if id, err := strconv.ParseInt(f.cfg.Pinned(path), 10, 64); err == nil { // by number once that is known
		ask.RepositoryIDs, ask.Repositories = []int64{id}, nil
	}
	got, _, err := c.Apps.CreateInstallationToken(ctx, inst.GetID(), ask)
	if err != nil {
		return minted{}, err
	}
	if n := len(got.Repositories); n > 1 {
		return minted{}, &task.Error{Class: task.Auth, Msg: fmt.Sprintf("a token for one repository was asked for, and one for %d was given", n)}
	}
	t = minted{got.GetToken(), got.GetExpiresAt().Time}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tokens[path] = t
	return t, nil
}

// contents is what the App needs of the code: where branches go to a fork, it writes none.
func (f *Forge) contents() string {
	if f.forks != nil {
		return "read"
	}
	return "write"
}

func (f *Forge) asApp() (*github.Client, error) {
	j, err := f.cfg.App.jwt(f.cfg.Now())
	if err != nil {
		return nil, fmt.Errorf("sign as the App: %w", err)
	}
	return f.client(j)
}

// me is the name of Daybreak's user, with the scopes of its token where there are some.
func (f *Forge) me(ctx context.Context) (u *github.User, scopes []string, err error) {
	if f.cfg.App == nil {
		c, err := f.client(f.cfg.Token)
		if err != nil {
			return nil, nil, err
		}
		u, res, err := c.Users.Get(ctx, "")
		if err != nil {
			return nil, nil, err
		}
		for s := range strings.SplitSeq(res.Header.Get("X-Oauth-Scopes"), ",") {
			if s = strings.TrimSpace(s); s != "" {
				scopes = append(scopes, s)
			}
		}
		return u, scopes, nil
	}
	c, err := f.asApp()
	if err != nil {
		return nil, nil, err
	}
	app, _, err := c.Apps.Get(ctx, "")
	if err != nil {
		return nil, nil, err
	}
	return &github.User{ID: app.ID, Login: github.Ptr(app.GetSlug() + "[bot]"), Type: github.Ptr("Bot")}, nil, nil
}
