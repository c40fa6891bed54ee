"""Rule 1: which entries count; and rule 9: which rollups they name, and how a chain goes on behind one. The table, what
is refused as damage, the traces of the texts, and a model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from budwood.server.log.chain import Chain, Verdict, newest_rollup, slot_named_by
from budwood.volume.entry import Entry, EntryHeader, Fragment, entry_key, parse_entry, seal_entry
from budwood.volume.errors import Corrupt, Unsupported
from budwood.volume.records import StreamRecords
from budwood.volume.rollup import Rollup, seal_rollup
from budwood.volume.setsum import EMPTY_SUM, PRIMES, Setsum

SOME, MORE = Setsum((1,) * 8), Setsum(tuple(range(8)))


def sealed(header: EntryHeader) -> Entry:
    """What its streams add lies in its body."""
    return parse_entry(entry_key(header.log, header.i), seal_entry(header, b"pages" if header.streams else b""))


def after(chain: Chain, entry: Entry) -> Chain:
    """The chain behind the entry, whatever it is."""
    return chain.past(entry) if chain.judge(entry) is Verdict.CANONICAL else chain.past_void(entry)


def next_of(chain: Chain, epoch: int, writer: bytes = b"w", kind: str = "", **changes: Any) -> Entry:
    header = msgspec.structs.replace(chain.header(epoch=epoch, writer=writer, kind=kind), **changes)
    if not kind:
        kind = "anchor" if header.i == 0 else "fence" if header.epoch and header.n == 0 else "data"
    return sealed(msgspec.structs.replace(header, kind=kind))


def adding(*sums: bytes) -> dict[str, StreamRecords]:
    """Streams that add so much, their records in no known tongue."""
    return {f"volume {at}": StreamRecords(records=(b"?",), setsum=one) for at, one in enumerate(sums)}


def anchored() -> Chain:
    chain = Chain(log="main")
    return after(chain, next_of(chain, 0, kind="anchor"))


def owned(epoch: int = 3, entries: int = 2) -> Chain:
    """A log whose owner of that epoch has fenced it and written some entries."""
    chain = anchored()
    for _ in range(1 + entries):
        chain = after(chain, next_of(chain, epoch))
    return chain


def rolled_up(chain: Chain, previous: str = "") -> Rollup:
    """Of all that the chain has behind it, without its tree."""
    return Rollup(
        log=chain.log,
        slot=chain.next - 1,
        epoch=chain.epoch,
        n=chain.n,
        writer=chain.writer,
        canonical=chain.slot,
        digest=chain.digest,
        total=chain.total,
        collected=chain.collected,
        named=chain.rollup,
        previous=previous,
    )


def name_of(slot: int, digit: str = "a") -> str:
    return f"{slot:016x}/{digit * 64}"


@pytest.mark.parametrize(
    ("epoch", "n", "verdict"),
    [
        (2, 0, Verdict.VOID),
        (2, 3, Verdict.VOID),
        (3, 3, Verdict.CANONICAL),
        (3, 2, Verdict.VOID),
        (3, 4, Verdict.VOID),
        (3, 0, Verdict.VOID),
        (4, 0, Verdict.CANONICAL),
        (4, 1, Verdict.VOID),
        (4, 3, Verdict.VOID),
    ],
)
def test_epoch_and_number_alone_decide_what_counts(epoch: int, n: int, verdict: Verdict) -> None:
    """S0.28, C3: after epoch 3's entry n = 2."""
    chain = owned()
    assert chain.n == 2
    assert chain.judge(next_of(chain, epoch, b"w" if epoch == 3 else b"other", n=n)) is verdict


def test_a_void_entry_adds_nothing_but_its_higher_epoch_fences_all_the_same() -> None:
    chain = owned()
    behind = chain.past_void(next_of(chain, 9, n=5))
    assert (behind.slot, behind.digest, behind.total) == (chain.slot, chain.digest, chain.total)
    assert behind.judge(next_of(behind, 3)) is Verdict.VOID
    assert behind.judge(next_of(behind, 9, n=0)) is Verdict.CANONICAL


def test_a_second_writer_in_an_epoch_stops_loudly() -> None:
    """S0.28: the same epoch is a bug, not a race."""
    chain = owned()
    with pytest.raises(Corrupt, match="two writers share epoch 3"):
        chain.judge(next_of(chain, 3, b"another"))


def test_in_a_private_log_many_writers_share_epoch_0() -> None:
    chain = anchored()
    for writer in (b"one", b"two", b"one"):
        entry = next_of(chain, 0, writer)
        assert chain.judge(entry) is Verdict.CANONICAL
        chain = chain.past(entry)
    assert (chain.n, chain.next) == (3, 4)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"previous": 1}, "does not follow"),
        ({"previous_digest": bytes(32)}, "does not follow"),
        ({"prev_sum": SOME.digest}, "add up"),
        ({"total": SOME.digest}, "add up"),
        ({"collected": SOME.digest}, "takes something out"),
        ({"fragments": (Fragment(key="k", epoch=2, length=1, digest=b""),)}, "another epoch"),
        ({"fragments": (Fragment(key="k", epoch=3, length=1, digest=b"", setsum=SOME.digest),)}, "fragments don't add"),
        ({"fragments": (Fragment(key="k", epoch=3, length=1, digest=b"", setsum=b"\xff" * 32),)}, "or a fragment"),
    ],
)
def test_a_canonical_entry_that_does_not_continue_the_chain_is_damage(changes: dict[str, Any], what: str) -> None:
    """S4.5, S4.6, S4.24: links, sums and fragments are checked at every transition."""
    chain = owned()
    entry = next_of(chain, 3, **changes)
    assert chain.judge(entry) is Verdict.CANONICAL
    with pytest.raises(Corrupt, match=what):
        chain.past(entry)


def test_the_total_grows_by_what_the_streams_add_and_no_record_is_decoded_for_it() -> None:
    chain, one, two = owned(), SOME, MORE
    with pytest.raises(Corrupt, match="add up"):
        chain.past(next_of(chain, 3, streams=adding(one.digest)))
    with pytest.raises(Corrupt, match="add up"):
        chain.past(next_of(chain, 3, streams=adding(one.digest), total=(one + two).digest))
    behind = chain.past(next_of(chain, 3, streams=adding(one.digest, two.digest), total=(one + two).digest))
    assert behind.total == (one + two).digest != EMPTY_SUM


def test_the_fragments_of_an_entry_without_a_body_are_all_that_it_adds() -> None:
    chain = owned()
    for setsum, fits in ((MORE, False), (SOME, True)):
        fragment = Fragment(key="k", epoch=3, length=1, digest=b"", setsum=setsum.digest)
        header = next_of(chain, 3, streams=adding(SOME.digest), total=SOME.digest, fragments=(fragment,)).header
        entry = parse_entry(entry_key(header.log, header.i), seal_entry(header))
        if fits:
            assert chain.past(entry).total == SOME.digest
        else:
            with pytest.raises(Corrupt, match="fragments don't add up"):
                chain.past(entry)


def test_a_sum_that_is_none_is_damage() -> None:
    chain = owned()
    with pytest.raises(Corrupt, match="sum of a stream"):
        chain.past(next_of(chain, 3, streams=adding(PRIMES[0].to_bytes(4, "little") + bytes(28))))
    with pytest.raises(Corrupt, match="sum of a stream"):
        chain.past(next_of(chain, 3, streams=adding(b"short")))


@pytest.mark.parametrize(
    ("acked", "alpha", "right"), [(4, 1, True), (3, 1, True), (2, 1, False), (2, 2, True), (0, 2, False), (5, 4, False)]
)
def test_an_entry_is_no_further_ahead_of_what_was_acknowledged_than_twice_what_is_in_flight(
    acked: int, alpha: int, right: bool
) -> None:
    """DESIGN §4, rule 3; S0.3: slot 5."""
    chain = after(owned(), next_of(owned(), 3))
    entry = next_of(chain, 3, acked=acked, alpha=alpha)
    assert entry.header.i == 5
    assert chain.judge(entry) is Verdict.CANONICAL
    if right:
        assert chain.past(entry).next == 6
    else:
        with pytest.raises(Corrupt, match="had acknowledged slot"):
            chain.past(entry)


@pytest.mark.parametrize(
    ("rollup", "changes", "what"),
    [
        (name_of(2), {}, ""),
        (name_of(2, "b"), {}, ""),
        (name_of(3), {}, ""),
        (name_of(4), {}, ""),
        (name_of(1), {}, "goes back behind 0000000000000002/"),
        ("", {}, "names no rollup, and goes back"),
        (name_of(4), {"acked": 3}, "didn't know to be acknowledged"),
        (name_of(5), {"acked": 9}, "had acknowledged slot 9"),
        (name_of(7), {}, "didn't know to be acknowledged"),
        ("rollups/1", {}, "is not the name of a rollup"),
        (name_of(3, "A"), {}, "is not the name of a rollup"),
        (name_of(3)[1:], {}, "is not the name of a rollup"),
        (name_of(3)[:-1] + "/", {}, "is not the name of a rollup"),
        ("-" + name_of(3)[1:], {}, "is not the name of a rollup"),
    ],
)
def test_an_entry_names_a_rollup_of_acknowledged_slots_and_none_lower_than_the_last(
    rollup: str, changes: dict[str, Any], what: str
) -> None:
    """DESIGN §4, rule 9: after entry 4, which named a rollup of slot 2."""
    chain = owned()
    chain = after(chain, next_of(chain, 3, rollup=name_of(2)))
    assert (chain.next, chain.rollup) == (5, name_of(2))
    entry = next_of(chain, 3, rollup=rollup, **changes)
    assert chain.judge(entry) is Verdict.CANONICAL
    if what:
        with pytest.raises(Corrupt, match=what):
            chain.past(entry)
    else:
        assert chain.past(entry).rollup == rollup


def test_what_a_void_entry_names_is_not_looked_at() -> None:
    chain = owned()
    for rollup in (name_of(99), "none", name_of(1)):
        void = next_of(chain, 2, n=1, rollup=rollup)
        assert chain.judge(void) is Verdict.VOID
        assert chain.past_void(void).rollup == chain.rollup


def test_an_entry_carries_the_newest_rollup_that_is_known() -> None:
    chain = owned()
    chain = after(chain, next_of(chain, 3, rollup=name_of(1)))
    for offered, named in (("", 1), (name_of(0), 1), (name_of(1, "b"), 1), (name_of(2), 2)):
        header = chain.header(epoch=3, writer=b"w", kind="data", rollup=offered)
        assert header.rollup == name_of(named)
    with pytest.raises(AssertionError, match="not looked at yet"):
        chain.header(epoch=3, writer=b"w", kind="data", rollup=name_of(chain.next))
    assert newest_rollup("", name_of(3), name_of(3, "b"), name_of(2)) == name_of(3)
    assert newest_rollup("", "") == ""


def test_a_chain_goes_on_behind_a_rollup_and_keeps_all_its_rules() -> None:
    chain = owned()
    chain = after(chain, next_of(chain, 3, rollup=name_of(2), streams=adding(SOME.digest), total=SOME.digest))
    chain = chain.past_void(next_of(chain, 9, n=5))
    behind = Chain.behind(rolled_up(chain))
    assert behind == chain
    assert behind.judge(next_of(behind, 3)) is Verdict.VOID
    with pytest.raises(Corrupt, match="goes back"):
        behind.past(next_of(behind, 9, n=0, rollup=name_of(1)))
    with pytest.raises(Corrupt, match="does not follow"):
        behind.past(next_of(behind, 9, n=0, previous_digest=bytes(32)))
    assert behind.past(next_of(behind, 9, n=0)).rollup == name_of(2)


@pytest.mark.parametrize(
    ("kind", "epoch", "changes"),
    [
        ("anchor", 3, {}),
        ("anchor", 3, {"i": 0}),
        ("fence", 3, {}),
        ("data", 4, {}),
        ("fence", 0, {"n": 0}),
        ("fence", 2, {"n": 1}),
    ],
)
def test_a_kind_where_it_does_not_belong_is_damage(kind: str, epoch: int, changes: dict[str, Any]) -> None:
    """The anchor in slot 0, the fence at a shared epoch's n = 0, and neither elsewhere; in void entries too."""
    chain = owned() if changes.get("i") != 0 else Chain(log="main")
    with pytest.raises(Corrupt, match=f"of kind {kind}"):
        chain.judge(next_of(chain, epoch, kind=kind, **changes))


def test_the_first_slot_holds_the_anchor() -> None:
    for kind in ("data", "fence"):
        with pytest.raises(Corrupt, match=f"of kind {kind}"):
            Chain(log="main").judge(next_of(Chain(log="main"), 0, kind=kind))


def test_an_entry_of_an_unknown_kind_is_refused_and_not_read_as_data() -> None:
    for epoch in (2, 3, 4):
        with pytest.raises(Unsupported, match="unknown kind 'garland': upgrade"):
            owned().judge(next_of(owned(), epoch, kind="garland"))


def test_an_entry_of_another_log_is_refused() -> None:
    with pytest.raises(Corrupt):
        anchored().judge(next_of(anchored(), 0, log="other"))


# The traces of S0.29: after a fence, whatever the old owner still has under way, it never gets an acknowledgement.


@dataclass
class Writer:
    """A writer as the rules describe it, one entry in flight, over slots that all share. `fences` is the mutant's
    switch."""

    epoch: int
    slots: dict[int, Entry]
    chain: Chain = field(default_factory=lambda: Chain(log="main"))
    acked: list[Entry] = field(default_factory=list[Entry])
    sent: Entry | None = None
    rollup: str = ""
    """The newest that it has made."""
    halted: bool = False

    @property
    def writer(self) -> bytes:
        return b"writer of %d" % self.epoch

    def read(self) -> None:
        """Everything up to the first missing slot."""
        while self.chain.next in self.slots:
            self.chain = after(self.chain, self.slots[self.chain.next])
        self.halted = self.halted or self.chain.epoch > self.epoch

    def send(self) -> None:
        """Bind the next number to bytes, for the first slot not seen."""
        if self.sent is None and not self.halted:
            self.sent = next_of(
                self.chain, self.epoch, self.writer, rollup=newest_rollup(self.chain.rollup, self.rollup)
            )

    def roll(self) -> None:
        """Roll up all that it has read, from whatever it made before: so two of one slot may have two names."""
        if self.chain.next:
            self.rollup, _ = seal_rollup(rolled_up(self.chain, previous=self.rollup))

    def arrive(self) -> None:
        """The create reaches the store: the first one there wins."""
        if self.sent is not None:
            self.slots.setdefault(self.sent.header.i, self.sent)

    def answer(self) -> None:
        """Settled by reading what stands there; acknowledged only if it is ours, and canonical."""
        sent, self.sent = self.sent, None
        if sent is None or sent.header.i not in self.slots:
            return
        while self.chain.next <= sent.header.i:
            entry = self.slots[self.chain.next]
            verdict = self.chain.judge(entry)
            self.chain = after(self.chain, entry)
            if entry.digest == sent.digest and verdict is Verdict.CANONICAL:
                self.acked.append(entry)
        self.halted = self.halted or self.chain.epoch > self.epoch


def write(writer: Writer) -> None:
    writer.send()
    writer.arrive()
    writer.answer()


def with_anchor() -> dict[int, Entry]:
    return {0: next_of(Chain(log="main"), 0, kind="anchor")}


def test_the_fence_wins_the_slot_that_the_old_owner_was_about_to_take() -> None:
    slots = with_anchor()
    old, new = Writer(1, slots), Writer(2, slots)
    old.read()
    write(old)
    old.send()
    new.read()
    write(new)
    old.arrive()
    old.answer()
    assert old.halted
    assert len(old.acked) == 1
    assert len(new.acked) == 1


def test_the_old_owner_wins_a_slot_and_the_fence_goes_to_the_next() -> None:
    slots = with_anchor()
    old, new = Writer(1, slots), Writer(2, slots)
    old.read()
    write(old)
    new.read()
    new.send()
    write(old)
    new.arrive()
    new.answer()
    assert not new.acked
    assert not new.halted
    write(new)
    assert [entry.header.i for entry in new.acked] == [3]
    write(old)
    assert old.halted
    assert len(old.acked) == 2


def test_two_new_owners_fence_and_the_newer_one_stays() -> None:
    slots = with_anchor()
    old, second, third = (Writer(epoch, slots) for epoch in (1, 2, 3))
    old.read()
    write(old)
    for writer in (second, third):
        writer.read()
        writer.send()
    third.arrive()
    second.arrive()
    for writer in (third, second, old):
        writer.answer()
    for writer in (old, second, third):
        write(writer)
    assert old.halted
    assert second.halted
    assert not second.acked
    assert len(third.acked) == 2


def rule_1(slots: dict[int, Entry]) -> list[int]:
    """The canonical slots, straight from the rule's words."""
    canonical: list[int] = []
    for i in range(len(slots)):
        if i not in slots:
            break
        header = slots[i].header
        earlier = [slots[j].header for j in range(i)]
        last = [slots[j].header.n for j in canonical if slots[j].header.epoch == header.epoch]
        fenced = any(other.epoch > header.epoch for other in earlier)
        if not fenced and header.n == (last[-1] + 1 if last else 0):
            canonical.append(i)
    return canonical


steps = st.lists(
    st.tuples(
        st.integers(0, 3), st.sampled_from(["read", "send", "arrive", "answer", "arrive", "send", "roll", "crash"])
    ),
    max_size=80,
)


def played(
    script: list[tuple[int, str]], epochs: tuple[int, ...] = (1, 2, 3, 4)
) -> tuple[dict[int, Entry], list[Writer]]:
    """The slots, and all who wrote to them: several owners, delayed creates, crashes."""
    slots = with_anchor()
    writers = [Writer(epoch, slots) for epoch in epochs]
    crashed: list[Writer] = []
    for who, what in script:
        writer = writers[who]
        if what == "crash":
            # What it had sent may still arrive; a new process takes a new epoch.
            crashed.append(writer)
            writers[who] = Writer(max(w.epoch for w in writers) + 1, slots)
        elif what == "send" and writer.chain.next == 0:
            writer.read()
        else:
            getattr(writer, what)()
        if len(crashed) > 2:
            crashed.pop(0).arrive()
    return slots, [*writers, *crashed]


@given(steps)
def test_no_acknowledged_entry_ever_becomes_void(script: list[tuple[int, str]]) -> None:
    """C3, S0.29, S4.16: readers agree with the rule's words and with the writers."""
    slots, writers = played(script)
    reader = Chain(log="main")
    canonical: list[bytes] = []
    while reader.next in slots:
        entry = slots[reader.next]
        if reader.judge(entry) is Verdict.CANONICAL:
            canonical.append(entry.digest)
        reader = after(reader, entry)
    assert canonical == [slots[i].digest for i in rule_1(slots)]
    for writer in writers:
        assert all(entry.digest in canonical for entry in writer.acked)


@given(steps, st.booleans())
def test_behind_a_rollup_the_chain_is_what_it_is_from_the_anchor(script: list[tuple[int, str]], private: bool) -> None:
    """Wherever it is cut; and what any entry names, void or not, is a rollup of slots that everyone reads alike."""
    if private:
        slots, _ = played([step for step in script if step[1] != "crash"], (0, 0, 0, 0))
    else:
        slots, _ = played(script)
    chain = Chain(log="main")
    cuts: list[Chain] = []
    while chain.next in slots:
        entry = slots[chain.next]
        assert slot_named_by(entry) < entry.header.i
        cuts = [after(cut, entry) for cut in cuts]
        chain = after(chain, entry)
        assert all(cut == chain for cut in cuts)
        cuts.append(Chain.behind(rolled_up(chain)))


def test_whoever_reads_while_entries_come_stops_behind_the_last_that_is_there() -> None:
    slots = with_anchor()
    writer = Writer(1, slots)
    writer.read()
    for _ in range(3):
        write(writer)
    for stop in range(len(slots) + 1):
        reader = Writer(0, {i: slots[i] for i in range(stop)})
        reader.read()
        assert reader.chain.next == stop


def guest(chain: Chain, **changes: Any) -> Entry:
    """One stream's record, by whoever can't reach the owner."""
    fields = {"streams": adding(EMPTY_SUM), "body_digest": b"", **changes}
    header = msgspec.structs.replace(chain.header(epoch=chain.epoch, writer=chain.writer, kind="guest"), **fields)
    return parse_entry(entry_key(header.log, header.i), seal_entry(header))


def test_a_guest_takes_a_slot_and_no_number_and_the_owner_goes_on_behind_it() -> None:
    chain = owned()
    mine = next_of(chain, 3)
    behind = after(chain, mine)
    in_flight = next_of(behind, 3)
    between = guest(chain)
    assert chain.judge(between) is Verdict.CANONICAL
    past = after(chain, between)
    assert (past.n, past.epoch, past.writer, past.slot) == (chain.n, 3, b"w", between.header.i)
    assert past.judge(in_flight) is Verdict.VOID, "it was made behind what lost its slot"
    again = next_of(past, 3)
    assert again.header.n == mine.header.n
    assert past.judge(again) is Verdict.CANONICAL
    assert guest(past).header.n == chain.n, "and another guest"


def test_a_guest_of_an_epoch_that_is_over_or_never_fenced_is_void() -> None:
    chain = owned(epoch=3)
    late = guest(chain)
    for epoch in (4, 5):
        newer = after(chain, next_of(chain, epoch))
        moved = msgspec.structs.replace(late.header, i=newer.next)
        assert newer.judge(parse_entry(entry_key("main", newer.next), seal_entry(moved))) is Verdict.VOID
    ahead = msgspec.structs.replace(late.header, epoch=9)
    assert chain.judge(parse_entry(late.key, seal_entry(ahead))) is Verdict.VOID
    unfenced = after(chain, next_of(chain, 7, n=5, kind="data"))
    assert (unfenced.epoch, unfenced.has_owner) == (7, False)
    with pytest.raises(AssertionError, match="host"):
        guest(unfenced)


@pytest.mark.parametrize(
    "changes",
    [
        {"streams": {}},
        {"streams": adding(EMPTY_SUM, EMPTY_SUM)},
        {"garbage": ("0" * 15 + "1",)},
        {"rollup": name_of(1)},
        {"fragments": (Fragment(key="f", epoch=3, length=1, digest=b"d"),)},
    ],
)
def test_a_guest_that_does_more_than_write_one_streams_record_is_damage(changes: dict[str, Any]) -> None:
    chain = owned()
    with pytest.raises(Corrupt, match="guest"):
        after(chain, guest(chain, **changes))


@pytest.mark.parametrize("changes", [{"i": 0, "previous": 0}, {"epoch": 0}])
def test_a_guest_stands_in_no_private_log(changes: dict[str, Any]) -> None:
    header = msgspec.structs.replace(guest(owned()).header, **changes)
    entry = parse_entry(entry_key("main", header.i), seal_entry(header))
    with pytest.raises(Corrupt):
        Chain(log="main", next=header.i).judge(entry)
