# Targets for people and for CI; `make help` lists them.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

GO       ?= go
TOOL     := $(GO) tool -modfile=internal/tools/go.mod
PLATFORMS := linux/arm64 darwin/arm64 windows/amd64
TIMEOUT  ?= 15m
# Wall time of all fuzz targets together, shared equally.
FUZZTIME ?= 120
SOAKTIME ?= 3600
BENCH    ?= .
COUNT    ?= 10
RUNS     ?= 3

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: check
check: ## everything that CI checks, except the run without root
	@for step in fmt vet fix lint tidy test cross examples fuzz; do \
		echo "==> $$step"; begun=$$SECONDS; \
		$(MAKE) --no-print-directory "$$step"; \
		echo "<== $$step: $$((SECONDS - begun)) s"; \
	done

.PHONY: fmt
fmt: ## gofmt leaves no difference
	@files=$$(gofmt -l .); if [ -n "$$files" ]; then printf 'not formatted, run gofmt -w on:\n%s\n' "$$files" >&2; exit 1; fi

.PHONY: vet
vet: ## go vet
	$(GO) vet ./...

.PHONY: fix
fix: ## go fix leaves no difference
	$(GO) fix -diff ./...

.PHONY: lint
lint: ## staticcheck, all checks
	$(TOOL) staticcheck -checks all ./...

.PHONY: tidy
tidy: ## go mod tidy leaves no difference
	$(GO) mod tidy -diff
	$(GO) -C internal/tools mod tidy -diff

.PHONY: test
test: ## all tests, with the race detector and in random order
	$(GO) test -race -shuffle=on -timeout=$(TIMEOUT) ./...

.PHONY: cross
cross: ## build and vet for other platforms
	@for platform in $(PLATFORMS); do \
		export GOOS=$${platform%/*} GOARCH=$${platform#*/} CGO_ENABLED=0; \
		echo "$(GO) build ./... && $(GO) vet ./... # $$platform"; \
		$(GO) build ./... && $(GO) vet ./...; \
	done

.PHONY: examples
examples: ## build the example programs into bin/
	@mkdir -p bin
	@if [ -n "$$($(GO) list ./examples/... 2>/dev/null)" ]; then $(GO) build -o bin/ ./examples/... && ls bin; fi

.PHONY: fuzz
fuzz: ## run every fuzz target, FUZZTIME (120) seconds in all
	@.ci/fuzz $(FUZZTIME)

.PHONY: soak
soak: ## hours instead of minutes: fuzzing for SOAKTIME (3600) seconds, then every test 20 times
	@.ci/fuzz $(SOAKTIME)
	$(GO) test -race -shuffle=on -count=20 -timeout=12h ./...

.PHONY: demo
demo: ## lose the active node on this machine and watch the address move
	$(GO) run ./examples/failover

.PHONY: bench
bench: ## benchmarks, COUNT (10) runs, summed up by benchstat; BENCH selects
	@out=$$(mktemp); trap 'rm -f "$$out"' EXIT; \
	$(GO) test -run='^$$' -bench='$(BENCH)' -benchmem -count=$(COUNT) -timeout=2h ./... | tee "$$out"; \
	$(TOOL) benchstat "$$out"

.PHONY: bench-peers
bench-peers: ## side by side with another project, by turns: PEER=keepalived (root), RUNS (3) of each fault
	@if [ "$(PEER)" != keepalived ]; then echo "bench-peers: want PEER=keepalived" >&2; exit 2; fi
	@mkdir -p bin && $(GO) build -o bin/ ./examples/failover; \
	for fault in silent term kill; do for peer in "" keepalived; do \
		echo "==> $$fault, $${peer:-lastbeat}"; \
		bin/failover -fault $$fault -peer "$$peer" -runs $(RUNS) -until takeover -svg ''; \
	done; done

.PHONY: peers
peers: ## install the programs that the tests talk to (Debian packages, services not started)
	@.ci/peers

.PHONY: cover
cover: ## statement coverage by function, the total last
	@out=$$(mktemp); trap 'rm -f "$$out"' EXIT; \
	$(GO) test -coverprofile="$$out" -timeout=$(TIMEOUT) ./...; \
	$(GO) tool cover -func="$$out"

.PHONY: vuln
vuln: ## known vulnerabilities in what we call; needs the network
	$(TOOL) govulncheck ./...

.PHONY: apidiff
apidiff: ## changes of the exported API since the commit BASE
	@if [ -z "$(BASE)" ]; then echo "apidiff: want BASE=COMMIT" >&2; exit 2; fi
	@old=$$(mktemp -d); trap 'git worktree remove --force "$$old/tree"; rm -rf "$$old"' EXIT; \
	git worktree add --quiet --detach "$$old/tree" "$(BASE)"; \
	cp -r internal/tools "$$old/tools"; \
	(cd "$$old/tree" && $(GO) tool -modfile="$$old/tools/go.mod" apidiff -m -w "$$old/api" .); \
	$(TOOL) apidiff -m "$$old/api" .
