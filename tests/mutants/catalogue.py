"""The mutants: each a bug that breaks a promise (DESIGN §4, §7, §9), and the smallest tests that must catch it.

`before` stands exactly once in `file`; the runner (__main__.py) stops at one that doesn't, so that none goes stale.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["MUTANTS", "Mutant"]


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    """What the bug does."""
    file: str
    before: str
    after: str
    tests: tuple[str, ...]
    """Arguments for pytest."""


EMPTY_NAMES: Final = "tests/integration/test_empty_names.py"
NAMES_SYNC: Final = "tests/integration/test_namespace_sync.py"
WORDS: Final = "tests/integration/test_cli_words.py"
REMOTES: Final = "tests/integration/test_named_remotes.py"
EDGES: Final = "tests/property/test_edge_machine.py"
KILLED: Final = "tests/fault/test_edge_killed.py"
NODE: Final = "tests/integration/test_node.py"
ROLLBACK: Final = "tests/integration/test_log_rollback.py"
ENDS: Final = "tests/integration/test_log_ends.py"
OWNERS: Final = "tests/integration/test_node_owners.py"
RACES: Final = "tests/integration/test_races.py"
RETENTION: Final = "tests/integration/test_retention.py"
HOLDERS: Final = "tests/property/test_retention_machine.py"
STATE: Final = "tests/unit/test_state.py"
SUITE: Final = "tests/unit/test_suite.py"
MOUNTED: Final = "tests/integration/test_mount_sqlite.py"
MOUNT_PROGRAMS: Final = "tests/integration/test_mount_programs.py"
MOUNT_FILES: Final = "tests/property/test_mount_machine.py"
MOUNT_KILLED: Final = "tests/fault/test_mount_killed.py"
MOUNT_SYNC: Final = "tests/integration/test_mount_sync.py"
MOUNT_DEAD: Final = "tests/fault/test_mount_dead.py"
MOUNT_REQUESTS: Final = "tests/integration/test_mount_requests.py"
MOUNT_BYTES: Final = "tests/integration/test_mount_bytes.py"
MOUNT_WAL: Final = "tests/property/test_mount_wal.py"
SPARK_ROWS: Final = "tests/property/test_spark_decode.py"
SPARK_CORNERS: Final = "tests/unit/test_spark_decode.py"
SPARK_FOUND: Final = "tests/unit/test_spark_found.py"
SPARK_STARTS: Final = "tests/integration/test_spark_starts.py"
SPARK_INSTANTS: Final = "tests/property/test_spark_instants.py"
SPARK_SPLITS: Final = "tests/unit/test_spark_splits.py"
SPARK_CHANGES: Final = "tests/unit/test_spark_changes.py"
SPARK_FEEDS: Final = "tests/property/test_spark_changes.py"
SPARK_MIRROR: Final = "tests/property/test_spark_feed.py"
SPARK_OFFSETS: Final = "tests/unit/test_spark_offsets.py"
SPARK_STREAM: Final = "tests/integration/test_spark_stream_reader.py"
SPARK_CHAIN: Final = "tests/integration/test_spark_chain.py"
EXPORT_CHECKSUM: Final = "tests/unit/test_export_checksum.py"
EXPORT_PARQUET: Final = "tests/unit/test_export_parquet.py"
EXPORT_UNITS: Final = "tests/unit/test_export_units.py"
EXPORT_KILLED: Final = "tests/fault/test_export_killed.py"
EXPORT_SPARK: Final = "tests/integration/test_export.py"
KEPT: Final = "tests/attack/test_kept_records.py"
SEGMENTS: Final = "tests/attack/test_segments.py"
WEB_PAGE: Final = "tests/attack/test_web_page.py"
TOKEN: Final = "tests/attack/test_token.py"
SLOW: Final = "tests/attack/test_slow.py"
HOSTILE: Final = "tests/attack/test_hostile_remote.py"

_NAMES: Final = (
    Mutant(
        "names: bound before the content is there",
        "sync/push.py",
        "    pending = _capture(local)\n    CAPTURED()\n    after",
        "    if spot is not None:\n        bind(local, connection, spot, head)\n    pending = _capture(local)\n"
        "    CAPTURED()\n    after",
        (EMPTY_NAMES, "-k", "appears_when"),
    ),
    Mutant(
        "names: a push of names binds what has no content yet",
        "sync/names_push.py",
        "            if head.sync_remote:\n",
        "            if head.sync_remote or record.created:\n",
        (EMPTY_NAMES, "-k", "appears_when"),
    ),
    Mutant(
        "names: an untouched file keeps its name",
        "sync/names_pull.py",
        "if isinstance(standing, VolumeRecord) and places.is_untouched(",
        "if not isinstance(standing, VolumeRecord) and places.is_untouched(",
        (EMPTY_NAMES,),
    ),
    Mutant(
        "names: content makes way for an empty file",
        "sync/names_pull.py",
        "                if entry.target in self.untouched:\n",
        "                if not entry.target:\n",
        (EMPTY_NAMES,),
    ),
    Mutant(
        "names: a push doesn't take an empty file's name",
        "sync/introduce.py",
        "or (has_content and is_untouched_there(connection, entry))",
        "or (not has_content and is_untouched_there(connection, entry))",
        (EMPTY_NAMES, "-k", "takes_it_too"),
    ),
    Mutant(
        "names: what was pushed while its name was taken is gone",
        "sync/names_pull.py",
        "and row is not None and row.attributes.says_empty:",
        "and row is not None and not row.attributes.mode:",
        (EMPTY_NAMES, "-k", "while_another_took"),
    ),
    Mutant(
        "names: what is written to a file that lost its name goes with it",
        "sync/names_pull.py",
        "moved=False, left=record.name)",
        "moved=False)",
        (EMPTY_NAMES, "-k", "just_lost"),
    ),
    Mutant(
        "names: an empty file leaves a conflict behind",
        "sync/names_push.py",
        "if is_conflict_name(self.environment, now.name) and not now.bound:",
        "if is_conflict_name(self.environment, now.name) and now.bound:",
        (EMPTY_NAMES, "-k", "leaves_nothing"),
    ),
    Mutant(
        "names: a file that both have moved has two names",
        "sync/names_pull.py",
        "            if self._was_left(entry):\n",
        "            if self._was_left(entry) and not name:\n",
        (NAMES_SYNC, "-k", "both_swapped"),
    ),
    Mutant(
        "names: an empty database that is open stays empty",
        "fuse/moving.py",
        "if file.length or file.dirty or file.blind_writers:",
        "if not file.length or file.dirty or file.blind_writers:",
        (MOUNT_SYNC, "-k", "opened_when_it_was_empty and delete"),
    ),
    Mutant(
        "names: a database comes under who only writes",
        "fuse/moving.py",
        "if file.length or file.dirty or file.blind_writers:",
        "if file.length or file.dirty:",
        (MOUNT_SYNC, "-k", "about_to_write"),
    ),
    Mutant(
        "names: an untouched volume hides the remote's",
        "sync/edge.py",
        "            if self._gives_way(volume):\n",
        "            if self._gives_way(volume) and not name:\n",
        (REMOTES, "-k", "untouched"),
    ),
    Mutant(
        "names: another remote is ignored until the push",
        "sync/edge.py",
        "            self.connection().check(record)\n",
        "            self.connection()\n",
        (REMOTES, "-k", "refused_at_once"),
    ),
    Mutant(
        "names: what the home remembers isn't asked",
        "sync/edge.py",
        "return remotes.pop() if len(remotes) == 1 else",
        "return remotes.pop() if len(remotes) > 1 else",
        (REMOTES, "-k", "remembers"),
    ),
    Mutant(
        "names: a mount takes another store's names for the home's",
        "fuse/following.py",
        "    except WrongStore:\n        raise\n",
        "",
        ("tests/integration/test_mount_command.py", "-k", "another_remote"),
    ),
    Mutant(
        "errors: sqlite3 meets ours as its own defect",
        "vfs/standard.py",
        "            raise _as_standard(ours) from ours\n",
        "            raise\n",
        ("tests/integration/test_vfs_stdlib.py",),
    ),
    Mutant(
        "errors: a with block hides what was raised",
        "vfs/connection.py",
        "raise ours from (None if ours is error else error)",
        "raise",
        ("tests/integration/test_vfs_connections.py", "-k", "with_block"),
    ),
    Mutant(
        "words: a mistyped store is made",
        "cli/serve.py",
        'makes = create or store.startswith("memory:")',
        "makes = True",
        (WORDS, "-k", "not_served"),
    ),
    Mutant(
        "words: a store is probed before it is looked for",
        "server/node.py",
        "    if not probing or not create:\n",
        "    if not probing:\n",
        (WORDS, "-k", "not_served"),
    ),
    Mutant(
        "words: a store's directory is made from its beginning",
        "server/store/tree.py",
        "        if not os.path.isdir(parent):\n            raise NotFound(",
        "        if not os.path.isdir(parent):\n            _make_root(parent)\n        if not os.path.isdir(parent):\n"
        "            raise NotFound(",
        (WORDS, "-k", "begins_wrong"),
    ),
    Mutant(
        "words: a wrong token reads like none",
        "server/http/guard.py",
        "Unauthorized(_WRONG if given else _MISSING)",
        "Unauthorized(_MISSING)",
        (WORDS, "-k", "token"),
    ),
    Mutant(
        "words: a reset speaks of what isn't there",
        "cli/syncing.py",
        "was_kept = keep_as is not None and any(",
        "was_kept = keep_as is not None or any(",
        (WORDS, "-k", "kept_nothing"),
    ),
    Mutant(
        "words: an error brings the loop's frames along",
        "remote/loop.py",
        "            return self.start(job).result()\n        except CancelledError:\n"
        '            raise Unavailable("the process is ending", determinate=False) from None\n'
        "        except Exception as error:\n            raise plain(error)",
        "            return self.start(job).result()\n        except CancelledError:\n"
        '            raise Unavailable("the process is ending", determinate=False) from None\n'
        "        except Exception:\n            raise",
        ("tests/integration/test_tracebacks.py", "-k", "pushed_by or nobody"),
    ),
    Mutant(
        "words: a statement's error brings our frames along",
        "vfs/codes.py",
        "    told = plain(error)\n",
        "    told = error\n",
        ("tests/integration/test_tracebacks.py", "-k", "remote or SQL"),
    ),
    Mutant(
        "words: what is open when Python ends is closed too late",
        "vfs/connection.py",
        "            connection.close(force=True)\n",
        "            _ = connection\n",
        ("tests/integration/test_tracebacks.py", "-k", "leaves_open"),
    ),
)

S3_SETUP: Final = "tests/integration/test_store_s3_setup.py"

_S3: Final = (
    Mutant(
        "s3: an endpoint that speaks http has to be allowed once more",
        "server/store/aws.py",
        ' | {"allow_http": "true"}',
        "",
        (S3_SETUP, "-k", "speak_http"),
    ),
    Mutant(
        "s3: a profile that nobody has is passed over",
        "server/store/aws.py",
        "        botocore.session.get_scoped_config()\n",
        "",
        (S3_SETUP, "-k", "mistake"),
    ),
    Mutant(
        "s3: where no keys are found the machine is asked again and again",
        "server/store/aws.py",
        "        if credentials is None:\n            raise Unauthorized",
        "        if credentials is ...:\n            raise Unauthorized",
        (S3_SETUP, "-k", "no_credentials"),
    ),
    Mutant(
        "s3: a store that can't be reached is waited for",
        "server/store/failures.py",
        "hopeless=not answered)",
        "hopeless=False)",
        (S3_SETUP, "-k", "mistake or answered"),
    ),
    Mutant(
        "s3: a store that has gone for a moment is given up",
        "server/store/failures.py",
        "hopeless=not answered)",
        "hopeless=True)",
        (S3_SETUP, "-k", "answered_before"),
    ),
    Mutant(
        "s3: what has no hope is tried until the deadline",
        "server/store/settle.py",
        "            if error.hopeless:\n                raise\n",
        "",
        ("tests/unit/test_store_settle.py", "-k", "no_hope"),
    ),
    Mutant(
        "import: rotten pages are imported without a word",
        "sync/soundness.py",
        "    if damage is not None:\n",
        '    if damage is None and found:\n        return ""\n    if not found:\n',
        ("tests/integration/test_import_check.py", "-k", "rotten"),
    ),
    Mutant(
        "import: what its owner left so is refused",
        "sync/soundness.py",
        'each.startswith(_PAGES) or "malformed" in each',
        'each != "ok"',
        ("tests/integration/test_import_check.py", "-k", "forbids"),
    ),
)

_EDGE: Final = (
    Mutant(
        "success mapped to the local head",
        "sync/push.py",
        "sync_local=pending.end, floor=floor, unpushed=len(later)",
        "sync_local=head.lsn, floor=floor, unpushed=0",
        (EDGES,),
    ),
    Mutant(
        "success drops the commits made meanwhile",
        "sync/push.py",
        "local.drop_commits(txn, pending.start, pending.end)",
        "local.drop_commits(txn, pending.start, head.lsn)",
        (EDGES,),
    ),
    Mutant(
        "no pending record",
        "sync/push.py",
        "        local.put_push(txn, pending)\n        return pending",
        "        return pending",
        (KILLED, "-k", "push_that_was_cut_lands_once"),
    ),
    Mutant(
        "no token in the pending record",
        "sync/push.py",
        "        local.put_push(txn, known)\n",
        "",
        (KILLED, "-k", "push_that_was_cut_lands_once"),
    ),
    Mutant(
        "a pending push is given up unasked",
        "sync/push.py",
        "    if not pending.token:\n        # No commit was sent under it.",
        "    if pending:",
        (KILLED, "-k", "push_that_was_cut_lands_once"),
    ),
    Mutant(
        "a lost answer is taken for a failure",
        "sync/push.py",
        "            if not error.determinate:\n                head = _ask(local, connection, pending)",
        "            if error.determinate and delay is None:\n                head = _ask(local, connection, pending)",
        (EDGES,),
    ),
    Mutant(
        "pages captured by a push are pruned",
        "sync/local.py",
        "return None if push is None else Keep(push.start, push.end)",
        "return None",
        (EDGES,),
    ),
    Mutant(
        "pull skips a cached page's marker",
        "sync/pull.py",
        "late = editor.known(changed - staged)",
        "late = PageSet()",
        (EDGES,),
    ),
    Mutant(
        "pull skips the marker of a page cached while it runs",
        "sync/pull.py",
        "late = editor.known(changed - staged)",
        "late = already - staged",
        (EDGES,),
    ),
    Mutant(
        "pull loses a commit made while it runs",
        "sync/pull.py",
        "            if now.unpushed:\n                raise diverged",
        "            if now.unpushed and head.unpushed:\n                raise diverged",
        (RACES,),
    ),
    Mutant(
        "page cached at the wrong LSN",
        "sync/local.py",
        "            if head.sync_remote != sync_remote:\n                return False\n",
        "",
        (EDGES,),
    ),
    Mutant(
        "page cached over an unpushed one",
        "sync/local.py",
        "if page > last or (version is not None and version.state != PENDING):",
        "if page > last:",
        (EDGES,),
    ),
    Mutant(
        "reset drops unpushed work",
        "sync/volume.py",
        "def reset(self, *, keep_as: str | None = None, discard: bool = False, move: Move = at_once) -> str:",
        "def reset(self, *, keep_as: str | None = None, discard: bool = True, move: Move = at_once) -> str:",
        (EDGES,),
    ),
    Mutant(
        "reset forgets what the discarded commits wrote",
        "sync/reset.py",
        "changed = decode_pages(connection.url, changes.pages) | _touched(snapshot)",
        "changed = decode_pages(connection.url, changes.pages)",
        (EDGES,),
    ),
    Mutant(
        "a writer begins on a view that has passed",
        "sync/writer.py",
        "if (now.lsn, now.generation) != (head.lsn, head.generation):",
        "if now.generation != head.generation:",
        ("tests/unit/test_local_store.py",),
    ),
    Mutant(
        "the write lock is shared",
        "sync/locks.py",
        "fcntl.LOCK_EX | fcntl.LOCK_NB",
        "fcntl.LOCK_SH | fcntl.LOCK_NB",
        ("tests/unit/test_local_store.py",),
    ),
    Mutant(
        "a view is renewed though its volume has moved on",
        "sync/snapshot.py",
        "        if (head.lsn, head.generation) != (self.head.lsn, self.head.generation):\n            return False\n",
        "",
        ("tests/unit/test_local_store.py",),
    ),
    Mutant(
        "the local floor is ignored",
        "sync/snapshot.py",
        "if head.sync_remote == 0 or page > page_count(head.floor, head.page_size):",
        "if head.sync_remote == 0:",
        (EDGES,),
    ),
    Mutant(
        "an unpushed page that is lost reads as the remote's",
        "sync/snapshot.py",
        "        if self._written is not None:\n            with translated(self._path):\n",
        "        if self._written is not None and not head.sync_remote:\n            with translated(self._path):\n",
        ("tests/unit/test_local_store_losses.py",),
    ),
    Mutant(
        "checksum unchecked in the local store",
        "sync/snapshot.py",
        "if _digest(data, seed=rows.seed ^ int.from_bytes(found[PREFIX:]) ^ page << 24) == value[1:9]:",
        "if data:",
        ("tests/unit/test_local_store.py", "-k", "damaged_byte"),
    ),
    Mutant(
        "a large change that was cut is left half done",
        "sync/stage.py",
        "    happened = head.lsn >= stage.lsn",
        "    happened = True",
        (KILLED, "-k", "too_large_for_one_batch"),
    ),
    Mutant(
        "another store is taken for the volume's",
        "sync/connection.py",
        "        if store != record.store:",
        "        if not store:",
        ("tests/integration/test_edge_sync.py", "-k", "another_store"),
    ),
)

_LOG: Final = (
    Mutant(
        "acknowledged before durable",
        "server/log/writer.py",
        "        _SEALED()\n        if await self._create(sent):",
        "        _SEALED()\n        draft.acknowledge()\n        if await self._create(sent):",
        ("tests/property/test_log_writers.py",),
    ),
    Mutant(
        "fence skipped",
        "server/metastore/owning.py",
        "        await writer.fence()\n",
        "",
        (OWNERS,),
    ),
    Mutant(
        "a living owner is deposed unasked",
        "server/metastore/owning.py",
        "        if life is Life.ANSWERS:",
        "        if life is None:",
        (OWNERS, "-k", "living_one"),
    ),
    Mutant(
        "a deposed owner's entry counts",
        "server/log/chain.py",
        "    (_Epoch.LOWER, True): Verdict.VOID,",
        "    (_Epoch.LOWER, True): Verdict.CANONICAL,",
        ("tests/unit/test_chain.py",),
    ),
    Mutant(
        "a missing entry is passed over",
        "server/log/reader.py",
        "        if acknowledged and ",
        "        if not acknowledged and ",
        (NODE, "-k", "missing_is_damage or gap"),
    ),
    Mutant(
        "an entry whose fate is unknown is forgotten",
        "server/log/writer.py",
        "            if not isinstance(error, StoreError) or error.determinate:\n",
        "            if error:\n",
        (NODE, "-k", "fate_is_unknown"),
    ),
    Mutant(
        "lost create trusted",
        "server/store/settle.py",
        "            return await _other_than(store, key, data, patience)",
        "            return None",
        ("tests/unit/test_store_settle.py",),
    ),
    Mutant(
        "a lost create is taken for a failure",
        "server/store/settle.py",
        "            determinate = determinate and error.determinate\n",
        "",
        ("tests/unit/test_store_settle.py",),
    ),
    Mutant(
        "a file is acknowledged before it is flushed",
        "server/store/tree.py",
        "            os.fdatasync(fd)\n",
        "",
        ("tests/unit/test_store_file.py",),
    ),
    Mutant(
        "a file's name is acknowledged before it is flushed",
        "server/store/tree.py",
        "        os.fsync(self._directory(os.path.dirname(key)).fd)\n",
        "",
        ("tests/unit/test_store_file.py",),
    ),
)

_NODES: Final = (
    Mutant(
        "whoever was judged before a draft failed is never told",
        "server/log/writer.py",
        "            # Also when judging fails: whoever is in neither the queue nor an entry is never told.\n"
        "            self._put_back(again)",
        "            if not taken or not again:\n                self._put_back(again)",
        (ENDS, "-k", "leaves_nobody"),
    ),
    Mutant(
        "a tip that is gone is not missed by readers",
        "server/log/reader.py",
        "        if gone is not None and self.chain.next == standing:",
        "        if gone is not None and self.chain.next < standing:",
        (ROLLBACK,),
    ),
    Mutant(
        "a slot that was written anew is taken for what was read there",
        "server/log/reader.py",
        "        if stands != self._tip:",
        "        if len(stands) != len(self._tip):",
        (ROLLBACK, "-k", "written_anew"),
    ),
    Mutant(
        "an entry is appended behind one that is gone",
        "server/log/writer.py",
        "            await self.reader.check_tip(",
        "            await self.reader.check_tip(3600.0 + ",
        (ROLLBACK, "-k", "appended_behind"),
    ),
    Mutant(
        "an error in a log's writer ends the node",
        "server/log/writer.py",
        "        except Exception as error:\n            self.reader.end(error)",
        "        except ZeroDivisionError as error:\n            self.reader.end(error)",
        (ENDS, "-k", "nobody_foresaw"),
    ),
    Mutant(
        "whoever's entry may have landed hears that it did not",
        "server/log/writer.py",
        "self._fail(taken, Unavailable(words, determinate=self._unsettled is None))",
        "self._fail(taken, Unavailable(words))",
        (ENDS, "-k", "nobody_foresaw or all_who_wait"),
    ),
    Mutant(
        "a reading that failed half-way goes on",
        "server/log/reader.py",
        "            self.end(error)\n            raise\n        self.chain",
        "            raise\n        self.chain",
        (ENDS, "-k", "half_way"),
    ),
    Mutant(
        "a change is judged on a state that has ended",
        "server/metastore/draft.py",
        "        if stream.ended:",
        "        if stream.ended is None:",
        (ENDS, "-k", "reading_that_has_ended"),
    ),
    Mutant(
        "a judge that fails ends the log for all",
        "server/metastore/draft.py",
        "        except Exception as error:\n            _logger.exception",
        "        except ZeroDivisionError as error:\n            _logger.exception",
        (ENDS, "-k", "fails_alone"),
    ),
    Mutant(
        "a log is opened by whoever came first, and no longer than they stay",
        "server/metastore/logs.py",
        "return await self._opening.join(name, partial(self._read, name))",
        "return await self._read(name)",
        (ENDS, "-k", "leaves"),
    ),
    Mutant(
        "what was read of a log is dropped when the store is away",
        "server/metastore/logs.py",
        "                self._half[name] = log\n",
        "                pass\n",
        (ENDS, "-k", "stays_read"),
    ),
    Mutant(
        "a node that was fenced stays so until it is restarted",
        "server/metastore/appender.py",
        "if not moved and not await self.logs.owned_again(writer):",
        "if not moved:",
        (OWNERS, "-k", "dead_owners"),
    ),
    Mutant(
        "a node that was fenced takes its log from a living one",
        "server/metastore/logs.py",
        "            log.writer = await self._owning.take(log.reader, Manners.THE_GONE)",
        "            log.writer = await self._owning.take(log.reader, Manners.ANYONE)",
        (OWNERS, "-k", "deposed_owner"),
    ),
    Mutant(
        "an address of another machine is asked on this one",
        "volume/owner.py",
        "    return Life.UNKNOWN if is_loopback(owner.address) else None",
        "    return None",
        ("tests/unit/test_owner.py",),
    ),
    Mutant(
        "an owner is known by its log's name alone",
        "remote/alive.py",
        "(own.log, own.epoch, own.writer) == (owner.log, owner.n, owner.writer)",
        "own.log == owner.log",
        ("tests/integration/test_http.py", "-k", "owner_is_alive"),
    ),
    Mutant(
        "a change judged on another state is taken",
        "server/metastore/names.py",
        "drafted[0] is self._state and drafted[1] is placed.record",
        "drafted[1] is placed.record",
        ("tests/unit/test_names.py", "-k", "worked_out_once"),
    ),
    Mutant(
        "a rename makes the whole map anew",
        "server/metastore/sorted.py",
        "    return _branches([*node.children[:left], *made, *node.children[right:]])",
        "    return _branches([_Branch(child.keys, child.children) if isinstance(child, _Branch) else "
        "_Leaf(child.keys, child.values) for child in [*node.children[:left], *made, *node.children[right:]]])",
        ("tests/unit/test_names.py", "-k", "rename_among_many"),
    ),
    Mutant(
        "too small a node of the map stays alone",
        "server/metastore/sorted.py",
        "    return _branches(_joined(left.children + right.children))",
        "    return _branches(left.children + right.children)",
        ("tests/unit/test_sorted.py",),
    ),
    Mutant(
        "the cache takes whatever lies in its folder for its own",
        "server/pagestore/chunks.py",
        "        if _FOLDER.fullmatch(entry.name):",
        "        if entry.is_dir():",
        ("tests/unit/test_pagestore_cache.py", "-k", "left_alone"),
    ),
    Mutant(
        "a node serves the whole network unasked",
        "cli/serve.py",
        "if not (token or insecure or _is_loopback(host)):",
        "if not (token or insecure or host):",
        ("tests/integration/test_cli.py", "-k", "others_can_reach"),
    ),
)

_VOLUMES: Final = (
    Mutant(
        "token by client id",
        "server/metastore/state.py",
        "return last if last is not None and last.token == token else None",
        "return last",
        (STATE,),
    ),
    Mutant(
        "an older commit's token is unknown",
        "server/node.py",
        "        stands = volume.history.find(client, token)\n",
        "        stands = None\n",
        (RACES,),
    ),
    Mutant(
        "an outcome is told from memory",
        "server/node.py",
        "        volume = await self.volumes.get(vid, confirm=True)\n        head = volume.state.head\n        twin",
        "        head = volume.state.head\n        twin",
        (RACES,),
    ),
    Mutant(
        "base unchecked",
        "server/metastore/state.py",
        "    if record.base != state.head:",
        "    if record.base > state.head:",
        (STATE,),
    ),
    Mutant(
        "time stands still",
        "server/metastore/admission.py",
        "time = max(state.time + 1, now_ms)",
        "time = now_ms",
        (NODE, "-k", "time"),
    ),
    Mutant(
        "floor ignored",
        "server/metastore/history.py",
        "            cut = beyond(wanted, run.floor)\n",
        "            cut = PageSet()\n",
        ("tests/unit/test_history.py",),
    ),
    Mutant(
        "a cut that brings no page is not told to a puller",
        "server/metastore/history.py",
        "        return pages | span(floor + 1, reach)",
        "        return pages",
        ("tests/unit/test_history.py",),
    ),
    Mutant(
        "a fork reads what its parent wrote later",
        "server/pagestore/plan.py",
        "        lsn = min(lsn, volume.history.start)\n",
        "",
        (NODE, "-k", "fork"),
    ),
    Mutant(
        "a frame's overwritten pages are shown",
        "server/metastore/history.py",
        "            wanted.difference_update(run.pages)\n            wanted.difference_update(beyond",
        "            wanted.difference_update(beyond",
        ("tests/unit/test_history.py",),
    ),
    Mutant(
        "a fork is not told to its parent",
        "server/metastore/state.py",
        "    return replace(state, forks=state.forks.put(record.child, record.lsn))",
        "    return state",
        (STATE,),
    ),
    Mutant(
        "fragments of a dead epoch are named",
        "server/pagestore/incoming.py",
        "        if not key.startswith(folder):\n",
        '        folder = key.rpartition("/")[0] + "/"\n        if not key:\n',
        (OWNERS, "-k", "fragments"),
    ),
    Mutant(
        "a closed volume takes commits",
        "server/metastore/state.py",
        "    if state.closed is not None:\n        message",
        "    if state.closed is not None and state.finished:\n        message",
        (STATE,),
    ),
    Mutant(
        "a name's revision is not looked at",
        "server/metastore/names.py",
        "if (bound.revision if bound else 0) != touched.revision:",
        "if bound is None and touched.revision:",
        ("tests/unit/test_names.py",),
    ),
    Mutant(
        "a pin isn't checked against collections",
        "server/metastore/retention.py",
        "if stands.lsn < volume.state.collect and",
        "if stands.lsn < 0 and",
        (HOLDERS,),
    ),
    Mutant(
        "a pin is checked against what was read before it stood",
        "server/metastore/retention.py",
        "        volume = await self.volumes.get(own.vid, confirm=True)\n        if stands",
        "        volume = await self.volumes.get(own.vid)\n        if stands",
        (HOLDERS,),
    ),
    Mutant(
        "collectors pass over pins that are only asked for",
        "server/metastore/retention.py",
        "{pin.lsn for pin in pins if pin.holds}",
        "{pin.lsn for pin in pins if pin.state is PinState.LIVE}",
        (HOLDERS,),
    ),
    Mutant(
        "readers trust pins that are only asked for",
        "server/metastore/pins.py",
        "pin.lsn == lsn and pin.state is PinState.LIVE",
        "pin.lsn == lsn and pin.holds",
        (HOLDERS,),
    ),
    Mutant(
        "two pins that are only asked for vouch for each other",
        "server/metastore/retention.py",
        "p.state is PinState.LIVE and p.id != stands.id",
        "p.holds and p.id != stands.id",
        (RETENTION,),
    ),
    Mutant(
        "a fork may start from what is being collected",
        "server/metastore/state.py",
        "if record.lsn < state.collect and not record.pin and",
        "if record.lsn < 0 and not record.pin and",
        (HOLDERS,),
    ),
    Mutant(
        "whoever loses a renewal takes the winner's",
        "server/metastore/retention.py",
        "                stands = await self.pins.change(stands, PinEvent.RENEW, expiry=wanted)",
        "                return await self.pins.change(stands, PinEvent.RENEW, expiry=wanted)",
        (RETENTION,),
    ),
    Mutant(
        "that nobody holds an LSN is believed",
        "server/metastore/pins.py",
        "self._patience.now() and _held(known.tips.values(), lsn):\n            return True",
        "self._patience.now():\n            return _held(known.tips.values(), lsn)",
        (RETENTION,),
    ),
)

_SQLITE: Final = (
    Mutant(
        "change counter taken from the page",
        "vfs/file.py",
        "return (self._view.identity + self._shift) & _COUNTER_MASK",
        'return int.from_bytes(self._view.read(1)[24:28], "big") if self._length else 0',
        ("tests/integration/test_vfs_connections.py", "tests/unit/test_vfs_file.py"),
    ),
    Mutant(
        "a failed commit leaves its pages in SQLite's cache",
        "vfs/file.py",
        "            self._discard()\n            self._shift += _FAR\n",
        "            self._discard()\n",
        ("tests/unit/test_vfs_file.py",),
    ),
    Mutant(
        "two volumes are written in one transaction",
        "vfs/file.py",
        "            if other is not self:\n",
        "            if other is None:\n",
        ("tests/integration/test_vfs_connections.py", "-k", "two_volumes"),
    ),
)

_MOUNT: Final = (
    Mutant(
        "a journal's end is no commit",
        "fuse/journal.py",
        "(Journal.HOT, Event.END): (Journal.COLD, Act.COMMIT)",
        "(Journal.HOT, Event.END): (Journal.COLD, Act.NOTHING)",
        (MOUNTED, "-k", "one_lsn_which_holds and delete-full-normal"),
    ),
    Mutant(
        "a flush is no commit where there is no journal",
        "fuse/journal.py",
        "(Journal.COLD, Event.FSYNC): (Journal.COLD, Act.COMMIT)",
        "(Journal.COLD, Event.FSYNC): (Journal.COLD, Act.NOTHING)",
        (MOUNTED, "-k", "one_lsn_which_holds and memory-full-normal"),
    ),
    Mutant(
        "a transaction whose program died is committed",
        "fuse/journal.py",
        "(Journal.HOT, Event.ABANDON): (Journal.COLD, Act.ROLL_BACK)",
        "(Journal.HOT, Event.ABANDON): (Journal.COLD, Act.COMMIT)",
        (MOUNT_KILLED, "-k", "program_killed_within_a_transaction and persist-False"),
    ),
    Mutant(
        "a zeroed header is no journal's end",
        "fuse/journal.py",
        "return Event.HEADER if data[0] else Event.END",
        "return Event.HEADER",
        (MOUNTED, "-k", "one_lsn_which_holds and persist-full-normal"),
    ),
    Mutant(
        "a rollback is a commit of what was written back",
        "fuse/file.py",
        "        overlay.drop_unchanged()\n",
        "",
        (MOUNTED, "-k", "one_lsn_which_holds and truncate-full-normal"),
    ),
    Mutant(
        "the cut after a vacuum is a commit of its own",
        "fuse/shorten.py",
        "        if _will_be_cut(overlay, length, by_journal=by_journal):\n            overlay.truncate(length)\n",
        "        pass\n",
        (MOUNTED, "-k", "one_lsn_which_holds and delete-full-normal"),
    ),
    Mutant(
        "what lay beyond a cut comes back when the file grows",
        "fuse/overlay.py",
        "            self.floor = min(self.floor, length)\n",
        "",
        (MOUNT_FILES,),
    ),
    Mutant(
        "a cut within a page leaves the rest of the page",
        "fuse/overlay.py",
        "self._dirty.put(last, data[:rest] + zeros(self.page_size)[rest:])",
        "self._dirty.put(last, data)",
        (MOUNT_FILES,),
    ),
    Mutant(
        "a write within a page loses what lies after it",
        "fuse/overlay.py",
        'tail = self.read(last + 1)[end - last * size :] if end < self.length and end % size else b""',
        'tail = b""',
        (MOUNT_FILES,),
    ),
    Mutant(
        "a close commits nothing",
        "fuse/operations.py",
        "            await found[0].act(Event.CLOSE)\n            found[1].wrote = False\n",
        "            found[1].wrote = False\n",
        (MOUNT_FILES,),
    ),
    Mutant(
        "a file that takes another's place is not committed",
        "fuse/naming.py",
        "            await node.act(Event.CLOSE)\n        async with",
        "            pass\n        async with",
        (MOUNT_FILES,),
    ),
    Mutant(
        "a file that is opened to be cut keeps its bytes",
        "fuse/operations.py",
        "            if cut:\n",
        "            if False:\n",
        (MOUNT_FILES,),
    ),
    Mutant(
        "a sidecar becomes a volume",
        "fuse/operations.py",
        "if split is None or not isinstance(owner, File) or not await self._is_database(owner):",
        "if split is None or owner is not None:",
        (MOUNTED, "-k", "sidecars"),
    ),
    Mutant(
        "nobody frees the thread that waits for its own dead mount",
        "fuse/locker.py",
        "        abort(directory, device)\n        os._exit(0)\n",
        "        os._exit(0)\n",
        (MOUNT_DEAD, "-k", "request_of_its_own"),
    ),
    Mutant(
        "a supervisor's signal ends the locker",
        "fuse/locker.py",
        "        signal.signal(each, signal.SIG_IGN)\n",
        "        signal.signal(each, signal.SIG_DFL)\n",
        (MOUNT_DEAD, "-k", "begun_anew"),
    ),
    Mutant(
        "a locker that died is not begun anew",
        "fuse/locking.py",
        "            if self._process is process and not self._over:\n",
        "            if False:\n",
        (MOUNT_DEAD, "-k", "begun_anew"),
    ),
    Mutant(
        "a process that is dying is taken for one that answers",
        "fuse/process.py",
        'if fields[0] in "ZXx" or int(fields[6]) & _EXITING:',
        'if fields[0] == "X":',
        ("tests/unit/test_fuse_process.py",),
    ),
    Mutant(
        "commands wait for a mount that is stopped",
        "fuse/client.py",
        "    if how is Stand.STOPPED:\n        raise _StoppedError\n",
        "",
        (MOUNT_DEAD, "-k", "stopped"),
    ),
    Mutant(
        "a mount is looked at for the links in its path",
        "fuse/mountinfo.py",
        "        if found in ours:\n",
        "        if False:\n",
        ("tests/unit/test_fuse_mountinfo.py",),
    ),
    Mutant(
        "the device blocks whoever reads what was taken back",
        "fuse/readers.py",
        "os.set_blocking(device, False)",
        "os.set_blocking(device, True)",
        (MOUNT_REQUESTS, "-k", "killed_before"),
    ),
    Mutant(
        "attributes are asked for before each read",
        "fuse/kernel.py",
        " & ~_AUTO_INVAL_DATA",
        "",
        (MOUNT_REQUESTS, "-k", "no_attributes"),
    ),
    Mutant(
        "who mounts limits the files of all programs",
        "fuse/mount.py",
        "(resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE)",
        "(resource.RLIMIT_NOFILE,)",
        ("tests/integration/test_mount_limits.py", "-k", "who_mounted"),
    ),
    Mutant(
        "a program's mistakes fill the log",
        "fuse/logfile.py",
        "        return count < _ALIKE\n",
        "        return True\n",
        ("tests/unit/test_fuse_logfile.py", "-k", "alike"),
    ),
    Mutant(
        "the log grows for ever",
        "fuse/logfile.py",
        "            self._begin_anew(self._path)\n",
        "            pass\n",
        ("tests/unit/test_fuse_logfile.py", "-k", "large"),
    ),
    Mutant(
        "one volume that can't be pushed keeps back the others",
        "cli/mounting.py",
        "                failed[name] = error\n",
        "                failed[name] = error\n                break\n",
        ("tests/integration/test_mount_command.py", "-k", "says_once"),
    ),
    Mutant(
        "commits of a -wal are made again after a crash",
        "fuse/wal.py",
        "if each.end_bytes <= mark.end_bytes]",
        "if each.end_bytes <= 0]",
        (MOUNT_KILLED, "-k", "wait_in_a_wal"),
    ),
    Mutant(
        "a commit that ends in headers alone is overlooked",
        "fuse/wal.py",
        "            self._end = max(self._end, self._rewritten)\n",
        "",
        (MOUNT_WAL,),
    ),
    Mutant(
        "the header of a commit's frame counts as the commit",
        "fuse/wal.py",
        "        if self._awaited and end >= self._awaited:\n",
        "        if self._awaited and self.file.size >= self._awaited:\n",
        (MOUNT_WAL,),
    ),
    Mutant(
        "a -wal that was let go is cut",
        "fuse/operations.py",
        "            if not node.file.closed:\n",
        "            if node.file is not None:\n",
        (MOUNT_PROGRAMS, "-k", "just_after_its_program_died"),
    ),
    Mutant(
        "a name whose length isn't known can't be listed offline",
        "fuse/operations.py",
        '            log.info("how long %s is can\'t be told: %s", file.path, error)\n',
        "            if not file.length:\n                raise\n",
        (MOUNT_SYNC, "-k", "never_opened_here"),
    ),
    Mutant(
        "a listing waits for each length that can't be had",
        "fuse/operations.py",
        "                self._unasked_until = trio.current_time() + _UNASKED_SECONDS\n",
        "                pass\n",
        ("tests/unit/test_mount_lengths.py",),
    ),
    Mutant(
        "a page count that a program writes cuts the file",
        "fuse/shorten.py",
        " and counters[1] == (counters[0] + 1) & 0xFFFFFFFF\n",
        "\n",
        (MOUNT_BYTES, "-k", "page_count_that_a_program_writes"),
    ),
    Mutant(
        "what lies behind a database is cut off at SQLite's commit",
        "fuse/shorten.py",
        "    if _told(before) != view.length:\n",
        "    if not view:\n",
        (MOUNT_BYTES, "-k", "behind_a_database"),
    ),
    Mutant(
        "room that SQLite reserves is cut off",
        "fuse/shorten.py",
        'any(overlay.read(page).strip(b"\\0") for page in behind)',
        "bool(behind)",
        (MOUNT_BYTES, "-k", "whatever_room and 65536-delete"),
    ),
    Mutant(
        "what a program writes beside a -wal counts as a checkpoint",
        "fuse/file.py",
        "                astray = True\n",
        "",
        (MOUNT_BYTES, "-k", "is_in_use_stays and what_differs-removed"),
    ),
    Mutant(
        "a cut beside a -wal counts as a checkpoint's",
        "fuse/wal.py",
        "        return not rest and count in self._counts\n",
        "        return True\n",
        (MOUNT_BYTES, "-k", "cut_beside"),
    ),
    Mutant(
        "a backup beside a -wal leaves what the -wal's frames hide",
        "fuse/takeback.py",
        "    for page in hidden & span(1, page_count(overlay.length, page_size)):\n",
        "    for page in PageSet():\n",
        (MOUNT_BYTES, "-k", "is_in_use_stays and a_few_bytes-removed"),
    ),
    Mutant(
        "a -wal that is parted from its file is taken over after a crash",
        "fuse/leftovers.py",
        "mark.parted is not None and mark.salts == salts",
        'mark.parted is not None and mark.salts == b""',
        (MOUNT_BYTES, "-k", "survives_the_mount and what_differs and removed and killed"),
    ),
    Mutant(
        "a -wal stands beside a database that has moved on",
        "fuse/file.py",
        "        if wal is None or wal.parted in (None, (head.lsn, head.generation)):\n",
        "        if wal is None or head:\n",
        (MOUNT_BYTES, "-k", "set_aside"),
    ),
    Mutant(
        "a remote that is collected in its loop's thread waits for itself",
        "remote/portal.py",
        "            session.portal.give_back(session.aclose())\n",
        "            session.portal.call(session.aclose())\n",
        ("tests/integration/test_lite.py", "-k", "nobody_closed"),
    ),
)

_SPARK: Final = (
    Mutant(
        "spark: a record that ends early reads as null, not as the default",
        "spark_export/tables/records.py",
        "        self._missing = field.missing if field.missing is not None and default is not None else None\n",
        "        self._missing = None\n",
        (SPARK_ROWS, "-k", "both_engines"),
    ),
    Mutant(
        "spark: a whole number that no double equals is rounded",
        "spark_export/tables/mismatch.py",
        "            lost = whole & ~exact\n",
        "            lost = whole & ~fits\n",
        (SPARK_CORNERS, "-k", "double"),
    ),
    Mutant(
        "spark: a page that is no leaf is decoded",
        "spark_export/tables/cells.py",
        '    _check(data[base] == Kind.LEAF_TABLE, numbers, key, "is no table\'s leaf")\n',
        "",
        (SPARK_CORNERS, "-k", "damage"),
    ),
    Mutant(
        "spark: the value of a cell that runs out of its record is taken from the next",
        "spark_export/tables/records.py",
        '        _check(value_at <= limit, rows, key, "a value that ends beyond it")\n',
        "        pass\n",
        (SPARK_CORNERS, "-k", "runs_out"),
    ),
    Mutant(
        "spark: SQLite steps onto a hole after the range",
        "spark_export/tables/general.py",
        "bisect_left(tree.bounds, last) + 2",
        "bisect_left(tree.bounds, last) + 1",
        (SPARK_SPLITS, "-k", "each_engine"),
    ),
    Mutant(
        "spark: a split begins with its neighbour's last rowid",
        "spark_export/tables/splits.py",
        "tree.bounds[begin + start - 1] + 1 if",
        "tree.bounds[begin + start - 1] if",
        (SPARK_SPLITS,),
    ),
    Mutant(
        "spark: a column is what a few of its values are",
        "spark_export/tables/found.py",
        "        most = max(self.integers + self.reals, self.texts, self.blobs)\n",
        "        most = min(each for each in (self.integers + self.reals, self.texts, self.blobs, 1 << 60) if each)\n",
        (SPARK_FOUND, "-k", "most_values"),
    ),
    Mutant(
        "spark: what was found is looked for again by whoever plans",
        "spark_export/source/datasource.py",
        "request=settled.request.with_found(self._found)",
        "request=settled.request",
        ("tests/integration/test_spark_ordinary.py", "-k", "looked_for_again"),
    ),
    Mutant(
        "spark: a record WITHOUT ROWID is taken to begin with the first column",
        "spark_export/tables/found.py",
        "    order = [*keys, *(column for column in stored if not column.key_place)]\n",
        "    order = stored\n",
        (SPARK_FOUND, "-k", "ordinary"),
    ),
    Mutant(
        "spark: columns that options tell are looked at all the same",
        "spark_export/tables/found.py",
        "        if column.name not in options.found and not is_told(column, options)\n",
        "        if column.name not in options.found\n",
        (SPARK_FOUND, "-k", "options_say"),
    ),
    Mutant(
        "spark: an integer that no double equals makes a DECIMAL a double",
        "spark_export/tables/found.py",
        "            self.beyond |= any(int(float(each)) != each for each in large)\n",
        "",
        (SPARK_CORNERS, "-k", "no_double or does_not_hold"),
    ),
    Mutant(
        "spark: the session needs the machine's own name",
        "spark_export/session.py",
        '_ADDRESSES: Final = ("SPARK_LOCAL_IP", ',
        '_ADDRESSES: Final = ("SPARK_LOCAL_IQ", ',
        (SPARK_STARTS, "-k", "own_name"),
    ),
    Mutant(
        "spark: an import names no Python to the Java that is yet to start",
        "spark_export/__init__.py",
        "name_to_java()\n_register",
        "_register",
        (SPARK_STARTS, "-k", "whatever_python3_is and before"),
    ),
    Mutant(
        "spark: register leaves the session's python3",
        "spark_export/__init__.py",
        "    name_to_session(session)\n",
        "",
        (SPARK_STARTS, "-k", "whatever_python3_is and registered"),
    ),
    Mutant(
        "spark: a 29th of February in any year is a date",
        "spark_export/tables/instants.py",
        "        good &= right & (day >= 1) & (day <= after - first)\n",
        "        good &= right & (day >= 1) & (day <= 31)\n",
        (SPARK_INSTANTS, "-k", "alone"),
    ),
    Mutant(
        "spark: a zone is added instead of taken off",
        "spark_export/tables/instants.py",
        "            micros -= np.where(zoned, ahead, 0)\n",
        "            micros += np.where(zoned, ahead, 0)\n",
        (SPARK_INSTANTS, "-k", "alone"),
    ),
    Mutant(
        "spark: a REAL is rounded to the decimal's last place",
        "spark_export/tables/decimals.py",
        " & (places / power == values)",
        "",
        (SPARK_INSTANTS, "-k", "reals"),
    ),
    Mutant(
        "spark: a decimal of many digits is taken for one of few",
        "spark_export/tables/decimals.py",
        "        if self._precision > _WORD_DIGITS:\n",
        "        if self._precision > 38:\n",
        (SPARK_INSTANTS, "-k", "integers"),
    ),
    Mutant(
        "spark: an index whose pages are missing answers",
        "spark_export/tables/general.py",
        " NOT INDEXED{where}",
        "{where}",
        (SPARK_CORNERS, "-k", "its_own_tree"),
    ),
)

_CHANGES: Final = (
    Mutant(
        "changes: a value that changed in its overflow page alone is not looked for",
        "spark_export/changes/plan.py",
        "    look = leaves.within(alike if suspects.leaves is None else alike & suspects.leaves)\n",
        "    look = NO_LEAVES\n",
        (SPARK_CHANGES, "-k", "overflow_page_alone"),
    ),
    Mutant(
        "changes: equal cells are equal rows, whatever their chains hold",
        "spark_export/changes/rows.py",
        "        if task.suspects and new:\n",
        "        if not task.cells_tell and new:\n",
        (SPARK_CHANGES, "-k", "leaf_that_changed_too"),
    ),
    Mutant(
        "changes: a leaf that lies in both trees is the same, changed or not",
        "spark_export/changes/plan.py",
        "    alike = (pages_of(trees[0]) & pages_of(trees[1])) - changed\n",
        "    alike = pages_of(trees[0]) & pages_of(trees[1])\n",
        (SPARK_FEEDS,),
    ),
    Mutant(
        "changes: a leaf that reaches over a cut is told twice",
        "spark_export/changes/cells.py",
        "        rows = rows.select((rows.rowid >= rowids[0]) & (rows.rowid <= rowids[1]))\n",
        "        pass\n",
        (SPARK_CHANGES, "-k", "cut_by_bytes"),
    ),
    Mutant(
        "changes: -0.0 is 0.0",
        "spark_export/changes/told.py",
        "        one, other = one.view(pa.int64()), other.view(pa.int64())\n",
        "        pass\n",
        (SPARK_CHANGES, "-k", "exactly"),
    ),
    Mutant(
        "changes: a pointer map is believed",
        "spark_export/changes/pointers.py",
        " if set(heads.values()) <= held else None\n",
        "\n",
        (SPARK_CHANGES, "-k", "not_believed"),
    ),
    Mutant(
        "changes: rows that a new column's default fills are the same",
        "spark_export/changes/side.py",
        "            filled = column.rowid or column.default is not None or ",
        "            filled = column.rowid or ",
        (SPARK_CHANGES, "-k", "come_and_go"),
    ),
)

_FOLLOWED: Final = (
    Mutant(
        "stream: the first batch begins where the head is when it is asked",
        "spark_export/source/stream.py",
        "            return self._driver.start.json()\n",
        "            return replace(self._driver.start, lsn=self._settled.view.lsn).json()\n",
        (SPARK_STREAM, "-k", "head_has_moved"),
    ),
    Mutant(
        "stream: the first batch reads changes instead of the table",
        "spark_export/source/offsets.py",
        "        return replace(start, lsn=known.newest)\n",
        "        return replace(start, lsn=known.newest, after=0)\n",
        (SPARK_OFFSETS,),
    ),
    Mutant(
        "stream: a batch passes its limit",
        "spark_export/source/offsets.py",
        "min(newest, after + limit)",
        "min(newest, after + limit + 1)",
        (SPARK_OFFSETS,),
    ),
    Mutant(
        "stream: the last LSN of a batch is left out",
        "spark_export/source/offsets.py",
        "for lsn in range(after + 1, last + 1)]",
        "for lsn in range(after + 1, last)]",
        (SPARK_OFFSETS,),
    ),
    Mutant(
        "stream: a held LSN makes up for forgotten ones behind it",
        "spark_export/source/offsets.py",
        "(held or after == 0) and known.oldest <= after + 1",
        "held or (after == 0 and known.oldest <= 1)",
        (SPARK_OFFSETS,),
    ),
    Mutant(
        "stream: any volume's checkpoint is continued",
        "spark_export/source/stream.py",
        "        check_batch(self.start, offset)\n",
        "        pass\n",
        (SPARK_STREAM, "-k", "another_volume"),
    ),
    Mutant(
        "stream: AvailableNow runs after the head",
        "spark_export/source/stream.py",
        "min(known.newest, self._target)",
        "known.newest",
        (SPARK_STREAM, "-k", "available_now"),
    ),
    Mutant(
        "stream: updates pass for new rows",
        "spark_export/source/stream.py",
        'if distinct(batch, CHANGE_TYPE) != ["insert"]:',
        "if not distinct(batch, CHANGE_TYPE):",
        (SPARK_STREAM, "-k", "without_the_feed"),
    ),
    Mutant(
        "stream: other columns pass",
        "spark_export/source/followed.py",
        "    if then == now:\n",
        "    if True:\n",
        (SPARK_STREAM, "-k", "columns_that_change"),
    ),
    Mutant(
        "stream: nothing holds the end of a batch",
        "spark_export/source/leases.py",
        "        self._keep(lease)\n        return str(lease.pin)\n",
        "        return str(lease.pin)\n",
        (SPARK_STREAM, "-k", "one_lease or renewed_while"),
    ),
    Mutant(
        "stream: leases are never let go of",
        "spark_export/source/leases.py",
        "if at < lsn]",
        "if at < lsn - 9]",
        (SPARK_STREAM, "-k", "one_lease"),
    ),
    Mutant(
        "stream: a killed query's last lease but one is left behind",
        "spark_export/source/stream.py",
        "            self.leases.drop(start.after, start.before)\n",
        "            pass\n",
        (SPARK_STREAM, "-k", "one_lease"),
    ),
    Mutant(
        "feed: what was cut off did not change",
        "spark_export/source/chain.py",
        "encode_pages(written | cut)",
        "encode_pages(written)",
        (SPARK_CHAIN,),
    ),
    Mutant(
        "feed: steps between forgotten LSNs are passed over",
        "spark_export/source/steps.py",
        "if not some or some[0].lsn != after + 1:",
        "if not some:",
        (SPARK_CHAIN,),
    ),
    Mutant(
        "feed: later tasks begin with the first one's pages",
        "spark_export/source/steps.py",
        "            start = start if run else before\n",
        "            start = base\n",
        (SPARK_MIRROR,),
    ),
    Mutant(
        "feed: changes have the LSN before",
        "spark_export/source/steps.py",
        "pa.array(np.full(rows, view.lsn, np.int64))",
        "pa.array(np.full(rows, view.lsn - 1, np.int64))",
        (SPARK_MIRROR,),
    ),
)

_EXPORT: Final = (
    Mutant(
        "export: rows that are there twice cancel each other",
        "spark_export/export/checksum.py",
        "int(row_hashes(batch).sum(dtype=np.uint64))",
        "int(np.bitwise_xor.reduce(row_hashes(batch)))",
        (EXPORT_CHECKSUM,),
    ),
    Mutant(
        "export: long text counts by its length alone",
        "spark_export/export/checksum.py",
        "        hashes[row] = xxhash.xxh3_64_intdigest(bytes_[start : start + int(sizes[row])])\n",
        "        hashes[row] = int(sizes[row])\n",
        (EXPORT_CHECKSUM,),
    ),
    Mutant(
        "export: a commit that was killed is not finished",
        "spark_export/export/parquet.py",
        "            self._apply(after, take, give)\n",
        "            del after, take, give\n",
        (EXPORT_KILLED, "-k", "parquet and moved"),
    ),
    Mutant(
        "export: what was given up is left to readers",
        "spark_export/export/parquet.py",
        "            remove(join(self.url, name))\n",
        "            pass\n",
        (EXPORT_PARQUET,),
    ),
    Mutant(
        "export: files of a killed run are taken for the table's",
        "spark_export/export/parquet.py",
        "            if name.startswith(_RUN):\n",
        "            if not name:\n",
        (EXPORT_PARQUET,),
    ),
    Mutant(
        "export: a range reaches into the next file",
        "spark_export/export/incremental.py",
        "firsts[number + 1] - 1 if",
        "firsts[number + 1] if",
        (EXPORT_UNITS,),
    ),
    Mutant(
        "export: a table is written by two at once",
        "spark_export/export/lock.py",
        "fcntl.F_WRLCK",
        "fcntl.F_UNLCK",
        (EXPORT_PARQUET, "-k", "one_export"),
    ),
    Mutant(
        "export: the first row of a file is the file's before",
        "spark_export/export/incremental.py",
        'side="right"',
        'side="left"',
        (EXPORT_SPARK, "-k", "incremental_writes_only"),
    ),
    Mutant(
        "export: an older LSN goes over a newer one unasked",
        "spark_export/export/steps.py",
        "    if before.lsn > unit.view.lsn:\n",
        "    if before.lsn > unit.view.lsn + 1:\n",
        (EXPORT_SPARK, "-k", "older_lsn"),
    ),
)

_SUITE: Final = (
    Mutant(
        "tests inherit an ignored interrupt",
        "tests/conftest.py",
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n",
        "",
        (SUITE,),
    ),
    Mutant(
        "what waits for the log is without bound",
        "server/log/writer.py",
        "submission.inline_bytes > QUEUE_BYTES:",
        "submission.inline_bytes > 1 << 62:",
        (NODE, "-k", "too_much_waits"),
    ),
    Mutant(
        "a big-endian machine is let in",
        "volume/segment.py",
        'if sys.byteorder != "little":',
        "if not sys.byteorder:",
        ("tests/unit/test_segment.py", "-k", "big_endian"),
    ),
)

_ATTACKS: Final = (
    Mutant(
        "attack: attributes may be nested as deep as the decoder goes",
        "volume/limits.py",
        "        if depth > MOST_ATTRIBUTES_DEPTH:\n",
        "        if depth > 100_000:\n",
        (KEPT, "-k", "nested_deep"),
    ),
    Mutant(
        "attack: attributes that were admitted once stop their readers",
        "server/metastore/names.py",
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
        "volume/limits.py",
        "    if size > MOST_ATTRIBUTES_BYTES:\n",
        "    if size > 15_000_000:\n",
        (KEPT, "-k", "nobody_needs"),
    ),
    Mutant(
        "attack: a listing of any size",
        "server/metastore/names.py",
        "len(entries) == limit or size >= MOST_ANSWER_BYTES",
        "len(entries) == limit",
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
        " and length <= len(held) * page_size",
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
        "server/pagestore/write.py",
        "SegmentIndex.of_segment(what, segment, most_pages=MOST_SEGMENT_PAGES)",
        "SegmentIndex.of_segment(what, segment)",
        (SEGMENTS, "-k", "no_more_pages"),
    ),
    Mutant(
        "attack: a packer counts stored bytes alone",
        "volume/pack.py",
        " or len(held) >= SEGMENT_PAGES",
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
        "remote/pages.py",
        "        if not valid <= held:\n",
        "        if not held:\n",
        (HOSTILE, "-k", "goes_beyond and valid"),
    ),
    Mutant(
        "attack: frames come without end",
        "remote/pages.py",
        "        if left_bytes < 0:\n",
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
        "server/http/guard.py",
        'for origin in _header(scope, b"origin"):\n',
        'for origin in _header(scope, b"x-origin"):\n',
        (WEB_PAGE, "-k", "another_origin"),
    ),
    Mutant(
        "attack: any name that leads here is the node's",
        "server/http/guard.py",
        "        if not self.expected:\n",
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
        "            if given and origin_of(given) == origin_of(request.remote):\n",
        "            if given:\n",
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
        "attack: who idles keeps his room",
        "server/http/room.py",
        "            longest.end()\n",
        "            pass\n",
        (SLOW, "-k", "taken_from_who_idles"),
    ),
    Mutant(
        "attack: room is given to whoever comes",
        "server/http/room.py",
        "        return first and self.held_bytes + amount_bytes <= self.limit_bytes\n",
        "        return first or amount_bytes > 0\n",
        (SLOW, "-k", "taken_from_who_idles or one_line"),
    ),
    Mutant(
        "attack: a reader below the least pace goes on",
        "server/http/room.py",
        "        if scope is not None and scope.cancelled_caught:\n",
        "        if scope is None:\n",
        (SLOW, "-k", "below_the_least_pace"),
    ),
    Mutant(
        "attack: a body below the least pace goes on",
        "server/http/body.py",
        "                if stretch_bytes >= pace.least_bytes:\n",
        "                if stretch_bytes:\n",
        (SLOW, "-k", "trickles_is_given_up"),
    ),
    Mutant(
        "attack: a large write has its place while its body comes",
        "server/http/app.py",
        "        async with self.bodies.hold() as holder:\n            body = await read_pages_body(request, holder)\n",
        "        async with self.writes, self.bodies.hold() as holder:\n"
        "            body = await read_pages_body(request, holder)\n",
        (SLOW, "-k", "no_large_write_waiting"),
    ),
    Mutant(
        "attack: a head may take for ever",
        "server/http/run.py",
        "        head_ms = max(1, round(pace.head_seconds * 1000))\n",
        "        head_ms = 3_600_000\n",
        (SLOW, "-k", "a_head_that"),
    ),
)

LOSSES: Final = "tests/unit/test_local_store_losses.py"
READ_ONLY: Final = "tests/integration/test_read_only_home.py"
CUSTODY: Final = "tests/unit/test_custody.py"
DOUBT: Final = "tests/unit/test_local_store_doubt.py"
HEAD_LOST: Final = "tests/integration/test_head_lost.py"

_DAMAGE: Final = (
    Mutant(
        "damage: a push takes whatever version it finds",
        "sync/rollup.py",
        "        if tails.set_key(wanted):\n            value = tails.value()\n",
        "        if tails.set_range(wanted[:20]) and tails.key()[:20] == wanted[:20]:\n"
        "            wanted, value = tails.item()\n",
        (LOSSES, "-k", "older_version"),
    ),
    Mutant(
        "damage: a read takes whatever version it finds",
        "sync/snapshot.py",
        "                    if self._written is not None:\n                        self._check_written(",
        "                    if self._written is None:\n                        self._check_written(",
        (LOSSES, "-k", "older_version"),
    ),
    Mutant(
        "damage: a scan takes whatever version it finds",
        "sync/scan.py",
        "            if written is not None and (written",
        "            if written is None and (written",
        (LOSSES, "-k", "older_version"),
    ),
    Mutant(
        "damage: a commit's record that is gone is passed over",
        "sync/local.py",
        '                raise Corrupt(HERE, f"the record of commit {lsn} of volume {self.vid} is gone")\n',
        "                continue\n",
        (LOSSES, "-k", "record_of_an_unpushed"),
    ),
    Mutant(
        "damage: rows that were put are not looked for",
        "sync/stage.py",
        "    editor.check(_pages_of(batch), lsn)\n",
        "",
        (LOSSES, "-k", "not_found_again"),
    ),
    Mutant(
        "damage: a head that fell back is committed on",
        "sync/commit.py",
        "    local.check_newest(txn, now)\n",
        "",
        (LOSSES, "-k", "fell_behind"),
    ),
    Mutant(
        "doubt: a home that may be damaged is not walked",
        "sync/environment.py",
        "        check_structure(data)\n        return True\n",
        "        return True\n",
        (DOUBT, "-k", "killed"),
    ),
    Mutant(
        "doubt: a process that dies leaves a home that seems sound",
        "sync/environment.py",
        "                doubt.take_away(self.data_path)\n",
        "",
        (DOUBT, "-k", "killed"),
    ),
    Mutant(
        "doubt: one of several users vouches for what the others do",
        "sync/environment.py",
        "(committed or now == before) and not doubt.is_in_use(self.data_path):\n",
        "(committed or now == before):\n",
        (DOUBT, "-k", "another_process"),
    ),
    Mutant(
        "doubt: what else wrote to the file is vouched for",
        "sync/environment.py",
        "(committed or now == before) and",
        "(committed or now != NOTHING) and",
        (DOUBT, "-k", "something_else"),
    ),
    Mutant(
        "doubt: pages in use twice",
        "sync/structure.py",
        "        if self._seen[number]:\n",
        "        if self._seen[number] > 1:\n",
        (DOUBT, "-k", "free_and_in_use"),
    ),
    Mutant(
        "doubt: keys in any order",
        "sync/structure.py",
        "        first = keys[0]\n        if (self._last",
        "        return\n        first = keys[0]\n        if (self._last",
        (DOUBT, "-k", "others_place"),
    ),
    Mutant(
        "doubt: names that lead nowhere",
        "sync/census.py",
        "            if txn.get(name_key(record.name), db=tables.names) != places.id_of(record):\n",
        "            if not record.name:\n",
        (DOUBT, "-k", "fit_one_another"),
    ),
    Mutant(
        "read only: what can't be kept can't be read",
        "sync/snapshot.py",
        "        with suppress(NotFound, Full, ReadOnly):\n",
        "        with suppress(NotFound):\n",
        (READ_ONLY, "-k", "grow or full_disk"),
    ),
    Mutant(
        "read only: a home that can't be written isn't opened",
        "sync/opening.py",
        "            if not read_only and code in _UNWRITABLE and",
        "            if read_only and code in _UNWRITABLE and",
        (READ_ONLY, "-k", "file_system_is_read"),
    ),
    Mutant(
        "read only: without a place in the table of readers while others write",
        "sync/environment.py",
        "        if self.read_only:\n            self._refuse_in_use()\n        env =",
        "        env =",
        (READ_ONLY, "-k", "being_written"),
    ),
    Mutant(
        "custody: a link that somebody else made is followed",
        "sync/custody.py",
        "            if not ours or found.st_uid not in (me, _ROOT):\n",
        "            if not ours and found.st_uid == me:\n",
        (CUSTODY, "-k", "somebody_else_made"),
    ),
    Mutant(
        "custody: a lock that is a link is followed",
        "sync/custody.py",
        "flags | os.O_CREAT | os.O_NOFOLLOW |",
        "flags | os.O_CREAT |",
        (CUSTODY, "-k", "lock_that_is_a_link"),
    ),
    Mutant(
        "custody: a home that is wider stays so",
        "sync/custody.py",
        "            _tighten(path, found.st_mode & 0o700)\n",
        "            pass\n",
        (CUSTODY, "-k", "tightened"),
    ),
    Mutant(
        "custody: every user reads what LMDB writes",
        "sync/opening.py",
        "                mode=0o600,\n",
        "                mode=0o644,\n",
        (CUSTODY, "-k", "owner_alone"),
    ),
    Mutant(
        "custody: every user reads a store",
        "server/store/tree.py",
        "if os.fstat(self._root.fd).st_mode & stat.S_IWGRP else 0o700\n",
        "if os.fstat(self._root.fd).st_mode & stat.S_IWGRP else 0o755\n",
        (CUSTODY, "-k", "owner_alone"),
    ),
    Mutant(
        "custody: an exported file is everybody's",
        "sync/transfer.py",
        "os.O_NOFOLLOW | os.O_CLOEXEC, 0o666), name\n",
        "os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), name\n",
        (CUSTODY, "-k", "exported"),
    ),
    Mutant(
        "a push looks at the local store again and again",
        "sync/push.py",
        "    head, record, _ = standing\n    if not head.unpushed:\n",
        "    head, record, _ = local.standing()\n    if not head.unpushed:\n",
        ("tests/integration/test_edge_sync.py", "-k", "looks_at_the_local_store"),
    ),
    Mutant(
        "a stopped node is waited for",
        "remote/exchange.py",
        "            if silent:\n                tasks.cancel_scope.cancel()\n",
        "",
        ("tests/integration/test_remote_stopped.py", "-k", "told_of and commit"),
    ),
    Mutant(
        "a slow node is given up",
        "remote/exchange.py",
        "            silent = self._is_silent = not await self._is_alive()\n",
        "            silent = self._is_silent = not await self._is_alive() or True\n",
        ("tests/integration/test_remote_stopped.py", "-k", "slow and commit"),
    ),
    Mutant(
        "lost head: an edge takes it for a lagging remote",
        "sync/connection.py",
        "            self.check_seen(record, seen)\n        except",
        "        except",
        (HEAD_LOST,),
    ),
    Mutant(
        "lost head: a push onto an LSN that is gone diverges",
        "sync/push.py",
        "            if error.head < pending.base:\n                _check_seen(local, connection, pending)\n",
        "",
        (HEAD_LOST, "-k", "push_onto"),
    ),
    Mutant(
        "lost head: a lite client's commit is only late",
        "lite/writer.py",
        "                if error.head < self._over.view.lsn:\n",
        "                if error.head < 0:\n",
        (HEAD_LOST, "-k", "lite"),
    ),
    Mutant(
        "the snapshot pragma tells of the newest",
        "vfs/file.py",
        "            view = self._view if self._lock or self._pinned else None\n",
        "            view = None\n",
        ("tests/integration/test_vfs_edge.py", "-k", "snapshot_pragma"),
    ),
)

MUTANTS: Final[tuple[Mutant, ...]] = (
    *_EDGE,
    *_DAMAGE,
    *_S3,
    *_LOG,
    *_NODES,
    *_VOLUMES,
    *_SQLITE,
    *_MOUNT,
    *_SPARK,
    *_CHANGES,
    *_FOLLOWED,
    *_EXPORT,
    *_SUITE,
    *_ATTACKS,
    *_NAMES,
)
