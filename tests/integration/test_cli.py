"""The command's verbs, each through its entry: what they do, what they print, what they end with."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import IO, Any, cast

import pytest

from ..mounts import needs_fuse
from ..waits import LIMIT_SECONDS
from .cli import ENTRY, THREE, Command, Said, serving

Make = Callable[[str], Command]


@pytest.fixture
def make(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Make:
    """Users by name, who share a store in a directory."""
    remote = (tmp_path / "store").as_uri()
    return lambda user: Command(capsys, tmp_path / user, remote)


@pytest.fixture
def ann(make: Make) -> Command:
    return make("ann")


@pytest.fixture
def bob(make: Make) -> Command:
    return make("bob")


def status(user: Command, name: str) -> dict[str, Any]:
    (row,) = json.loads(user.ok("status", name, "--json"))
    return cast("dict[str, Any]", row)


def names(user: Command, *options: str) -> list[str]:
    return [row["name"] for row in json.loads(user.ok("ls", "--json", *options))]


def test_a_volume_goes_from_one_user_to_another_and_back(ann: Command, bob: Command) -> None:
    assert ann.ok("create", "v") == "created v\n"
    assert ann.sql("v", THREE) == []
    assert ann.ok("push", "v") == "pushed 2 commits of v: LSN 1\n"
    assert ann.ok("push", "v") == "nothing to push: v is at LSN 1\n"
    assert bob.ok("clone", "v", "w").startswith("cloned v as w: LSN 1, ")
    assert bob.sql("w", "SELECT * FROM t") == ["1\tone", "2\ttwo", "3\t"]
    bob.sql("w", "DELETE FROM t WHERE a = 2")
    assert status(bob, "w")["lsn"] == "1+1"
    assert bob.ok("push", "w") == "pushed 1 commit of w: LSN 2\n"
    assert ann.ok("pull", "v") == "pulled v: LSN 1 to 2\n"
    assert ann.ok("pull", "v") == "nothing new: v is at LSN 2\n"
    assert ann.sql("v", "SELECT a FROM t") == ["1", "3"]
    assert ann.sql("v", "SELECT a FROM t", "--lsn", "1") == ["1", "2", "3"]


def test_a_name_that_only_the_remote_knows_comes_in_when_it_is_used(ann: Command, bob: Command) -> None:
    ann.sql_made("v")
    ann.ok("push", "v")
    assert bob.sql("v", "SELECT count(*) FROM t") == ["3"]
    assert names(bob) == ["v"]


def test_the_options_are_the_same_before_and_after_the_verb_and_in_the_environment(
    ann: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ann.ok("create", "v")
    bare = Command(capsys, tmp_path / "elsewhere")
    bare.options = []
    at = ["--home", str(ann.home)]
    listed = ann.ok("ls")
    assert bare.ok(*at, "ls") == listed
    assert bare.ok("ls", *at) == listed
    assert bare.ok("--home", str(tmp_path / "other"), "ls", *at) == listed, "what stands after the verb counts"
    monkeypatch.setenv("BUDWOOD_HOME", str(ann.home))
    assert bare.ok("ls") == listed
    assert "v" not in bare.ok("--home", str(tmp_path / "other"), "ls")
    monkeypatch.setenv("BUDWOOD_REMOTE", ann.options[-1])
    ann.sql("v", THREE)
    assert bare.ok("push", "v").startswith("pushed")
    assert names(bare, "--remote") == ["v"]


def test_ls_lists_what_is_here_or_what_the_remote_has(ann: Command, bob: Command) -> None:
    for name in ("b", "a", "a/c"):
        ann.sql_made(name)
    assert names(ann) == ["a", "a/c", "b"]
    assert names(bob) == []
    assert "there is no store at" in ann("ls", "--remote").line(), "a look makes none"
    ann.ok("push", "a/c")
    assert names(bob, "--remote") == ["a/c"]
    assert names(bob) == [], "listing brings nothing in"
    assert ann("ls", "--remote", "gopher://x").line(2).startswith("'gopher://x' is no remote")
    local = Command(ann.capsys, ann.home)
    assert names(local, "--remote", ann.options[-1]) == ["a/c"]
    assert local("push", "a/c", "--remote").line(2).startswith("--remote needs a URL")
    assert local("push", "a/c", "--home", "").line(2) == "--home needs a directory"


def test_status_says_how_a_volume_stands_and_what_to_do(ann: Command, bob: Command) -> None:
    ann.ok("create", "v")
    assert status(ann, "v")["pages"] == 0
    ann.sql("v", THREE)
    here = status(ann, "v")
    assert (here["lsn"], here["unpushed"], here["remote_lsn"], here["diverged"]) == ("0+2", 2, 0, False)
    assert "2 commits to push" in ann.ok("status")
    ann.ok("push", "v")
    bob.ok("clone", "v")
    there = status(bob, "v")
    assert (there["held_pages"], there["missing_pages"], there["pages"]) == (0, 2, 2)
    bob.ok("fetch", "v")
    assert status(bob, "v")["missing_pages"] == 0
    assert "nothing to push" in bob.ok("status", "v")
    both_write(ann, bob)
    assert bob("push", "v").code == 3
    told = bob.ok("status")
    resets = ("budwood reset v --keep-as NEW", "budwood reset v --discard")
    for way in ("diverged", "budwood replay v", "budwood fork v NEW", *resets):
        assert way in told


def both_write(first: Command, second: Command) -> None:
    """Both commit on the same LSN; `first` has pushed."""
    for user in (first, second):
        user.sql("v", f"INSERT INTO t (b) VALUES ('{user.home.name}')")
    first.ok("push", "v")


def test_a_diverged_volume_loses_nothing_and_ends_with_3_until_a_way_is_chosen(ann: Command, bob: Command) -> None:
    ann.sql_made("v")
    ann.ok("push", "v")
    bob.ok("clone", "v")
    both_write(ann, bob)
    for refused in (["push", "v"], ["pull", "v"], ["reset", "v"], ["rm", "v"]):
        assert "unpushed" in bob(*refused).line(3)
        assert bob.sql("v", "SELECT b FROM t WHERE a = 4") == ["bob"]
    assert bob.ok("fork", "v", "kept") == "forked v as kept: LSN 1+1\n"
    assert bob.ok("reset", "v", "--keep-as", "mine").startswith("reset v to LSN 2")
    assert bob.sql("v", "SELECT b FROM t WHERE a = 4") == ["ann"]
    for kept in ("mine", "kept"):
        assert bob.sql(kept, "SELECT b FROM t WHERE a = 4") == ["bob"]
        bob.ok("push", kept)
    assert names(ann, "--remote") == ["kept", "mine", "v"]


def test_unpushed_work_goes_only_when_told(ann: Command) -> None:
    ann.sql_made("v")
    ann.ok("push", "v")
    ann.sql("v", "DELETE FROM t")
    assert ann("reset", "v", "--discard", "--keep-as", "w").line(2).startswith("--keep-as keeps")
    assert ann.ok("reset", "v", "--discard") == "reset v to LSN 1\n"
    assert ann.sql("v", "SELECT count(*) FROM t") == ["3"]
    ann.sql("v", "DELETE FROM t")
    assert ann("rm", "v").code == 3
    for option in ("--discard", "--force"):
        assert ann.ok("rm", "v", option) == "removed v\n"
        assert names(ann) == []
        assert ann.sql("v", "SELECT count(*) FROM t") == ["3"], "the remote has what was pushed"
        ann.sql("v", "DELETE FROM t")


def test_a_name_taken_on_the_remote_is_told_with_the_way_out(ann: Command, bob: Command) -> None:
    ann.sql_made("v")
    bob.sql_made("v")
    ann.ok("push", "v")
    assert "--as" in bob("push", "v").line()
    assert bob.ok("push", "v", "--as", "w") == "pushed 2 commits of v as w: LSN 1\n"
    assert names(ann, "--remote") == ["v", "w"]


def test_mv_renames_here_and_there(ann: Command, bob: Command) -> None:
    ann.sql_made("v")
    ann.ok("push", "v")
    ann.ok("mv", "v", "w")
    assert (names(ann), names(bob, "--remote")) == (["w"], ["w"])
    bob.sql_made("x")
    bob.ok("push", "x")
    assert ann("mv", "w", "x").code == 1
    assert names(ann) == ["w"]


def test_rm_keeps_the_remote_s(ann: Command) -> None:
    ann.sql_made("v")
    ann.ok("push", "v")
    assert ann.ok("rm", "v") == "removed v\n"
    assert (names(ann), names(ann, "--remote")) == ([], ["v"])
    ann.ok("clone", "v")
    assert ann.sql("v", "SELECT count(*) FROM t") == ["3"]


def test_rm_on_remote_is_for_everybody(ann: Command, bob: Command, tmp_path: Path) -> None:
    ann.sql_made("v")
    ann.ok("push", "v")
    bob.ok("clone", "v")
    bob.ok("fetch", "v")
    bob.sql("v", "DELETE FROM t WHERE a = 1")
    assert ann.ok("rm", "v", "--on-remote") == "removed v, for everybody\n"
    assert (names(ann), names(ann, "--remote")) == ([], [])
    bob.ok("fork", "v", "w")
    for verb in (
        ["push", "v"],
        ["pull", "v"],
        ["reset", "v", "--discard"],
        ["log", "v"],
        ["sql", "v", "--lsn", "1", "x"],
    ):
        assert "'v' was removed from" in bob(*verb).line(), verb
    assert "'w' was forked from was removed from" in bob("push", "w").line()
    assert "was removed" in bob("retain", "v", "--show").line()
    # What is here stays, and can be made a volume of its own.
    bob.ok("export", "v", str(tmp_path / "kept.db"))
    bob.ok("import", str(tmp_path / "kept.db"), "kept")
    bob.ok("push", "kept")
    assert ann.sql("kept", "SELECT count(*) FROM t") == ["2"]
    assert "would be lost" in bob("rm", "v", "--on-remote").line(3)
    bob.ok("rm", "v", "--on-remote", "--discard")
    assert sorted(names(bob)) == ["kept", "w"]


def test_a_volume_that_was_removed_is_told_so_though_a_fork_holds_what_is_here(ann: Command, bob: Command) -> None:
    ann.sql_made("v")
    ann.ok("push", "v")
    bob.ok("clone", "v")
    ann.ok("fork", "v", "w", "--lsn", "1")
    ann.ok("rm", "v", "--on-remote")
    assert bob.sql("v", "SELECT count(*) FROM t") == ["3"]
    assert "'v' was removed from" in bob("fork", "v", "x", "--lsn", "1").line()
    for verb in (["pull", "v"], ["replay", "v"], ["reset", "v", "--discard"]):
        assert "'v' was removed from" in bob(*verb).line(), verb
    bob.sql("v", "DELETE FROM t WHERE a = 1")
    for verb in (["push", "v"], ["pull", "v"], ["merge", "v"]):
        assert "'v' was removed from" in bob(*verb).line(), verb
    bob.ok("fork", "v", "y")
    assert "'y' was forked from was removed from" in bob("push", "y").line()
    assert bob.sql("v", "SELECT count(*) FROM t") == ["2"]


@pytest.mark.parametrize("held", [True, False])
def test_a_name_of_a_removed_volume_leads_nowhere_and_can_be_taken_off(
    ann: Command, bob: Command, *, held: bool
) -> None:
    ann.sql_made("v")
    ann.ok("push", "v")
    ann.ok("push", "v", "--as", "w")
    if held:
        ann.ok("fork", "v", "f", "--lsn", "1")
    ann.ok("rm", "v", "--on-remote")
    assert names(ann, "--remote") == ["v"]
    for verb in (["clone", "v"], ["status", "v"], ["sql", "v", "SELECT 1"]):
        assert "a name 'v' that leads nowhere" in bob(*verb).line(), verb
    # What was made here meanwhile doesn't make way for it.
    bob.ok("create", "v")
    bob.sql("v", "CREATE TABLE z (a)")
    assert "another volume by the name 'v'" in bob("push", "v").line()
    assert ann.ok("rm", "v", "--on-remote") == "removed v, for everybody\n"
    assert names(ann, "--remote") == []
    bob.ok("push", "v")


def test_a_volume_that_is_here_by_another_name_is_told_by_it(ann: Command, bob: Command) -> None:
    ann.sql_made("v")
    ann.ok("push", "v")
    bob.ok("clone", "v")
    ann.ok("mv", "v", "w")
    assert "is in this home already, as 'v'" in bob("clone", "w").line()


def test_rm_on_remote_needs_no_copy_here(ann: Command, bob: Command) -> None:
    ann.sql_made("v")
    ann.ok("push", "v")
    assert bob.ok("rm", "v", "--on-remote") == "removed v, for everybody\n"
    assert names(bob, "--remote") == []
    assert "knows none" in bob("rm", "v", "--on-remote").line()
    assert "no volume 'v' here" in bob("rm", "v").line()
    ann.ok("rm", "v", "--on-remote")
    ann.sql_made("v")
    ann.ok("rm", "v", "--on-remote", "--discard")
    assert names(ann) == []


def test_log_lists_the_newest_first(ann: Command) -> None:
    ann.sql_made("v")
    ann.ok("push", "v")
    ann.sql("v", "DELETE FROM t")
    rows = json.loads(ann.ok("log", "v", "--json"))
    assert [(row["lsn"], row["pushed"]) for row in rows] == [("1+1", False), ("1", True)]
    assert len(json.loads(ann.ok("log", "v", "--limit", "1", "--json"))) == 1
    lines = ann.ok("log", "v").splitlines()
    assert [line.split()[0] for line in lines] == ["lsn", "1+1", "1"]


def test_import_and_export_give_back_the_very_file(ann: Command, tmp_path: Path) -> None:
    file, out, past = tmp_path / "in.db", tmp_path / "out.db", tmp_path / "past.db"
    with closing(sqlite3.connect(file)) as db:
        db.executescript(THREE)
    assert ann.ok("import", str(file), "v") == f"imported {file} as v: 2 pages, 8.0 KiB\n"
    assert ann.ok("export", "v", str(out)).startswith("exported v to ")
    assert out.read_bytes() == file.read_bytes()
    assert "exists" in ann("export", "v", str(out)).line()
    ann.ok("push", "v")
    ann.sql("v", "DELETE FROM t")
    ann.ok("export", "v", str(out), "--overwrite")
    ann.ok("export", "v", str(past), "--lsn", "1")
    for each, count in ((out, 0), (past, 3)):
        with closing(sqlite3.connect(each)) as db:
            assert db.execute("SELECT count(*) FROM t").fetchall() == [(count,)]
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_time_stands_for_the_last_commit_not_later(ann: Command) -> None:
    ann.sql_made("v")
    ann.ok("push", "v")
    (first,) = json.loads(ann.ok("log", "v", "--json"))
    ann.sql("v", "DELETE FROM t")
    ann.ok("push", "v")
    assert ann.sql("v", "SELECT count(*) FROM t", "--at", first["time"]) == ["3"]
    assert ann("sql", "v", "SELECT 1", "--at", "yesterday").line(2).startswith("'yesterday' is no time")


def test_a_fork_of_the_past_reads_as_it_was(ann: Command) -> None:
    ann.sql_made("v")
    ann.ok("push", "v")
    ann.sql("v", "DELETE FROM t")
    ann.ok("push", "v")
    ann.ok("fork", "v", "w", "--lsn", "1")
    assert ann.sql("w", "SELECT count(*) FROM t") == ["3"]


def test_a_page_size_is_kept(ann: Command) -> None:
    ann.ok("create", "v", "--page-size", "1024")
    ann.sql("v", THREE)
    assert ann.sql("v", "PRAGMA page_size") == ["1024"]
    assert status(ann, "v")["page_size"] == 1024


def test_sql_runs_what_it_is_given_and_reads_standard_input(ann: Command) -> None:
    ann.ok("create", "v")
    assert ann.sql("v", "-- first\nSELECT 1 AS a, x'0a' AS b; SELECT 2") == ["1\t0A", "2"]
    rows = json.loads(ann.ok("sql", "v", "SELECT 1 AS a, x'0a' AS b, NULL AS c", "--json"))
    assert rows == [{"a": 1, "b": "0A", "c": None}]
    said = ann.process("sql", "v", "-", stdin="SELECT 3;\nSELECT 4;\n")
    assert (said.code, said.out, said.err) == (0, "3\n4\n", "")
    assert ann("sql", "v", "--jsn").line(2).startswith("there is no option '--jsn'")


def test_what_is_no_text_is_refused_in_words_wherever_it_comes_from(ann: Command, tmp_path: Path) -> None:
    """Bytes of a command line that are no UTF-8 reach Python as lone surrogates; SQLite, LMDB and msgspec take none."""
    ann.ok("create", "v")
    odd = os.fsdecode(b"\xff")
    assert ann("create", odd).line(2) == "'\\udcff' can't name a volume: it isn't text in UTF-8"
    assert ann("sql", "v", f"SELECT '{odd}'").line(2) == "the SQL isn't text in UTF-8"
    assert ann("sql", "v", "SELECT 1\0").line(2).startswith("the SQL has a NUL character")
    assert "isn't text in UTF-8" in ann("push", "v", "--remote", f"file://{tmp_path}/{odd}").line(2)
    assert "isn't text in UTF-8" in ann("ls", "--home", f"{tmp_path}/{odd}").line(2)


@needs_fuse
def test_a_mount_needs_a_directory_whose_path_is_text(ann: Command, tmp_path: Path) -> None:
    (directory := tmp_path / os.fsdecode(b"\xff")).mkdir()
    assert "isn't text in UTF-8" in ann("mount", str(directory)).line(2)


def test_a_transaction_left_open_is_rolled_back_and_told(ann: Command) -> None:
    ann.sql_made("v")
    assert "rolled back" in ann("sql", "v", "BEGIN; DELETE FROM t").line()
    assert ann.sql("v", "SELECT count(*) FROM t") == ["3"]
    assert ann.sql("v", "BEGIN; DELETE FROM t; COMMIT") == []
    assert ann.sql("v", "SELECT count(*) FROM t") == ["0"]


def test_shell_reads_and_writes_the_volume(ann: Command) -> None:
    ann.sql_made("v")
    said = ann.process("shell", "v", stdin="INSERT INTO t (b) VALUES ('shell');\nSELECT max(a) FROM t;\n")
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines() == ["4"]
    assert ann.sql("v", "SELECT b FROM t WHERE a = 4") == ["shell"]
    said = ann.process("shell", "v", stdin="SELEC;\nSELECT 'goes on';\n")
    assert (said.code, said.out) == (1, "goes on\n")
    assert said.err.startswith('near "SELEC": syntax error')


def test_the_verbs_and_the_version_can_be_read(ann: Command) -> None:
    assert ann.ok("--version").startswith("budwood 0.")
    listed = ann.ok("--help")
    verbs = "serve create import export clone push pull fetch reset fork mv rm status log ls move shell sql"
    for verb in verbs.split():
        assert f"  {verb} " in listed
        assert "--home" in ann.ok(verb, "--help")


WRONG_CALLS: list[tuple[list[str], str]] = [
    ([], "say what to do"),
    (["frobnicate"], "No such command"),
    (["status", "--frob"], "No such option"),
    (["push"], "push takes a volume's name, or --all"),
    (["clone"], "Missing argument 'NAME'"),
    (["sql", "v", "SELECT 1", "extra"], "unexpected extra argument"),
    (["sql", "v", "SELECT 1", "--lsn", "x"], "'x' is not a valid int"),
    (["serve", "--store", "file:///x", "--listen", "here"], "'here' is no address"),
    (["serve", "--store", "file:///x", "--node", "Main!"], "'Main!' can't name a node"),
    (["serve", "--store", "ftp://x", "--listen", "127.0.0.1:0"], "'ftp://x' names no store"),
    (["move", "v", "--log", "A B"], "'A B' can't name a node"),
]


@pytest.mark.parametrize(("arguments", "words"), WRONG_CALLS, ids=[" ".join(case[0]) for case in WRONG_CALLS])
def test_a_wrong_call_is_one_line_and_ends_with_2(ann: Command, arguments: list[str], words: str) -> None:
    assert words in ann(*arguments).line(2)


def test_a_node_s_process_ends_with_its_interpreter_whole(tmp_path: Path) -> None:
    """Threads of the HTTP server that need it a moment longer abort the process."""
    program = "import atexit; atexit.register(print, 'taken apart'); from budwood.cli.launch import main; main()"
    arguments = ["serve", "--create", "--store", (tmp_path / "store").as_uri(), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        [sys.executable, "-P", "-c", program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as child:
        assert child.stdout is not None
        assert "serves" in child.stdout.readline()
        child.terminate()
        assert child.communicate(timeout=LIMIT_SECONDS)[0] == ""
    assert child.returncode == 0
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, "ls", "--home", str(tmp_path / "home")],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.stdout.endswith("taken apart\n")


@pytest.mark.slow
def test_a_node_serves_says_so_once_and_ends_cleanly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(tmp_path / "store") as url:
        ann, bob = Command(capsys, tmp_path / "ann", url), Command(capsys, tmp_path / "bob", url)
        ann.sql_made("v")
        ann.ok("push", "v")
        assert bob.sql("v", "SELECT count(*) FROM t") == ["3"]
        assert ann.ok("move", "v", "--log", "private").startswith("moved v: it lives in the log ")
        direct = Command(capsys, tmp_path / "cy", (tmp_path / "store").as_uri())
        direct.sql("v", "DELETE FROM t WHERE a = 1")
        direct.ok("push", "v")
        bob.ok("pull", "v")
        assert bob.sql("v", "SELECT count(*) FROM t") == ["2"]
        assert bob.ok("move", "v", "--log", "main") == "moved v: it lives in the log main now\n"


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", ":0", "192.0.2.1:0"])
def test_what_others_can_reach_is_served_with_a_token_or_when_told(ann: Command, listen: str) -> None:
    # A store that can't be: so that a node which listens all the same ends, too.
    said = ann("serve", "--store", "ftp://x", "--listen", listen).line(2)
    assert said.startswith(f"whoever reaches {listen} ")
    assert "--token" in said
    assert "--insecure" in said
    for told in (["--token", "open sesame"], ["--keys"]):
        said = ann("serve", "--store", "ftp://x", "--listen", listen, *told).line(2)
        assert said.startswith(f"whoever is on the way to {listen} ")
    tls = ["--tls-cert", "cert.pem", "--tls-key", "key.pem"]
    for told, next_error in (
        (["--insecure"], "'ftp://x' names no store"),
        (["--token", "open sesame", *tls], "cert.pem can't be read"),
        (["--keys", *tls], "cert.pem can't be read"),
    ):
        assert next_error in ann("serve", "--store", "ftp://x", "--listen", "0.0.0.0:0", *told).line(2)


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("--insecure",), ("--insecure", "--token", "open sesame")])
def test_a_node_that_was_told_serves_everyone_who_reaches_it(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    with serving(tmp_path / "store", *arguments, listen="0.0.0.0:0") as url:
        assert url.startswith("http://")


@pytest.mark.slow
def test_a_second_node_is_refused_until_it_takes_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    user = Command(capsys, tmp_path / "home")
    store = (tmp_path / "store").as_uri()
    with serving(tmp_path / "store") as url:
        port = url.rpartition(":")[2]
        taken = user.process("serve", "--store", store, "--listen", f"127.0.0.1:{port}", "--node", "other")
        assert "take another with --listen" in taken.line(2)
        assert url in user.process("serve", "--store", store, "--listen", "127.0.0.1:0").line()
        with serving(tmp_path / "store", "--takeover") as other:
            ann = Command(capsys, tmp_path / "ann", other)
            ann.sql_made("v")
            ann.ok("push", "v")


@pytest.mark.slow
def test_a_node_asks_for_its_token(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUDWOOD_TOKEN", "open sesame")
    with serving(tmp_path / "store") as url:
        ann = Command(capsys, tmp_path / "ann", url)
        ann.sql_made("v")
        ann.ok("push", "v")
        assert "token" in ann("ls", "--remote", "--token", "guess").line()
        monkeypatch.delenv("BUDWOOD_TOKEN")
        assert "token" in ann("ls", "--remote").line()
        assert names(ann, "--remote", "--token", "open sesame") == ["v"]


ENDLESS = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n) SELECT {} FROM n"


def test_an_interrupt_ends_a_long_statement_in_silence(ann: Command) -> None:
    ann.ok("create", "v")
    child = ann.start(
        "sql", "v", "SELECT 'began'; " + ENDLESS.format("sum(i)"), env=os.environ | {"PYTHONUNBUFFERED": "1"}
    )
    said = end_with(child, signal.SIGINT, after=child.stdout)
    assert (said.code, said.err) == (130, "")


def end_with(child: subprocess.Popen[str], number: int, *, after: IO[str] | None) -> Said:
    with child:
        assert after is not None
        first = after.readline()
        child.send_signal(number)
        out, err = child.communicate(timeout=LIMIT_SECONDS)
        return Said(child.returncode, first + out, err)


def test_a_reader_that_leaves_ends_the_command_in_silence(ann: Command) -> None:
    ann.ok("create", "v")
    with ann.start("sql", "v", ENDLESS.format("i")) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline() == "1\n"
        child.stdout.close()
        assert child.wait(LIMIT_SECONDS) == 141
        assert child.stderr.read() == ""


def test_output_that_cannot_be_written_is_an_error(ann: Command) -> None:
    with open("/dev/full", "w") as full:
        said = ann.process("ls", "--json", stdout=full)
    assert said.code == 1
    assert said.err.startswith("budwood: no room left")
    assert said.err.count("\n") == 1


def test_a_bar_is_drawn_for_long_work_on_a_terminal_only(ann: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from budwood.cli import progress

    monkeypatch.setattr(progress, "_PATIENCE_SECONDS", -1.0)
    with progress.progress("pushing v") as step:
        assert step is None
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with progress.progress("pushing [v]") as step:
        assert step is not None
        step(1, 10)
        step(10, 10)
    drawn = ann.capsys.readouterr()
    assert drawn.out == ""
    assert "pushing [v]" in drawn.err
    assert "10/10" in drawn.err


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from budwood.cli.main import run; run(['--help']); "
        "heavy = {'rich', 'apsw', 'lmdb', 'httpx', 'obstore', 'uvloop', 'granian', 'zstandard'} & set(sys.modules); "
        "sys.exit(f'loaded: {heavy}' if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("budwood pu", {"push", "pull"}), ("budwood keys re", {"revoke"}), ("budwood push --", {"--as"})],
)
def test_a_shell_is_told_what_may_follow(typed: str, offered: set[str]) -> None:
    words = {"_BUDWOOD_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    done = subprocess.run(ENTRY, env={**os.environ, **words}, capture_output=True, text=True, check=False)
    assert offered <= set(done.stdout.split()), done
    assert done.stderr == ""
