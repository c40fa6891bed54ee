"""A bucket in a process of its own: the tests' S3 server, until its standard input ends.

python -m tests.soak.bucket HOST PORT [SECONDS]     SECONDS that each request takes
"""

from __future__ import annotations

import sys

from ..integration.s3_server import S3Server


def main(host: str, port: str, seconds: str = "0") -> None:
    with S3Server(host=host, port=int(port), latency_seconds=float(seconds)) as server:
        print(server.endpoint, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
