"""Every fault point of the product is cut by a test of this folder, and every cut names a point that there is."""

from __future__ import annotations

import importlib.util
import json

from . import (
    test_care_killed,
    test_collection_killed,
    test_confirm_killed,
    test_decommission_killed,
    test_edge_killed,
    test_export_killed,
    test_fold_killed,
    test_lease_killed,
    test_mount_killed,
    test_names_killed,
    test_node_killed,
    test_removal_killed,
    test_replay_killed,
    test_retainer_killed,
    test_store_crash,
    test_two_phase_killed,
)
from .crash_harness import finish

IMPORT_EVERYTHING = """
import importlib, importlib.util, json, pkgutil
import budwood
from pathlib import Path
from budwood.volume import faults

root = Path(budwood.__file__).parent
apart = {"tests", "bench", "examples"}
if importlib.util.find_spec("pyfuse3") is None:
    apart.add("fuse")
for room in sorted(path.parent.name for path in root.glob("*/__init__.py")):
    if room not in apart:
        package = importlib.import_module(f"budwood.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"budwood.{room}."):
            importlib.import_module(module.name)
print(json.dumps(sorted(faults.registered())))
"""


def test_every_point_is_cut() -> None:
    """The tables assert at run time, by the signal that the child died of, that each kill happened at its point."""
    registered = set(json.loads(finish(IMPORT_EVERYTHING)[-1]))
    tables = [
        *test_care_killed.CUTS,
        *test_edge_killed.CUTS,
        *test_lease_killed.CUTS,
        *test_names_killed.CUTS,
        *test_node_killed.CUTS,
        *test_fold_killed.CUTS,
        *test_collection_killed.CUTS,
        *test_confirm_killed.CUTS,
        *test_decommission_killed.CUTS,
        *test_retainer_killed.CUTS,
        *test_removal_killed.CUTS,
        *test_replay_killed.CUTS,
        *test_two_phase_killed.CUTS,
        test_store_crash.POINTS,
    ]
    tables += test_export_killed.CUTS
    if importlib.util.find_spec("pyfuse3") is not None:
        tables += test_mount_killed.CUTS
    cut = {point.partition("#")[0] for table in tables for point in table}
    assert registered - cut == set(), "these are never cut"
    assert cut - registered == set(), "these are no points"
