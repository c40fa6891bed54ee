"""Mutants of the suite's own waits and limits."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

NODE: Final = "tests/integration/test_node.py"
SUITE: Final = "tests/unit/test_suite.py"

MUTANTS: Final = (
    Mutant(
        "tests inherit an ignored interrupt",
        "tests/conftest.py",
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n",
        "",
        (SUITE,),
    ),
    Mutant(
        "a node in the background is interrupted",
        "server/http/run_node.py",
        "[] if signal.getsignal(signal.SIGINT) is signal.SIG_IGN else [signal.SIGINT]",
        "[signal.SIGINT]",
        ("tests/integration/test_cli_background.py", "-k", "node"),
    ),
    Mutant(
        "a mount in the background is interrupted",
        "fuse/mount.py",
        "[] if signal.getsignal(signal.SIGINT) is signal.SIG_IGN else [signal.SIGINT]",
        "[signal.SIGINT]",
        ("tests/integration/test_cli_background.py", "-k", "mount"),
    ),
    Mutant(
        "a background job's Spark is interrupted",
        "spark_export/export/quiet_session.py",
        "signal.signal(signal.SIGINT, interrupted or signal.default_int_handler)",
        "signal.signal(signal.SIGINT, signal.default_int_handler)",
        ("tests/unit/test_spark_quiet.py",),
    ),
    Mutant(
        "what waits for the log is without bound",
        "server/log/log_writer.py",
        "submission.inline_bytes > QUEUE_BYTES:",
        "submission.inline_bytes > 1 << 62:",
        (NODE, "-k", "too_much_waits"),
    ),
    Mutant(
        "a big-endian machine is let in",
        "volume/segment.py",
        'if sys.byteorder != "little":',
        "if not sys.byteorder:",
        ("tests/unit/test_segment.py", "-k", "big_endian"),
    ),
    Mutant(
        "layout: two modules know each other's types",
        "lite/view.py",
        "from .source import Source\n",
        "from .source import Source\n\nTYPE_CHECKING = False\nif TYPE_CHECKING:\n    from . import pages as pages\n",
        ("tests/unit/test_layout.py", "-k", "circle"),
    ),
)
