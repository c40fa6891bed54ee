"""Power losses of a home: every write below the file system is recorded, and a home is made of what a disk may have had
at any moment.

    python -m tests.power [--seed 7] [--commits 60] [--states 20000]     all cuts, several states of each
    python -m tests.power --mount 150 [--seed 7] [--states 2000]         of a mount (mount_program.py …)
    python -m tests.power --sync 100 [--seed 7] [--states 2000]          of a home that syncs (sync_program.py …)

    recorder.py   a FUSE file system that passes everything on, and writes down each write, flush and rename
    program.py    a process that commits through SQLite, and notes in the recorded folder what it begins and is told
    disk.py       the states of a disk at a cut: of each sector that was written since its file was flushed last, any
                  of the versions that it had; of names, as far as some point
    verdict.py    a state is opened, and must hold what was promised

What must hold, of all states: SQLite finds nothing wrong, each transaction is there whole or not at all, nothing is
missing before anything that was begun after it was told done (a suffix is lost), and what was told done under
`synchronous=FULL` is there. Then the home takes new commits, and has them when it is opened again.
"""
