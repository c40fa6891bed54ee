#!/bin/sh
# Makes .venv/ from the lock: an environment of its own, every package pinned and checked by hash, and `budwood` installed so that
# the checkout is what runs. `make setup` calls it when the lock, pyproject.toml or this file changed; running it twice does no harm.
#
# The only things needed beforehand are a Python and, on Debian, its package for virtual environments, which is installed
# here when we may and named when we may not. uv comes from the lock as well. Spark comes with a Java of its own, so that the machine
# needs none; it is the one large download. The mount's pyfuse3 is built here against the system's libfuse: what that takes is
# installed when we may; where it can't be had, one line says so and everything else is set up.
set -eu
cd "$(dirname "$0")/.."

LOCK=requirements/dev.lock
SPARK=requirements/spark.lock
FUSE_BUILD=requirements/fuse-build.lock
FUSE=requirements/fuse.lock
python=${PYTHON:-python3}
started=$(date +%s)

fail() {
    echo "setup: $*" >&2
    exit 1
}

command -v "$python" >/dev/null || fail "no $python here: install Python 3.11 or newer (Debian: apt-get install python3 python3-venv)"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "$("$python" --version) is too old: Python 3.11 or newer is needed; name one with make PYTHON=..."

# Installs Debian packages, or puts into `why` what stands in the way.
install_packages() {
    command -v apt-get >/dev/null || { why="this system has no apt-get" && return 1; }
    if [ "$(id -u)" = 0 ]; then
        as_root=
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        as_root=sudo
    else
        why="only root may install packages" && return 1
    fi
    echo "setup: installing Debian packages: $*"
    $as_root apt-get update -qq </dev/null || { why="apt-get update failed" && return 1; }
    # What belongs to a package is asked for by name: recommendations stay out.
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" </dev/null >/dev/null ||
        { why="apt-get install failed" && return 1; }
}

# Debian splits ensurepip off: `python3 -m venv` then makes half an environment and fails.
install_venv_package() {
    package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    install_packages "$package" ||
        fail "$python cannot make virtual environments without Debian's $package, or its venv and ensurepip modules, and $why"
}

# The scripts in .venv/bin know the path they were made at: a moved environment is made anew.
usable() {
    [ "$(sed -n 1p .venv/ready 2>/dev/null || pwd)" = "$PWD" ] &&
        .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null &&
        .venv/bin/python -m pip --version >/dev/null 2>&1
}

if ! usable; then
    "$python" -c 'import ensurepip, venv' 2>/dev/null || install_venv_package
    echo "setup: making .venv with $("$python" --version)"
    "$python" -m venv --clear .venv || fail "$python -m venv failed, see above"
fi

# uv's own lines of the lock, hashes and all, so that pip checks uv as uv will check the rest.
bootstrap=$(mktemp)
trap 'rm -f "$bootstrap"' EXIT
awk '/^uv==/ { found = 1 } found { print } found && !/\\$/ { exit }' "$LOCK" >"$bootstrap"
[ -s "$bootstrap" ] || fail "$LOCK does not pin uv: run make lock"
wanted=$(awk '{ sub("uv==", "", $1); print $1; exit }' "$bootstrap")
if [ "$(.venv/bin/uv --version 2>/dev/null | awk '{ print $2 }')" != "$wanted" ]; then
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input --require-hashes -r "$bootstrap" </dev/null ||
        fail "could not install uv $wanted: is the network, or a mirror set for pip, within reach?"
fi

install() {
    .venv/bin/uv pip "$@" --quiet --python .venv/bin/python </dev/null
}

# pyspark has no wheel: setuptools, which the lock brings, packs its jars. No compiler is needed.
ls -d .venv/lib/python3*/site-packages/pyspark >/dev/null 2>&1 ||
    echo "setup: fetching Spark, Arrow and a Java, some 550 MB unless uv has them in its cache"
install install --require-hashes -r "$LOCK" || fail "could not install what $LOCK pins, see above"
install install --require-hashes --no-build-isolation -r "$LOCK" -r "$SPARK" || fail "could not install what $SPARK pins, see above"

# pyfuse3 has no wheels. What builds it is pinned like the rest and goes into .venv/ first, so that the build fetches nothing.
install_with_fuse() {
    missing=$(scripts/fuse.sh)
    if [ -n "$missing" ] && [ "$missing" != pyfuse3 ]; then
        # Unquoted: they are words.
        install_packages $missing || { why="$missing is missing and $why" && return 1; }
    fi
    why="pyfuse3 could not be built, see above"
    install install --require-hashes -r "$LOCK" -r "$FUSE_BUILD" || fail "could not install what $FUSE_BUILD pins, see above"
    install sync --require-hashes --no-build-isolation "$LOCK" "$SPARK" "$FUSE_BUILD" "$FUSE" || return 1
    # uv keeps what it built, which may have been for another libfuse.
    works || install install --require-hashes --no-deps --no-build-isolation --no-cache --reinstall-package pyfuse3 -r "$FUSE" || return 1
    works
}
works() {
    .venv/bin/python -c 'import pyfuse3' 2>/dev/null
}

if ! install_with_fuse; then
    echo "setup: the mount is left out, all else is set up: $why; once that is mended: make setup" >&2
    install sync --require-hashes --no-build-isolation "$LOCK" "$SPARK" || fail "could not take out what no lock pins, see above"
fi
# The lock brings setuptools, so that nothing unpinned is fetched to build with.
install install --no-deps --no-build-isolation --editable . ||
    fail "could not install budwood into .venv, see above"
# Spark finds its plugins by looking through folders, which an editable install has none in.
for packages in .venv/lib/python3*/site-packages; do
    ln -sfn "$PWD/pyspark_budwood" "$packages/pyspark_budwood"
done

# Behind an index that doesn't say how long a file is good, uv fetches and builds Spark at each setup, and keeps them all: what
# nothing leads to any more is taken out of its cache.
UV_LOCK_TIMEOUT=10 .venv/bin/uv cache prune --quiet </dev/null || echo "setup: uv's cache was not pruned, see above" >&2

# The Makefile compares this with where the checkout is, and with what the mount lacks by then.
{ pwd && scripts/fuse.sh; } >.venv/ready
echo "setup: done in $(($(date +%s) - started)) s"
