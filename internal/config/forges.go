package config

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Forge is a place where issues and pull requests live.
type Forge struct {
	Kind     string `yaml:"kind"`     // "github", "gitlab", "gitea" (and Forgejo)
	URL      string `yaml:"url"`      // what people open; the only host that is spoken to, with api_url
	APIURL   string `yaml:"api_url"`  // of GitHub: empty is the usual one beside url
	Internal bool   `yaml:"internal"` // it may have an address inside the network, and be spoken to by plain HTTP
	CAFile   string `yaml:"ca_file"`  // PEM, instead of the system's authorities

	TokenEnv  string `yaml:"token_env"`
	TokenFile string `yaml:"token_file"`
	// Of a GitHub App instead of a token.
	AppID      int64  `yaml:"app_id"`
	AppKeyFile string `yaml:"app_key_file"`

	Fork Fork `yaml:"fork"` // branches go to somebody's forks instead of the repositories

	SecretEnv  string `yaml:"webhook_secret_env"`
	SecretFile string `yaml:"webhook_secret_file"`
	// The secret that was used before, good until a time, for changing it without losing deliveries.
	OldSecretEnv   string    `yaml:"webhook_old_secret_env"`
	OldSecretFile  string    `yaml:"webhook_old_secret_file"`
	OldSecretUntil time.Time `yaml:"webhook_old_secret_until"`
}

// Fork says where branches go instead.
type Fork struct {
	Owner     string `yaml:"owner"` // user, organisation or group; empty: the repository itself
	TokenEnv  string `yaml:"token_env"`
	TokenFile string `yaml:"token_file"`
}

// Token reads the token that is for the forks; "" where there are none.
func (f Fork) Token(getenv func(string) string) (string, error) {
	if f.Owner == "" {
		return "", nil
	}
	return secret("the token for the forks of "+f.Owner, f.TokenEnv, f.TokenFile, "token_file", getenv)
}

// Intake says what makes a task of an issue, and how many.
type Intake struct {
	Label string        `yaml:"label"` // that asks for a task, unless the repository was registered with another
	Poll  time.Duration `yaml:"poll"`  // how often the forges are asked for what no webhook told
	Rates Rates         `yaml:"rates"`
}

// Rates bound what people can start; 0 is no bound.
type Rates struct {
	Author     int `yaml:"author"`     // tasks an hour by one person
	Repository int `yaml:"repository"` // tasks an hour in one repository
	Total      int `yaml:"total"`      // tasks an hour
	Queue      int `yaml:"queue"`      // tasks that are not done
}

// The kinds of forges.
const (
	GitHub = "github"
	GitLab = "gitlab"
	Gitea  = "gitea"
)

func defaultIntake() Intake {
	return Intake{Label: "daybreak", Poll: 3 * time.Minute, Rates: Rates{Author: 10, Repository: 20, Total: 100, Queue: 500}}
}

func (i Intake) check() error {
	if strings.TrimSpace(i.Label) == "" {
		return fmt.Errorf("intake.label is empty")
	}
	if i.Poll < time.Second {
		return fmt.Errorf("intake.poll is %s; use at least 1s", i.Poll)
	}
	if r := i.Rates; r.Author < 0 || r.Repository < 0 || r.Total < 0 || r.Queue < 0 {
		return fmt.Errorf("intake.rates must not be negative; 0 is no bound")
	}
	return nil
}

func checkForges(fs map[string]Forge) error {
	name := regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,39}$`)
	seen := map[string]string{}
	for _, n := range slices.Sorted(maps.Keys(fs)) {
		f := fs[n]
		if !name.MatchString(n) {
			return fmt.Errorf("forges.%s: a name has lower-case letters, digits and -", n)
		}
		if f.Kind != GitHub && f.Kind != GitLab && f.Kind != Gitea {
			return fmt.Errorf("forges.%s.kind is %q; use github, gitlab or gitea", n, f.Kind)
		}
		u, err := url.Parse(f.URL)
		if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && (u.Scheme != "http" || !f.Internal) {
			return fmt.Errorf("forges.%s.url is %q; write an https address without credentials (http only with internal: true)", n, f.URL)
		}
		if f.APIURL != "" && f.Kind != GitHub {
			return fmt.Errorf("forges.%s.api_url is for GitHub only", n)
		}
		if other := seen[u.Host]; other != "" {
			return fmt.Errorf("forges.%s and forges.%s are the same host", other, n)
		}
		seen[u.Host] = n
		if f.AppID != 0 && (f.Kind != GitHub || f.AppKeyFile == "") {
			return fmt.Errorf("forges.%s.app_id is for GitHub and needs app_key_file", n)
		}
		if f.AppID == 0 && f.TokenEnv == "" && f.TokenFile == "" {
			return fmt.Errorf("forges.%s: set token_env or token_file", n)
		}
		if k := f.Fork; (k.Owner != "") != (k.TokenEnv != "" || k.TokenFile != "") || !regexp.MustCompile(`^([A-Za-z0-9_][A-Za-z0-9_./-]{0,99})?$`).MatchString(k.Owner) {
			return fmt.Errorf("forges.%s.fork needs an owner, and token_env or token_file with a token for the owner's forks alone", n)
		}
		if (f.OldSecretEnv != "" || f.OldSecretFile != "") && f.OldSecretUntil.IsZero() {
			return fmt.Errorf("forges.%s.webhook_old_secret_until is needed with an old secret", n)
		}
	}
	return nil
}

// Token reads the forge's token; "" for an App.
func (f Forge) Token(getenv func(string) string) (string, error) {
	if f.AppID != 0 {
		return "", nil
	}
	return secret("the token for "+f.URL, f.TokenEnv, f.TokenFile, "token_file", getenv)
}

// Secrets reads the secrets of the forge's webhooks, the current one first; none when none is
// set, and then no delivery is believed.
func (f Forge) Secrets(getenv func(string) string) (current, old string, err error) {
	if f.SecretEnv == "" && f.SecretFile == "" {
		return "", "", nil
	}
	if current, err = secret("the webhook secret of "+f.URL, f.SecretEnv, f.SecretFile, "webhook_secret_file", getenv); err != nil {
		return "", "", err
	}
	if f.OldSecretEnv != "" || f.OldSecretFile != "" {
		old, err = secret("the old webhook secret of "+f.URL, f.OldSecretEnv, f.OldSecretFile, "webhook_old_secret_file", getenv)
	}
	return current, old, err
}
