"""Job: many pieces of work as one job of Spark, spread evenly, with what became of each.

Pieces are packed into tasks of about equal bytes, the largest first: a thousand small tables take some dozen tasks, and
no task is left to run long after all others. What one piece fails of, the others don't: an error of ours is an answer.
Any other is a defect, or the cluster's, and ends the job.

Spark may run a piece twice (a lost executor, a slow one); each time its files have names of their own, and one answer
is taken.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ...tables.splits import SPLIT_BYTES
from ...volume.errors import BudwoodError, Unavailable, UsageError
from ...volume.thread_pool import ThreadPool
from ..spark_check import reason

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

P = TypeVar("P")
A = TypeVar("A")

Progress = Callable[[int, int], None]
"""Told how many bytes of the source are done, and of how many."""

_WAVES: Final = 4
"""Tasks for each core, at least, if there are pieces enough: so that cores that end early find more."""
_THREADS: Final = 16
_LOOK_SECONDS: Final = 0.2


class Interrupted(BaseException):
    """Of a thread, as KeyboardInterrupt is of a process. Nobody is told."""


_thread: Final = threading.local()


def cluster_of(session: SparkSession) -> SparkContext:
    """Raises UsageError for a session that reaches Spark through Spark Connect."""
    try:
        return session.sparkContext
    except Exception as error:
        raise UsageError("an export needs a session on the cluster itself, not one of Spark Connect") from error


def pack(sizes: Sequence[int], tasks: int) -> list[list[int]]:
    """The numbers of pieces for each of at most so many tasks; the tasks with most to do first."""
    heap: list[tuple[int, int, list[int]]] = [(0, number, []) for number in range(min(tasks, len(sizes)))]
    for piece in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        load, number, pieces = heap[0]
        pieces.append(piece)
        # A piece without bytes costs something as well.
        heapq.heapreplace(heap, (load + sizes[piece] + 1, number, pieces))
    return [pieces for _, _, pieces in sorted(heap, key=lambda task: -task[0])]


def run_job(
    cluster: SparkContext,
    name: str,
    pieces: Sequence[P],
    sizes: Sequence[int],
    work: Callable[[P], A],
    progress: Progress | None = None,
) -> list[A | BudwoodError]:
    """What became of each piece, in their order. Raises Unavailable where Spark itself failed."""
    if not pieces:
        return []
    total = sum(sizes)
    wanted = max(cluster.defaultParallelism * _WAVES, -(-total // SPLIT_BYTES))
    tasks = [[(number, sizes[number], pieces[number]) for number in some] for some in pack(sizes, wanted)]
    done: Any = cluster.accumulator(0)

    def answers(parts: Iterable[list[tuple[int, int, P]]]) -> Iterator[tuple[int, A | BudwoodError]]:
        for part in parts:
            for number, size_bytes, piece in part:
                yield number, _answer(work, piece)
                done.add(size_bytes)

    cluster.setJobDescription(name)
    try:
        with _reported(progress, lambda: min(int(done.value), total), total):
            found = dict(cluster.parallelize(tasks, len(tasks)).mapPartitions(answers).collect())
    except Exception as error:
        raise Unavailable(f"Spark could not do it: {reason(str(error))}") from error
    # The session's next jobs are its owner's. After an interrupt Java isn't spoken to: a call may be open.
    cluster.setJobDescription(None)  # type: ignore[arg-type]
    return [found[number] for number in range(len(pieces))]


def run_in_threads(pieces: Sequence[P], work: Callable[[P], A]) -> list[A | BudwoodError]:
    """The same in threads of this process, for what mostly waits. Where the caller is interrupted they are waited for,
    so what takes long asks `check_interrupted` between its steps."""
    if not pieces:
        return []
    ended = threading.Event()

    def answer(piece: P) -> A | BudwoodError:
        _thread.ended = ended
        return _answer(work, piece)

    with ThreadPool(min(_THREADS, len(pieces)), "budwood-export") as pool:
        try:
            return [_awaited(future) for future in [pool.submit(answer, piece) for piece in pieces]]
        finally:
            ended.set()
            pool.shutdown(wait=False, cancel_futures=True)


def _awaited(future: Future[A]) -> A:
    """By looks: an interrupt that comes just before a wait begins is heard only when that ends."""
    while not future.done():
        wait([future], _LOOK_SECONDS)
    return future.result()


@contextmanager
def repeated(do: Callable[[], None], every_seconds: float, name: str) -> Generator[None]:
    """While it is open, a thread of that name does this every so often; its end waits for the thread's."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(every_seconds):
            do()

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def check_interrupted() -> None:
    """Raises Interrupted in a thread whose answer nobody waits for any more."""
    ended: threading.Event | None = getattr(_thread, "ended", None)
    if ended is not None and ended.is_set():
        raise Interrupted


def _answer(work: Callable[[P], A], piece: P) -> A | BudwoodError:
    try:
        return work(piece)
    except BudwoodError as error:
        # A traceback holds the frames, and these what was being read.
        return error.with_traceback(None)


@contextmanager
def _reported(progress: Progress | None, done: Callable[[], int], total: int) -> Generator[None]:
    """While it is open, a thread tells how far the job is."""
    if progress is None:
        yield
        return
    progress(0, total)
    try:
        with repeated(lambda: progress(done(), total), _LOOK_SECONDS, "budwood-progress"):
            yield
    finally:
        progress(done(), total)
