"""Partitions: tasks as Spark sends them to executors, and the readers that plan and run them, all but streams."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Generic, Protocol, TypeVar, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from .resolution import plain_errors


class _Numbered(Protocol):
    @property
    def number(self) -> int: ...


Task = TypeVar("Task", bound=_Numbered)


class Partition(InputPartition, Generic[Task]):
    """None stands for no task at all: Spark takes an empty list for one partition that it makes itself."""

    def __init__(self, task: Task | None) -> None:
        super().__init__(task.number if task else 0)
        self.task = task


class TaskReader(DataSourceReader, Generic[Task]):
    """`plan` runs where the job is planned, `run` on executors."""

    @abstractmethod
    def plan(self) -> Sequence[Task]: ...

    @abstractmethod
    def run(self, task: Task) -> Iterator[pa.RecordBatch]: ...

    def partitions(self) -> Sequence[InputPartition]:
        with plain_errors():
            return [Partition(task) for task in self.plan()] or [Partition[Task](None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        task = cast("Partition[Task]", partition).task
        if task is not None:
            with plain_errors():
                yield from self.run(task)
