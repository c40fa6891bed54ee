"""SQLAlchemy: models in a volume, in two homes, and as they were.

.venv/bin/python examples/orm_sqlalchemy.py

A directory stands in for a node or a bucket. It needs `pip install 'budwood[sqlalchemy]'`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import cast

from sqlalchemy import URL, Engine, create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from budwood import dbapi


class Base(DeclarativeBase):
    pass


class Part(Base):
    __tablename__ = "parts"
    name: Mapped[str] = mapped_column(primary_key=True)
    count: Mapped[int]


def engine_of(home: Path, remote: str, **more: str) -> Engine:
    return create_engine(
        URL.create("budwood", database="inventory", query={"home": str(home), "remote": remote, **more})
    )


def connection_of(session: Session) -> dbapi.Connection:
    """What is below: it knows how to push and to pull."""
    return cast("dbapi.Connection", session.connection().connection.driver_connection)


def show(title: str, engine: Engine) -> None:
    with Session(engine) as session:
        print(title, [(part.name, part.count) for part in session.scalars(select(Part).order_by(Part.name))])
    engine.dispose()


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        remote = (folder / "store").as_uri()

        here = engine_of(folder / "here", remote)
        Base.metadata.create_all(here)
        with Session(here) as session:
            session.add_all([Part(name="bolt", count=40), Part(name="nut", count=60)])
            session.commit()
            print("pushed, LSN", connection_of(session).push()["lsn"])
            session.get_one(Part, "bolt").count -= 5
            session.commit()
            print("pushed, LSN", connection_of(session).push()["lsn"])
        here.dispose()

        show("there: ", engine_of(folder / "there", remote))
        show("LSN 1: ", engine_of(folder / "there", remote, lsn="1"))


if __name__ == "__main__":
    main()
