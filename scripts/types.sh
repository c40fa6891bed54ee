#!/bin/sh
# Checks types as CI does, with both checkers at once. Without pyfuse3, which brings its own types, mypy takes what comes from it as
# anything and pyright, which would complain of every use of it, stays out; both are said.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}

if "$python" -P -c 'import pyfuse3' 2>/dev/null; then
    echo "$python -P -m mypy, $python -P -m pyright"
    "$python" -P -m mypy &
    mypy=$!
    trap 'kill "$mypy" 2>/dev/null || true' EXIT
    status=0
    "$python" -P -m pyright || status=$?
    wait "$mypy" || status=$?
    exit "$status"
else
    echo "types: pyfuse3 is missing (make setup says why): mypy is lenient about it, and pyright is left out" >&2
    "$python" -P -m mypy --ignore-missing-imports --allow-subclassing-any --no-warn-return-any --no-warn-unused-ignores
fi
