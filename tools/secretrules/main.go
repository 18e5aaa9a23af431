// Command secretrules writes the rules of gitleaks as the JSON that internal/policy/secrets
// embeds. It is a module of its own: gitleaks brings some sixty packages, archive readers and
// global state, of which the product needs the patterns alone.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/viper"
	"github.com/zricethezav/gitleaks/v8/config"
	"github.com/zricethezav/gitleaks/v8/regexp"
)

type allow struct {
	All       bool     `json:"all,omitempty"`
	Target    string   `json:"target,omitempty"`
	Regexes   []string `json:"regexes,omitempty"`
	Paths     []string `json:"paths,omitempty"`
	StopWords []string `json:"stop_words,omitempty"`
}

type rule struct {
	ID       string   `json:"id"`
	Regex    string   `json:"regex"`
	Path     string   `json:"path,omitempty"`
	Entropy  float64  `json:"entropy,omitempty"`
	Group    int      `json:"group,omitempty"`
	Keywords []string `json:"keywords,omitempty"`
	Allow    []allow  `json:"allow,omitempty"`
}

type file struct {
	Source string  `json:"source"`
	Allow  []allow `json:"allow"`
	Rules  []rule  `json:"rules"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "secretrules:", err)
		os.Exit(1)
	}
}

func run() error {
	v := viper.New()
	v.SetConfigType("toml")
	if err := v.ReadConfig(strings.NewReader(config.DefaultConfig)); err != nil {
		return err
	}
	var vc config.ViperConfig
	if err := v.Unmarshal(&vc); err != nil {
		return err
	}
	cfg, err := vc.Translate()
	if err != nil {
		return err
	}
	out := file{Source: "the rules of gitleaks v8.30.1, MIT License, Copyright (c) 2019 Zachary Rice", Allow: allows(cfg.Allowlists)}
	for _, id := range cfg.OrderedRules {
		r := cfg.Rules[id]
		if r.Regex == nil || len(r.RequiredRules) > 0 {
			fmt.Fprintln(os.Stderr, "left out, not about a text alone:", id)
			continue
		}
		x := rule{ID: id, Regex: r.Regex.String(), Entropy: r.Entropy, Group: r.SecretGroup, Allow: allows(r.Allowlists)}
		if r.Path != nil {
			x.Path = r.Path.String()
		}
		for _, k := range r.Keywords {
			x.Keywords = append(x.Keywords, strings.ToLower(k))
		}
		slices.Sort(x.Keywords)
		out.Rules = append(out.Rules, x)
	}
	enc := json.NewEncoder(os.Stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	return enc.Encode(out)
}

func allows(list []*config.Allowlist) []allow {
	var out []allow
	for _, a := range list {
		out = append(out, allow{
			All: a.MatchCondition == config.AllowlistMatchAnd, Target: a.RegexTarget,
			Regexes: exprs(a.Regexes), Paths: exprs(a.Paths), StopWords: a.StopWords,
		})
	}
	return out
}

func exprs(list []*regexp.Regexp) []string {
	var out []string
	for _, r := range list {
		out = append(out, r.String())
	}
	return out
}
