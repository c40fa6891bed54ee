"""Listening without a home: every commit of a remote's volume after an LSN (remote/listening.py).

for commit in budwood.listen("https://node", "inventory", after=7):
    for page, data in commit.read(): …
"""

from __future__ import annotations

from ..remote.blocking_listening import BlockingListener
from ..remote.listening import OnSilence
from ..remote.portal import open_remote
from .lookup import find_volume


def listen(
    remote: str,
    volume: str,
    *,
    after: int | None = None,
    token: str | None = None,
    patience_seconds: float | None = None,
    on_silence: OnSilence | None = None,
) -> BlockingListener:
    """The commits after that LSN, or from now on, each once and in order, as they are made. `remote` is a URL, `volume`
    a name or an id of 22 characters. Raises NotFound, Unauthorized, Unavailable, BadInput at once;
    remote/listening.py says what the iteration ends in, and what `patience_seconds` and `on_silence` are.
    """
    opened = open_remote(remote, token=token, create=lambda: False)
    try:
        return BlockingListener(
            opened,
            find_volume(opened, volume),
            after=after,
            patience_seconds=patience_seconds,
            on_silence=on_silence,
            done=opened.close,
        )
    except BaseException:
        opened.close()
        raise
