# Two commands do everything on a machine with Go: `make demo` and `make test`.
SHELL := /bin/bash
TOOLS := $(CURDIR)/.tools/bin
BIN   := $(CURDIR)/bin

.PHONY: setup gvisor gitea browser test-gitea test-browser test-languages build demo test generate lint attack attack-layers crash-matrix bench bench-monorepo bench-cost bench-large test-search bench-verify records fuzz clean
setup: ## install what the build, the sandbox and the tests need (quick when nothing is missing)
	@scripts/setup.sh

gvisor: ## build gVisor's runsc, for `sandbox.runtime: runsc` (quick when it is there)
	@scripts/gvisor.sh

gitea: ## build the real Gitea that the forges' tests talk to (quick when it is there)
	@scripts/gitea.sh

test-gitea: build gitea ## what needs the real Gitea: the adapter, and the whole flow from an issue to a merge
	@PATH="$(TOOLS):$$PATH" CI=true DAYBREAK_GITEA=1 go test -count=1 -timeout 20m -run 'TestRealServer|TestGitea' ./internal/forge/gitea ./e2e

browser: ## install chromium and axe-core for the pages' tests (quick when they are there)
	@scripts/browser.sh

test-browser: build browser ## the pages in a real browser: live, cut off, by keyboard, hostile texts, axe-core; pictures go to bin/screens
	@set -o pipefail; cd e2e/browser && PATH="$(TOOLS):$$PATH" go test -count=1 -timeout 15m -parallel 4 -v . | { grep -vE '^ *(=== (RUN|PAUSE|CONT)|--- PASS: Test[A-Za-z]+/)' || true; }

build: setup
	@CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o $(BIN)/daybreak-guest ./cmd/daybreak-guest
	@CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o $(BIN)/daybreak ./cmd/daybreak

demo: build ## the main job end to end, on embedded defaults
	@$(BIN)/daybreak demo

test: build $(if $(filter true,$(CI)),gvisor) ## everything, with a real sandbox, real git and real HTTP; with gVisor if it is built, or CI is true
	@PATH="$(TOOLS):$$PATH" go test -timeout 30m ./...

test-languages: build ## verification in every language whose tool chain is here, each trap with the real runner (many minutes); what is not installed is named and skipped
	@npm install --prefix .tools/node --no-save --no-audit --no-fund --silent jest@30 vitest@4 || echo "test-languages: no jest and vitest: they are not tried"
	@PATH="$(TOOLS):$$PATH" DAYBREAK_LANGUAGES=all go test -v -count=1 -timeout 3h \
		-run 'TestBuilt|TestRust|TestMaven|TestCTest|TestRSpec|TestPHPUnit|TestChosen|TestScripts/verify_' ./internal/verify ./e2e > $(BIN)/languages.log 2>&1; \
		code=$$?; grep -E '^ok|^FAIL|^ *--- (FAIL|PASS|SKIP)|is not installed| FAIL: ' $(BIN)/languages.log; [ $$code = 0 ] || echo "the rest is in $(BIN)/languages.log"; exit $$code

generate: ## the pages' templates to Go, with the pinned generator
	@cd tools && go build -o $(TOOLS)/templ github.com/a-h/templ/cmd/templ
	@$(TOOLS)/templ generate -path internal/web -log-level error

lint: setup
	@gofmt_out=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$gofmt_out" ] || { echo "gofmt: $$gofmt_out"; exit 1; }
	@cd tools && go build -o $(TOOLS)/gofumpt mvdan.cc/gofumpt && go build -o $(TOOLS)/staticcheck honnef.co/go/tools/cmd/staticcheck
	@out=$$($(TOOLS)/gofumpt -l $$(git ls-files '*.go' ':!*_templ.go')); [ -z "$$out" ] || { echo "gofumpt: $$out"; exit 1; }
	@go vet ./... && $(TOOLS)/staticcheck ./...
	@cd e2e/browser && go vet ./... && $(TOOLS)/staticcheck ./...

attack: build ## every case of the threat model by its id, on runc and, if it is built, runsc: held, failed or not exercised
	@PATH="$(TOOLS):$$PATH" go run ./attack $(ATTACK)

attack-layers: build ## the sandbox without one layer after the other, in builds for tests: which case notices
	@PATH="$(TOOLS):$$PATH" go run ./attack -layers

crash-matrix: build ## a service killed after every event, of people's too, and its outages, on both stores (hours); the tables go to bin/crash-matrix.log
	@set -o pipefail; PATH="$(TOOLS):$$PATH" CI=true DAYBREAK_E2E_ALL=1 go test -count=1 -timeout 4h -v \
		-run 'TestKill_OPS01|TestServiceKill|TestServeAskKill|TestStoreStopped|TestDiskFull' ./e2e > $(BIN)/crash-matrix.log 2>&1; \
		code=$$?; grep -E '^ok|^FAIL|^ *--- FAIL|killed after|kill points| (true|false) +(true|false) ' $(BIN)/crash-matrix.log; exit $$code

bench: build ## speed and memory, as ratios in one run
	@PATH="$(TOOLS):$$PATH" go run ./bench

bench-monorepo: build ## ready, searched and advanced: a tree of 2.45 million lines, fetched by the Go client, beside git and ripgrep
	@PATH="$(TOOLS):$$PATH" go run ./bench -only monorepo,search

bench-large: build ## a tree of FILES files (default 20000) with what is odd in trees: made, advanced, searched; its time, memory and disk
	@PATH="$(TOOLS):$$PATH" DAYBREAK_BENCH_LARGE=$(or $(FILES),20000) go run ./bench -only large

test-search: ## 10,000 random queries on a large tree (TREE=DIR, default Go's own sources), each held against ripgrep (half an hour and more)
	@DAYBREAK_SEARCH_TREE="$(or $(TREE),$(shell go env GOROOT)/src)" DAYBREAK_SEARCH_QUERIES=$(or $(QUERIES),10000) \
		CI=true go test -count=1 -timeout 6h -v -run 'TestRandomQueries$$' ./internal/codesearch

bench-cost: build ## what verifying costs, per phase: CHANGES='name=repository base head; …' CONFIG=FILE
	@PATH="$(TOOLS):$$PATH" go run ./bench -only cost -changes "$(CHANGES)" $(if $(CONFIG),-config $(CONFIG))

bench-verify: build ## false accepts and false rejects of the verifier, by kind (INSTANCES=FILE REPOS=DIR: and on historical fixes)
	@$(BIN)/daybreak eval cases $(if $(ONLY),--only $(ONLY))
	@if [ -n "$(INSTANCES)" ]; then $(BIN)/daybreak $(if $(CONFIG),--config $(CONFIG)) eval cases --instances "$(INSTANCES)" --repos "$(REPOS)" \
		--timeout $(or $(TIMEOUT),6m) --sample $(or $(SAMPLE),0) $(if $(ONLY),--only $(ONLY)); fi

records: build ## the recorded tasks that tests replay, anew: after a change of the harness that means to change them
	@mkdir -p e2e/testdata/records && PATH="$(TOOLS):$$PATH" DAYBREAK_RECORD=1 go test -count=1 -run 'TestScripts/(verified|declined|interrupted|steered)$$' ./e2e

fuzz: ## every fuzz target for FUZZTIME (default 20s) each
	@scripts/fuzz.sh $(or $(FUZZTIME),20s)

clean:
	@rm -rf $(BIN) .tools
