"""A node is what its OpenAPI document says: schemathesis asks every call of it what fits the document, and what
doesn't. `python -m tests.soak` and test_http.py ask for what the document can't say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ..waits import LIMIT_SECONDS
from .cli import serving

HOOKS = "tests.integration.openapi_hooks"
# Most of what it makes up is no volume that there is, and may be refused; a token is asked for only where one is given.
EXCLUDED = "positive_data_acceptance,ignored_auth"


def test_a_node_keeps_to_its_document(tmp_path: Path) -> None:
    with serving(tmp_path / "store") as url:
        command = [
            *(sys.executable, "-P", "-m", "schemathesis.cli", "run", f"{url}/openapi.json"),
            *("--phases", "coverage,fuzzing", "--max-examples", "5", "--seed", "1", "--checks", "all"),
            *("--exclude-checks", EXCLUDED, "--request-timeout", str(LIMIT_SECONDS), "--no-color"),
        ]
        environment = {**os.environ, "SCHEMATHESIS_HOOKS": HOOKS, "PYTHONPATH": str(Path(__file__).parents[2])}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
