"""How executors come to a volume's pages: where it lies, what is asked of its remote, what is kept, what is held."""

from __future__ import annotations

import os
import pickle
import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

import budwood
from budwood.remote.portal import open_remote
from budwood.spark_export.source import lease as leasing
from budwood.spark_export.source import page_reader
from budwood.spark_export.source.lease import Lease, take_lease
from budwood.spark_export.source.page_reader import RemoteVolume, open_volume
from budwood.spark_export.source.pushed_filters import PushedFilters
from budwood.spark_export.source.scan import Scan, ScanTask, plan_scan, run_scan
from budwood.spark_export.source.volume_ref import CACHE_BYTES, VolumeRef, find_volume_ref
from budwood.sync.edge import Edge
from budwood.tables.scan_plan import Engine, Options, Target
from budwood.volume.calls import ADVANCE, CREATE, PINS, UNPIN, CreateRequest, SinceRequest, UnpinRequest, VolumeRequest
from budwood.volume.errors import BadInput, Corrupt, Forgotten, NotFound, Unavailable
from budwood.volume.frame import FRAME_PAGES
from budwood.volume.ids import VolumeId
from budwood.volume.pageset import PageSet, span

from .cli import serving

ROWS = 40_000
ROW_BYTES = 400


@pytest.fixture(scope="module")
def ordered(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with a table of about 32 MB that doesn't compress, in the order of its keys."""
    folder = tmp_path_factory.mktemp("ordered")
    return made(folder, range(1, 2 * ROWS + 1))


@pytest.fixture(scope="module")
def scattered(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same with keys that came in no order, so that neighbours in the tree lie far apart."""
    folder = tmp_path_factory.mktemp("scattered")
    keys = list(range(1, ROWS + 1))
    random.Random(4).shuffle(keys)
    return made(folder, keys)


def made(folder: Path, keys: range | list[int]) -> str:
    with closing(sqlite3.connect(folder / "image.db")) as db, db:
        db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, a BLOB)")
        noise = random.Random(3)
        db.executemany("INSERT INTO t VALUES (?, ?)", ((key, noise.randbytes(ROW_BYTES)) for key in keys))
    remote = (folder / "store").as_uri()
    with budwood.open(home=folder / "home", remote=remote) as edge:
        edge.import_(folder / "image.db", "v").push()
    return remote


@pytest.fixture
def edge(tmp_path: Path) -> Iterator[Edge]:
    """Volume `v` at LSN 4, whose table holds its LSN's number."""
    with budwood.open(home=tmp_path / "home", remote=(tmp_path / "store").as_uri()) as edge:
        write(edge, "CREATE TABLE t (n INTEGER); INSERT INTO t VALUES (1)")
        for _ in range(3):
            write(edge, "UPDATE t SET n = n + 1")
        yield edge


def write(edge: Edge, sql: str) -> None:
    with closing(budwood.connect("v", home=edge.home, remote=edge.remote)) as db:
        db.execute(sql)
    edge.volume("v").push()


def fresh(place: VolumeRef) -> RemoteVolume:
    """As a worker that has read nothing yet."""
    page_reader.forget()
    return open_volume(place)


def rows(scan: Scan) -> int:
    # As an executor gets them.
    tasks: list[ScanTask] = pickle.loads(pickle.dumps(scan.tasks))
    return sum(batch.num_rows for task in tasks for batch in run_scan(task))


def number(place: VolumeRef, lsn: int) -> int:
    scan = plan_scan(place, open_volume(place).snapshot(lsn=lsn), table="t")
    (row,) = [row for task in scan.tasks for batch in run_scan(task) for row in batch.to_pylist()]
    return int(row["n"])


def test_an_eighth_of_a_table_costs_few_requests_and_few_bytes_beside_what_is_needed(ordered: str) -> None:
    place = find_volume_ref("v", remote=ordered)
    reached = fresh(place)
    view = reached.snapshot()
    whole = plan_scan(place, view, table="t", count=4)
    pages = sum(len(task.leaves) for task in whole.tasks)
    assert rows(whole) == 2 * ROWS
    whole_bytes = reached.fetched_bytes

    reached = fresh(place)
    keys, told = PushedFilters(rowids=(ROWS, ROWS + ROWS // 4 - 1)), Options(types={"a": Target.BINARY})
    eighth = plan_scan(place, view, table="t", count=2, pushed=keys, options=told)
    assert rows(eighth) == ROWS // 4
    assert reached.requests * 50 <= pages / 8
    assert reached.fetched_bytes <= 1.2 * whole_bytes / 8
    eighth_bytes = reached.fetched_bytes

    # A column whose type nobody tells is looked at: at three places, each of which may lie in two frames.
    reached = fresh(place)
    eighth = plan_scan(place, view, table="t", count=2, pushed=keys)
    assert rows(eighth) == ROWS // 4
    assert reached.requests * 50 <= pages / 8
    assert reached.fetched_bytes - eighth_bytes <= 1.05 * 6 * FRAME_PAGES * 4096
    # Each frame once: the whole table in hardly more bytes than it has.
    assert whole_bytes <= 1.05 * 2 * ROWS * (ROW_BYTES + 20)


def test_neighbours_that_lie_far_apart_are_read_by_their_pages_so_that_each_frame_comes_once(scattered: str) -> None:
    # What is kept is a fraction of the table, as it is of large ones.
    place = find_volume_ref("v", remote=scattered, cache_bytes=2 << 20)
    reached = fresh(place)
    scan = plan_scan(place, reached.snapshot(), table="t", count=4)
    sizes = [task.size_bytes for task in scan.tasks]
    assert max(sizes) <= 1.2 * sum(sizes) / len(sizes)
    keys = [int(row["id"]) for task in scan.tasks for batch in run_scan(task) for row in batch.to_pylist()]
    assert sorted(keys) == list(range(1, ROWS + 1))
    assert reached.fetched_bytes <= 1.1 * reached.snapshot().length
    # By their keys where these were asked for, and then the runs tell them.
    ranged = plan_scan(place, reached.snapshot(), table="t", count=4, pushed=PushedFilters(rowids=(1, ROWS)))
    ends = [task.rowids for task in ranged.tasks if task.rowids]
    assert (ends[0][0], ends[-1][1], len(ends)) == (1, ROWS, 4)
    assert all(one[1] + 1 == other[0] for one, other in pairwise(ends))
    assert rows(ranged) == ROWS


def test_unless_told_a_table_is_cut_for_the_cores_into_parts_that_are_worth_a_task(
    ordered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = find_volume_ref("v", remote=ordered)
    view = open_volume(place).snapshot()
    for cores, parts in ((1, 4), (2, 4), (3, 6), (64, 9)):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        tasks = plan_scan(place, view, table="t").tasks
        assert len(tasks) == parts
        assert min(task.size_bytes for task in tasks) > 3_500_000
    assert len(plan_scan(place, view, table="t", split_bytes=view.length).tasks) == 1
    assert len(plan_scan(place, view, table="t", count=20).tasks) == 20


def test_what_was_read_is_kept_within_bounds_and_asked_for_no_more(ordered: str) -> None:
    place = find_volume_ref("v", remote=ordered)
    reached = fresh(place)
    view = reached.snapshot()
    source = reached.pages(view)
    first = source.read(PageSet((200,)))
    before = reached.requests
    # Its frame came along.
    neighbours = source.read(span(200, 210))
    assert reached.requests <= before + 1
    again = reached.requests
    assert source.read(span(200, 210)) == neighbours
    assert (reached.requests, neighbours[200]) == (again, first[200])

    little = VolumeRef(place.remote, place.vid, place.name, "", 1 << 20)
    reached = fresh(little)
    source = reached.pages(view)
    for start in range(1, source.page_count, 512):
        source.read(span(start, min(start + 511, source.page_count)))
    assert 0 < page_reader.held_bytes() <= 1 << 20
    # What lies behind the end was never written.
    assert source.read(PageSet((source.page_count + 5,))) == {source.page_count + 5: bytes(source.page_size)}


def test_pages_of_two_lsns_are_never_mixed_up(edge: Edge) -> None:
    place = find_volume_ref("v", remote=edge.remote)
    reached = fresh(place)
    assert [number(place, lsn) for lsn in (1, 3, 1, 4, 3)] == [1, 3, 1, 4, 3]
    assert reached.changed(1, 4)
    assert not reached.changed(4, 4)


def test_pages_that_did_not_change_between_two_lsns_are_fetched_once(edge: Edge) -> None:
    write(edge, "CREATE TABLE wide (x); INSERT INTO wide VALUES (randomblob(900000))")
    write(edge, "UPDATE t SET n = 6")
    place = find_volume_ref("v", remote=edge.remote)
    reached = fresh(place)
    views = [reached.snapshot(lsn=lsn) for lsn in (4, 5, 6)]
    sources = [reached.pages(view) for view in views]
    everything = span(1, sources[2].page_count)
    assert reached.changed(4, 5) >= everything - PageSet((1, 2))
    changed = reached.changed(5, 6)
    assert 0 < len(changed) < 5
    before = sources[1].read(everything)
    fetched_bytes = reached.fetched_bytes
    after = sources[2].read(everything)
    # The frame of what changed, not the nine hundred thousand bytes.
    assert reached.fetched_bytes - fetched_bytes < 10_000
    assert {page for page in everything if before[page] != after[page]} <= set(changed)
    assert (number(place, 5), number(place, 6)) == (4, 6)
    reached = fresh(place)
    assert reached.pages(views[2]).read(everything) == after
    # The first has none of the second's.
    assert reached.pages(views[0]).read(PageSet((1, 2))) != {page: after[page] for page in (1, 2)}


@pytest.mark.parametrize("engine", Engine)
def test_a_table_of_no_rows_and_both_engines(edge: Edge, engine: Engine) -> None:
    write(edge, "CREATE TABLE empty (a TEXT, b INTEGER)")
    place = find_volume_ref("v", remote=edge.remote)
    scan = plan_scan(place, open_volume(place).snapshot(), table="empty", engine=engine)
    assert rows(scan) == 0
    scan = plan_scan(place, open_volume(place).snapshot(), table="t", engine=engine)
    assert (rows(scan), scan.plan.engine) == (1, engine)


def test_a_damaged_frame_is_refused_and_its_object_is_named(tmp_path: Path) -> None:
    remote = made(tmp_path, range(1, 3000))
    place = find_volume_ref("v", remote=remote)
    view = fresh(place).snapshot()
    objects = sorted((tmp_path / "store").rglob("*"), key=lambda path: path.stat().st_size if path.is_file() else 0)
    damaged = objects[-1]
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.chmod(0o644)
    damaged.write_bytes(data)
    open_volume(place).remote.close()
    with pytest.raises(Corrupt) as refused:
        rows(plan_scan(place, view, table="t"))
    assert refused.value.key in str(damaged)
    assert "is damaged" in str(refused.value)


def test_a_remote_that_is_gone_is_named_in_one_line(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with serving(store) as url:
        with budwood.open(home=tmp_path / "home", remote=url) as edge:
            write(edge, "CREATE TABLE t (n INTEGER); INSERT INTO t VALUES (1)")
        place = find_volume_ref("v", remote=url)
        scan = plan_scan(place, fresh(place).snapshot(), table="t")
        assert rows(scan) == 1
    page_reader.forget()
    with pytest.raises(Unavailable) as refused:
        rows(scan)
    assert url in str(refused.value)
    assert "\n" not in str(refused.value)
    with pytest.raises(NotFound, match=r"there is no store"):
        find_volume_ref("v", remote=(tmp_path / "elsewhere").as_uri())


def test_a_worker_s_files_go_with_its_executor_and_no_other_process_leaves_any_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, url = tmp_path / "executor", (tmp_path / "store").as_uri()
    with budwood.open(home=tmp_path / "home", remote=url) as edge:
        write(edge, "CREATE TABLE t (n INTEGER); INSERT INTO t VALUES (7), (8)")
    place = find_volume_ref("v", remote=url)
    (task,) = plan_scan(place, fresh(place).snapshot(), table="t", engine=Engine.GENERAL).tasks
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{folder},{tmp_path}")
    assert sum(batch.num_rows for batch in run_scan(task)) == 2
    assert not folder.exists()
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    batches = run_scan(task)
    assert next(iter(batches)).num_rows == 2
    (file,) = folder.rglob("*.db")
    assert next(iter(batches), None) is None
    assert not file.exists()


def test_what_one_worker_fetched_from_a_node_the_others_of_its_executor_don_t_fetch_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "executor"))
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    with serving(tmp_path / "store") as url:
        with budwood.open(home=tmp_path / "home", remote=url) as edge:
            write(edge, "CREATE TABLE t (n INTEGER); INSERT INTO t VALUES (7), (8)")
        place = find_volume_ref("v", remote=url)
        one = fresh(place)
        view = one.snapshot()
        assert rows(plan_scan(place, view, table="t")) == 2
        assert one.fetched_bytes > 0
        other = fresh(place)
        assert rows(plan_scan(place, view, table="t")) == 2
        assert (other.requests, other.fetched_bytes) == (0, 0)
    # Not what another remote calls by the same ids: a copy of a store goes its own way.
    elsewhere = fresh(VolumeRef((tmp_path / "store").as_uri() + "/", place.vid, "v"))
    assert rows(plan_scan(elsewhere.ref, view, table="t")) == 2
    assert elsewhere.fetched_bytes > 0
    # The node is gone, and isn't asked.
    assert rows(plan_scan(fresh(place).ref, view, table="t")) == 2
    page_reader.forget()


def test_a_lease_is_renewed_when_less_than_half_of_it_is_left_and_not_before(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = find_volume_ref("v", remote=edge.remote)
    lease = pickle.loads(pickle.dumps(take_lease(place, 2, 600)))
    assert isinstance(lease, Lease)
    (pin,) = open_volume(place).remote.ask(PINS, VolumeRequest(place.vid.raw)).pins
    assert (pin.pin_id, pin.lsn, pin.owner) == (lease.pin, 2, "a job in Spark")
    lease.renew_if_due()
    assert [found.rev for found in open_volume(place).remote.ask(PINS, VolumeRequest(place.vid.raw)).pins] == [pin.rev]
    later_ms = time.time_ns() // 1_000_000 + 500_000
    monkeypatch.setattr(leasing, "_now_ms", lambda: later_ms)
    lease.renew_if_due()
    (renewed,) = open_volume(place).remote.ask(PINS, VolumeRequest(place.vid.raw)).pins
    assert renewed.rev == pin.rev + 1
    lease.release()
    lease.release()
    assert not open_volume(place).remote.ask(PINS, VolumeRequest(place.vid.raw)).pins


def test_a_lease_that_has_ended_is_taken_anew_while_its_lsn_stands_and_is_an_error_when_it_does_not(edge: Edge) -> None:
    place = find_volume_ref("v", remote=edge.remote)
    lease = take_lease(place, 2, 600)
    remote = open_volume(place).remote
    remote.ask(UNPIN, UnpinRequest(place.vid.raw, pin=lease.pin.raw))
    again = lease.renew()
    assert again.pin != lease.pin
    remote.ask(ADVANCE, SinceRequest(place.vid.raw, since=4))
    assert number(place, 2) == 2
    remote.ask(UNPIN, UnpinRequest(place.vid.raw, pin=again.pin.raw))
    with pytest.raises(Forgotten) as refused:
        lease.renew()
    assert str(refused.value) == (
        "LSN 2 of volume 'v' is forgotten, and no pin holds it: it can be read from LSN 4 to 4; load the table again,"
        " or name another LSN with versionAsOf"
    )


def test_a_renewal_without_an_answer_fails_no_job_while_the_lease_lasts(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = find_volume_ref("v", remote=edge.remote)
    lease = take_lease(place, 2, 600)
    asked: list[float] = []

    def no_answer(*_: object) -> None:
        asked.append(now_ms)
        raise Unavailable("no answer")

    now_ms = lease.expiry_ms - 100_000
    monkeypatch.setattr(leasing, "_now_ms", lambda: now_ms)
    monkeypatch.setattr(open_volume(place).remote, "ask", no_answer)
    for _ in range(5):
        lease.renew_if_due()
    assert len(asked) == 1
    now_ms += 50_000
    lease.renew_if_due()
    assert len(asked) == 2
    now_ms += 60_000
    with pytest.raises(Unavailable):
        lease.renew_if_due()


def test_tables_that_are_loaded_again_and_again_at_one_lsn_share_a_lease(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = find_volume_ref("v", remote=edge.remote)
    one = leasing.shared_lease(place, 3, 600)
    assert leasing.shared_lease(place, 3, 600) == one
    assert leasing.shared_lease(place, 2, 600).pin != one.pin
    assert len(open_volume(place).remote.ask(PINS, VolumeRequest(place.vid.raw)).pins) == 2
    later_ms = time.time_ns() // 1_000_000 + 200_000
    monkeypatch.setattr(leasing, "_now_ms", lambda: later_ms)
    assert leasing.shared_lease(place, 3, 600).pin != one.pin


def test_a_lease_of_no_seconds_holds_nothing(edge: Edge) -> None:
    place = find_volume_ref("v", remote=edge.remote)
    lease = take_lease(place, 2, 0)
    lease.renew_if_due()
    assert lease.renew() == lease
    assert not open_volume(place).remote.ask(PINS, VolumeRequest(place.vid.raw)).pins
    lease.release()


def test_a_scan_renews_its_lease_as_it_reads(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    place = find_volume_ref("v", remote=edge.remote)
    view = open_volume(place).snapshot()
    lease = take_lease(place, view.lsn, 600)
    (pin,) = open_volume(place).remote.ask(PINS, VolumeRequest(place.vid.raw)).pins
    later_ms = time.time_ns() // 1_000_000 + 500_000
    for engine in Engine:
        scan = plan_scan(place, view, table="t", engine=engine, lease=lease)
        with monkeypatch.context() as patch:
            patch.setattr(leasing, "_renewed", {})
            patch.setattr(leasing, "_now_ms", lambda: later_ms)
            assert rows(scan) > 0
        (renewed,) = open_volume(place).remote.ask(PINS, VolumeRequest(place.vid.raw)).pins
        assert renewed.rev > pin.rev, engine
        pin = renewed
    lease.release()


def test_nothing_holds_an_empty_volume(tmp_path: Path) -> None:
    with closing(open_remote((tmp_path / "store").as_uri())) as remote:
        vid = VolumeId.new()
        remote.ask(CREATE, CreateRequest(vid.raw, page_size=4096))
    place = find_volume_ref(str(vid), remote=(tmp_path / "store").as_uri())
    lease = take_lease(place, 0).renew()
    lease.renew_if_due()
    lease.release()
    with pytest.raises(BadInput, match="the volume is empty"):
        plan_scan(place, open_volume(place).snapshot(), table="t")


def test_a_volume_is_found_by_name_by_id_and_by_what_a_home_remembers(
    edge: Edge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vid = edge.volume("v").id
    assert find_volume_ref("v", remote=edge.remote) == VolumeRef(edge.remote, vid, "v", "", CACHE_BYTES)
    assert find_volume_ref(str(vid), remote=edge.remote).vid == vid
    with budwood.open(home=tmp_path / "bob", remote=edge.remote) as bob:
        bob.clone("v", "mine")
    assert find_volume_ref("mine", home=str(tmp_path / "bob")) == VolumeRef(edge.remote, vid, "mine", "", CACHE_BYTES)
    # A name that the home lacks is asked of the remote.
    assert find_volume_ref("v", home=str(tmp_path / "bob"), remote=edge.remote).vid == vid
    monkeypatch.setenv("BUDWOOD_REMOTE", edge.remote)
    monkeypatch.setenv("BUDWOOD_TOKEN", "secret")
    found = find_volume_ref("v")
    assert (found.vid, found.token) == (vid, "secret")
    assert "secret" not in repr(found)
    # What the home remembers goes before the environment's remote, which is for names that no home knows.
    monkeypatch.setenv("BUDWOOD_REMOTE", (tmp_path / "another").as_uri())
    assert find_volume_ref("mine", home=str(tmp_path / "bob")).remote == edge.remote


def test_a_place_that_can_t_be_found_is_refused_in_words(edge: Edge, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"give the option remote \(a URL\) or home"):
        find_volume_ref("v")
    with pytest.raises(NotFound, match=r"knows no volume 'nope'"):
        find_volume_ref("nope", remote=edge.remote)
    with pytest.raises(NotFound, match=r"knows no volume 'nope': name another, or give the option remote"):
        find_volume_ref("nope", home=str(edge.home))
    with pytest.raises(NotFound, match=r"there is no home at"):
        find_volume_ref("v", home=str(tmp_path / "nowhere"))
    assert not (tmp_path / "nowhere").exists()
    with pytest.raises(BadInput, match=r"is no remote: it must start with"):
        find_volume_ref("v", remote="ftp://host")
    edge.create("alone")
    with budwood.open(home=tmp_path / "offline", remote="") as offline:
        offline.create("alone")
    with pytest.raises(BadInput, match=r"has never pushed volume 'alone'"):
        find_volume_ref("alone", home=str(tmp_path / "offline"))


def test_a_forked_worker_reaches_the_same_place_by_a_connection_of_its_own(edge: Edge) -> None:
    place = find_volume_ref("v", remote=edge.remote)
    assert number(place, 1) == 1
    child = os.fork()
    if child == 0:
        try:
            os._exit(number(place, 3))
        finally:
            os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    assert number(place, 4) == 4
