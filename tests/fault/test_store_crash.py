"""file:// killed at each of its crash windows: a fresh process finds the whole object or none, and can use the key."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from budwood.server.store.directory_tree import Tree
from budwood.volume.errors import AlreadyExists

from ..waits import LIMIT_SECONDS

CHILD = """
import sys
from budwood.server.store.directory_tree import Tree
tree = Tree(sys.argv[1])
tree.place("logs/x/1", b"first")
tree.place("logs/x/2", b"second" * 1000)
print("acknowledged", flush=True)
"""

POINTS = {
    "store: temp written, not linked": False,
    "store: linked, directory not synced": True,
    "store: directory synced, temp not removed": True,
}
"""Each window, and whether the object stands after a kill in it."""


@pytest.mark.parametrize(("point", "stands"), POINTS.items())
def test_a_kill_leaves_the_whole_object_or_none(tmp_path: Path, point: str, stands: bool) -> None:
    environment = os.environ | {"BUDWOOD_FAULT": f"{point}#2"}
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr
    assert child.stdout == ""

    assert len(list((tmp_path / ".tmp").iterdir())) == 1, "the kill left its temporary file"
    tree = Tree(str(tmp_path))
    assert tree.read("logs/x/1", 0, None) == (b"first", 5), "what was acknowledged is there"
    assert tree.list("", "", None) == ["logs/x/1", "logs/x/2"][: 2 if stands else 1]
    if stands:
        assert tree.read("logs/x/2", 0, None) == (b"second" * 1000, 6000)
        assert list((tmp_path / ".tmp").iterdir()) == [], "what is linked is swept at once"
        with pytest.raises(AlreadyExists):
            tree.place("logs/x/2", b"other")
    else:
        tree.place("logs/x/2", b"other")
        assert tree.read("logs/x/2", 0, None) == (b"other", 5)
    tree.close()
