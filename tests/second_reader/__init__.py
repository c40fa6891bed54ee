"""A second reader of stores and homes, written from docs/formats.md and from nothing else.

It imports nothing of Budwood's: what it reads is what the document says. Where the two part, one of them is wrong, and
the tests find out which (tests/reread.py). It is as plain as can be, slow, and refuses whatever the document says is
refused.

    store = Store(objects)                      every object of a store by its key
    store.volume(vid).pages_at(lsn)             pages that aren't zeros, by index
    store.names()                               name → what it leads to
    store.liveness().live                       key → why it must stand; .garbage: key → what says that it may go
    Home(folder).volume(vid).page(3, store)     an edge's view of a volume, unpushed commits included
"""

from __future__ import annotations

from .basics import Damaged, TooNew, base58, unbase58
from .home import Home, HomeVolume
from .store import Store, directory

__all__ = ["Damaged", "Home", "HomeVolume", "Store", "TooNew", "base58", "directory", "unbase58"]
