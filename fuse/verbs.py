"""Verbs: what a mount can be told, over its socket and through `.budwood/control`.

    status [NAME]       a row for each file that is a volume here: what Volume.status tells, who has it open, what its
                        journal and -wal hold, what keeps it from syncing
    about               the mount itself: where, of what, since when, whether its remote answers, which names it can't
                        show
    settle              every commit is in its volume; asks nothing of the network
    push [NAME]         and --as NEW after a name; without one everything unpushed, and the names
    pull [NAME]         without a name every volume that the remote has, and the names
    fetch NAME          every missing page; how many there were
    log NAME            the newest commits
    reset NAME          with --discard or --keep-as NEW
    metrics             figures, as virtual.py shows them
    unmount             the mount ends

What changes a volume first settles it, so that every commit that a program was told of is part of it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pyfuse3
import trio

from ..sync.divergence import tell
from ..sync.home_figures import home_figures
from ..sync.volume import Volume
from ..volume.errors import BadInput, BudwoodError, UsageError
from .exchange.autosync import Syncing
from .exchange.home_watch import HomeWatch
from .exchange.locking import Locking
from .exchange.moving import Moving
from .exchange.remote_watch import RemoteWatch
from .files.regular import File
from .host.lost_commits import losses
from .host.mount_options import Options
from .names.nameops import Naming
from .requests.background import Background
from .requests.guarded import counters
from .requests.in_thread import in_thread
from .requests.readers import readers

_AT_ONCE: Final = 8
"""Volumes that are pushed, or pulled, beside one another: what takes the time is the network."""
_VERBS: Final = ("status", "about", "settle", "push", "pull", "fetch", "log", "reset", "metrics", "unmount")


class Verbs:
    """For the mount's event loop."""

    def __init__(self, options: Options, naming: Naming, locking: Locking, notices: list[str]) -> None:
        self._options = options
        self._naming = naming
        self._tree = naming.tree
        self._edge = naming.edge
        self._notices = notices
        self._started = time.time()
        self._read_only = naming.tree.services.read_only
        self.moving = Moving(naming, locking, options.directory, read_only=self._read_only)
        self.syncing = Syncing(
            naming.edge,
            naming,
            self.moving,
            on_diverged=(options.on_diverged or tell) if options.sync and not options.past else None,
        )
        self._remote_watch: RemoteWatch | None = None
        self._verbs: dict[str, Callable[..., Awaitable[Any]]] = {name: getattr(self, name) for name in _VERBS}

    def begin(self, background: Background) -> None:
        """Start what goes on in the background."""
        if self._options.past:
            return
        syncing = self.syncing
        watch = HomeWatch(
            self._edge,
            self._naming,
            self.moving,
            gone=syncing.forget,
            renamed=syncing.stir_names,
        )
        background.start_lasting(watch.run)
        if syncing.background:
            self._remote_watch = RemoteWatch(syncing, self._naming.namespace, background)
            syncing.on_pushed = self._pushed
            background.start_lasting(syncing.run)
            background.start_lasting(self._remote_watch.follow_names)

    # What the mount tells

    async def opening(self, file: File) -> None:
        if self._remote_watch is not None:
            await self._remote_watch.look_first(file)

    def opened(self, file: File) -> None:
        """Someone will want to see what changes."""
        if self.syncing.background and file.volume is not None:
            self.syncing.opened(file.vid)

    def released(self, file: File) -> None:
        """Nobody has it open any more."""
        self.syncing.closed(file.vid)
        if file.parent is None and not file.stale:
            self.syncing.forget(file.vid)
        elif file.volume is not None and not file.length and not file.volume.local.record().bound:
            # An empty file is told to others when nobody is about to write to it.
            self.syncing.stir_names()

    def _pushed(self, vid: bytes) -> None:
        file = self.moving.find(vid)
        if file is not None and file.open_handles:
            self.opened(file)

    # Verbs

    async def answer(self, verb: str, arguments: list[str]) -> Any:
        if verb not in self._verbs:
            raise BadInput(f"a mount knows no verb {verb!r}: take one of {', '.join(self._verbs)}")
        try:
            work = self._verbs[verb](*arguments)
        except TypeError:
            raise BadInput(f"{verb!r} doesn't take these arguments: {' '.join(arguments)}") from None
        return await work

    async def settle(self) -> None:
        # Commands of the home look at what programs did through the mount a moment ago.
        for file in self._tree.files():
            if file.wal is not None and not file.stale:
                await file.wal.drain()

    async def status(self, name: str = "") -> list[dict[str, Any]]:
        await self.settle()
        rows = await in_thread(self._edge.ls)
        files = {file.path: file for file in self._tree.files() if file.parent is not None}
        lost = losses(self._edge.home)
        return [
            row | self._file_status(files.get(row["name"])) | {"lost": lost.get(row["id"], "")}
            for row in rows
            if name in ("", row["name"])
        ]

    def _file_status(self, file: File | None) -> dict[str, Any]:
        if file is None:
            return {"open": 0, "writers": 0, "journal": "cold", "wal": "none", "uncommitted": False, "sync_error": ""}
        wal = file.wal
        return {
            "open": file.open_handles,
            "writers": file.writers,
            "journal": "hot" if file.writeback.hot else "cold",
            "wal": "none" if wal is None else "parted" if wal.parted else "in use" if wal.in_use else "empty",
            "uncommitted": file.writeback.uncommitted,
            "sync_error": self.syncing.error_of(file.vid)
            or ("" if wal is None or wal.error is None else str(wal.error)),
        }

    async def about(self) -> dict[str, Any]:
        options, link = self._options, self.syncing.link()
        return {
            "directory": str(options.directory),
            "home": str(self._edge.home),
            "remote": link.url,
            "online": bool(link.url) and not link.error,
            "offline_because": link.error,
            "syncs": self.syncing.background,
            "read_only": self._read_only,
            "lsn": options.lsn,
            "at": options.at,
            "started": self._started,
            "version": self._naming.version,
            "names_error": self.syncing.names.error,
            "hidden": sorted(self._tree.hidden),
            "notices": self._notices,
        }

    async def push(self, name: str = "", option: str = "", new: str = "") -> Any:
        if option not in ("", "--as") or (option and not new):
            raise BadInput("push NAME --as NEW")
        await self.settle()
        if name:
            return {"name": name, "lsn": await self.syncing.push(await self._volume(name), new or None)}
        rows = await in_thread(self._edge.ls)
        # Some wait for names that others have there, and names for content: so those go before and after. What has
        # diverged is none of the others' trouble, nor of the names'.
        names = await self._push_names()
        unpushed = [row["name"] for row in rows if row["unpushed"]]
        pushed, failed = await self._each(unpushed, self.syncing.push, apart=UsageError)
        names += await self._push_names()
        if failed:
            raise failed[0]
        return {"pushed": pushed, "names": names}

    async def _push_names(self) -> list[str]:
        return await self.syncing.push_names() if self._naming.namespace.url() else []

    async def pull(self, name: str = "") -> Any:
        await self.settle()
        if name:
            return {"name": name, "lsn": await self.syncing.pull(await self._volume(name))}
        names = await self.syncing.pull_names()
        rows = await in_thread(self._edge.ls)
        followed = [row["name"] for row in rows if row["remote_name"] and row["mode"] in ("pull", "both")]
        pulled, failed = await self._each(followed, self.syncing.pull, apart=BudwoodError)
        if failed:
            raise failed[0]
        return {"pulled": pulled, "names": names}

    async def _each(
        self, names: list[str], work: Callable[[Volume], Awaitable[str]], *, apart: type[BudwoodError]
    ) -> tuple[list[dict[str, Any]], list[BudwoodError]]:
        """Several at a time: the name and LSN of each, and the errors of such as are `apart`, which end no other's.
        Raises what ended it.
        """
        done: dict[str, str] = {}
        failed: dict[str, BudwoodError] = {}
        ended: list[BudwoodError] = []
        waiting = iter(names)

        async def take() -> None:
            for name in waiting:
                if ended:
                    return
                try:
                    done[name] = await work(await self._volume(name))
                except BudwoodError as error:
                    if isinstance(error, apart):
                        failed[name] = error
                    else:
                        ended.append(error)

        async with trio.open_nursery() as nursery:
            for _ in range(min(_AT_ONCE, len(names))):
                nursery.start_soon(take)
        if ended:
            raise ended[0]
        said = [{"name": name, "lsn": done[name]} for name in names if name in done]
        return said, [failed[name] for name in names if name in failed]

    async def fetch(self, name: str) -> Any:
        return {"name": name, "pages": await self.syncing.in_thread((await self._volume(name)).fetch)}

    async def log(self, name: str) -> Any:
        await self.settle()
        return await self.syncing.in_thread((await self._volume(name)).log)

    async def reset(self, name: str, option: str = "", new: str = "") -> Any:
        if option not in ("", "--discard", "--keep-as") or (option == "--keep-as") != bool(new):
            raise BadInput("reset NAME, with --discard or --keep-as NEW")
        await self.settle()
        volume = await self._volume(name)
        label = await self.syncing.reset(volume, keep_as=new or None, discard=option == "--discard")
        return {"name": name, "lsn": label}

    async def metrics(self) -> dict[str, Any]:
        files = list(self._tree.files())
        return {
            "requests_total": {"request": dict(counters.requests)},
            "requests_taken_back_total": readers.taken_back,
            "errors_total": {"errno": dict(counters.errors)},
            "commits_total": counters.commits,
            "pages_fetched_total": self._tree.services.fetcher.fetched,
            "pushes_total": self.syncing.pushes,
            "pulls_total": self.syncing.pulls,
            "moved_open_total": self.moving.moves,
            "files": len(files),
            "files_open": sum(file.open_handles > 0 for file in files),
            "handles_open": sum(file.open_handles for file in files),
            "volumes_watched": len(self.syncing.slots),
            "online": not self.syncing.link().error,
            "uptime_seconds": time.time() - self._started,
            "home": await in_thread(lambda: home_figures(self._edge.volumes())),
        }

    async def unmount(self) -> None:
        pyfuse3.terminate()

    async def _volume(self, name: str) -> Volume:
        if self._options.past:
            raise BadInput("this mount shows the past, and syncs nothing")
        # One that only the remote has comes in, which waits for the network.
        return await in_thread(self._edge.volume, name)
