#!/usr/bin/env bash
# Installs Azurite, the emulator that `polyshard-bench azure` measures beside and the long tests keep backups in, into
# the ignored build folder; and nginx, which `polyshard-bench blob` measures beside.
set -euo pipefail
cd "$(dirname "$0")/.."

AZURITE_VERSION=3.37.0

mkdir -p target/azurite
npm install --silent --no-fund --no-audit --prefix target/azurite "azurite@$AZURITE_VERSION"
echo "azurite $AZURITE_VERSION is in target/azurite"

if ! command -v nginx >/dev/null 2>&1; then
    if [ "$(id -u)" -eq 0 ]; then as_root=(); else as_root=(sudo -n); fi
    "${as_root[@]}" apt-get install -y --no-install-recommends nginx-light >/dev/null
    # The package starts it as a service, which nobody asked for.
    "${as_root[@]}" service nginx stop >/dev/null 2>&1 || true
fi
echo "nginx is $(command -v nginx)"
