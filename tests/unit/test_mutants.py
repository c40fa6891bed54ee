"""The catalogue of mutants speaks of the code as it is: `make mutants` takes too long to be what finds that out."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..mutants.catalogue import MUTANTS
from ..mutants.mutant import Mutant

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_s_text_stands_once_in_the_code(mutant: Mutant) -> None:
    assert (ROOT / mutant.file).read_text().count(mutant.before) == 1
    assert mutant.before != mutant.after


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_tests_that_must_catch_a_mutant_are_there(mutant: Mutant) -> None:
    paths = [word.partition("::")[0] for word in mutant.tests if ".py" in word]
    assert paths
    assert all((ROOT / path).is_file() for path in paths)


def test_no_two_mutants_have_one_name() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
