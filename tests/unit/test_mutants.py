"""The catalogue of mutants speaks of the code as it is: `make mutants` takes too long to be what finds that out."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

from ..mutants.catalogue import MUTANTS
from ..mutants.mutant import Mutant

ROOT = Path(__file__).parents[2]


# All of them in one test each: two thousand tests of no length cost seconds to hand out.
def test_each_mutant_s_text_stands_once_in_the_code() -> None:
    texts = {file: (ROOT / file).read_text() for file in {mutant.file for mutant in MUTANTS}}
    assert [mutant.name for mutant in MUTANTS if texts[mutant.file].count(mutant.before) != 1] == []
    assert [mutant.name for mutant in MUTANTS if mutant.before == mutant.after] == []


def test_the_tests_that_must_catch_a_mutant_are_there() -> None:
    paths = {mutant.name: [word.partition("::")[0] for word in mutant.tests if ".py" in word] for mutant in MUTANTS}
    assert [name for name, those in paths.items() if not those] == []
    assert [name for name, those in paths.items() if not all((ROOT / path).is_file() for path in those)] == []


def test_each_mutant_s_selection_has_a_test(request: pytest.FixtureRequest) -> None:
    """One that selects nothing plants its bug, and catches nothing. Seen where all tests were collected."""
    names = defaultdict[str, list[str]](list)
    for item in request.session.items:
        names[item.nodeid.partition("::")[0]].append(item.nodeid.lower())
    wanted = {word.partition("::")[0] for mutant in MUTANTS for word in mutant.tests if ".py" in word}
    if not wanted <= names.keys() or request.config.option.keyword or request.config.option.markexpr:
        pytest.skip("of some that mutants want no test was collected: run all of them")
    lost = [mutant.name for mutant in MUTANTS if not any(selects(mutant, name) for name in candidates(mutant, names))]
    assert lost == []


def candidates(mutant: Mutant, names: dict[str, list[str]]) -> list[str]:
    words = [word for word in mutant.tests if ".py" in word]
    return [name for word in words for name in names[word.partition("::")[0]] if name.startswith(word.lower())]


def selects(mutant: Mutant, name: str) -> bool:
    def stands(word: str, /, **_: str | int | bool | None) -> bool:
        return word.lower() in name

    words = dict(zip(mutant.tests, mutant.tests[1:], strict=False))
    return "-k" not in words or Expression.compile(words["-k"]).evaluate(stands)


def test_no_two_mutants_have_one_name() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
