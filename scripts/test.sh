#!/usr/bin/env bash
# Runs every suite one after the other, all of them even if one fails, and closes with a table of times.
# Arguments, if any, are the names of the suites to run: scripts/test.sh fmt house map
set -uo pipefail
cd "$(dirname "$0")/.."

wanted=("$@")
names=() results=() times=()
passed=0 failed=0

is_wanted() {
    local name
    [ ${#wanted[@]} -eq 0 ] && return 0
    for name in "${wanted[@]}"; do [ "$name" = "$1" ] && return 0; done
    return 1
}

suite() {
    local name=$1 began result
    shift
    is_wanted "$name" || return 0
    printf '\n== %s: %s\n' "$name" "$*"
    began=$(date +%s%N)
    if "$@"; then
        result=passed
        passed=$((passed + 1))
    else
        result=FAILED
        failed=$((failed + 1))
    fi
    names+=("$name") results+=("$result") times+=($((($(date +%s%N) - began) / 1000000)))
}

# One selection of crates and so one set of features for every suite: nothing is compiled twice.
if cargo nextest show-config version --config-file scripts/nextest.toml >/dev/null 2>&1; then
    nextest=(cargo nextest run --workspace --config-file scripts/nextest.toml --no-fail-fast --no-tests=pass
        --status-level slow --final-status-level flaky --cargo-quiet)
    [ -n "${POLYSHARD_LONG:-}" ] && nextest+=(--run-ignored all --profile long)
    crate_tests() { "${nextest[@]}" -E "package($1) and not binary(house)"; }
    house_tests() { "${nextest[@]}" -E "binary(house)"; }
else
    echo "no recent cargo-nextest is installed: using cargo test (the same tests, somewhat slower)"
    crate_tests() {
        local ignored=()
        [ -n "${POLYSHARD_LONG:-}" ] && ignored=(-- --include-ignored)
        cargo test --quiet --no-fail-fast -p "$1" --all-targets ${ignored[@]+"${ignored[@]}"}
    }
    house_tests() { cargo test --quiet -p polyshard-testkit --test house; }
fi

# The unmodified SDKs, which scripts/setup-test.sh installs. Mostly they wait, so a few run beside each other.
python_clients() {
    clients_are_there && .venv/bin/python -m pytest -q -n auto --maxprocesses 4 --dist loadgroup tests/python
}
javascript_clients() { clients_are_there && (cd tests/javascript && npm test --silent); }
# The web console in a real browser.
browser() {
    clients_are_there && cargo build --quiet -p polyshard &&
        (cd tests/javascript && node --test --test-reporter=dot console/*.test.mjs)
}
clients_are_there() {
    if [ ! -x .venv/bin/python ] || [ ! -d tests/javascript/node_modules ]; then
        echo "the SDKs are not installed: run scripts/setup-test.sh first" >&2
        return 1
    fi
}

documentation() { RUSTDOCFLAGS="-D warnings" cargo doc --quiet --no-deps --workspace; }

suite fmt cargo fmt --all --check
suite clippy cargo clippy --quiet --workspace --all-targets -- -D warnings
suite build cargo build --quiet --workspace --all-targets
suite house house_tests
for manifest in crates/*/Cargo.toml; do
    folder=$(basename "$(dirname "$manifest")")
    package=$(sed -n 's/^name = "\(.*\)"$/\1/p' "$manifest" | head -n 1)
    suite "$folder" crate_tests "$package"
done
suite python python_clients
suite javascript javascript_clients
suite browser browser
suite docs documentation
suite doctests cargo test --quiet --doc --workspace

if [ $((passed + failed)) -eq 0 ]; then
    echo "no suite is called: ${wanted[*]}" >&2
    exit 2
fi
printf '\n%-12s %-8s %9s\n' suite result seconds
for i in "${!names[@]}"; do
    printf '%-12s %-8s %5d.%03d\n' "${names[$i]}" "${results[$i]}" $((times[i] / 1000)) $((times[i] % 1000))
done
printf '\n%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
