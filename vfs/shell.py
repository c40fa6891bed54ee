"""Shell: SQLite's shell on a volume, as apsw has it: `python -m budwood.vfs.shell NAME [SQL…]`.

The home, the remote and the token are those of BUDWOOD_HOME, BUDWOOD_REMOTE and BUDWOOD_TOKEN. Statements and dot
commands that are given are run, and that is all; otherwise it reads them from standard input, with a prompt at a
terminal.
"""

from __future__ import annotations

import sys
from contextlib import closing
from typing import Any

import apsw
import apsw.shell

from ..volume.errors import BudwoodError
from .connect import connect


def main(arguments: list[str]) -> int:
    """The exit status: 1 if a statement that was given fails, 2 for wrong arguments."""
    if not arguments:
        print("usage: python -m budwood.vfs.shell NAME [SQL…]", file=sys.stderr)
        return 2
    name, *statements = arguments
    try:
        with closing(connect(name)) as database:
            shell: Any = apsw.shell.Shell(db=database)
            for statement in statements:
                shell.process_complete_line(statement)
            if not statements:
                shell.cmdloop()
    except (BudwoodError, apsw.Error, apsw.shell.Shell.Error) as error:
        print(f"budwood: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
