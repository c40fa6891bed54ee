"""The network: one proxy at a time is cut, or stalls, for seconds."""

from __future__ import annotations

from collections.abc import Sequence

from .proxy import Network, Proxy
from .world import World


class NetworkActor:
    def __init__(self, world: World, proxies: Sequence[Proxy]) -> None:
        self._world = world
        self._proxies = proxies
        self._dice = world.dice("network")

    def run(self) -> None:
        while self._world.rest(self._dice.uniform(1.0, 8.0)):
            proxy = self._dice.choice(self._proxies)
            proxy.state = self._dice.choice([Network.CUT, Network.STALL])
            self._world.report.fault(f"network {proxy.state.value}")
            self._world.rest(self._dice.uniform(0.5, 8.0))
            proxy.state = Network.PASS

    def stop(self) -> None:
        for proxy in self._proxies:
            proxy.state = Network.PASS
