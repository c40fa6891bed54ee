"""S3Server: enough of S3 on loopback for obstore's own client to be tested against, with nothing but the standard
library.

    with S3Server() as server, server.environment():
        store = await open_store("s3://bucket/prefix")

It has one bucket, `bucket`, and answers GET (ranges), HEAD, PUT with If-None-Match, DeleteObjects and ListObjectsV2
as S3 does, errors included. Requests must be signed (Signature Version 4) with one of its `keys`, for its region; those
for a `public` bucket need not. `faults` are taken one per request from the front: "503" refuses it, "cut" closes the
connection before it happened, "lose" after it did.
"""

from __future__ import annotations

import hmac
import os
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from email.utils import formatdate
from hashlib import sha256
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self, TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

_SIGNED = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/s3/aws4_request, *SignedHeaders=([^,]+), *Signature=(\w+)"
)

Creates: TypeAlias = Literal["honoured", "refused", "racing"]
Fault: TypeAlias = Literal["", "503", "cut", "lose"]


class S3Server:
    """Listens on a free port of 127.0.0.1, unless told, between `__enter__` and `__exit__`. Thread-safe."""

    def __init__(
        self,
        *,
        honours_create: bool = True,
        page_keys: int = 1000,
        keys: Mapping[str, str] | None = None,
        region: str = "us-east-1",
        public: bool = False,
        creates: Creates = "honoured",
        ahead_seconds: float = 0.0,
        latency_seconds: float = 0.0,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        """`keys`: secrets by access key, `key` and `secret` unless told. `creates`: what becomes of If-None-Match;
        where they are "racing", two look before either has written. `ahead_seconds`: its clock."""
        self.objects: dict[str, bytes] = {}
        self.faults: deque[Fault] = deque()
        self.requests: list[str] = []
        """Method and path of each."""
        self.honours_create = honours_create
        self.creates = creates
        self.ahead_seconds = ahead_seconds
        self.latency_seconds = latency_seconds
        self.looked = threading.Barrier(2)
        self.page_keys = page_keys
        self.keys = dict(keys or {"key": "secret"})
        self.region = region
        self.public = public
        self.lock = threading.Lock()
        self._server = _Server((host, port), type("Handler", (_Handler,), {"owner": self}))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def endpoint(self) -> str:
        return f"http://{self._server.server_address[0]!s}:{self._server.server_address[1]}"

    @contextmanager
    def environment(self) -> Generator[None, None, None]:
        """The variables by which obstore finds this server."""
        ours = {
            "AWS_ENDPOINT": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": next(iter(self.keys)),
            "AWS_SECRET_ACCESS_KEY": next(iter(self.keys.values())),
            "AWS_REGION": self.region,
        }
        before = {name: os.environ.get(name) for name in ours}
        os.environ.update(ours)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who asks may leave: a request that was sent twice is answered once."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    owner: S3Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    _silent = False

    def do_GET(self) -> None:
        self._serve(self._get)

    def do_HEAD(self) -> None:
        self._serve(self._get)

    def do_PUT(self) -> None:
        self._serve(self._put)

    def do_POST(self) -> None:
        self._serve(self._delete)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing is logged; `requests` has what came."""

    def _serve(self, answer: Any) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        time.sleep(self.owner.latency_seconds)
        url = urlsplit(self.path)
        bucket, _, key = unquote(url.path).lstrip("/").partition("/")
        with self.owner.lock:
            self.owner.requests.append(f"{self.command} {url.path}")
            fault = self.owner.faults.popleft() if self.owner.faults else ""
        if fault == "cut":
            self.close_connection = True
            return
        if fault == "503":
            self._error(HTTPStatus.SERVICE_UNAVAILABLE, "SlowDown")
            return
        self._silent = fault == "lose"
        refused = self._refusal(url.path, url.query)
        if refused:
            status, code, more = refused
            self._error(status, code, more)
        elif bucket != "bucket":
            self._error(HTTPStatus.NOT_FOUND, "NoSuchBucket")
        else:
            answer(key, body, parse_qs(url.query, keep_blank_values=True))

    def _refusal(self, path: str, query: str) -> tuple[HTTPStatus, str, str] | None:
        """Why the request isn't answered: status, S3's word, further elements."""
        given = _SIGNED.fullmatch(self.headers.get("Authorization", ""))
        if given is None:
            return None if self.owner.public else (HTTPStatus.FORBIDDEN, "AccessDenied", "")
        key, day, region, names, signature = given.groups()
        secret = self.owner.keys.get(key)
        if secret is None:
            return HTTPStatus.FORBIDDEN, "InvalidAccessKeyId", ""
        if region != self.owner.region:
            words = f"the region '{region}' is wrong; expecting '{self.owner.region}'"
            more = f"<Message>{escape(words)}</Message><Region>{self.owner.region}</Region>"
            return HTTPStatus.BAD_REQUEST, "AuthorizationHeaderMalformed", more
        fields = [f"{name}:{' '.join(self.headers.get(name, '').split())}\n" for name in names.split(";")]
        asked = "&".join(sorted(part if "=" in part else f"{part}=" for part in query.split("&") if part))
        content = self.headers.get("x-amz-content-sha256", "")
        canonical = "\n".join((self.command, path, asked, "".join(fields), names, content))
        scope = f"{day}/{region}/s3/aws4_request"
        at = self.headers.get("x-amz-date", "")
        to_sign = f"AWS4-HMAC-SHA256\n{at}\n{scope}\n{sha256(canonical.encode()).hexdigest()}"
        made = f"AWS4{secret}".encode()
        for part in (*scope.split("/"), to_sign):
            made = hmac.digest(made, part.encode(), "sha256")
        if not hmac.compare_digest(made.hex(), signature):
            return HTTPStatus.FORBIDDEN, "SignatureDoesNotMatch", ""
        return None

    def _get(self, key: str, _body: bytes, query: dict[str, list[str]]) -> None:
        if not key:
            self._list(query)
            return
        data = self.owner.objects.get(key)
        if data is None:
            self._error(HTTPStatus.NOT_FOUND, "NoSuchKey")
            return
        span = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if span is None:
            self._send(HTTPStatus.OK, data)
            return
        first, last = span.groups()
        start = int(first) if first else max(len(data) - int(last), 0)
        end = min(int(last) + 1, len(data)) if first and last else len(data)
        if start >= len(data):
            self._error(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, "InvalidRange")
            return
        self._send(
            HTTPStatus.PARTIAL_CONTENT, data[start:end], **{"Content-Range": f"bytes {start}-{end - 1}/{len(data)}"}
        )

    def _put(self, key: str, body: bytes, _query: dict[str, list[str]]) -> None:
        if self.owner.creates == "refused" and self.headers.get("If-None-Match"):
            self._error(HTTPStatus.NOT_IMPLEMENTED, "NotImplemented")
            return
        if self.owner.creates == "racing" and key not in self.owner.objects:
            # Two that found nothing go on together; one that is alone does, too.
            with suppress(threading.BrokenBarrierError):
                self.owner.looked.wait(0.05)
            self.owner.looked.reset()
            self.owner.objects[key] = body
            self._send(HTTPStatus.OK)
            return
        with self.owner.lock:
            taken = key in self.owner.objects and self.owner.honours_create
            if not (taken and self.headers.get("If-None-Match") == "*"):
                self.owner.objects[key] = body
                taken = False
        if taken:
            self._error(HTTPStatus.PRECONDITION_FAILED, "PreconditionFailed")
        else:
            self._send(HTTPStatus.OK)

    def _delete(self, _key: str, body: bytes, _query: dict[str, list[str]]) -> None:
        keys = [unescape(key) for key in re.findall(r"<Key>(.*?)</Key>", body.decode())]
        with self.owner.lock:
            for key in keys:
                self.owner.objects.pop(key, None)
        rows = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
        self._send(HTTPStatus.OK, f"<DeleteResult>{rows}</DeleteResult>".encode())

    def _list(self, query: dict[str, list[str]]) -> None:
        def of(name: str) -> str:
            return query.get(name, [""])[0]

        behind = max(of("start-after"), of("continuation-token"))
        with self.owner.lock:
            keys = sorted(key for key in self.owner.objects if key.startswith(of("prefix")) and key > behind)
            page = [(key, len(self.owner.objects[key])) for key in keys[: self.owner.page_keys]]
        more = len(keys) > len(page)
        at = "2000-01-01T00:00:00.000Z"
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{size}</Size><LastModified>{at}</LastModified></Contents>"
            for key, size in page
        )
        token = f"<NextContinuationToken>{escape(page[-1][0])}</NextContinuationToken>" if more else ""
        cut = f"<IsTruncated>{str(more).lower()}</IsTruncated>"
        self._send(HTTPStatus.OK, f"<ListBucketResult>{cut}{token}{rows}</ListBucketResult>".encode())

    def _error(self, status: HTTPStatus, code: str, more: str = "") -> None:
        self._send(status, f"<Error><Code>{code}</Code>{more}</Error>".encode())

    def _send(self, status: HTTPStatus, body: bytes = b"", **headers: str) -> None:
        if self._silent:
            self.close_connection = True
            return
        self.send_response(status)
        made = formatdate(time.time() + self.owner.ahead_seconds, usegmt=True)
        headers |= {"Content-Length": str(len(body)), "ETag": '"-"', "Last-Modified": made}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
