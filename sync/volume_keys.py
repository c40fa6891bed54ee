"""Volume keys: those of an encrypted volume of this home, and that its remote can't make it pass for another."""

from __future__ import annotations

from ..remote.keyring import keys_of
from ..volume.calls import SNAPSHOT, SnapshotRequest
from ..volume.encryption import VolumeKeys
from ..volume.errors import Corrupt, Locked
from ..volume.wire import SnapshotInfo
from .connection import Connection
from .local_volume import Local
from .tables import VolumeRecord


def packing_keys(local: Local, connection: Connection, record: VolumeRecord) -> VolumeKeys | None:
    """What its pages are encrypted with before they leave; None where it isn't encrypted. Raises Locked."""
    if not record.encryption:
        return None
    try:
        return keys_of(record.encryption)
    except Locked:
        # It may have been rekeyed since, for the key that is here.
        told = connection.remote.ask(SNAPSHOT, SnapshotRequest(local.raw)).encryption
        if told in (b"", record.encryption):
            raise
    keys = keys_of(told)
    local.change_record(encryption=told)
    return keys


def take_header(local: Local, url: str, record: VolumeRecord, view: SnapshotInfo) -> None:
    """Remember the header that the remote tells. Raises Corrupt as `check_encrypted`."""
    check_encrypted(url, record, view)
    if view.encryption != record.encryption:
        local.change_record(encryption=view.encryption)


def check_encrypted(url: str, record: VolumeRecord, view: SnapshotInfo) -> None:
    """Raises Corrupt if the volume was encrypted, and the remote says that it isn't: else who has the remote could hand
    out pages of its own, and be sent what is written here as it is."""
    if record.encryption and not view.encryption:
        raise Corrupt(f"volume {record.name!r} at {url}", "it was encrypted, and the remote says that it is not")
