#!/usr/bin/env bash
# Suites that others made, over volumes: apsw's, CPython's of sqlite3, and Django's (a quarter of an hour; its sources are
# fetched by pip). With arguments, of Django's these parts alone: `scripts/suites.sh queries transactions`.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
python=$root/${PYTHON:-.venv/bin/python}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
status=0
"$python" -m tests.compliance.foreign_suites apsw </dev/null || status=1
if "$python" -c 'import test.test_sqlite3' 2>/dev/null; then
    "$python" -m tests.compliance.foreign_suites sqlite3 </dev/null || status=1
else
    echo "sqlite3: this Python came without its tests (Debian: libpython3-testsuite); left out"
fi

version=$("$python" -c 'import django; print(django.__version__)')
"$python" -m pip download --quiet --no-deps --no-binary :all: --dest "$folder" "django==$version" </dev/null
tar xzf "$folder"/[dD]jango-*.tar.gz -C "$folder"
cp tests/compliance/django_suite.py "$folder/budwood_suite.py"
may_fail='test_(concurrent_delete|custom_test_name|unicode_password|non_zero_exit_status_when_path_to_db_is_path)'
# Root may read and write what these take away from others.
[ "$(id -u)" != 0 ] || may_fail="$may_fail|test_(permissions_error|readonly_root|no_write_access)"
cd "$folder"/[dD]jango-*/tests
DJANGO_SUITE_HOME=$folder/home PYTHONPATH=$folder "$python" runtests.py --settings=budwood_suite --parallel=1 "$@" \
    >"$folder/log" 2>&1 </dev/null || true
grep -E '^(FAIL|ERROR): ' "$folder/log" || true
if grep -E '^(FAIL|ERROR): ' "$folder/log" | grep -qvE "$may_fail"; then
    tail -100 "$folder/log"
    status=1
fi
grep -E '^Ran [0-9]+ tests' "$folder/log" || {
    tail -40 "$folder/log"
    status=1
}
exit $status
