"""The OpenAPI 3.1 document, made from the table of calls and the message types, so that it can't lag behind them."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import msgspec

from ...volume.calls import CALLS, JSON, MSGPACK, PARTS, SEGMENT, TIMEOUT_HEADER, ErrorBody, Form, Row
from ...volume.wire import PROTOCOL, End, FramePart, PagesHead, StoreInfo
from ..telemetry.exposition import TEXT
from ..telemetry.readiness import Readiness

_REF: Final = "#/components/schemas/{name}"
_PART: Final = (
    "Parts back to back, each u32 header length, u32 body length (little-endian), header (MessagePack), body. "
    "See PagesHead, FramePart and End."
)

_TIMEOUT: Final = {
    "name": TIMEOUT_HEADER,
    "in": "header",
    "description": "How many seconds the caller waits, once the body is sent; then the node stops working for it.",
    "schema": {"type": "number", "minimum": 0},
}


@cache
def document() -> dict[str, Any]:
    """The whole document, as JSON's types."""
    kinds = {kind for call in CALLS.values() for kind in (call.request, call.answer)}
    kinds |= {StoreInfo, Readiness, ErrorBody, PagesHead, FramePart, End}
    ordered = sorted(kinds, key=lambda kind: kind.__name__)
    references, components = msgspec.json.schema_components(ordered, ref_template=_REF)
    schemas = dict(zip(ordered, references, strict=True))
    paths: dict[str, Any] = {f"/v1/{name}": {"post": _operation(name, call, schemas)} for name, call in CALLS.items()}
    paths["/healthz"] = {"get": _get("healthz", "Who this is, and that it is alive.", schemas[StoreInfo])}
    paths["/readyz"] = {"get": _get("readyz", "Whether callers should be sent here: 200, or 503.", schemas[Readiness])}
    paths["/metrics"] = {"get": _get("metrics", "What it has asked of its store.", {"type": "string"}, TEXT)}
    paths["/openapi.json"] = {"get": _get("openapi", "This document.", {"type": "object"})}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Budwood", "version": str(PROTOCOL), "summary": "Volumes of pages in an object store."},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": _BEARER}},
        },
    }


_BEARER: Final = "The node's token, a key (bwk_…), or a token signed with one (bwt_…): docs/security.md."


def _operation(name: str, call: Row[Any, Any], schemas: dict[type[msgspec.Struct], dict[str, Any]]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": name,
        "summary": call.summary,
        "security": [{}, {"token": []}],
        "parameters": [_TIMEOUT],
        "requestBody": {"required": True, "content": _request(call, schemas)},
        "responses": {"200": {"description": "Done.", "content": _answer(call, schemas)}, **_errors(schemas)},
    }
    if call.form is Form.SEGMENT_IN:
        vid = {"type": "string", "minLength": 22, "maxLength": 22}
        operation["parameters"].append(
            {"name": "vid", "in": "query", "required": True, "description": "The volume, base58.", "schema": vid}
        )
    return operation


def _request(call: Row[Any, Any], schemas: dict[type[msgspec.Struct], dict[str, Any]]) -> dict[str, Any]:
    if call.form is Form.SEGMENT_IN:
        return {SEGMENT: {"schema": {"description": "One segment: docs/formats.md."}}}
    content = _either(schemas[call.request])
    if call.form is Form.PART_IN:
        what = f"One part whose header is the {call.request.__name__} and whose body is a segment. {_PART}"
        content[PARTS] = {"schema": {"description": what}}
    return content


def _answer(call: Row[Any, Any], schemas: dict[type[msgspec.Struct], dict[str, Any]]) -> dict[str, Any]:
    if call.form is Form.PARTS_OUT:
        return {PARTS: {"schema": {"description": _PART}}}
    return _either(schemas[call.answer])


def _errors(schemas: dict[type[msgspec.Struct], dict[str, Any]]) -> dict[str, Any]:
    return {"default": {"description": "What was wrong, and what to do.", "content": _either(schemas[ErrorBody])}}


def _get(name: str, summary: str, schema: dict[str, Any], kind: str = JSON) -> dict[str, Any]:
    content = {kind: {"schema": schema}}
    return {
        "operationId": name,
        "summary": summary,
        "responses": {"200": {"description": "Done.", "content": content}},
    }


def _either(schema: dict[str, Any]) -> dict[str, Any]:
    return {kind: {"schema": schema} for kind in (JSON, MSGPACK)}
