"""The soak: edges, mounts and a node under kills, stops, cut networks and damaged homes, for minutes; not part of CI.

    python -m tests.soak --minutes 30 [--seed 7]

Real processes on loopback. Two edges write through the VFS, two mounts are written through by SQLite itself, one node
serves them all, each through a proxy of its own. Every writer keeps a bank (ledger.py), and what it was told is
committed is written down here. Then things happen, drawn from the seed:

    restarted_node.py     the node is killed, stopped for seconds, or restarted
    proxy.py    a network is cut, stalls, or loses answers
    edges.py    writers and pushes are killed; homes are damaged, in a copy or before they are made anew from the remote
    mounted_bank.py   mounts and writers are killed, unmounted, remounted in another journal mode
    audit.py    all LSNs are read over the node, and from the store, and compared

What must hold (DESIGN §9), each a violation otherwise: what was acknowledged is there, and at most the one commit more
that was under way; no entry is missing before another; amounts add up and every byte is what its writer wrote; an LSN
reads the same everywhere; a damaged home reads rightly or says Corrupt; no process dies of a signal that wasn't sent
from here; nothing takes longer than a generous limit. Violations are told at once and at the end; the exit status is
1 then, and the folder with homes, store and logs is kept.

The seed settles what is drawn, by whom, and in which order; the kernel settles when. What is started here is ended
here, and by a helper (children.py) should this process be killed itself.
"""
