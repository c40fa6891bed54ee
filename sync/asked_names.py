"""Asked names: changes of the remote's names that were sent, and whose outcome isn't recorded here.

A change is noted before it is sent, and forgotten in the transaction that records its outcome, or once the remote has
refused it. What is left over, by a lost answer or a crash, may have happened. Whoever syncs the names next asks for
the same again, before anything else, and before a pull takes it for a change that others made: the remote knows a
change that it has made, and answers with that one's revision (`namespace_state.py` of the node). So a program may
rename or remove the entry meanwhile: what it did is owed from where the change had brought it, and neither stays under
two names nor comes back.
"""

from __future__ import annotations

from ..volume import faults
from ..volume.calls import CHANGE_NAME
from ..volume.errors import AlreadyExists, BadInput, BudwoodError, Conflict, NotFound, Unavailable, UsageError
from .connection import Connection
from .environment import Environment
from .name_table import NameTable
from .tables import AskedChange, Txn

ANSWERED = faults.point("names: remote changed, not recorded")
_REFUSALS = (AlreadyExists, BadInput, Conflict, NotFound)
"""What a remote says of a change that it isn't to make, and didn't make before: or others have undone it since."""


def asked_changes(environment: Environment, store: str) -> list[AskedChange]:
    """Of that store's names, in the order in which they were sent first."""
    with environment.view() as txn:
        return [asked for asked in NameTable(environment, txn).asked() if asked.store == store]


def forget_changes(environment: Environment, changes: list[AskedChange]) -> None:
    def forget(txn: Txn) -> None:
        for asked in changes:
            NameTable(environment, txn).forget_asked(asked)

    if changes:
        environment.update(forget)


def ask_change(environment: Environment, connection: Connection, asked: AskedChange) -> int:
    """The LSN of the change. Its outcome is to be recorded in one transaction with `NameTable.forget_asked`. Raises
    what the call raises; then it stays noted if it may have happened, now or before.
    """

    def note(txn: Txn) -> bool:
        return NameTable(environment, txn).note_asked(asked)

    is_new = environment.update(note)
    try:
        lsn = connection.remote.ask(CHANGE_NAME, asked.request).lsn
    except BudwoodError as error:
        if isinstance(error, _REFUSALS) or (is_new and _is_refused(error)):
            forget_changes(environment, [asked])
        raise
    ANSWERED()
    return lsn


def _is_refused(error: BudwoodError) -> bool:
    return isinstance(error, UsageError) or (isinstance(error, Unavailable) and error.determinate)
