"""History against the plainest model: for every LSN, a dict of its pages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from budwood.server.metastore.history import FAN, History, Landed, Run
from budwood.volume.errors import Corrupt
from budwood.volume.pageset import PageSet, page_count, span
from budwood.volume.records import Commit, Location

PAGE = 512
HIGHEST = 12


class Model:
    """Pages as (page → LSN that wrote it) for every LSN; what was cut off is gone."""

    def __init__(self, start: int, length: int, shared: dict[int, int]) -> None:
        self.start = start
        self.lengths = [length]
        self.views = [shared]

    def commit(self, lsn: int, pages: set[int], floor: int, length: int) -> None:
        kept = {page: at for page, at in self.views[-1].items() if page <= page_count(floor, PAGE)}
        self.views.append({**kept, **dict.fromkeys(pages, lsn)})
        self.lengths.append(length)

    def view(self, lsn: int) -> dict[int, int]:
        last = page_count(self.lengths[lsn - self.start], PAGE)
        return {page: at for page, at in self.views[lsn - self.start].items() if page <= last}


commits = st.lists(
    st.tuples(st.sets(st.integers(1, HIGHEST), max_size=4), st.integers(0, HIGHEST), st.integers(0, 10)), max_size=70
)
steps = st.dictionaries(st.integers(0, 60), st.sampled_from(["rebase", "reopen", "move"]), max_size=6)


def landed(lsn: int, pages: set[int], floor: int, before: int, length: int) -> Landed:
    return Landed(lsn, before, length, floor, 10 * lsn, PageSet(pages), (), b"", b"%d" % lsn, b"", b"")


class Kept:
    """Has every commit of a range, and every whole run of the first `count`, as a rollup would."""

    def __init__(self) -> None:
        self.start = 0
        self.count = 0
        self.commits: list[Landed] = []

    def commit(self, lsn: int) -> Landed:
        at = lsn - self.start - 1
        assert 0 <= at < self.count, "it is in no rollup"
        return self.commits[at]

    def run(self, level: int, place: int) -> Run:
        size = FAN**level
        assert (place + 1) * size <= self.count, "it is not whole in the rollup"
        return Run.joined(Run.of(commit, PAGE) for commit in self.commits[place * size : (place + 1) * size])


def build(
    script: list[tuple[set[int], int, int]], start: int, length: int, steps: dict[int, str] | None = None
) -> tuple[History, Model]:
    """`steps` say behind which commits the volume goes to another log, or a rollup moves on, or one is opened from."""
    shared = dict.fromkeys(range(1, page_count(length, PAGE) + 1), start)
    history, model, kept = History(PAGE, start, length), Model(start, length, shared), Kept()
    kept.start = start
    history.begin_range(kept, length)
    for at, (pages, last, cut) in enumerate(script):
        lsn, new_length = history.head + 1, last * PAGE
        step = (steps or {}).get(at)
        if step:
            kept.count = len(kept.commits)
        if step == "rebase":
            history.rebase(history.head)
        elif step == "reopen":
            head_length, start_length = model.lengths[-1], model.lengths[kept.start - start]
            del history.ranges[-1]
            history.begin_range(kept, start_length, count=kept.count, length=head_length)
        elif step == "move":
            kept = Kept()
            kept.start = history.head
            history.begin_range(kept, model.lengths[-1])
        written = {page for page in pages if page <= last}
        floor = min(model.lengths[-1], new_length, cut * PAGE) if cut < 10 else min(model.lengths[-1], new_length)
        kept.commits.append(landed(lsn, written, floor, model.lengths[-1], new_length))
        history.append(kept.commits[-1])
        model.commit(lsn, written, floor, new_length)
    return history, model


@given(commits, steps, st.integers(0, 3), st.sampled_from([0, 5 * PAGE, 5 * PAGE - 100]), st.data())
def test_every_page_at_every_lsn_reads_as_the_model_has_it(
    script: list[tuple[set[int], int, int]], steps: dict[int, str], start: int, length: int, data: st.DataObject
) -> None:
    """S2.20, B9: shrinking and growing again never brings bytes back."""
    history, model = build(script, start, length if start else 0, steps)
    lsn = data.draw(st.integers(start, history.head))
    wanted = PageSet(data.draw(st.sets(st.integers(1, HIGHEST + 3), min_size=1)))
    view, resolved = model.view(lsn), history.resolve(lsn, wanted)
    answers = {page: commit.lsn for commit, pages in resolved.found for page in pages}
    answers.update(dict.fromkeys(resolved.below, start))
    assert len(answers) + len(resolved.zeros) == len(wanted)
    for page in wanted:
        written = view.get(page)
        if written is None:
            # Never written: zeros at once, or nothing of it below either.
            assert page in resolved.zeros or page > page_count(history.start_length, PAGE) or page in resolved.below
            assert answers.get(page, start) == start
        else:
            assert answers[page] == written
    newest_first = [commit.lsn for commit, _ in resolved.found]
    assert newest_first == sorted(newest_first, reverse=True)


@given(commits, st.sampled_from([0, 5 * PAGE]), st.data())
def test_what_was_shared_below_a_cut_stays_below_and_what_was_cut_is_zeros(
    script: list[tuple[set[int], int, int]], length: int, data: st.DataObject
) -> None:
    history, model = build(script, 1, length)
    lsn = data.draw(st.integers(1, history.head))
    everything = span(1, HIGHEST)
    below = history.resolve(lsn, everything).below
    shared = {page for page, at in model.view(lsn).items() if at == 1}
    assert shared <= set(below)
    assert not {page for page in below if page <= page_count(length, PAGE)} - shared


@given(commits, steps, st.data())
def test_changed_names_every_page_that_reads_differently(
    script: list[tuple[set[int], int, int]], steps: dict[int, str], data: st.DataObject
) -> None:
    history, model = build(script, 0, 0, steps)
    after = data.draw(st.integers(0, history.head))
    to = data.draw(st.integers(after, history.head))
    changed = history.changed(after, to)
    before, now = model.view(after), model.view(to)
    assert {page for page in before.keys() | now.keys() if before.get(page) != now.get(page)} <= set(changed)
    if after == to:
        assert not changed


@given(commits, steps, st.data())
def test_the_pages_of_a_commit_that_still_count_are_those_that_resolve_to_it(
    script: list[tuple[set[int], int, int]], steps: dict[int, str], data: st.DataObject
) -> None:
    history, model = build(script, 0, 0, steps)
    for lsn in {history.head, data.draw(st.integers(0, history.head))}:
        view = model.view(lsn)
        for commit, (pages, last, _) in enumerate(script[:lsn], 1):
            written = PageSet(page for page in pages if page <= last)
            assert set(history.newest_in(commit, lsn, written)) == {page for page, at in view.items() if at == commit}
        for found, held in history.resolve(lsn, span(1, HIGHEST)).found:
            assert history.newest_in(found.lsn, lsn, found.pages) == held


def test_growing_alone_marks_nothing_beyond_what_was_written() -> None:
    history, _ = build([({1}, 1, 10), ({2}, 1000, 10)], 0, 0)
    assert history.changed(0, 2) == PageSet([1, 2])


def test_a_time_means_the_last_lsn_that_is_not_later() -> None:
    history, _ = build([({1}, 1, 10)] * 3, 0, 0)
    assert [history.at_time(ms) for ms in (0, 9, 10, 19, 30, 999)] == [0, 0, 1, 1, 3, 3]


@pytest.mark.parametrize("rolled", [0, 9_000, 9_999, 10_000])
def test_a_page_is_found_in_a_long_history_with_few_looks(rolled: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """S0.41: 10,000 commits of other pages are passed over in runs of 16^k."""
    history, looks, kept = History(PAGE), 0, Kept()
    kept.commits.append(landed(1, {1}, 0, 0, 10 * PAGE))
    kept.commits += [landed(lsn, {2}, 10 * PAGE, 10 * PAGE, 10 * PAGE) for lsn in range(2, 10_001)]
    history.begin_range(kept, 0)
    for commit in kept.commits:
        history.append(commit)
    kept.count = rolled
    history.rebase(rolled)
    touches = Run.touches

    def counted(self: Run, wanted: PageSet) -> bool:
        nonlocal looks
        looks += 1
        return touches(self, wanted)

    monkeypatch.setattr(Run, "touches", counted)
    [(commit, pages)] = history.resolve(10_000, PageSet([1])).found
    assert (commit.lsn, set(pages)) == (1, {1})
    assert looks < 180


def test_locations_are_named_by_their_objects_and_say_which_pages_they_hold() -> None:
    record = Commit(
        vid=b"v", lsn=1, base=0, length=2 * PAGE, floor=0, pages=PageSet([1, 2]).serialize(), client=b"", token=b"",
        nonce=b"", content=b"", setsum=b"", time=1, locations=(Location(object="", slot=3),),
    )  # fmt: skip
    [(location, pages)] = Landed.of(record, "the entry", 77, 0).placed()
    assert (location.object, location.size, location.slot, pages) == ("the entry", 77, 3, PageSet([1, 2]))


def test_several_locations_that_do_not_say_what_they_hold_are_damage() -> None:
    record = Commit(
        vid=b"v", lsn=1, base=0, length=PAGE, floor=0, pages=PageSet([1]).serialize(), client=b"", token=b"",
        nonce=b"", content=b"", setsum=b"", locations=(Location(object="a", slot=0), Location(object="b", slot=0)),
    )  # fmt: skip
    with pytest.raises(Corrupt, match="does not say"):
        Landed.of(record, "the entry", 77, 0)
