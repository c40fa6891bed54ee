"""Garbage plans: what of a log is about to be deleted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .basics import Damaged, Fields
from .envelopes import features_of, unseal


@dataclass(frozen=True)
class Plan:
    key: str
    number: int
    base: str
    rollup: str
    first: int
    slot: int
    folds: list[tuple[bytes, str, bytes]]
    """The volume, the checkpoint, and its deadlist's digest."""
    rejected: list[int]
    settled: list[int]
    due: int | None
    """Since when."""


def plans_of(objects: Mapping[str, bytes], log: str) -> dict[str, Plan]:
    """All that stand, by name."""
    prefix = f"logs/{log}/gc/"
    found = {key[len(prefix) :].partition("/") for key in objects if key.startswith(prefix)}
    if others := {what for _, _, what in found} - {"plan", "due"}:
        raise Damaged(prefix, f"{others} stand among the garbage plans")
    due = {name: _due(objects, log, name) for name, _, what in found if what == "due"}
    return {name: _plan(objects, log, name, due.get(name)) for name, _, what in found if what == "plan"}


def _plan(objects: Mapping[str, bytes], log: str, name: str, due: int | None) -> Plan:
    key = f"logs/{log}/gc/{name}/plan"
    fields = _fields(objects, key, b"BWGP", log, name)
    if any(each.number("shard", 0) for each in fields.maps("fragments")) and not features_of(objects[key]) & 1:
        raise Damaged(key, "fragments of its lie in shards, and it has no bit that says so")
    folds = [(each.data("vid"), each.text("checkpoint"), each.data("deadlist")) for each in fields.maps("folds")]
    return Plan(
        key,
        fields.number("number"),
        fields.text("base", ""),
        fields.text("rollup"),
        fields.number("first", 1),
        fields.number("slot", 0),
        folds,
        fields.items("rejected"),
        fields.items("settled"),
        due,
    )


def _due(objects: Mapping[str, bytes], log: str, name: str) -> int:
    return _fields(objects, f"logs/{log}/gc/{name}/due", b"BWGD", log, name).number("time")


def _fields(objects: Mapping[str, bytes], key: str, magic: bytes, log: str, name: str) -> Fields:
    fields = unseal(key, magic, objects[key]).fields
    if (fields.text("log"), f"{fields.number('number'):016x}") != (log, name):
        raise Damaged(key, "it is another plan's")
    return fields
