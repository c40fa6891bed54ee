"""A sizeable SQL script on a volume and on a plain file: every result, every error and every stored page must agree."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

import budwood
from budwood.sqlite.header import only_counters_differ
from budwood.testing.databases import MemoryDatabases
from budwood.testing.memory_pages import MemoryVolume

Step = tuple[str, tuple[int | float | str | bytes | None, ...]]

SCHEMA = """
create table person(
  id integer primary key, name text not null, age int check (age >= 0), boss int references person(id));
create index person_age on person(age);
create table word(w text primary key, n int not null default 0) without rowid;
create table pad(id integer primary key, body blob);
create table log(id integer primary key, what text, at int);
create trigger person_in after insert on person begin insert into log(what, at) values('in ' || new.name, new.id); end;
create trigger person_out before delete on person
  begin insert into log(what, at) values('out ' || old.name, old.id); delete from pad where id = old.id; end;
create view elders as select name, age from person where age > 60;
create virtual table prose using fts5(title, body);
create virtual table box using rtree(id, x0, x1);
"""

WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "a",
    "lazy",
    "dog",
    "while",
    "seven",
    "wizards",
    "mix",
    "jelly",
]


def _script(random_: random.Random) -> Iterator[Step]:
    for statement in SCHEMA.split(";\n"):
        if statement.strip():
            yield statement, ()
    yield "pragma foreign_keys = on", ()
    for round_ in range(12):
        yield from _writes(random_, round_)
        yield from _nested(random_, round_)
        yield from _failures(random_, round_)
        yield from _queries(random_)
        yield from _reshapes(round_)
    yield "pragma integrity_check", ()
    yield "pragma foreign_key_check", ()


def _writes(random_: random.Random, round_: int) -> Iterator[Step]:
    yield "begin", ()
    for _ in range(40):
        boss = random_.choice([None, 1]) if round_ else None
        yield (
            "insert into person(name, age, boss) values(?, ?, ?)",
            (random_.choice(WORDS), random_.randrange(99), boss),
        )
        size = random_.choice([0, 10, 300, 5000, 70_000 if round_ == 3 else 20])
        yield "insert or replace into pad(id, body) values(?, ?)", (random_.randrange(400), random_.randbytes(size))
        yield (
            "insert into word values(?, 1) on conflict(w) do update set n = n + 1 returning w, n",
            (random_.choice(WORDS) + str(random_.randrange(30)),),
        )
        title, body = random_.choice(WORDS), " ".join(random_.choices(WORDS, k=30))
        yield "insert into prose(title, body) values(?, ?)", (title, body)
        yield (
            "insert or ignore into box values(?, ?, ?)",
            (random_.randrange(200), 1.0, float(random_.randrange(2, 90))),
        )
    yield ("rollback" if round_ % 5 == 4 else "commit"), ()
    yield "update person set age = age + 1 where id % 3 = ?", (round_ % 3,)
    yield "delete from person where id % 17 = ? and boss is null and id > 1", (round_,)
    yield "update pad set body = zeroblob(length(body) / 2) where id % 4 = 1", ()
    yield "delete from prose where rowid % 7 = ?", (round_ % 7,)


def _nested(random_: random.Random, round_: int) -> Iterator[Step]:
    """Savepoints within savepoints, taken back and let go in every order."""
    yield "savepoint a", ()
    yield "insert into log(what, at) values('a', ?)", (round_,)
    yield "savepoint b", ()
    yield (
        "insert into pad(body) with recursive n(i) as (select 1 union all select i + 1 from n where i < 200) "
        "select zeroblob(600 + i % 7) from n",
        (),
    )
    yield "savepoint c", ()
    yield "update pad set body = body || ?", (random_.randbytes(9),)
    yield random_.choice(["rollback to c", "release c"]), ()
    yield "delete from pad where length(body) > 600 and id % 2", ()
    yield random_.choice(["rollback to b", "release b"]), ()
    yield "select count(*), sum(length(body)) from pad", ()
    yield random_.choice(["rollback to a", "release a", "commit"]), ()
    yield "select count(*), max(id) from log", ()
    yield "commit", ()


def _failures(random_: random.Random, round_: int) -> Iterator[Step]:
    """Statements that fail midway must leave nothing, and the transaction around them as it was."""
    yield "begin immediate", ()
    yield "insert into log(what, at) values('before', ?)", (round_,)
    yield "update person set age = 40 - id where id > 0", ()
    yield "insert into person(id, name, age) select id + 1, name, age from person", ()
    yield "insert into word select w, n from word", ()
    yield "update word set w = 'same'", ()
    yield "insert into person(name, age, boss) values('orphan', 3, 99999999)", ()
    yield "select * from nowhere", ()
    yield "insert or rollback into word select w, n from word" if round_ % 4 == 3 else "select 1", ()
    yield "select count(*), sum(age), max(id) from person", ()
    yield "commit", ()


def _queries(random_: random.Random) -> Iterator[Step]:
    yield (
        "select a.name, count(*), sum(b.age) from person a left join person b on b.boss = a.id group by 1 order by 1",
        (),
    )
    yield "select * from elders order by age, name", ()
    yield "select w, n, rank() over (order by n desc, w) from word order by w limit 50", ()
    yield (
        "select rowid, title, snippet(prose, 1, '[', ']', '…', 5) from prose where prose match ? order by rowid",
        (random_.choice(WORDS),),
    )
    yield "select id, x1 from box where x1 > ? order by id", (random_.randrange(90),)
    yield (
        "with recursive up(id, depth) as (select id, 0 from person where boss is not null union all "
        "select p.boss, depth + 1 from person p join up on p.id = up.id where p.boss is not null and depth < 5) "
        "select depth, count(*) from up group by 1",
        (),
    )
    yield (
        "select id, length(body), hex(substr(body, 1, 4)) from pad where id % 13 = ? order by id",
        (random_.randrange(13),),
    )
    yield "create temp table if not exists scratch(a, b)", ()
    yield "insert into scratch select id, name from person order by id limit 100", ()
    yield "select count(*), count(distinct b) from scratch", ()
    yield "explain query plan select * from person where age = 3", ()
    yield "select freelist_count >= 0 from pragma_freelist_count", ()


def _reshapes(round_: int) -> Iterator[Step]:
    match round_:
        case 2:
            yield "alter table log add column extra text default 'none'", ()
        case 3:
            yield "alter table log rename column what to said", ()
            yield "alter table log rename column said to what", ()
        case 4:
            yield "analyze", ()
        case 5:
            yield "drop index person_age", ()
            yield "pragma incremental_vacuum(7)", ()
        case 6:
            yield "create index person_name on person(name collate nocase, age desc)", ()
            yield "vacuum", ()
        case 7:
            yield "delete from pad", ()
            yield "pragma incremental_vacuum", ()
        case 8:
            yield "insert into prose(prose) values('optimize')", ()
            yield "reindex", ()
        case 9:
            yield "drop table word", ()
            yield "create table word(w text primary key, n int not null default 0) without rowid", ()
            yield "vacuum", ()
        case 10:
            yield "begin", ()
            yield "drop table pad", ()
            yield "rollback", ()
            yield "pragma user_version = 17", ()
        case _:
            yield "select name, sql from sqlite_schema order by name", ()
            yield "pragma page_count", ()


def _run(db: apsw.Connection, step: Step) -> object:
    try:
        return db.execute(step[0], step[1]).fetchall()
    except apsw.Error as error:
        return type(error).__name__, str(error)


def _image(volume: MemoryVolume) -> list[bytes]:
    _, length = volume.content()
    assert volume.page_size
    return [volume.read(page, volume.head) for page in range(1, length // volume.page_size + 1)]


@pytest.mark.parametrize(
    ("page_size", "auto_vacuum", "journal"),
    [
        (512, 0, "delete"),
        (512, 2, "memory"),
        (1024, 1, "delete"),
        (2048, 0, "persist"),
        (4096, 0, "delete"),
        (4096, 2, "truncate"),
        (8192, 1, "memory"),
        (65536, 2, "delete"),
    ],
)
def test_a_volume_answers_and_stores_what_a_file_does(
    tmp_path: Path, page_size: int, auto_vacuum: int, journal: str
) -> None:
    with MemoryDatabases() as databases:
        ours = databases.connect()
        plain = apsw.Connection(str(tmp_path / "plain.db"))
        for db in (ours, plain):
            db.execute(f"pragma page_size = {page_size}; pragma auto_vacuum = {auto_vacuum}; pragma cache_size = 10")
        plain.execute("pragma synchronous = off")
        assert ours.execute(f"pragma journal_mode = {journal}").fetchall() == [(journal,)]
        for number, step in enumerate(_script(random.Random(page_size + auto_vacuum))):
            assert _run(ours, step) == _run(plain, step), (number, step)
        assert ours.execute("pragma integrity_check").fetchall() == [("ok",)]
        ours.close()
        plain.close()
        volume = databases.volumes["memory"]
        assert volume.page_size == page_size
        _assert_same_image(_image(volume), (tmp_path / "plain.db").read_bytes(), page_size)
        again = databases.connect(mode="ro")
        assert again.execute("pragma integrity_check").fetchall() == [("ok",)]
        again.close()


@pytest.mark.parametrize(("page_size", "auto_vacuum"), [(1024, 2), (4096, 0)])
def test_the_edge_answers_what_a_file_does(tmp_path: Path, page_size: int, auto_vacuum: int) -> None:
    with closing(budwood.connect("script", home=tmp_path / "home")) as ours:
        plain = apsw.Connection(str(tmp_path / "plain.db"))
        for db in (ours, plain):
            db.execute(f"pragma page_size = {page_size}; pragma auto_vacuum = {auto_vacuum}; pragma cache_size = 10")
            db.execute("pragma synchronous = off")
        for number, step in enumerate(_script(random.Random(page_size))):
            assert _run(ours, step) == _run(plain, step), (number, step)
    with closing(budwood.connect("script", home=tmp_path / "home", mode="ro")) as again:
        assert again.execute("pragma integrity_check").fetchall() == [("ok",)]
        tables = plain.execute("select name from sqlite_schema where type = 'table' order by name").fetchall()
        assert len(tables) > 10
        for (table,) in tables:
            columns = plain.execute("select name from pragma_table_info(?)", (table,)).fetchall()
            query = f"select {', '.join(f'hex(cast({name} as blob))' for (name,) in columns)} from {table}"
            assert _run(again, (query, ())) == _run(plain, (query, ())), table


def _assert_same_image(ours: list[bytes], plain: bytes, page_size: int) -> None:
    theirs = [plain[at : at + page_size] for at in range(0, len(plain), page_size)]
    assert len(ours) == len(theirs)
    assert only_counters_differ(ours[0], theirs[0])
    assert ours[1:] == theirs[1:]


def test_every_old_lsn_still_reads_as_it_was() -> None:
    with MemoryDatabases() as databases:
        db = databases.connect()
        db.execute("pragma cache_size = 10; create table t(a integer primary key, b)")
        expected: dict[int, object] = {}
        for _ in range(20):
            with db:
                db.execute("insert into t(b) select randomblob(700) from (values(1), (2), (3))")
                db.execute("update t set b = randomblob(90) where a % 5 = (select count(*) from t) % 5")
            expected[databases.volumes["memory"].head] = db.execute("select a, hex(b) from t order by a").fetchall()
        db.close()
        for lsn, rows in expected.items():
            past = databases.connect(lsn=lsn)
            assert past.execute("select a, hex(b) from t order by a").fetchall() == rows
            with pytest.raises(apsw.ReadOnlyError):
                past.execute("delete from t")
            past.close()
