"""Store check: what a store does and what it means, for `budwood doctor --store URL`.

It is asked directly, whatever stands before it otherwise (nothing is sent twice, and nothing waits for a rate). What is
written goes under `probe/`, and is deleted again. A directory that holds other files and no store isn't written to.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from ..volume.errors import BadInput, BudwoodError, NotFound

if TYPE_CHECKING:
    from ..server.store.examine import Observed

_PATIENCE_SECONDS = 5.0


def check_store(url: str) -> list[Observed]:
    """What was found, the address first. Raises nothing of ours: what goes wrong is found."""
    from ..remote.loop import call

    return call(_checked, url)


async def _checked(url: str) -> list[Observed]:
    return [found async for found in _observed(url)]


async def _observed(url: str) -> AsyncGenerator[Observed]:
    from ..server.metastore.pin_store import SKEW_SECONDS
    from ..server.store.examine import Examination, Observed
    from ..server.store.open_store import open_store
    from ..server.store.retrying import Patience
    from ..server.store.root import open_root

    patience = Patience(deadline_seconds=_PATIENCE_SECONDS, try_seconds=2 * _PATIENCE_SECONDS)
    try:
        if urlsplit(url).scheme in ("http", "https"):
            raise BadInput(f"a node answers there, or nobody: check it with `budwood doctor --remote {url}`")
        opened = await open_store(url, create=False, hedging=False, rates=False)
    except ValueError:
        yield Observed("address", good=False, says=f"{url!r} is not a URL")
        return
    except NotFound as error:
        yield Observed("address", good=False, says=f"{error}: check it, or make a store there: serve --create")
        return
    except BudwoodError as error:
        yield Observed("address", good=False, says=str(error))
        return
    async with aclosing(opened) as store:
        try:
            id_ = str((await open_root(store, create=False, patience=patience)).store_id)
        except NotFound:
            if others := _others(url):
                says = f"{store.url} holds no store, but other files ({others}): give a store a directory of its own"
                yield Observed("address", good=False, says=says)
                return
            id_ = ""
        except BudwoodError as error:
            yield Observed("address", good=False, says=str(error))
            return
        says = f"{store.url}: {f'store {id_}' if id_ else 'no store there yet'}"
        yield Observed("address", good=True, says=says, facts={"url": store.url, "store": id_})
        examination = Examination(store, patience, skew_seconds=SKEW_SECONDS)
        async with aclosing(examination.run()) as findings:
            async for found in findings:
                yield found


def _others(url: str) -> str:
    """A file in the directory of a file:// URL, which isn't a bucket's."""
    parts = urlsplit(url)
    if parts.scheme != "file":
        return ""
    return next((name for name in sorted(os.listdir(unquote(parts.path))) if name not in {"probe", ".tmp"}), "")
