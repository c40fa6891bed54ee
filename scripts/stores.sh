#!/bin/sh
# Installs the servers of object stores that tests ask beside those that .venv/ has (tests/integration/store_servers.py), from
# requirements/stores/, by version and hash. `make stores` calls it; it needs Node.js 20 or newer, and its npm.
set -eu
cd "$(dirname "$0")/.."

command -v npm >/dev/null || {
    echo "stores: no npm here: install Node.js 20 or newer (Debian: apt-get install npm)" >&2
    exit 1
}
mkdir -p .venv/stores
cmp -s requirements/stores/package-lock.json .venv/stores/ready && exit 0
cp requirements/stores/package.json requirements/stores/package-lock.json .venv/stores/
# Nothing that a package brings is run.
npm ci --prefix .venv/stores --ignore-scripts --no-audit --no-fund --loglevel=error </dev/null
cp requirements/stores/package-lock.json .venv/stores/ready
