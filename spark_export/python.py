"""Python: the one that Spark's workers are. Standard library alone.

Unless told, Spark starts whatever is called python3 on the PATH, which may be another release or have none of the
libraries; the one that runs this is the right one on this machine, and on a cluster whose machines are set up alike. So

    importing budwood.spark_export     names it to the Java that is yet to be started, by PYSPARK_PYTHON
    register()                         names it to a session of this machine that was there before

Neither does anything where somebody has chosen, by PYSPARK_PYTHON or PYSPARK_DRIVER_PYTHON.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHOICES: Final = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
_GATEWAY: Final = "PYSPARK_GATEWAY_PORT"
"""Set where Java has started this process, not the other way round: by spark-submit, or a notebook's kernel."""


def name_to_java() -> None:
    """Nothing where a Java runs already: it has been told, or never will be."""
    if not (_is_chosen() or _runs_java()):
        os.environ["PYSPARK_PYTHON"] = sys.executable


def name_to_session(session: SparkSession) -> None:
    """For the formats that are registered with it from now on. A cluster's session is left as it is, and one that only
    talks to a server."""
    context: Any = getattr(session, "sparkContext", None)
    if context is not None and context.master.startswith("local") and not _is_chosen():
        context.pythonExec = sys.executable


def _is_chosen() -> bool:
    return not sys.executable or any(os.environ.get(name) for name in _CHOICES)


def _runs_java() -> bool:
    # While pyspark is being loaded it has no context yet.
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    return bool(os.environ.get(_GATEWAY)) or getattr(context, "_gateway", None) is not None
