"""Volume keys: those of an encrypted volume of this home, and that its remote can't make it pass for another."""

from __future__ import annotations

from ..remote.keyring import keys_of
from ..volume.encryption import VolumeKeys
from ..volume.errors import Corrupt
from ..volume.wire import SnapshotInfo
from .local_volume import Local
from .tables import VolumeRecord


def packing_keys(local: Local) -> VolumeKeys | None:
    """What its pages are encrypted with before they leave; None where it isn't encrypted. Raises Locked."""
    encryption = local.record().encryption
    return keys_of(encryption) if encryption else None


def check_encrypted(url: str, record: VolumeRecord, view: SnapshotInfo) -> None:
    """Raises Corrupt if the volume was encrypted, and the remote says that it isn't: else who has the remote could hand
    out pages of its own, and be sent what is written here as it is."""
    if record.encryption and not view.encryption:
        raise Corrupt(f"volume {record.name!r} at {url}", "it was encrypted, and the remote says that it is not")
