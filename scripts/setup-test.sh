#!/usr/bin/env bash
# Makes sure the programs the tests start are there; installs Debian packages when it may, else names what is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

POSTGRES_VERSION_MIN=15
# The clients of the Python and JavaScript tests.
PYTHON_REQUIREMENTS=tests/python/requirements.txt
JAVASCRIPT_FOLDER=tests/javascript
NODE_VERSION_MIN=18

has_postgres() {
    local initdb version
    for initdb in /usr/lib/postgresql/*/bin/initdb $(command -v initdb || true); do
        [ -x "$initdb" ] || continue
        version=$("$initdb" --version | sed -E 's/[^0-9]*([0-9]+).*/\1/')
        [ "$version" -ge "$POSTGRES_VERSION_MIN" ] && return 0
    done
    return 1
}

# Debian keeps it in /usr/sbin, which is not on every user's path.
has_pgbouncer() { command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ]; }

has_python_tests() { [ -f "$PYTHON_REQUIREMENTS" ]; }

has_venv() { command -v python3 >/dev/null && python3 -c 'import venv, ensurepip' 2>/dev/null; }

has_node() {
    command -v npm >/dev/null && [ "$(node --version | sed -E 's/v([0-9]+).*/\1/')" -ge "$NODE_VERSION_MIN" ]
}

has_chromium() {
    local name
    for name in chromium chromium-browser google-chrome; do [ -x "/usr/bin/$name" ] && return 0; done
    return 1
}

# A client of blobs that many use, and that makes its requests in a way of its own.
has_rclone() { command -v rclone >/dev/null; }

# Prints the prefix that makes a command run as root, or fails when we may not.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        echo env
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        echo "sudo -n env"
    else
        return 1
    fi
}

missing_packages() {
    has_postgres || echo postgresql
    has_pgbouncer || echo pgbouncer
    if has_python_tests && ! has_venv; then echo python3-venv; fi
    has_node || echo nodejs npm
    has_chromium || echo chromium
    has_rclone || echo rclone
}

install_packages() {
    local root
    if ! command -v apt-get >/dev/null; then
        echo "setup: this machine has no apt-get; install by its own means: $*" >&2
        return 1
    fi
    if ! root=$(as_root); then
        echo "setup: missing, and no right to install it. Run: sudo apt-get install $*" >&2
        return 1
    fi
    echo "setup: installing $*"
    # shellcheck disable=SC2086 # the prefix is several words
    { $root DEBIAN_FRONTEND=noninteractive apt-get update -q &&
        $root DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@"; } || return 1
    # The tests start servers of their own on free ports. The services Debian starts with these packages were not
    # there before us and would hold well-known ports (6432 is ours), so they are not left running.
    if [ -d /run/systemd/system ]; then
        local package
        for package in "$@"; do
            case $package in
                postgresql | pgbouncer) $root systemctl disable --now "$package" || true ;;
            esac
        done
    fi
}

python_clients() {
    has_python_tests || return 0
    # One whose python was replaced, or that was made without pip, is made again.
    .venv/bin/python -m pip --version >/dev/null 2>&1 || python3 -m venv --clear .venv
    .venv/bin/python -m pip install --quiet --disable-pip-version-check -r "$PYTHON_REQUIREMENTS"
}

javascript_clients() { npm install --silent --no-fund --no-audit --prefix "$JAVASCRIPT_FOLDER"; }

packages=$(missing_packages)
if [ -n "$packages" ]; then
    # shellcheck disable=SC2086 # one word a package
    install_packages $packages || true
fi
if ! has_postgres; then
    echo "setup: the tests need a PostgreSQL server, version $POSTGRES_VERSION_MIN or newer (initdb was not found)" >&2
    exit 1
fi
has_pgbouncer || echo "setup: no pgbouncer; the tests that need one will say that they were skipped"
has_chromium || echo "setup: no Chromium; the tests of the console in a browser will fail and say so"
has_rclone || echo "setup: no rclone; its test of blobs will say that it was skipped"
python_clients
javascript_clients
