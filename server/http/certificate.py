"""Certificate: what a node shows of itself where it speaks TLS, from two PEM files that an operator gives it.

Granian reads them as it starts, and TLS 1.3 is the least that it speaks. So a certificate that was renewed is shown
once the node is started again.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NamedTuple

from ...volume.errors import BadInput


class Certificate(NamedTuple):
    chain: Path
    """The node's own certificate first, then those that vouch for it."""
    key: Path

    def check(self) -> None:
        """Raises BadInput unless both can be read, and belong together."""
        for path in self:
            try:
                path.read_bytes()
            except OSError as error:
                raise BadInput(f"{path} can't be read: {error.strerror}") from error
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.chain, self.key, password=_nothing)
        except (ssl.SSLError, ValueError) as error:
            words = f"{self.chain} and {self.key} are no certificate with its key (PEM, the key with no password)"
            raise BadInput(f"{words} ({error})") from error


def _nothing() -> str:
    """Else OpenSSL would ask at the terminal."""
    return ""
