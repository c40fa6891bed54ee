"""Each error becomes one line and one exit status, whatever it came wrapped in."""

from __future__ import annotations

import errno
import os
from contextlib import closing
from pathlib import Path

import apsw
import pytest
import typer

from budwood.cli.exit_status import Call, as_call, exit_code, line_of, report, speaker
from budwood.volume import errors
from budwood.volume.errors import BadInput, BudwoodError, Conflict, Corrupt, Diverged, Full, NotFound, Unavailable

CASES: list[tuple[BaseException, int, str]] = [
    (BadInput("no"), 2, "no"),
    (Call("what?"), 2, "what?"),
    (Diverged("choose"), 3, "choose"),
    (Conflict("late", head=7), 3, "late"),
    (NotFound("nobody"), 1, "nobody"),
    (Corrupt("logs/x", "its checksum differs"), 1, "logs/x is damaged: its checksum differs"),
    (OSError(errno.ENOSPC, "No space left on device", "/x"), 1, "no room left on the disk: /x"),
    (FileNotFoundError(errno.ENOENT, "No such file", "/x"), 1, "no such file or directory: /x"),
    (OSError(errno.ELOOP, os.strerror(errno.ELOOP)), 1, "Too many levels of symbolic links"),
    (FileNotFoundError(errno.ENOENT, "no folder for temporary files"), 1, "no such file or directory: no folder for"),
    (MemoryError(), 1, "out of memory"),
    (ValueError("odd"), 1, "unexpected ValueError: odd (set BUDWOOD_DEBUG=1"),
    (KeyboardInterrupt(), 130, ""),
    (BrokenPipeError(errno.EPIPE, "Broken pipe"), 141, ""),
]


@pytest.mark.parametrize(("error", "code", "line"), CASES, ids=[repr(case[0]) for case in CASES])
def test_an_error_has_one_line_and_one_status(
    error: BaseException, code: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(error) == code == exit_code(error)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == bool(line)
    assert said.err.startswith(f"budwood: {line}" if line else "")


def test_line_feeds_in_a_message_are_folded(capsys: pytest.CaptureFixture[str]) -> None:
    report(BadInput("one\ntwo\n\n three"))
    assert capsys.readouterr().err == "budwood: one two three\n"


def test_every_error_of_ours_fails_with_its_own_words() -> None:
    for name in errors.__all__:
        kind = getattr(errors, name)
        error: BudwoodError = kind("logs/x", "torn") if kind is Corrupt else kind("said so")
        assert exit_code(error) != 0
        assert line_of(error) == str(error)


def raised(error: Exception, *, during: Exception, cause: Exception | None = None, hidden: bool = False) -> Exception:
    """`error` as it is after it was raised while `during` was handled."""
    try:
        try:
            raise during
        except type(during):
            if hidden or cause is not None:
                raise error from cause
            raise error  # noqa: B904 - by context and not by cause, as apsw does it
    except type(error) as caught:
        return caught


def test_ours_speaks_from_within_sqlite_and_from_within_a_group() -> None:
    ours = Unavailable("the remote does not answer")
    error = raised(apsw.IOError("disk I/O error"), during=ours)
    assert speaker(error) is ours
    assert speaker(ExceptionGroup("tasks", [ValueError(), error])) is ours
    bug = ValueError("nobody foresaw it")
    assert speaker(ExceptionGroup("tasks", [ExceptionGroup("more", [bug])])) is bug


def test_the_outermost_of_ours_speaks() -> None:
    system = OSError(errno.ENOSPC, "No space left on device")
    error = raised(Full("no room for the commit"), during=system, cause=system)
    assert speaker(error) is error
    assert speaker(raised(RuntimeError("?"), during=system)) is system


def test_a_cause_hidden_on_purpose_stays_hidden() -> None:
    error = raised(apsw.IOError("disk I/O error"), during=Unavailable("inner"), hidden=True)
    assert speaker(error) is error


def test_sqlite_speaks_for_itself_unless_its_words_would_not_help() -> None:
    db = apsw.Connection(":memory:")
    with pytest.raises(apsw.SQLError) as refused:
        db.execute("SELEC 1")
    assert line_of(refused.value) == 'near "SELEC": syntax error'
    db.close()


def test_a_locked_database_is_waited_for(tmp_path: Path) -> None:
    with closing(apsw.Connection(str(tmp_path / "db"))) as one, closing(apsw.Connection(str(tmp_path / "db"))) as other:
        one.execute("BEGIN IMMEDIATE")
        with pytest.raises(apsw.BusyError) as busy:
            other.execute("BEGIN IMMEDIATE")
    assert "wait for it" in line_of(busy.value)


def test_debug_shows_the_traceback_before_the_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUDWOOD_DEBUG", "1")
    report(ValueError("odd"))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("ValueError: odd")
    assert lines[-1].startswith("budwood: unexpected ValueError: odd")


def test_an_error_in_the_call_names_the_help_page() -> None:
    line = str(as_call(typer.BadParameter("no such thing."), "budwood ls"))
    assert line.endswith("(see budwood ls --help)")
    error = ValueError()
    assert as_call(error, "budwood") is error
