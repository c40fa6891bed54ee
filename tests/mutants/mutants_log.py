"""Mutants of the log: fences, gaps, what is acknowledged, how a log ends and begins again."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

__all__ = ["MUTANTS"]

NODE: Final = "tests/integration/test_node.py"
ROLLBACK: Final = "tests/integration/test_log_rollback.py"
ENDS: Final = "tests/integration/test_log_ends.py"
CHAIN: Final = "tests/unit/test_chain.py"
HEADS: Final = "tests/integration/test_log_heads.py"
STOPS: Final = "tests/integration/test_streams_stop.py"
OWNERS: Final = "tests/integration/test_node_owners.py"

MUTANTS: Final = (
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
    Mutant(
        "a directory moves where the remote refuses a name below it",
        "sync/namespace.py",
        "places.check_open(new + record.name[len(old) :])",
        "new + record.name[len(old) :]",
        ("tests/unit/test_namespace.py", "-k", "too_long"),
    ),
    Mutant(
        "a move makes names longer than any may be",
        "server/metastore/names.py",
        "    return max((len(name.encode()) for name, _ in state.below(old)), default=0) + grows",
        "    return max((len(name.encode()) for name, _ in state.below(old)), default=0)",
        ("tests/unit/test_names.py", "-k", "too_long"),
    ),
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
        "a stream that failed half-way goes on",
        "server/metastore/streams.py",
        "            taker.end(stop)\n",
        "            self._takers[stream] = taker\n",
        (ENDS, "-k", "half_way"),
    ),
    Mutant(
        "a record that can't be followed stops its whole log",
        "server/metastore/streams.py",
        "        except Exception as error:\n            self._stop(stream, error)",
        "        except ZeroDivisionError as error:\n            self._stop(stream, error)",
        (STOPS, "-k", "its_own_volume_alone and unknown"),
    ),
    Mutant(
        "a stream whose sum is not its commits' is followed",
        "volume/records.py",
        "        if added != self.setsum:",
        "        if len(added) != len(self.setsum):",
        ("tests/unit/test_entry.py", "-k", "add_up"),
    ),
    Mutant(
        "an entry's total is not what its streams add",
        "server/log/chain.py",
        "        if (header.prev_sum, header.total) != (self.total, total):",
        "        if header.prev_sum != self.total:",
        (CHAIN, "-k", "total_grows"),
    ),
    Mutant(
        "whoever wrote what can't be applied hears that all is well",
        "server/metastore/draft.py",
        "            if change.stream.ended:",
        "            if change.stream.ended is None:",
        (STOPS, "-k", "taker_that_raises"),
    ),
    Mutant(
        "a volume is opened anew on a log that has given its records away",
        "server/metastore/streams.py",
        "        if self._taken.get(stream, -1) > slot:",
        "        if self._taken.get(stream, -1) > slot + 1000:",
        (STOPS, "-k", "has_moved"),
    ),
    Mutant(
        "what a volume has taken of a log is taken for what comes next",
        "server/metastore/streams.py",
        "        while waiting and waiting[0].slot <= slot:\n            waiting.popleft()\n",
        "",
        (STOPS, "-k", "comes_back"),
    ),
    Mutant(
        "an unknown kind of entry is read as data",
        "server/log/chain.py",
        "    if header.kind not in {",
        "    if not header.kind and header.kind not in {",
        (CHAIN, "-k", "unknown_kind"),
    ),
    Mutant(
        "an epoch begins without a fence",
        "server/log/chain.py",
        '"fence" if first and header.epoch > 0 else "data"',
        '"fence" if first and header.epoch > 0 and header.kind == "fence" else "data"',
        (CHAIN, "-k", "does_not_belong"),
    ),
    Mutant(
        "garbage is passed over",
        "volume/entry.py",
        "    if _features_of(header) & ~head.features:",
        "    if _features_of(header) < 0:",
        ("tests/unit/test_entry.py", "-k", "garbage_and_rollups"),
    ),
    Mutant(
        "an early store is read",
        "volume/envelope.py",
        "    if version < VERSION:",
        "    if version < 1:",
        ("tests/unit/test_entry.py", "-k", "early"),
    ),
    Mutant(
        "to follow a log whole entries are fetched",
        "server/log/reader.py",
        "data = await get(end=asked)",
        "data = await get()",
        (HEADS,),
    ),
    Mutant(
        "a head longer than was asked for is damage",
        "server/log/reader.py",
        "            if size > len(data) == asked:",
        "            if size < len(data) == asked:",
        (HEADS,),
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
