"""Answers: which method of a class answers which call of volume/calls.py.

The decorator holds a method's types against the row's; `complete` raises, as the class's module is loaded, where a call
has no method.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeAlias, TypeVar

from ..volume.calls import CALLS, A, Call, Q

N = TypeVar("N")
Method: TypeAlias = Callable[[N, Q], Coroutine[Any, Any, A]]


class Answers(Generic[N]):
    """`@answers(SNAPSHOT)` above the method that takes a SnapshotRequest and answers with a SnapshotInfo."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        """Of the methods, by the call's."""

    def __call__(self, call: Call[Q, A]) -> Callable[[Method[N, Q, A]], Method[N, Q, A]]:
        def keep(method: Method[N, Q, A]) -> Method[N, Q, A]:
            self._names[call.name] = method.__name__
            return method

        return keep

    def complete(self) -> None:
        """Raises TypeError unless each call has its method."""
        missing = [name for name, row in CALLS.items() if isinstance(row, Call) and name not in self._names]
        if missing:
            raise TypeError(f"nothing answers {', '.join(missing)}: write the method, under @answers")

    async def ask(self, node: N, call: Call[Q, A], request: Q) -> A:
        answer: A = await getattr(node, self._names[call.name])(request)
        return answer
