"""Recovery: what a mount that was killed left in its sidecars, before the next one serves.

    -wal of a volume                  its commits behind the mark are taken over (wal_tail.py), and it goes
    the same, parted from its file    it stands beside its file again, or is set aside if the volume has moved since
    anything else                     it goes: what it was for went with the process that had it open

As SQLite does, a -wal is believed up to the first frame that doesn't hold. Commits behind a damage are lost, and so are
those of a -wal that is missing: how many, the count says (wal_commit_count.py), or without one the frames that are
still there; after a power loss all but the last of them, which may not have been told yet. That is told
(lost_commits.py), and the bytes are set aside.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ...sqlite.wal import (
    FRAME_HEADER_SIZE,
    WAL_HEADER_SIZE,
    WalHeader,
    WalReader,
    parse_frame_header,
    parse_wal_header,
)
from ...sync.edge import Edge
from ...sync.name_table import list_volumes
from ...sync.volume import Volume
from ...volume.errors import Corrupt, Unsupported
from ...volume.ids import VolumeId
from ..host.lost_commits import forget_loss, losses, note_loss
from ..requests.guarded import log
from .localfile import LocalFile, set_aside
from .sidecar import Kind
from .wal_commit_count import CommitCount, counts_beside, read_count
from .wal_ingest import ingest
from .watermark import Watermark, forget, load

Read = Callable[[int, int], bytes]
"""(offset, size) in bytes."""


class Recovered(NamedTuple):
    standing: dict[bytes, Path]
    """The -wal files that stand beside their files, by volume."""
    notices: list[str]
    """What the user has to know."""


class _Found(NamedTuple):
    taken: int
    lost: int


def recover(edge: Edge, folder: Path) -> Recovered:
    """Nobody has any of the home's volumes open."""
    names = {str(VolumeId(record.vid)): record.name for record in list_volumes(edge.environment)}
    left = Recovered({}, [])
    for vid in losses(edge.home).keys() - names.keys():
        forget_loss(edge.home, vid)
    counts = counts_beside(folder)
    counts.mkdir(mode=0o700, exist_ok=True)
    wals = {name: path for path in folder.iterdir() if (name := _volume_of(path)) in names}
    for path in folder.iterdir():
        if path not in wals.values():
            path.unlink()
    for vid in sorted(wals.keys() | {path.name for path in counts.iterdir()}):
        if vid in names:
            _recover(edge.volume_here(names[vid]), wals.get(vid), folder, left)
        else:
            (counts / vid).unlink()
    for notice in left.notices:
        log.warning("%s", notice)
    return left


def _volume_of(path: Path) -> str:
    vid, _, kind = path.name.rpartition("-")
    return vid if f"-{kind}" == Kind.WAL.value else ""


def _recover(volume: Volume, path: Path | None, folder: Path, left: Recovered) -> None:
    mark, count = load(volume.local), read_count(counts_beside(folder) / str(volume.id))
    if path is not None and _is_parted(mark, path):
        head = volume.local.peek()
        if mark is not None and mark.parted == (head.lsn, head.generation):
            left.standing[volume.id.raw] = path
            return
        kept = set_aside(path)
        left.notices.append(f"{volume.name} was changed beside its -wal, which is no longer part of it: kept as {kept}")
    else:
        found = _taken(volume, path, mark, count)
        if found.taken:
            log.warning("%s: %d commits of its -wal were taken over", volume.name, found.taken)
        if found.lost:
            words = f"{_lost_in_words(found.lost)}: {_what_became_of(path)}"
            note_loss(volume.local.environment.home, str(volume.id), words)
            left.notices.append(f"{volume.name}: {words}")
        elif path is not None:
            path.unlink()
    forget(volume.local, folder)


def _lost_in_words(lost: int) -> str:
    return f"{lost} commit{'' if lost == 1 else 's'} that a program was told of {'is' if lost == 1 else 'are'} lost"


def _what_became_of(path: Path | None) -> str:
    if path is None:
        return "the -wal that held them is missing"
    return f"the -wal that held them is damaged; it is kept as {set_aside(path)}"


def _is_parted(mark: Watermark | None, path: Path) -> bool:
    try:
        with path.open("rb") as file:
            salts = parse_wal_header(file.read(WAL_HEADER_SIZE)).salts
    except (Corrupt, Unsupported):
        return False
    return mark is not None and mark.parted is not None and mark.salts == salts


def _taken(volume: Volume, path: Path | None, mark: Watermark | None, count: CommitCount | None) -> _Found:
    """Take over what a -wal holds that the local store lacks."""
    if path is None:
        return _Found(0, _lost(mark, count, None, 0, 0))
    file = LocalFile(path.parent, path.name)
    try:
        reader = WalReader(file.read)
        try:
            found = list(reader.commits())
        except Unsupported as error:
            log.warning("%s is passed over: %s", path, error)
            return _Found(0, 0)
        header, taken, held = reader.header, 0, len(found)
        if header is None:
            return _Found(0, _lost(mark, count, None, 0, 0))
        if mark is not None and mark.salts == header.salts:
            taken = len([each for each in found if each.end_bytes <= mark.end_bytes])
        elif mark is not None and header.sequence < mark.sequence:
            taken = held
        del found[:taken]
        total = len(found)
        while found:
            done = ingest(volume, header, file.read, found, taken)
            taken += done
            del found[:done]
        if total:
            volume.local.environment.flush()
        behind = _behind(file.read, header, reader.end_bytes)
        if behind and _is_of_an_earlier_boot(path):
            # What a power loss has torn may end with a commit that nobody was told of yet.
            behind -= 1
        return _Found(total, _lost(mark, count, header, held, behind))
    finally:
        file.close()


def _lost(mark: Watermark | None, count: CommitCount | None, header: WalHeader | None, held: int, behind: int) -> int:
    """How many commits are gone that a program was told of. `held` are in the -wal with this header, and `behind` more
    seem to have been there, of which it was told.
    """
    if count is None:
        return behind
    if header is not None and header.salts != count.salts:
        if header.sequence >= count.sequence:
            # It has started over since, which it does when everything before is in the local store.
            return behind
        held = 0
    if mark is not None and mark.salts == count.salts:
        # What a -wal holds that is parted from its file isn't in the volume.
        held = held if mark.parted else max(held, mark.commits)
    elif mark is not None and mark.sequence > count.sequence:
        return 0
    return max(0, count.commits - held)


def _is_of_an_earlier_boot(path: Path) -> bool:
    """As far as the clock says so."""
    return path.stat().st_mtime < time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def _behind(read: Read, header: WalHeader, at: int) -> int:
    """Frames with a commit mark, and this -wal's salts, from `at` on."""
    count = 0
    while len(raw := read(at, FRAME_HEADER_SIZE)) == FRAME_HEADER_SIZE:
        frame = parse_frame_header(raw)
        count += frame.salts == header.salts and frame.page != 0 and frame.page_count != 0
        at += FRAME_HEADER_SIZE + header.page_size
    return count
