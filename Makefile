# The commands of this repository; `make` alone lists them.
.DEFAULT_GOAL := help
.PHONY: help run test test-all dist bench fmt

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: ## build and start everything on embedded shards under ./polyshard-data
	@[ -x target/release/polyshard ] || echo "The first build takes about 5 minutes on 2 cores, and some for downloads."
	cargo run --release -p polyshard -- up --data ./polyshard-data

test: ## install what the tests need if it is missing, then run every suite
	@scripts/setup-test.sh
	@scripts/test.sh

test-all: ## the same, with the long matrices and many more seeds
	@scripts/setup-test.sh
	@scripts/setup-bench.sh
	@POLYSHARD_LONG=1 POLYSHARD_SEEDS=$${POLYSHARD_SEEDS:-5000} PROPTEST_CASES=$${PROPTEST_CASES:-4096} scripts/test.sh

dist: ## build the program as it is shipped and measured: target/dist/polyshard
	cargo build --profile dist --bin polyshard --bin polyshard-bench

bench: dist ## measure, beside the raw libraries in the same run
	target/dist/polyshard-bench

fmt: ## format the code
	cargo fmt --all
