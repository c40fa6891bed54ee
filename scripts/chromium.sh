#!/bin/sh
# Installs Debian's chromium where it is missing: the tests look at a node's pages in it. Where it can't be installed these tests are
# skipped.
set -eu
command -v chromium >/dev/null && exit 0
if [ "$(id -u)" = 0 ]; then
    as_root=
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    as_root=sudo
else
    echo "chromium: only root may install packages: apt-get install chromium" >&2
    exit 1
fi
echo "chromium: installing Debian's package chromium"
$as_root apt-get update -qq </dev/null
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium </dev/null >/dev/null
