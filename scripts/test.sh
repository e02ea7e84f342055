#!/usr/bin/env bash
# Runs every suite, all of them even if one fails, and closes with a table of times.
# Arguments, if any, are the names of the suites to run: scripts/test.sh fmt house map
set -uo pipefail
cd "$(dirname "$0")/.."

# Files of tests are kept in memory only where this much is free: several servers run at once, and some are filled.
MEMORY_KIB_MIN=$((8 * 1024 * 1024))
# Half of a test is waiting, for a process to start, a lease to lapse, or another test's writes.
TESTS_PER_CORE=2
# How long a process that a test has told to end may take to do it.
ENDING_SECONDS_MAX=20

wanted=("$@")
names=() results=() times=() notes=()
passed=0 failed=0
cores=$(nproc 2>/dev/null || echo 2)

is_wanted() {
    local name
    [ ${#wanted[@]} -eq 0 ] && return 0
    for name in "${wanted[@]}"; do [ "$name" = "$1" ] && return 0; done
    return 1
}

# A row of the table: name, whether it passed (0) or not, milliseconds, and what else is to say.
row() {
    if [ "$2" -eq 0 ]; then
        results+=(passed)
        passed=$((passed + 1))
    else
        results+=(FAILED)
        failed=$((failed + 1))
    fi
    names+=("$1") times+=("$3") notes+=("${4:-}")
}

milliseconds() { echo $(($(date +%s%N) / 1000000)); }

suite() {
    local name=$1 began code
    shift
    is_wanted "$name" || return 0
    printf '\n== %s: %s\n' "$name" "$*"
    began=$(milliseconds)
    "$@"
    code=$?
    row "$name" "$code" $(($(milliseconds) - began))
}

# Everything that tests write goes into a folder of this run, so that what they leave behind is found. It is in memory
# where there is room: tests kill processes and never the machine, and waiting for a disk would take most of their time.
# Whoever wants them on a disk says which: TMPDIR=/var/tmp make test
make_scratch() {
    local base=${TMPDIR:-} free
    if [ -z "$base" ]; then
        free=$(df --output=avail /dev/shm 2>/dev/null | tail -n 1)
        if [ "${free:-0}" -ge "$MEMORY_KIB_MIN" ]; then base=/dev/shm; else base=/tmp; fi
    fi
    # PostgreSQL's own user must get through.
    scratch=$(mktemp -d "$base/polyshard-run.XXXXXX") && chmod 755 "$scratch" || exit 1
    trap 'rm -rf "$scratch"' EXIT
    export TMPDIR=$scratch
}

# The processes that this run has started and that live on, but for those of this script.
left_processes() {
    local file pid
    for file in $(grep -slz "^TMPDIR=$scratch" /proc/[0-9]*/environ); do
        pid=${file#/proc/}
        pid=${pid%/environ}
        [ "$pid" = "$BASHPID" ] || [ ! -d "/proc/$pid" ] || echo "$pid"
    done
}

# Says what the tests have left behind; it does not fail the run, which may have been made to end tests that hang.
name_leftovers() {
    local deadline=$((SECONDS + ENDING_SECONDS_MAX)) pid left
    # What is made once and used by the whole run is not left behind by a test.
    rm -rf "$scratch"/polyshard-template-* "$scratch"/pytest-of-* "$scratch"/nextest*
    while [ -n "$(left_processes)" ] && [ "$SECONDS" -lt "$deadline" ]; do sleep 0.2; done
    for pid in $(left_processes); do
        printf 'left behind: process %s: %s\n' "$pid" "$(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | cut -c 1-100)"
    done
    left=$(find "$scratch" -mindepth 1 -maxdepth 1)
    [ -z "$left" ] || printf 'left behind: %s\n' $left
}

# One selection of crates and so one set of features for every suite: nothing is compiled twice.
everything=(--workspace --all-targets)

# The tests of all crates beside each other, the long ones first: none waits for the last of another crate.
crates_with_nextest() {
    local crates=("$@") filter='none()' crate package began code profile=default report counted reported='' line
    for crate in "${crates[@]}"; do
        if [ "$crate" = house ]; then
            filter+=" or binary(house)"
        else
            filter+=" or (package($(package_of "$crate")) and not binary(house))"
        fi
    done
    # A report of its own, which the run of somebody else does not write over.
    { cat scripts/nextest.toml && printf '\n[store]\ndir = "%s/nextest"\n' "$scratch" &&
        printf '[profile.default.junit]\npath = "junit.xml"\n'; } >"$scratch/nextest.toml"
    local nextest=(cargo nextest run --workspace --config-file "$scratch/nextest.toml" --no-fail-fast --no-tests=pass
        --status-level slow --final-status-level flaky --cargo-quiet)
    if [ -n "${POLYSHARD_LONG:-}" ]; then
        profile=long
        nextest+=(--run-ignored all)
    fi
    report=$scratch/nextest/$profile/junit.xml
    printf '\n== %s\n' "${crates[*]}"
    began=$(milliseconds)
    "${nextest[@]}" --profile "$profile" --test-threads $((TESTS_PER_CORE * cores)) -E "$filter"
    code=$?
    beside=$(($(milliseconds) - began))
    counted=$([ -f "$report" ] && count_tests "$report") && reported=yes
    for crate in "${crates[@]}"; do
        package=$([ "$crate" = house ] && echo house || package_of "$crate")
        line=$(grep "^$package " <<<"$counted" || echo "$package 0 0 0")
        # shellcheck disable=SC2086 # four words
        set -- $line
        # Without a report nothing is known to have passed.
        [ -n "$reported" ] || set -- "$package" 0 1 0
        [ "$3" -eq 0 ] || code=0
        row "$crate" "$3" "$4" "$2 tests"
    done
    # The runner's own word counts too: it may have failed where no test did.
    [ "$code" -eq 0 ] || row nextest "$code" "$beside"
}

# For each package (the house test counts as one): tests, those that failed, milliseconds of all of them.
count_tests() {
    awk '
        function attribute(name) {
            if (!match($0, " " name "=\"[^\"]*\"")) return ""
            return substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 4)
        }
        /<testsuite / {
            package = attribute("name")
            if (package == "polyshard-testkit::house") package = "house"
            sub(/::.*/, "", package)
            failed[package] += attribute("failures") + attribute("errors")
        }
        /<testcase / { tests[package]++; took[package] += attribute("time") }
        END {
            for (package in tests)
                printf "%s %d %d %d\n", package, tests[package], failed[package], took[package] * 1000
        }
    ' "$1"
}

package_of() { sed -n 's/^name = "\(.*\)"$/\1/p' "crates/$1/Cargo.toml" | head -n 1; }

crate_with_cargo() {
    local ignored=()
    [ -n "${POLYSHARD_LONG:-}" ] && ignored=(-- --include-ignored)
    cargo test --quiet --no-fail-fast -p "$(package_of "$1")" --all-targets ${ignored[@]+"${ignored[@]}"}
}

crates() {
    local crates=() crate
    for crate in house $(ls crates); do
        if is_wanted "$crate"; then crates+=("$crate"); fi
    done
    [ ${#crates[@]} -gt 0 ] || return 0
    if cargo nextest show-config version --config-file scripts/nextest.toml >/dev/null 2>&1; then
        crates_with_nextest "${crates[@]}"
        return
    fi
    echo "no recent cargo-nextest is installed: using cargo test (the same tests, somewhat slower)"
    for crate in "${crates[@]}"; do
        if [ "$crate" = house ]; then
            suite house cargo test --quiet -p polyshard-testkit --test house
        else
            suite "$crate" crate_with_cargo "$crate"
        fi
    done
}

# The unmodified SDKs, which scripts/setup-test.sh installs. Mostly they wait, so a few run beside each other.
python_clients() {
    clients_are_there && .venv/bin/python -m pytest -q -n 4 --dist loadgroup tests/python
}
javascript_clients() { clients_are_there && (cd tests/javascript && npm test --silent); }
# The web console in a real browser, two of them at a time: Node itself would run one file after the other on two cores.
browser() {
    clients_are_there && cargo build --quiet "${everything[@]}" && (cd tests/javascript &&
        printf '%s\0' console/*.test.mjs | xargs -0 -n 1 -P 2 node --test --test-reporter=dot)
}
clients_are_there() {
    if [ ! -x .venv/bin/python ] || [ ! -d tests/javascript/node_modules ]; then
        echo "the SDKs are not installed: run scripts/setup-test.sh first" >&2
        return 1
    fi
}

# With the examples: documented, and so with the features that everything else was compiled with.
documentation() { RUSTDOCFLAGS="-D warnings" cargo doc --quiet --no-deps --workspace --lib --bins --examples; }

make_scratch
suite fmt cargo fmt --all --check
suite clippy cargo clippy --quiet "${everything[@]}" -- -D warnings
suite build cargo build --quiet "${everything[@]}"
crates
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
    seconds=$(printf '%5d.%03d' $((times[i] / 1000)) $((times[i] % 1000)))
    printf '%-12s %-8s %s  %s\n' "${names[$i]}" "${results[$i]}" "$seconds" "${notes[$i]}"
done
if [ -n "${beside:-}" ]; then
    printf '\nThe tests of the crates ran beside each other, in %d seconds; ' $((beside / 1000))
    printf 'their rows add up what each test took.\n'
fi
name_leftovers
printf '\n%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
