package pipelines

import (
	"strings"
	"testing"
)

func TestLook_CI01_CI03_CI04_CI05(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string // severity and a part of the text; nothing else may be found
	}{
		"push with secrets":         {"on: push\npermissions: read-all\njobs: {a: {steps: [{run: 'deploy ${{ secrets.KEY }}'}]}}", []string{"refuse KEY"}},
		"push to main alone":        {"on:\n  push:\n    branches: [main, 'release/*']\njobs: {a: {steps: [{run: '${{ secrets.KEY }}'}]}}", nil},
		"every branch":              {"on:\n  push:\n    branches: ['**']\njobs: {a: {env: {K: \"${{ secrets['KEY'] }}\"}}}", []string{"refuse KEY", "warn token"}},
		"one star stops":            {"on: {push: {branches: ['*']}}\nx: ${{ secrets.KEY }}", nil},
		"all but ours":              {"on: {push: {branches-ignore: ['daybreak/**']}}\nx: ${{ secrets.KEY }}", nil},
		"negated":                   {"on: {push: {branches: ['**', '!daybreak/**']}}\nx: ${{ secrets.KEY }}", nil},
		"tags alone":                {"on: {push: {tags: ['v*']}}\nx: ${{ secrets.KEY }}", nil},
		"pull request with secrets": {"on: [pull_request]\npermissions: {contents: read}\nx: ${{ secrets.KEY }}", []string{"refuse a pull request"}},
		"own token is no secret":    {"on: [push, pull_request]\npermissions: {contents: read}\nx: ${{ secrets.GITHUB_TOKEN }}", []string{"note no secrets"}},
		"token that writes":         {"on: push\npermissions: {contents: write}", []string{"note no secrets", "warn token"}},
		"inherited":                 {"on: push\npermissions: read-all\njobs: {a: {uses: ./x.yml, \n  secrets: inherit}}", []string{"refuse all of them"}},
		"target (CI-04)":            {"on: pull_request_target\nx: 1", []string{"warn pull_request_target"}},
		"comments (CI-04)":          {"on: {issue_comment: {types: [created]}}", []string{"warn issue_comment"}},
		"cache (CI-03)":             {"on: push\npermissions: read-all\njobs: {a: {steps: [\n{uses: actions/cache@v4}]}}\nx:\n  - uses: actions/cache@v4", []string{"note no secrets", "warn cache"}},
		"pasted (CI-05)":            {"on: pull_request_target\nrun: echo ${{ github.event.pull_request.title }}", []string{"warn pull_request_target", "warn becomes code"}},
		"unreadable":                {"on: [", []string{"refuse cannot be read"}},
		"no trigger":                {"jobs: {}", []string{"refuse no `on`"}},
		"nightly":                   {"on: {schedule: [{cron: '0 0 * * *'}]}\nx: ${{ secrets.KEY }}", nil},
	} {
		got := Look(".github/workflows/x.yml", []byte(c.text), "daybreak/")
		if len(got) != len(c.want) {
			t.Errorf("%s: %+v, want %q", name, got, c.want)
			continue
		}
		for i, w := range c.want {
			sev, part, _ := strings.Cut(w, " ")
			if string(got[i].Severity) != sev || !strings.Contains(got[i].Text, part) {
				t.Errorf("%s: %+v, want %q", name, got[i], w)
			}
		}
	}
}

func TestIs(t *testing.T) {
	for p, want := range map[string]bool{
		".github/workflows/a.yml": true, ".gitea/workflows/a.yaml": true, ".forgejo/workflows/a.yml": true, ".gitlab-ci.yml": true,
		"x/.gitlab-ci.yml": false, ".github/workflows/a.sh": false, ".github/workflows/x/a.yml": false, "a.yml": false,
	} {
		if Is(p) != want {
			t.Error(p)
		}
	}
}

func FuzzLook(f *testing.F) {
	f.Add([]byte("on: {push: {branches: ['[']}}\nx: ${{ secrets.KEY }}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, x := range Look(".github/workflows/x.yml", b, "daybreak/") {
			if x.Text == "" || strings.Contains(x.Text, "\n") {
				t.Errorf("%+v", x)
			}
		}
	})
}
