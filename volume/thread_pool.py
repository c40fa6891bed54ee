"""Thread pool: the standard library's, which goes on with the threads it has where the system gives it no more."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from .errors import Unavailable
from .thread_limit import NO_THREAD, is_no_thread


class ThreadPool(ThreadPoolExecutor):
    """`submit` raises Unavailable where it has none, and can't get one: what it was given isn't to be waited for."""

    def _adjust_thread_count(self) -> None:
        # The work is in the queue by now: any of those that run takes it.
        try:
            super()._adjust_thread_count()
        except RuntimeError as error:
            if not is_no_thread(error):
                raise
            if not self._threads:
                raise Unavailable(NO_THREAD) from error
