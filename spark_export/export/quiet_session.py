"""Quiet session: a session of Spark for a command, whose Java says nothing on the terminal.

Java writes to standard error what it is started with and what it thinks of the machine, before any setting of its log
can reach it. So it is started while file descriptor 2 leads to a file, which it inherits and keeps, with the workers
that it starts; the process's own is put back. What a job fails of comes as an exception. If Java can't be started the
file tells why.

An interrupt is a command's own matter, too: pyspark's handler would speak to Java from wherever the process stands,
maybe within a call to Java, and py4j then logs stacks. So what was there before is put back: Python's handler, whose
KeyboardInterrupt leads to the session's end, and with it the job's; or none, in a script's background job. What py4j
logs goes nowhere.
"""

from __future__ import annotations

import logging
import os
import signal
import tempfile
import threading
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Final

from ...volume.errors import Unavailable
from ..session import start
from ..spark_check import reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STDERR: Final = 2
_MOST_BYTES: Final = 1 << 20


def start_quietly(name: str, *, master: str = "local[*]", settings: Mapping[str, str] | None = None) -> SparkSession:
    """As session.start. Raises Unavailable with Java's own words if it doesn't start. Not while other threads print."""
    interrupted = signal.getsignal(signal.SIGINT)
    with tempfile.TemporaryFile() as said:
        kept = os.dup(_STDERR)
        os.dup2(said.fileno(), _STDERR)
        try:
            session = start(name, master=master, settings=settings)
            session.sparkContext.setLogLevel("OFF")
            logging.getLogger().addHandler(logging.NullHandler())
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGINT, interrupted or signal.default_int_handler)
        except Exception as error:
            if type(error).__module__.startswith(("pyspark", "py4j")):
                raise Unavailable(f"Spark can't be started: {reason(_text(said) or str(error))}") from error
            raise
        finally:
            os.dup2(kept, _STDERR)
            os.close(kept)
    return session


def _text(said: IO[bytes]) -> str:
    said.seek(0)
    return said.read(_MOST_BYTES).decode(errors="replace")
