"""Mount: a home as a directory, from the first moment to the last.

At the start: what the last mount left in its sidecars is taken over (`-wal`) or dropped, the tree is made of the names,
and no volume is read. At the end, however it comes about: every -wal is in its volume, and nothing is left mounted.
"""

from __future__ import annotations

import os
import resource
import signal
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyfuse3
import trio

from ..sync.attributes import Attributes
from ..sync.connection import hang_up
from ..sync.edge import Edge
from ..sync.edge import open as open_edge
from ..sync.folders import flush_above
from ..sync.home_permissions import make_private_dir
from ..sync.namespace import Namespace
from ..volume.errors import BudwoodError
from ..volume.ids import VolumeId
from .exchange.locking import Locking
from .exchange.remote_watch import first_names
from .files.fetch import Fetcher
from .files.inodes import Directory, Node
from .files.invalidate import entry_forgotten, forget_entry, forget_pages
from .files.recovery import Recovered, recover
from .files.regular import File
from .files.sidecar import Sidecar
from .host.control import serve
from .host.lost_commits import forget_loss, losses
from .host.mount_client import SOCKET, folder
from .host.mount_options import Options
from .host.mountinfo import TYPE, source_option
from .names.nameops import Naming
from .names.nametree import Tree
from .names.virtual import FOLDER, VirtualNode, virtual_files
from .operations import Operations
from .past import files_of, look_back
from .requests.background import Background, leaves
from .requests.guarded import log
from .requests.in_thread import in_thread
from .requests.kernel import agree, drop, enter, leave
from .requests.offload import Offload
from .requests.readers import readers
from .verbs import Verbs

_REFRESH_SECONDS: Final = 5.0
_IDLE_SECONDS: Final = 5.0
_MOST_IDLE_SECONDS: Final = 300.0
_SETTLE_SECONDS: Final = 30.0
_NAMES_SECONDS: Final = 5.0


def run(options: Options, *, on_ready: Callable[[], None]) -> None:
    """Mount, and serve until unmounted or told to end by SIGTERM or SIGINT. The caller has claimed the home.

    Raises, before `on_ready`, what keeps it from mounting.
    """
    _raise_limits()
    with open_edge(home=options.home, remote=options.remote, token=options.token) as edge:
        namespace = Namespace(edge)
        mount = Mount(options, edge, namespace)
        if not options.past:
            mount.recover()
            namespace.sweep()
        _serve(mount, on_ready)


def _raise_limits() -> None:
    """Files that programs of several users have open at once may be more than one process may by default; and how large
    the files of whoever mounts may become is no limit of theirs, which the kernel watches over.
    """
    for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE):
        soft, hard = resource.getrlimit(limit)
        if soft != hard:
            with suppress(OSError, ValueError):
                resource.setrlimit(limit, (hard, hard))


def _serve(mount: Mount, on_ready: Callable[[], None]) -> None:
    try:
        trio.run(mount.serve, on_ready)
    except BaseExceptionGroup as group:
        # One task failed and the others were ended for it: its error is the story.
        raise leaves(group)[0] from None


class Mount:
    """Answers `Services`."""

    def __init__(self, options: Options, edge: Edge, namespace: Namespace) -> None:
        self.options = options
        self.edge = edge
        self.namespace = namespace
        self.read_only = options.read_only or options.past
        self.spill = edge.home / "tmp"
        self.sidecars = _sidecars(edge)
        self.recovered = Recovered({}, [])
        self._lost: set[str] = set()
        """Volumes that have lost commits, and that nobody has had open since."""
        self.commits = Offload()
        self.locking = Locking(options.directory)
        self.ended = trio.Event()
        self.background: Background
        self.fetcher: Fetcher
        self.naming: Naming
        self.verbs: Verbs
        self.operations: Operations

    @property
    def tree(self) -> Tree:
        return self.naming.tree

    def recover(self) -> None:
        """Before it serves: what an earlier mount left."""
        self.recovered = recover(self.edge, self.sidecars)
        self._lost = set(losses(self.edge.home))

    async def serve(self, on_ready: Callable[[], None]) -> None:
        async with trio.open_nursery() as nursery:
            self.background = Background(nursery)
            self.fetcher = Fetcher(self.background)
            if self.options.sync and self.namespace.url():
                await first_names(self.namespace, _NAMES_SECONDS)
            await self._make_tree()
            device = await self._init(nursery)
            try:
                self.locking.start()
                # Whoever hears that it serves may end it at once.
                await nursery.start(self._end_on_signal)
                await nursery.start(self._serve_control)
                self.verbs.begin(self.background)
                self.background.start_lasting(self._refresh_views)
                self.background.start_lasting(self._give_back_room)
                self.background.start_lasting(self.locking.run)
                on_ready()
                await readers.run(nursery, device)
            finally:
                self.ended.set()
                leave(self.options.directory, device)
                self.locking.close()
                with trio.CancelScope(shield=True), trio.move_on_after(_SETTLE_SECONDS):
                    await self._finish()
                # What is under way is given up: nothing of it is lost, and nobody waits for the network now.
                hang_up()
                nursery.cancel_scope.cancel()

    async def _make_tree(self) -> None:
        look = self.namespace.look({})
        if not self.read_only and await in_thread(self.namespace.keep_times, look.entries):
            look = self.namespace.look({})
        entries, maker = look.entries, None
        if self.options.past:
            lsn, at = self.options.lsn, self.options.at
            then = await in_thread(lambda: look_back(self.edge, self.namespace, look.entries, lsn=lsn, at=at))
            entries, maker = then.entries, files_of(then.files)
            if then.notice:
                log.warning("%s", then.notice)
                self.recovered.notices.append(then.notice)
        tree = Tree(self, (os.getuid(), os.getgid()), maker)
        self.naming = Naming(tree, self.namespace, self.edge, look, follows=not self.options.past)
        for entry in entries:
            tree.take(entry)
        if not self.read_only:
            for file in [each for each in tree.files() if each.vid in self.recovered.standing]:
                self.naming.stand(file, self.edge.volume_here(file.path), self.recovered.standing[file.vid])
        self.verbs = Verbs(self.options, self.naming, self.locking, self.recovered.notices)
        self._add_virtual(tree)
        self.operations = Operations(self.naming, lambda: os.statvfs(self.edge.home))

    def _add_virtual(self, tree: Tree) -> None:
        now = time.time_ns()

        def owned(mode: int) -> Attributes:
            return Attributes(mode=mode, uid=tree.owner[0], gid=tree.owner[1], atime_ns=now, mtime_ns=now, ctime_ns=now)

        folder = Directory(tree.number(), owned(stat.S_IFDIR | 0o755))
        tree.add(tree.root, FOLDER, folder)
        for name, virtual in virtual_files(self.verbs.answer).items():
            tree.add(folder, name, VirtualNode(tree.number(), owned(virtual.mode), virtual))

    async def _init(self, nursery: trio.Nursery) -> int:
        options = [
            source_option(self.edge.home),
            f"subtype={TYPE.partition('.')[2]}",
            "default_permissions",
            "noatime",
            *(["allow_other"] if self.options.allow_other else []),
            *(["ro"] if self.read_only else []),
            *self.options.fuse_options,
        ]
        device = enter(self.options.directory, options)
        try:
            return await agree(nursery, self.operations, device)
        except BaseException:
            os.close(device)
            drop(self.options.directory)
            raise

    async def _serve_control(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        await serve(self.options.folder / SOCKET, self.verbs.answer, task_status=task_status)

    async def _refresh_views(self) -> None:
        while True:
            await trio.sleep(_REFRESH_SECONDS)
            for file in self.tree.files():
                file.image.refresh()

    async def _give_back_room(self) -> None:
        """What was put off while programs wrote (room_watch.py), once none does."""
        environment, change, pause = self.edge.environment, -1, _IDLE_SECONDS
        while True:
            await trio.sleep(pause)
            before, change = change, environment.last_change()
            if change != before or environment.room.has_room:
                pause = _IDLE_SECONDS
                continue
            await in_thread(environment.room.catch_up)
            # What a view holds stays due: seldom enough that nobody notices.
            pause = min(2 * pause, _MOST_IDLE_SECONDS)

    async def _end_on_signal(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        # A shell has SIGINT ignored in a script's background jobs: Ctrl-C means what is in front.
        interrupts = [] if signal.getsignal(signal.SIGINT) is signal.SIG_IGN else [signal.SIGINT]
        with trio.open_signal_receiver(signal.SIGTERM, *interrupts) as signals:
            task_status.started()
            async for _ in signals:
                pyfuse3.terminate()

    async def _finish(self) -> None:
        """Nobody can reach the files any more: what was committed goes to the volumes, what wasn't is dropped."""
        for file in self.tree.files():
            try:
                await file.finish()
            except (BudwoodError, OSError) as error:
                # A -wal that could not be taken over stays, and is by the next mount.
                log.error("%s: %s", file.path, error)
        try:
            await self.naming.store_attributes()
        except BudwoodError as error:
            log.error("times and lengths of files that were written last: %s", error)

    # Services

    def touched(self, file: File) -> None:
        self.naming.store_attributes_soon(file)

    async def opening(self, file: File) -> None:
        await self.verbs.opening(file)

    def opened(self, file: File) -> None:
        self.verbs.opened(file)

    async def released(self, file: File) -> None:
        if self._lost and (vid := str(VolumeId(file.vid))) in self._lost:
            self._lost.discard(vid)
            forget_loss(self.edge.home, vid)
        await self.naming.sweep(file)
        self.verbs.released(file)
        self.tree.discard(file)

    async def invalidate(self, file: File) -> None:
        if not self.ended.is_set():
            await forget_pages(file)

    def remove_sidecar(self, sidecar: Sidecar) -> None:
        parent, name = sidecar.parent, sidecar.name
        self.naming.drop_sidecar(sidecar)
        if parent is None or self.ended.is_set():
            return
        if sidecar.is_fleeting:
            forget_entry(parent, name)
        else:
            self.background.start_soon(self._hide, parent, name, sidecar.owner.hiding())

    async def _hide(self, parent: Node, name: str, hidden: trio.Event) -> None:
        try:
            await entry_forgotten(parent, name)
        except OSError:
            # A kernel that has let go of the mount needs to be told nothing.
            if not self.ended.is_set():
                raise
        finally:
            hidden.set()


def _sidecars(edge: Edge) -> Path:
    folder_of_all = folder(edge.home) / "sidecars"
    folder_of_all.mkdir(mode=0o700, parents=True, exist_ok=True)
    # What is flushed there is to be found again.
    flush_above(folder_of_all)
    flush_above(folder_of_all.parent)
    make_private_dir(edge.home / "tmp")
    return folder_of_all
