"""Workers: what one of several processes that serve as one node has beside its node (docs/design/0101)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import anyio

from ...volume.protocols import Remote
from ..metastore.log_ownership import LivenessProbe
from ..metastore.share import Share
from ..node import Node
from ..telemetry.exposition import text_of_workers
from ..telemetry.node_metrics import NodeMetrics
from .access_control import METRICS
from .asgi import ASGIApp
from .forwarding import Forwarding
from .memory_budget import BodyRoom
from .siblings import Doors, Question, Serves, Siblings
from .whole_node import WholeNode, answers_of, sibling_probe


@dataclass(slots=True)
class Worker:
    """Belongs to one event loop."""

    share: Share
    doors: Doors
    address: str = ""
    """The one that all of them are known by."""
    siblings: Siblings = field(init=False)
    _whole: WholeNode | None = None
    _node: Node | None = None
    _forwarding: Forwarding | None = None

    def __post_init__(self) -> None:
        self.siblings = Siblings(self.doors, self.share.number)

    @property
    def count(self) -> int:
        return self.share.count

    def probe(self, own: str, elsewhere: LivenessProbe) -> LivenessProbe:
        self.address = own
        return sibling_probe(self.siblings, self.share, own, elsewhere)

    def whole(self, node: Node) -> Remote:
        """What is served in the node's place."""
        self._node = node
        self._whole = WholeNode(node, self.siblings, self.share)
        return self._whole

    def forwarding(
        self, app: ASGIApp, body_room: BodyRoom, stopping: anyio.Event | None, metrics: NodeMetrics
    ) -> Forwarding:
        node = self._node
        assert node is not None
        self._forwarding = Forwarding(
            app,
            node,
            self.siblings,
            self.share,
            node.volumes.log_of,
            address=self.address,
            body_room=body_room,
            stopping=stopping,
            metrics=metrics,
        )
        return self._forwarding

    async def metrics(self) -> str:
        assert self._forwarding is not None
        question = Question(METRICS)
        told = {n: text.decode() for n, text in (await answers_of(self.siblings, self.share, question)).items()}
        return text_of_workers(told | {self.share.number: await self._forwarding.own_metrics()}, self.count)

    async def serve(self, guarded: Callable[[Serves], Serves]) -> None:
        """Answer the other workers, until cancelled."""
        assert self._forwarding is not None
        try:
            await self.siblings.serve(guarded(self._forwarding.entrance))
        finally:
            self.siblings.close()
