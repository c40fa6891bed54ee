"""What a volume remembers, at the command line: pins, pin, unpin, retain. All of it happens on the remote; the volume
need not be here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Final

from ..volume.errors import BadInput, NotFound
from ..volume.ids import PinId, VolumeId
from .common_options import At, Context, Json, Lsn, Name, argument, flag, option
from .durations import duration_of, seconds_of
from .exit_status import Call
from .output import Column, say, time_of, write_facts, write_json, write_table
from .syncing import on_remote

if TYPE_CHECKING:
    from ..remote.portal import BlockingRemote
    from ..sync.edge import Edge
    from ..volume.calls import PinRequest
    from ..volume.pins import Pin
    from ..volume.retention_policy import RetentionPolicy

_MOVE_SECONDS: Final = 300.0
_FOR_EVER: Final = "ever"
_EVERYTHING: Final = "every LSN, for ever"
_WORDS: Final = {"all": "every LSN", "hourly": "one an hour", "daily": "one a day"}


def pins(context: Context, name: Name, as_json: Json = False) -> None:
    """List the pins that hold LSNs of a volume."""
    with closing(context.edge()) as edge:
        found = _pins(*on_remote(edge, name))
    if as_json:
        write_json([_row(pin) for pin in found])
        return
    titles = ("id", "lsn", "kind", "label", "owner", "until", "state")
    write_table(
        [Column(title, "right" if title == "lsn" else "left") for title in titles],
        [[str(p.pin_id), str(p.lsn), p.kind, p.label, p.owner, _until(p), p.state.value] for p in found],
        empty=f"nothing pins {name}",
    )


def _until(pin: Pin) -> str:
    return time_of(pin.expiry) or ("it is removed" if pin.kind == "fork" else "for ever")


def pin(
    context: Context,
    name: Name,
    lsn: Lsn = None,
    at: At = None,
    lasting: Annotated[str | None, option("--for", "TIME", "90s, 15m, 12h, 7d, 4w, 1y.", default="for ever")] = None,
    label: Annotated[str | None, option("--as", "LABEL", "Call the LSN so: `--at @LABEL` reads it.")] = None,
    owner: Annotated[str, option("--owner", "TEXT", "Whom it is for.")] = "",
    move: Annotated[bool, flag("--move", "Take the label from the LSN that has it.")] = False,
) -> None:
    """Hold a volume's newest LSN, or another, so that it can be read whatever is forgotten."""
    from ..volume.calls import PIN, PinRequest
    from ..volume.pins import check_label

    if lsn is not None and at is not None:
        raise BadInput("give an LSN or a time, not both")
    if label is not None:
        check_label(label)
    elif move:
        raise Call("--move takes a label along: say which with --as LABEL")
    seconds = 0.0 if lasting is None else seconds_of(lasting)
    with closing(context.edge()) as edge:
        remote, vid = on_remote(edge, name)
        if at is not None:
            lsn = _lsn_at(remote, vid, at)
        kind = "named" if label is not None or not seconds else "lease"
        one = PinId.new().raw if label is None else b""
        request = PinRequest(vid.raw, lsn=lsn, seconds=seconds, owner=owner, kind=kind, pin=one, label=label or "")
        made = _moved(remote, request) if move else remote.ask(PIN, request)
    until = f"until {time_of(made.expiry)}" if made.expiry else "for ever"
    called = f" as @{made.label}" if made.label else ""
    say(f"pinned LSN {made.lsn} of {name}{called} {until}: {made.pin_id}")


def unpin(
    context: Context,
    name: Name,
    pin: Annotated[str, argument("ID|@LABEL", "As `budwood pins` lists it.")],
) -> None:
    """Release a pin."""
    from ..volume.calls import UNPIN, UnpinRequest

    one = None if pin.startswith("@") else PinId.parse(pin)
    with closing(context.edge()) as edge:
        remote, vid = on_remote(edge, name)
        if one is None:
            one = next((each.pin_id for each in _pins(remote, vid) if each.label == pin[1:]), None)
            if one is None:
                raise NotFound(f"no LSN of {name} is called {pin[1:]!r}: `budwood pins {name}` lists those that are")
        remote.ask(UNPIN, UnpinRequest(vid.raw, pin=one.raw))
    say(f"released pin {pin} of {name}")


def retain(
    context: Context,
    name: Annotated[str | None, argument("[NAME]", "The volume's name.")] = None,
    every: Annotated[
        str | None, option("--all", "TIME|ever", "Each LSN stays for so long: 90s, 15m, 12h, 7d, 4w, 1y.")
    ] = None,
    hourly: Annotated[str | None, option("--hourly", "TIME", "One for each full hour, for so long.")] = None,
    daily: Annotated[str | None, option("--daily", "TIME", "One for each midnight (UTC), for so long.")] = None,
    since: Annotated[str | None, option("--since", "LSN|TIME|@LABEL", "Forget what lies below, now.")] = None,
    default: Annotated[
        bool, flag("--default", "Of every volume without a policy of its own; with NAME: have none.")
    ] = False,
    show: Annotated[bool, flag("--show", "Say what stays, and do nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Say for how long a volume's LSNs stay readable, or from which on. What a pin or a fork holds stays, too."""
    terms = {"--all": every, "--hourly": hourly, "--daily": daily}
    said = [option for option, value in terms.items() if value is not None]
    if show:
        if said or since is not None:
            raise Call(f"--show changes nothing: leave out {said[0] if said else '--since'}")
    elif as_json:
        raise Call("--json is how --show says it: add --show")
    elif since is not None and (said or default):
        raise Call(f"--since forgets at once, {said[0] if said else '--default'} from here on: give one of the two")
    elif name is not None and default and said:
        raise Call(f"--default lets {name} go by the store's policy: leave out {said[0]}, or the name")
    elif not said and since is None and not (name is not None and default):
        raise Call("say what stays readable, --all 7d --hourly 30d --daily 1y or --since LSN; or ask with --show")
    if name is None and not default:
        raise Call("say of which volume, or of all that don't say it themselves: --default")
    policy = policy_of(every, hourly, daily) if said else None
    with closing(context.edge()) as edge:
        if name is None:
            _retain_default(edge, policy, show=show, as_json=as_json)
        elif show:
            _show(*on_remote(edge, name), name, as_json=as_json)
        elif since is not None:
            _advance(*on_remote(edge, name), name, since)
        else:
            _retain(*on_remote(edge, name), name, policy)


VERBS: Final[dict[str, Callable[..., None]]] = {"pins": pins, "pin": pin, "unpin": unpin, "retain": retain}


def _pins(remote: BlockingRemote, vid: VolumeId) -> tuple[Pin, ...]:
    from ..volume.calls import PINS, VolumeRequest

    return remote.ask(PINS, VolumeRequest(vid.raw)).pins


def _moved(remote: BlockingRemote, request: PinRequest) -> Pin:
    """The label leaves the LSN that has it. Both LSNs are held meanwhile: neither is forgotten in between."""
    from msgspec.structs import replace

    from ..volume.calls import PIN, SNAPSHOT, UNPIN, PinRequest, SnapshotRequest, UnpinRequest

    vid = VolumeId(request.vid)
    lsn = request.lsn if request.lsn is not None else remote.ask(SNAPSHOT, SnapshotRequest(vid.raw)).lsn
    before = next((pin for pin in _pins(remote, vid) if pin.label == request.label and pin.holds), None)
    if before is not None and before.lsn != lsn:
        for held in (before.lsn, lsn):
            remote.ask(PIN, PinRequest(vid.raw, pin=PinId.new().raw, lsn=held, seconds=_MOVE_SECONDS, kind="lease"))
        remote.ask(UNPIN, UnpinRequest(vid.raw, pin=before.pin_id.raw))
    return remote.ask(PIN, replace(request, lsn=lsn))


def _lsn_at(remote: BlockingRemote, vid: VolumeId, at: str) -> int:
    from ..volume.as_of import snapshot_request
    from ..volume.calls import SNAPSHOT

    return remote.ask(SNAPSHOT, snapshot_request(vid, at=at)).lsn


def policy_of(every: str | None, hourly: str | None, daily: str | None) -> RetentionPolicy:
    """What --all, --hourly and --daily say. Raises BadInput."""
    from ..volume.retention_policy import RetentionPolicy, check_policy

    every = None if every == _FOR_EVER else every
    all_ms, hourly_ms, daily_ms = (
        0 if term is None else max(1, round(seconds_of(term) * 1000)) for term in (every, hourly, daily)
    )
    policy = RetentionPolicy(all_ms=all_ms, hourly_ms=hourly_ms, daily_ms=daily_ms)
    check_policy(policy)
    return policy


def _retain(remote: BlockingRemote, vid: VolumeId, name: str, policy: RetentionPolicy | None) -> None:
    from ..volume.calls import RETAIN, RETAINED, RetainRequest, VolumeRequest

    remote.ask(RETAIN, RetainRequest(vid.raw, policy=policy))
    if policy is not None:
        say(f"{name} keeps {_words_of(policy)}")
    else:
        default = remote.ask(RETAINED, VolumeRequest(vid.raw)).default
        say(f"{name} keeps what the store's default says: {_words_of(default)}")


def _retain_default(edge: Edge, policy: RetentionPolicy | None, *, show: bool, as_json: bool) -> None:
    from ..volume.calls import RETAIN_DEFAULT, RETAINED_DEFAULT, Done, RetainDefaultRequest

    remote = edge.connection().remote
    if not show:
        remote.ask(RETAIN_DEFAULT, RetainDefaultRequest(policy=policy))
        say(f"volumes without a policy of their own keep {_words_of(policy)}")
        return
    stands = remote.ask(RETAINED_DEFAULT, Done()).policy
    if as_json:
        write_json([{"policy": _terms_of(stands)}])
    else:
        say(f"volumes without a policy of their own keep {_words_of(stands)}")


def _advance(remote: BlockingRemote, vid: VolumeId, name: str, since: str) -> None:
    from ..volume.calls import ADVANCE, SinceRequest

    # What was the volume at that time stays readable.
    lsn = int(since) if since.isascii() and since.isdecimal() else max(1, _lsn_at(remote, vid, since))
    stands = remote.ask(ADVANCE, SinceRequest(vid.raw, since=lsn)).since
    below = f", as before: it doesn't go back to {lsn}" if stands > lsn else ""
    say(f"{name} is readable from LSN {stands} on{below}")


def _show(remote: BlockingRemote, vid: VolumeId, name: str, *, as_json: bool) -> None:
    from ..volume.calls import RETAINED, VolumeRequest

    told = remote.ask(RETAINED, VolumeRequest(vid.raw))
    kinds = dict(sorted(Counter(pin.kind for pin in _pins(remote, vid)).items()))
    policy = told.default if told.policy is None else told.policy
    whose = "volume" if told.policy is not None else "default" if told.default is not None else None
    if as_json:
        row = {"name": name, "policy": _terms_of(policy), "from": whose}
        write_json([row | {"since": told.since, "oldest": told.oldest, "lsn": told.head, "pins": kinds}])
        return
    said_by = {"volume": "the volume itself", "default": "the store's default", None: "nobody"}[whose]
    write_facts(
        [
            ("keeps", _words_of(policy)),
            ("said by", said_by),
            ("since", str(told.since)),
            ("oldest", str(told.oldest)),
            ("newest", str(told.head)),
            ("pins", ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "none"),
        ]
    )


def _words_of(policy: RetentionPolicy | None) -> str:
    terms = _terms_of(policy) or {}
    return ", ".join(f"{_WORDS[which]} for {duration_of(ms)}" for which, ms in terms.items() if ms) or _EVERYTHING


def _terms_of(policy: RetentionPolicy | None) -> dict[str, int | None] | None:
    """In milliseconds."""
    if policy is None:
        return None
    terms = {"all": policy.all_ms, "hourly": policy.hourly_ms, "daily": policy.daily_ms}
    return {which: ms or None for which, ms in terms.items()}


def _row(pin: Pin) -> dict[str, object]:
    return {
        "id": str(pin.pin_id),
        "lsn": pin.lsn,
        "kind": pin.kind,
        "label": pin.label or None,
        "owner": pin.owner,
        "expiry": pin.expiry or None,
        "state": pin.state.value,
    }
