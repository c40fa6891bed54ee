"""moto's S3, one request after the other.

    python moto_in_turn.py HOST PORT

moto looks whether a key is there, and puts it, in two steps, in as many threads as there are requests: of two that
create one key at once both may win, which no S3 does.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import (  # pyright: ignore[reportMissingTypeStubs]
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import run_simple


def main(host: str, port: str) -> None:
    answer, turn = DomainDispatcherApplication(create_backend_app), threading.Lock()

    def in_turn(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        with turn:
            return list(answer(environ, start_response))

    run_simple(host, int(port), in_turn, threaded=True, request_handler=MotoRequestHandler)


if __name__ == "__main__":
    main(*sys.argv[1:])
