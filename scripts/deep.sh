#!/usr/bin/env bash
# Every test by hypothesis, under random seeds: CI's are fixed, and come to the same cases each time. Each file has so
# many seconds; what is found is printed, with the line that makes it come again, and kept in .hypothesis/ for the next run.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
seconds=${1:-120}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=()
while read -r file; do
    echo "deep: $file"
    status=0
    HYPOTHESIS_PROFILE=deep timeout --foreground --signal=INT --kill-after=60 "$seconds" \
        "$python" -P -m pytest -n 0 -x -q --tb=short "$file" >"$log" 2>&1 </dev/null || status=$?
    # 124: its time was over. Where that was while something found was made shorter, hypothesis has kept it.
    if [ "$status" != 0 ] && [ "$status" != 124 ]; then
        tail -60 "$log"
        failed+=("$file")
    fi
done < <(grep -lrE '^ *@given|RuleBasedStateMachine' tests --include='test_*.py' | sort)

if [ ${#failed[@]} != 0 ]; then
    printf 'deep: something was found in %s\n' "${failed[@]}" >&2
    exit 1
fi
echo "deep: nothing was found"
