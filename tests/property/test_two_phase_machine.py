"""Two-phase creates against a plain dict: three clients of one store, cut at any step of whatever they do (S0.12)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from budwood.server.store.two_phase_store import OLD_MS, TwoPhaseStore
from budwood.server.store.two_phase_upkeep import collect, recover
from budwood.testing.stores import MemoryStore
from budwood.volume import faults
from budwood.volume.errors import AlreadyExists, NotFound

from ..record_stores import KINDS, RecordPlace

CREATES = {
    "": True,
    "two-phase: temporary written, no record": False,
    "two-phase: recorded, not copied": True,
    "two-phase: copied, not marked": True,
    "two-phase: marked, temporary not deleted": True,
    "two-phase: temporary deleted, not acknowledged": True,
}
"""Where a create is cut, and whether the object stands then."""
RECOVERS = ("", "two-phase: copied, not marked", "two-phase: marked, temporary not deleted")
DELETES = ("", "two-phase: buried, not deleted", "two-phase: deleted, record still there")

clients = st.integers(0, 2)
keys = st.sampled_from(["a", "a-b", "b/c", "b/d", "temporary-x"])


class Machine(RuleBasedStateMachine):
    def __init__(self, place: RecordPlace) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.portal = self.stack.enter_context(start_blocking_portal("asyncio"))
        self.plain = MemoryStore()
        self.now_ms = 1000 * OLD_MS
        self.model: dict[str, bytes] = {}
        self.doomed: dict[str, bytes] = {}
        """Whose delete was cut: they may be seen until somebody has collected, and nobody may create them."""
        self.touched: set[str] = set()
        """Keys that somebody was cut off at since the last collection: deleted, they may not be free."""
        self.stores: list[TwoPhaseStore] = [self.portal.call(self._open, place) for _ in range(3)]

    async def _open(self, place: RecordPlace) -> TwoPhaseStore:
        return TwoPhaseStore(self.plain, place.records(), now_ms=lambda: self.now_ms)

    def teardown(self) -> None:
        for store in self.stores:
            self.portal.call(store.records.aclose)
        self.stack.close()

    def cut(self, point: str, call: Callable[..., Awaitable[Any]], *arguments: Any) -> bool:
        """Whether it was cut before its end."""
        if point:
            faults.arm(point, _cut)
        try:
            return self.portal.call(_is_cut, partial(call, *arguments))
        finally:
            faults.disarm()

    @rule(client=clients, key=keys, data=st.binary(max_size=8), point=st.sampled_from(sorted(CREATES)))
    def create(self, client: int, key: str, data: bytes, point: str) -> None:
        try:
            was_cut = self.cut(point, self.stores[client].create, key, data)
        except AlreadyExists:
            assert key in self.model or key in self.doomed or key in self.touched
            return
        assert was_cut == bool(point)
        if was_cut:
            self.touched.add(key)
        if CREATES[point]:
            assert key not in self.model, "it was created twice"
            assert key not in self.doomed
            self.model[key] = data

    @rule(client=clients, key=keys, point=st.sampled_from(DELETES))
    def delete(self, client: int, key: str, point: str) -> None:
        was_cut = self.cut(point, self.stores[client].delete, key)
        data = self.model.pop(key, None)
        if was_cut:
            self.touched.add(key)
            if data is not None:
                self.doomed[key] = data
        else:
            self.doomed.pop(key, None)

    @rule(client=clients, point=st.sampled_from(RECOVERS))
    def recover(self, client: int, point: str) -> None:
        if self.cut(point, recover, self.stores[client]):
            self.touched |= self.model.keys()

    @rule(client=clients)
    def collect(self, client: int) -> None:
        """Once all of it is older than the floor."""
        self.now_ms += OLD_MS + 1
        self.portal.call(recover, self.stores[client])
        self.portal.call(collect, self.stores[client])
        self.doomed.clear()
        # A hand that was left on what stands goes with that, or is stale later.
        self.touched &= self.model.keys()
        assert self.plain.objects == self.model

    @invariant()
    def everybody_reads_the_same(self) -> None:
        for store in self.stores:
            listed = self.portal.call(store.list, "")
            assert set(self.model) <= set(listed) <= {*self.model, *self.doomed}
            assert listed == sorted(listed)
            sizes = dict(self.portal.call(store.sizes, ""))
            for key in ("a", "a-b", "b/c", "b/d", "temporary-x"):
                try:
                    data = self.portal.call(store.get, key)
                except NotFound:
                    assert key not in self.model
                    continue
                assert data == (self.model.get(key) if key in self.model else self.doomed[key])
                assert sizes[key] == len(data)


def _cut() -> None:
    raise faults.Cut


async def _is_cut(call: Callable[[], Awaitable[object]]) -> bool:
    # It would take the portal with it.
    try:
        await call()
    except faults.Cut:
        return True
    return False


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.longest
def test_clients_that_are_cut_at_any_step_agree_with_a_dict(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """S0.12."""
    server = request.getfixturevalue("postgres") if kind == "postgresql" else None

    class Placed(Machine):
        def __init__(self) -> None:
            super().__init__(RecordPlace.new(tmp_path, server))

    run_state_machine_as_test(Placed)
