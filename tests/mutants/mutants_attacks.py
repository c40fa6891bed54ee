"""Mutants of what keeps clumsy and hostile callers out."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

KEPT: Final = "tests/attack/test_kept_records.py"
SEGMENTS: Final = "tests/attack/test_segments.py"
WEB_PAGE: Final = "tests/attack/test_web_page.py"
TOKEN: Final = "tests/attack/test_token.py"
SLOW: Final = "tests/attack/test_slow.py"
HOSTILE: Final = "tests/attack/test_hostile_remote.py"

MUTANTS: Final = (
    Mutant(
        "attack: attributes may be nested as deep as the decoder goes",
        "volume/name_attributes.py",
        "        if depth > MOST_ATTRIBUTES_DEPTH:\n",
        "        if depth > 100_000:\n",
        (KEPT, "-k", "nested_deep"),
    ),
    Mutant(
        "attack: attributes that were admitted once stop their readers",
        "server/metastore/namespace_state.py",
        "record.attributes if is_readable(record.attributes) else {}",
        "record.attributes",
        (KEPT, "-k", "any_depth"),
    ),
    Mutant(
        "attack: what was written higher in the stack can't be read lower",
        "volume/envelope.py",
        "    except RecursionError:\n        with",
        "    except ZeroDivisionError:\n        with",
        (KEPT, "-k", "any_depth"),
    ),
    Mutant(
        "attack: a message nested deep is the node's failure",
        "volume/envelope.py",
        "UnicodeDecodeError, RecursionError)",
        "UnicodeDecodeError)",
        (KEPT, "-k", "any_call"),
    ),
    Mutant(
        "attack: attributes of any size",
        "volume/name_attributes.py",
        "    if size > MOST_ATTRIBUTES_BYTES:\n",
        "    if size > 15_000_000:\n",
        (KEPT, "-k", "nobody_needs"),
    ),
    Mutant(
        "attack: a listing of any size",
        "server/metastore/namespace_state.py",
        "not self._room or self._bytes >= MOST_ANSWER_BYTES",
        "not self._room",
        (KEPT, "-k", "a_listing"),
    ),
    Mutant(
        "attack: a history of any size",
        "server/metastore/lineage.py",
        "len(found) == limit or size >= MOST_ANSWER_BYTES",
        "len(found) == limit",
        (KEPT, "-k", "a_history"),
    ),
    Mutant(
        "attack: a nonce of any size",
        "server/metastore/content.py",
        "    if len(request.nonce) > MOST_NONCE_BYTES:\n",
        "    if len(request.nonce) > 15_000_000:\n",
        (KEPT, "-k", "keeps_no_more"),
    ),
    Mutant(
        "attack: a page set with whatever follows it",
        "server/metastore/content.py",
        "    if len(request.pages) > _PAGE_SET_BYTES + _BYTES_A_PAGE * len(pages):\n",
        "    if not request.pages:\n",
        (KEPT, "-k", "keeps_no_more"),
    ),
    Mutant(
        "attack: frames may share bytes",
        "volume/segment.py",
        "    _check_contiguous(key, parsed, hashes_at)\n",
        "",
        (SEGMENTS, "-k", "one_after_another or go_together"),
    ),
    Mutant(
        "attack: bytes behind the last frame are nobody's",
        "volume/segment.py",
        "    if at != end:\n",
        "    if at > end:\n",
        (SEGMENTS, "-k", "one_after_another"),
    ),
    Mutant(
        "attack: a frame may be longer than its pages",
        "volume/segment.py",
        " and length <= most_bytes",
        "",
        (SEGMENTS, "-k", "one_after_another"),
    ),
    Mutant(
        "attack: an index is unpacked whatever it stands for",
        "volume/segment.py",
        "<= min(most_bytes, MAX_INDEX_BYTES)",
        "<= MAX_INDEX_BYTES",
        (SEGMENTS, "-k", "an_index_takes"),
    ),
    Mutant(
        "attack: a segment of any number of pages",
        "server/pagestore/write_segment.py",
        "SegmentIndex.of_segment(what, segment, most_pages=MOST_SEGMENT_BYTES // page_size)",
        "SegmentIndex.of_segment(what, segment)",
        (SEGMENTS, "-k", "no_more_pages"),
    ),
    Mutant(
        "attack: a packer counts stored bytes alone",
        "volume/pack.py",
        " or len(held) * self.page_size >= PLAIN_BYTES",
        "",
        (SEGMENTS, "-k", "no_more_pages"),
    ),
    Mutant(
        "attack: a location is named as often as one likes",
        "server/metastore/content.py",
        "    if len({location.object for location in request.locations}) != len(request.locations):\n",
        "    if not request.client:\n",
        (SEGMENTS, "-k", "named_once"),
    ),
    Mutant(
        "attack: a frame is valid for pages that it doesn't hold",
        "remote/page_answers.py",
        "        if not valid <= held:\n",
        "        if not held:\n",
        (HOSTILE, "-k", "goes_beyond and valid"),
    ),
    Mutant(
        "attack: frames come without end",
        "remote/page_answers.py",
        "        if self._left_bytes < 0:\n",
        "        if len(stored) < 0:\n",
        (HOSTILE, "-k", "goes_beyond and end"),
    ),
    Mutant(
        "attack: a reader believes any page size",
        "volume/wire.py",
        "check_page_size(view.page_size)",
        "max(1, view.page_size)",
        (HOSTILE, "-k", "gigabyte or can_not_be"),
    ),
    Mutant(
        "attack: a body of any type is read",
        "server/http/body.py",
        "    if given in _TYPES[form]:\n",
        "    if given is not None:\n",
        (WEB_PAGE, "-k", "any_page_can_send"),
    ),
    Mutant(
        "attack: a page of any origin may call",
        "server/http/access_control.py",
        'for origin in _header(scope, b"origin"):\n',
        'for origin in _header(scope, b"x-origin"):\n',
        (WEB_PAGE, "-k", "another_origin"),
    ),
    Mutant(
        "attack: any name that leads here is the node's",
        "server/http/access_control.py",
        "        if not self.expected and self.access is None:\n",
        "        if not hosts:\n",
        (WEB_PAGE, "-k", "leads_here"),
    ),
    Mutant(
        "attack: a store's owners get whatever token is set",
        "remote/open.py",
        "    tokens = tokens.withhold()\n",
        "",
        (TOKEN, "-k", "store_names"),
    ),
    Mutant(
        "attack: an owner is followed with a token in hand",
        "remote/token.py",
        "        if own and (self.for_remote(home) or self.scoped):\n",
        "        if own and self.scoped:\n",
        (TOKEN, "-k", "names_gets_no_token"),
    ),
    Mutant(
        "attack: an owner is followed from https to http",
        "remote/token.py",
        'if own.startswith("https:") and not',
        'if own.startswith("ftp:") and not',
        (TOKEN, "-k", "from_https"),
    ),
    Mutant(
        "attack: a token goes over plain http",
        "remote/token.py",
        '        if origin.startswith("http://") and not is_loopback(origin):\n',
        '        if origin.startswith("ftp://") and not is_loopback(origin):\n',
        (TOKEN, "-k", "plain_http"),
    ),
    Mutant(
        "attack: a remembered remote gets whatever token is set",
        "sync/tokens.py",
        "    return tokens if known == _digest(environment, tokens.bare) else tokens.withhold()\n",
        "    return tokens if known or tokens else tokens\n",
        (TOKEN, "-k", "remembered or remembers"),
    ),
    Mutant(
        "attack: a URI takes the token to where it says",
        "vfs/connect.py",
        "        if given and origin_of(given) == origin_of(request.remote):\n",
        "        if given:\n",
        (TOKEN, "-k", "uri_takes"),
    ),
    Mutant(
        "attack: a URI takes a lite client's token to where it says",
        "lite/client.py",
        "token = elsewhere(options.token, options.remote, request.remote)",
        "token = options.token",
        (TOKEN, "-k", "uri_takes"),
    ),
    Mutant(
        "attack: a node that stops leaves what is under way behind",
        "server/http/run_node.py",
        "        for request in self._requests:\n            request.cancel()\n",
        "        pass\n",
        (SLOW, "-k", "node_that_stops"),
    ),
    Mutant(
        "attack: who idles keeps his room",
        "server/http/memory_budget.py",
        "            longest.end()\n",
        "            pass\n",
        (SLOW, "-k", "taken_from_who_idles"),
    ),
    Mutant(
        "attack: room is given to whoever comes",
        "server/http/memory_budget.py",
        "        return first and self.held_bytes + amount_bytes <= self.limit_bytes\n",
        "        return first or amount_bytes > 0\n",
        (SLOW, "-k", "taken_from_who_idles or one_line"),
    ),
    Mutant(
        "attack: room is waited for longer than the caller waits",
        "server/http/memory_budget.py",
        "deadline=min(room, reservation.deadline)",
        "deadline=room",
        (SLOW, "-k", "one_line"),
    ),
    Mutant(
        "attack: a reader below the least pace goes on",
        "server/http/memory_budget.py",
        "        if self.scope.cancelled_caught:\n",
        "        if self.scope is None:\n",
        (SLOW, "-k", "below_the_least_pace"),
    ),
    Mutant(
        "attack: a body below the least pace goes on",
        "server/http/body.py",
        "            if stretch_bytes >= pace.least_bytes:\n",
        "            if stretch_bytes:\n",
        (SLOW, "-k", "trickles_is_given_up"),
    ),
    Mutant(
        "attack: a large write has its place while its body comes",
        "server/http/app.py",
        "        async with self.body_room(request).hold(patience_seconds=patience.seconds) as reservation:\n"
        "            body = await read_pages_body(request, reservation)\n",
        "        async with self.writes, self.body_room(request).hold() as reservation:\n"
        "            body = await read_pages_body(request, reservation)\n",
        (SLOW, "-k", "no_large_write_waiting"),
    ),
    Mutant(
        "attack: a head may take for ever",
        "server/http/run_node.py",
        "        head_ms = max(1, round(pace.head_seconds * 1000))\n",
        "        head_ms = 3_600_000\n",
        (SLOW, "-k", "a_head_that"),
    ),
)
