#!/bin/sh
# Rewrites requirements/*.lock from pyproject.toml: every version pinned with the hashes of its files, for every supported Python
# and platform, and no word of where it came from. dev.lock is what .venv/ holds anywhere; spark.lock adds Spark, a Java, what
# decodes pages for them and what writes lake tables; fuse.lock the mount's, which needs libfuse to be built, and fuse-build.lock what builds it: each only what
# dev.lock lacks. Pins that stand are kept; `make lock UPGRADE=--upgrade` moves them all.
set -eu
cd "$(dirname "$0")/.."
upgrade=${1:-}

DEV=requirements/dev.lock

compile() {
    lock=$1
    shift
    .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
        "$@" $upgrade --output-file "$lock" >/dev/null </dev/null
}

# A lock without the packages that dev.lock pins: a line that starts with a name opens a package's lines.
without_dev() {
    awk 'FNR == NR { pinned[$1]; next } /^[a-z]/ { wanted = !($1 in pinned) } wanted' "$DEV" "$1" >"$1.new"
    mv "$1.new" "$1"
}

finish() {
    if grep -n '://' "$1"; then
        echo "lock: $1 names a host, see above" >&2
        exit 1
    fi
    sed -i "1i # $2 by version and hash. Written by \`make lock\` from pyproject.toml; not edited by hand." "$1"
}

compile "$DEV" pyproject.toml --extra cli --extra server --extra postgres --extra http2 --extra otel --extra sqlalchemy --extra django --group dev
for part in spark fuse fuse-build; do
    case $part in
    fuse) source="pyproject.toml --extra fuse" ;;
    fuse-build) source="--group fuse-build" ;;
    spark) source="pyproject.toml --extra lake --group spark-types" ;;
    esac
    # Unquoted: they are words.
    compile "requirements/$part.lock" $source --constraints "$DEV"
    without_dev "requirements/$part.lock"
done
finish "$DEV" "What .venv/ holds,"
finish requirements/spark.lock "What Spark adds to .venv/,"
finish requirements/fuse.lock "What the mount adds to .venv/ where libfuse is,"
finish requirements/fuse-build.lock "What builds fuse.lock's packages,"
