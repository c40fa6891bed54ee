"""Every mutant there is; each room's stand in a file of their own, mutants_*.py.

A mutant's `before` stands exactly once in its file; the runner (__main__.py) stops at one that doesn't, so that none
goes stale.
"""

from __future__ import annotations

from typing import Final

from . import (
    mutants_attacks,
    mutants_costs,
    mutants_edge,
    mutants_exports,
    mutants_folds,
    mutants_formats,
    mutants_home,
    mutants_http,
    mutants_leftovers,
    mutants_listening,
    mutants_log,
    mutants_modes,
    mutants_mount,
    mutants_names,
    mutants_plain_log,
    mutants_removal,
    mutants_requests,
    mutants_retention,
    mutants_rollups,
    mutants_scrub,
    mutants_spread,
    mutants_stores,
    mutants_suite,
    mutants_tables,
    mutants_transactions,
    mutants_two_phase,
    mutants_upkeep,
    mutants_volumes,
)
from .mutant import Mutant

MUTANTS: Final[tuple[Mutant, ...]] = (
    *mutants_edge.MUTANTS,
    *mutants_home.MUTANTS,
    *mutants_names.MUTANTS,
    *mutants_log.MUTANTS,
    *mutants_plain_log.MUTANTS,
    *mutants_volumes.MUTANTS,
    *mutants_retention.MUTANTS,
    *mutants_removal.MUTANTS,
    *mutants_modes.MUTANTS,
    *mutants_rollups.MUTANTS,
    *mutants_folds.MUTANTS,
    *mutants_scrub.MUTANTS,
    *mutants_spread.MUTANTS,
    *mutants_costs.MUTANTS,
    *mutants_upkeep.MUTANTS,
    *mutants_transactions.MUTANTS,
    *mutants_two_phase.MUTANTS,
    *mutants_leftovers.MUTANTS,
    *mutants_listening.MUTANTS,
    *mutants_stores.MUTANTS,
    *mutants_requests.MUTANTS,
    *mutants_attacks.MUTANTS,
    *mutants_http.MUTANTS,
    *mutants_mount.MUTANTS,
    *mutants_tables.MUTANTS,
    *mutants_exports.MUTANTS,
    *mutants_formats.MUTANTS,
    *mutants_suite.MUTANTS,
)
