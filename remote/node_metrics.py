"""Node metrics: the text that a node tells Prometheus under `/metrics`."""

from __future__ import annotations

from typing import Final

import msgspec

from ..volume.calls import ErrorBody
from ..volume.decoded_kinds import decodable
from ..volume.errors import Unavailable
from ..volume.wire import from_wire
from .import_httpx import import_httpx
from .token import Tokens

_SECONDS: Final = 10.0


def metrics_text(url: str, token: str = "") -> str:
    """Raises Unavailable where nobody answers, and what a node answers: Unauthorized, Forbidden."""
    import_httpx()
    import httpx

    shown = Tokens.of(token).for_remote(url)
    headers = {"authorization": f"Bearer {shown}"} if shown else {}
    try:
        answer = httpx.get(f"{url}/metrics", headers=headers, timeout=_SECONDS, follow_redirects=False)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise Unavailable(f"can't reach {url} ({error}): is a node listening there?") from error
    if answer.is_success:
        return answer.text
    try:
        body = msgspec.json.decode(answer.content, type=decodable(ErrorBody))
    except msgspec.MsgspecError:
        raise Unavailable(f"{url} answers {answer.status_code} where a node has its metrics") from None
    raise from_wire(body.code, body.message, body.details)
