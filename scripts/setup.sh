#!/bin/sh
# Makes .venv/ from the lock: an environment of its own, every package pinned and checked by hash, and `budwood` installed so that
# the checkout is what runs. `make setup` calls it when the lock, pyproject.toml or this file changed; running it twice does no harm.
#
# The only things needed beforehand are a Python and, on Debian, its package for virtual environments, which is installed
# here when we may and named when we may not. uv comes from the lock as well.
set -eu
cd "$(dirname "$0")/.."

LOCK=requirements/dev.lock
python=${PYTHON:-python3}

fail() {
    echo "setup: $*" >&2
    exit 1
}

command -v "$python" >/dev/null || fail "no $python here: install Python 3.11 or newer (Debian: apt-get install python3 python3-venv)"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "$("$python" --version) is too old: Python 3.11 or newer is needed; name one with make PYTHON=..."

# Debian splits ensurepip off: `python3 -m venv` then makes half an environment and fails.
install_venv_package() {
    package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    command -v apt-get >/dev/null || fail "$python cannot make virtual environments: install its venv and ensurepip modules"
    if [ "$(id -u)" = 0 ]; then
        as_root=
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        as_root=sudo
    else
        fail "the Debian package $package is missing and only root may install it: sudo apt-get install $package"
    fi
    echo "setup: installing the Debian package $package"
    $as_root apt-get update -qq </dev/null || fail "apt-get update failed; once it works: apt-get install $package"
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$package" </dev/null >/dev/null ||
        fail "could not install the Debian package $package; install it by hand"
}

# The scripts in .venv/bin know the path they were made at: a moved environment is made anew.
usable() {
    [ "$(cat .venv/ready 2>/dev/null || pwd)" = "$PWD" ] &&
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

.venv/bin/uv pip sync --quiet --python .venv/bin/python --require-hashes "$LOCK" </dev/null ||
    fail "could not install what $LOCK pins, see above"
# The lock brings setuptools, so that nothing unpinned is fetched to build with.
.venv/bin/uv pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation --editable . </dev/null ||
    fail "could not install budwood into .venv, see above"

# The Makefile compares this with where the checkout is.
pwd >.venv/ready
