"""Volumes by PEP 249, and by SQLAlchemy on top of it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, IntegrityError, OperationalError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

import budwood
from budwood import dbapi
from budwood.volume.errors import Diverged


@pytest.fixture
def remote(tmp_path: Path) -> str:
    return f"file://{tmp_path}/store"


def connected(tmp_path: Path, remote: str, home: str = "one", **options: Any) -> dbapi.Connection:
    return dbapi.connect("shop", home=tmp_path / home, remote=remote, **options)


def test_it_says_what_pep_249_asks() -> None:
    assert (dbapi.apilevel, dbapi.paramstyle, dbapi.threadsafety) == ("2.0", "qmark", 1)
    assert issubclass(dbapi.OperationalError, dbapi.DatabaseError)
    assert budwood.dbapi is dbapi
    assert all(hasattr(dbapi, name) for name in dbapi.__all__)


def test_what_is_committed_stands_and_what_is_rolled_back_does_not(tmp_path: Path, remote: str) -> None:
    with closing(connected(tmp_path, remote)) as db:
        cursor = db.cursor()
        cursor.execute("CREATE TABLE item(name TEXT PRIMARY KEY, n INT)")
        cursor.executemany("INSERT INTO item VALUES (?, ?)", [("bolt", 40), ("nut", 7)])
        db.commit()
        cursor.execute("DELETE FROM item")
        db.rollback()
        cursor.execute("SELECT * FROM item ORDER BY name")
        assert [column[0] for column in cursor.description] == ["name", "n"]
        assert (cursor.fetchone(), cursor.fetchall()) == (("bolt", 40), [("nut", 7)])
        assert (db.status()["unpushed"], db.push()["lsn"]) == (2, "1")
        with pytest.raises(dbapi.IntegrityError):
            cursor.execute("INSERT INTO item VALUES ('nut', 1)")
        db.rollback()
        with db:
            db.execute("UPDATE item SET n = 8 WHERE name = 'nut'")
        db.push()
    with closing(connected(tmp_path, remote, "two", lsn=1)) as past:
        assert past.execute("SELECT n FROM item WHERE name = 'nut'").fetchall() == [(7,)]
        with pytest.raises(dbapi.OperationalError, match="readonly"):
            past.execute("DELETE FROM item")


def test_what_a_volume_has_to_say_comes_as_the_class_that_pep_249_has_for_it(tmp_path: Path, remote: str) -> None:
    with closing(connected(tmp_path, remote)) as one:
        one.execute("CREATE TABLE t(a)")
        one.push()
        with closing(connected(tmp_path, remote, "two")) as two:
            two.execute("SELECT * FROM t").fetchall()
            for db in (one, two):
                with db:
                    db.execute("INSERT INTO t VALUES (1)")
            one.push()
            with pytest.raises(dbapi.OperationalError, match="remote has newer ones") as told:
                two.push()
            assert isinstance(told.value.__cause__, Diverged)
            assert "\n" not in str(told.value)
    with pytest.raises(dbapi.OperationalError):
        dbapi.connect("nothing", home=tmp_path / "one", remote=remote, mode="rw")


class Base(DeclarativeBase):
    pass


class Maker(Base):
    __tablename__ = "maker"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(sa.String(40), unique=True)
    items: Mapped[list[Item]] = relationship(back_populates="maker")


class Item(Base):
    __tablename__ = "item"
    id: Mapped[int] = mapped_column(primary_key=True)
    maker_id: Mapped[int] = mapped_column(sa.ForeignKey("maker.id"))
    made: Mapped[sa.DateTime | None] = mapped_column(sa.DateTime)
    maker: Mapped[Maker] = relationship(back_populates="items")


@pytest.fixture
def engine(tmp_path: Path, remote: str) -> Generator[sa.Engine]:
    made = sa.create_engine(
        sa.URL.create("budwood", database="shop", query={"home": f"{tmp_path}/one", "remote": remote})
    )
    yield made
    made.dispose()


def test_sqlalchemy_maps_queries_and_looks_into_a_volume(tmp_path: Path, remote: str, engine: sa.Engine) -> None:
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(Maker(name="acme", items=[Item(), Item()]))
        session.commit()
        found = session.scalars(sa.select(Maker).where(Maker.name == "acme")).one()
        assert len(found.items) == 2
        with session.begin_nested() as savepoint:
            session.add(Maker(name="acme"))
            with pytest.raises(IntegrityError):
                session.flush()
            savepoint.rollback()
        session.add(Maker(name="other"))
        session.commit()
    looked = sa.inspect(engine)
    assert sorted(looked.get_table_names()) == ["item", "maker"]
    assert looked.get_foreign_keys("item")[0]["referred_table"] == "maker"
    with engine.connect() as connection:
        raw = connection.connection.driver_connection
        assert isinstance(raw, dbapi.Connection)
        assert raw.push()["lsn"] == "1"
    past = sa.create_engine(f"budwood:///shop?lsn=1&home={tmp_path}/two&remote={remote}")
    with past.connect() as connection:
        assert connection.execute(sa.text("SELECT name FROM maker ORDER BY name")).fetchall() == [("acme",), ("other",)]
        with pytest.raises(OperationalError, match="readonly"):
            connection.execute(sa.text("DELETE FROM maker"))
    past.dispose()


@pytest.mark.parametrize("driver", ["budwood", "budwood+budwood", "sqlite+budwood"])
def test_each_name_of_the_dialect_leads_to_it(driver: str) -> None:
    dialect = sa.make_url(f"{driver}:///shop").get_dialect()
    assert (dialect.__name__, dialect.name) == ("BudwoodDialect", "sqlite")


@pytest.mark.parametrize("url", ["budwood://host/shop", "budwood://", "budwood:///shop?lsn=x", "budwood:///shop?no=1"])
def test_a_url_that_names_no_volume_is_refused_in_words(url: str) -> None:
    with pytest.raises(ArgumentError), sa.create_engine(url).connect():
        pass
