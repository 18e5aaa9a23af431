package policy

import (
	"path"
	"strings"
)

// protection is one group of paths that do something on other machines when they change.
type protection struct {
	why   string
	names string // space-separated; "x/" is a directory at any depth, others are base names with * and ?
}

// protections is the built-in list, lower case. A reviewer can easily overlook what these
// files make run, so a person must say yes to them.
func protections() []protection {
	return []protection{
		{"runs in CI or decides what CI does", `.github/ .gitea/ .forgejo/ .gitlab/ *.gitlab-ci.yml *.gitlab-ci.yaml .circleci/ .travis.yml .travis.yaml
			.drone.yml .drone.yaml .drone.star .drone.jsonnet .woodpecker/ .woodpecker.yml .woodpecker.yaml *azure-pipelines*.yml *azure-pipelines*.yaml
			.azure-pipelines/ .azuredevops/ bitbucket-pipelines.yml jenkinsfile jenkinsfile.* *.jenkinsfile .jenkins/ appveyor.yml .appveyor.yml
			.buildkite/ .cirrus.yml .cirrus.star .semaphore/ .teamcity/ cloudbuild.yaml cloudbuild.yml cloudbuild.json buildspec.yml buildspec.yaml
			.builds/ .build.yml .ci/ .tekton/ wercker.yml codefresh.yml .zuul.yaml .zuul.yml .zuul.d/ zuul.yaml .prow/ .prow.yaml screwdriver.yaml
			.harness/ .codebuild/ .gocd/ .concourse/ .argo/ .taskcluster.yml netlify.toml vercel.json renovate.json renovate.json5 .renovaterc .renovaterc.json
			.goreleaser.yml .goreleaser.yaml .releaserc .releaserc.* .mergify.yml .mergify/ codecov.yml .codecov.yml`},
		{"decides who must review", `codeowners owners owners_aliases .gitowners`},
		{"changes how git treats files", `.gitattributes .gitconfig .lfsconfig`},
		{"runs on every commit or push", `.husky/ .githooks/ .git-hooks/ .pre-commit-config.yaml .pre-commit-config.yml .pre-commit-hooks.yaml
			lefthook.yml lefthook.yaml lefthook.toml lefthook.json .lefthook.* lefthook-local.* .lefthook/ .overcommit.yml .overcommit.yaml .captain/
			captainhook.json .simple-git-hooks.* simple-git-hooks.* .huskyrc .huskyrc.* .lintstagedrc .lintstagedrc.* lint-staged.config.* grumphp.yml`},
		{"runs when an editor opens the project", `.vscode/ .idea/ .vs/ .fleet/ .zed/ *.code-workspace *.sublime-project .vimrc .exrc .nvimrc .nvim.lua
			.lvimrc .vim/ .nvim/ .dir-locals.el .dir-locals-2.el .projectile .theia/ .gitpod.yml .gitpod.dockerfile .replit .idx/`},
		{"runs when the project is opened in a container", `.devcontainer/ .devcontainer.json devcontainer.json devcontainer-lock.json`},
		{"runs when a shell enters the directory", `.envrc .env .env.* .direnv/ .mise/ .mise.toml .mise.*.toml mise.toml mise.*.toml .rtx.toml .autoenv .autoenv.zsh flake.nix shell.nix`},
		{"instructs coding agents", `agents.md agents.override.md agent.md claude.md claude.local.md gemini.md .claude/ .cursor/ .cursorrules .cursorignore
			.windsurf/ .windsurfrules .clinerules .roo/ .roorules .roorules-* .aider* .continue/ .codex/ .opencode/ opencode.json opencode.jsonc .gemini/
			.goosehints .junie/ .kiro/ .agents/ .agent/ .mcp.json mcp.json .amazonq/ .augment/ .augment-guidelines .crush/ crush.json .crush.json .rules
			.openhands/ .openhands_instructions .trae/ .qwen/ qwen.md copilot-instructions.md *.instructions.md .daybreak.yaml .daybreak.yml .daybreak/`},
		{"changes where packages come from or what they run", `.npmrc .yarnrc .yarnrc.yml .yarn/ .pnpmfile.* pnpmfile.* pnpm-workspace.yaml .pnp.* bunfig.toml
			pip.conf pip.ini .pip/ .pypirc uv.toml .condarc .bundle/ .gemrc nuget.config .mvn/ gradle-wrapper.properties gradle-wrapper.jar gradlew
			gradlew.bat mvnw mvnw.cmd init.gradle init.gradle.kts .cargo/ .netrc _netrc .bazelrc .bazelversion auth.json sitecustomize.py usercustomize.py *.pth`},
		{"chooses the toolchain", `go.env go.work .go-version .node-version .nvmrc .python-version .ruby-version .java-version .swift-version .tool-versions
			.terraform-version rust-toolchain rust-toolchain.toml .sdkmanrc global.json .volta .jvmopts`},
	}
}

// hold returns why a path needs a person's word, or "".
func hold(p string, extra []string) string {
	name := fold(p)
	comps := strings.Split(name, "/")
	base := comps[len(comps)-1]
	for _, g := range protections() {
		for pattern := range strings.FieldsSeq(g.names) {
			if dir, ok := strings.CutSuffix(pattern, "/"); ok {
				for _, c := range comps {
					if c == dir {
						return g.why
					}
				}
			} else if ok, _ := path.Match(pattern, base); ok {
				return g.why
			} else if len(comps) > 1 {
				// A directory in the place of such a file, as .clinerules/ may be.
				for _, c := range comps[:len(comps)-1] {
					if c == pattern {
						return g.why
					}
				}
			}
		}
	}
	for _, pattern := range extra {
		if matchProtected(pattern, comps) {
			return "is protected by the repository's or the operator's settings"
		}
	}
	if strings.ContainsFunc(p, Invisible) {
		return "has invisible characters in its name"
	}
	return ""
}

// matchProtected understands the common part of .gitignore lines: a pattern without a slash
// in its middle matches at any depth, others from the top; "**" is any number of directories;
// a match of a directory covers what is below.
func matchProtected(pattern string, comps []string) bool {
	pattern = fold(strings.TrimSpace(pattern))
	pattern = strings.TrimSuffix(pattern, "/")
	anchored := strings.Contains(pattern, "/")
	pattern = strings.TrimPrefix(pattern, "/")
	if pattern == "" {
		return false
	}
	parts := strings.Split(pattern, "/")
	if anchored {
		return matchParts(parts, comps)
	}
	for i := range comps {
		if matchParts(parts, comps[i:]) {
			return true
		}
	}
	return false
}

// matchParts matches the beginning of a path. The patterns come from repositories: going back
// to the newest "**" alone keeps it from taking exponential time.
func matchParts(parts, comps []string) bool {
	star, from := -1, 0
	for i, j := 0, 0; i < len(parts); {
		if parts[i] == "**" {
			star, from = i, j
			i++
			continue
		}
		if j < len(comps) {
			if ok, err := path.Match(parts[i], comps[j]); ok && err == nil {
				i, j = i+1, j+1
				continue
			}
		}
		if star < 0 || from >= len(comps) {
			return false
		}
		from++
		i, j = star+1, from
	}
	return true
}
