#!/usr/bin/env bash
# Installs Azurite, the emulator that `polyshard-bench azure` measures beside and the long tests keep backups in, into
# the ignored build folder.
set -euo pipefail
cd "$(dirname "$0")/.."

AZURITE_VERSION=3.37.0

mkdir -p target/azurite
npm install --silent --no-fund --no-audit --prefix target/azurite "azurite@$AZURITE_VERSION"
echo "azurite $AZURITE_VERSION is in target/azurite"
