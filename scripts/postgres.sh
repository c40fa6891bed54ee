#!/bin/sh
# Installs PostgreSQL from Debian's packages where it is missing. The tests of records start servers of their own, with its programs,
# in folders of their own; no other server is needed, and none is touched.
set -eu
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 && exit 0
if [ "$(id -u)" = 0 ]; then
    as_root=
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    as_root=sudo
else
    echo "postgres: only root may install packages: apt-get install postgresql" >&2
    exit 1
fi
echo "postgres: installing Debian's package postgresql"
# Its own server isn't started: nobody here needs it, and nobody would end it.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap '$as_root rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' | $as_root tee "$policy" >/dev/null
    $as_root chmod 755 "$policy"
fi
$as_root apt-get update -qq </dev/null
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql </dev/null >/dev/null
