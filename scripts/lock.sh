#!/bin/sh
# Rewrites requirements/dev.lock from pyproject.toml: every version pinned with the hashes of its files, for every supported Python
# and platform, and no word of where it came from. Extras that need system libraries (fuse) or a Java (spark) stay out.
# Pins that stand are kept; `make lock UPGRADE=--upgrade` moves them all.
set -eu
cd "$(dirname "$0")/.."

LOCK=requirements/dev.lock
.venv/bin/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes --no-header \
    --extra cli --extra server --extra http2 --group dev ${1:+"$1"} --output-file "$LOCK" >/dev/null </dev/null
if grep -n '://' "$LOCK"; then
    echo "lock: $LOCK names a host, see above" >&2
    exit 1
fi
sed -i '1i # What .venv/ holds, by version and hash. Written by `make lock` from pyproject.toml; not edited by hand.' "$LOCK"
