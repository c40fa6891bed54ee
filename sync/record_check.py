"""Record check: whether the records of a home fit one another. For one that may have been damaged (clean_shutdown.py).

A record has a checksum, and its key is part of it; that a record is *missing*, only another one tells. So each name
must lead to its volume or place and each of those to its name, every volume has a head, every unpushed commit its
record. Rows are compared with the commits' records when they are read (unpushed_index.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..volume.errors import Corrupt
from ..volume.ids import VolumeId
from .local_volume import Local
from .name_table import NameTable
from .tables import HERE, Txn, VolumeRecord, name_key

if TYPE_CHECKING:
    from .environment import Environment


def check_records(environment: Environment) -> None:
    """Raises Corrupt."""
    with environment.view() as txn:
        tables, table, names = environment.tables, NameTable(environment, txn), 0
        for record in table.everything():
            names += 1
            if txn.get(name_key(record.name), db=tables.names) != record.id:
                raise Corrupt(HERE, f"the name {record.name!r} is gone, and its volume is still there")
            if isinstance(record, VolumeRecord):
                _check_volume(Local(environment, VolumeId(record.vid), record.name), txn)
        if txn.stat(tables.names)["entries"] != names:
            raise Corrupt(HERE, "a name leads to no volume")
        if txn.stat(tables.heads)["entries"] != txn.stat(tables.volumes)["entries"]:
            raise Corrupt(HERE, "the record of a volume is gone, and its head is still there")
        for _ in table.known():
            pass
        table.namespace()


def _check_volume(local: Local, txn: Txn) -> None:
    head = local.head(txn)
    for _ in local.commits(txn, head.sync_local, head.lsn if head.unpushed else head.sync_local):
        pass
    local.check_newest(txn, head)
    local.push(txn)
