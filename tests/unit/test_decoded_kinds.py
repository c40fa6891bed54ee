"""A struct is decoded for the first time by several threads at once, and the process lives."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from ..waits import LIMIT_SECONDS
from .test_layout import ROOMS

ROOT = Path(__file__).parents[2]
CALL = re.compile(r"(?:msgpack|json)\.decode\([^\n]*|Decoder\([^\n]*")

AT_ONCE = """
import sys, threading, types
import msgspec
from budwood.volume.envelope import decode, encode

SOURCE = '''
from __future__ import annotations
import msgspec

class Inner(msgspec.Struct):
    a: int = 0
    b: tuple[str, ...] = ()
    c: dict[str, int] = {}

class Outer(msgspec.Struct):
    x: Inner | None = None
    y: tuple[Inner, ...] = ()
    z: list[Inner] = []
'''
sys.setswitchinterval(1e-6)
for number in range(100):
    module = sys.modules[f"kinds_{number}"] = types.ModuleType(f"kinds_{number}")
    exec(SOURCE, module.__dict__)
    data = encode(module.Outer(x=module.Inner(a=1), z=[module.Inner(b=("c",))]))
    begin, found = threading.Barrier(4), []

    def work():
        begin.wait()
        found.append(decode("a test", data, module.Outer))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each.z[0].b for each in found] == 4 * [("c",)]
"""


def test_several_threads_decode_a_kind_for_the_first_time() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", AT_ONCE], capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_is_decoded_but_what_any_thread_may() -> None:
    calls = [
        f"{path.relative_to(ROOT)}: {call}"
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        for call in CALL.findall(path.read_text())
        if path.name != "decoded_kinds.py"
    ]
    assert len(calls) > 10
    assert [call for call in calls if "decodable(" not in call] == []
