"""Metrics of an edge, as text for Prometheus: on standard output, or as a file that a textfile collector reads."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from ..volume.errors import BadInput
from .common_options import Context, option

if TYPE_CHECKING:
    from ..sync.autosync import Autosync
    from ..sync.edge import Edge

EVERY_SECONDS: Final = 15.0
"""Between two files of autosync's."""


def metrics(
    context: Context,
    out: Annotated[Path | None, option("--out", "FILE", "Write this file, whole or not at all.")] = None,
) -> None:
    """Figures of this home, and of its mount, for Prometheus."""
    text = _text(context)
    if out is None:
        print(text, end="")
    else:
        write_whole(out, text)


def _text(context: Context) -> str:
    mount = context.running()
    if mount is not None:
        from ..fuse.names.virtual import metrics_text

        return metrics_text(mount.ask("metrics"))
    with closing(context.edge()) as edge:
        return text_of_home(edge)


def text_of_home(edge: Edge, syncing: Autosync | None = None) -> str:
    """With what whoever syncs it has done, if it is this process."""
    from ..sync.exposition import prometheus
    from ..sync.home_figures import PREFIX, home_figures

    figures = dict(home_figures(edge.volumes()))
    if syncing is None:
        return prometheus(figures, PREFIX)
    leads = {"sync_leads": syncing.is_leader, "volumes_in_trouble": syncing.trouble}
    return prometheus({**figures, **leads, **syncing.counts.figures()}, PREFIX)


def write_whole(path: Path, text: str) -> None:
    """Whoever reads it meanwhile has the old one or the new one. Raises BadInput."""
    # A collector reads what ends in .prom.
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        new.write_text(text)
        new.replace(path)
    except OSError as error:
        with suppress(OSError):
            new.unlink()
        raise BadInput(f"can't write {path} ({error.strerror}): name a file in a folder of yours") from error


VERBS: Final[dict[str, Callable[..., None]]] = {"metrics": metrics}
