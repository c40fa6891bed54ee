"""Mutants of names, remotes that are named, and the words of errors."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

EMPTY_NAMES: Final = "tests/integration/test_empty_names.py"
NAMES_DELTA: Final = "tests/property/test_names_delta.py"
HEAD_LOST: Final = "tests/integration/test_head_lost.py"
NAMES_SYNC: Final = "tests/integration/test_namespace_sync.py"
ASKED: Final = "tests/integration/test_asked_names.py"
WORDS: Final = "tests/integration/test_cli_words.py"
REMOTES: Final = "tests/integration/test_named_remotes.py"
MOUNT_SYNC: Final = "tests/integration/test_mount_sync.py"

MUTANTS: Final = (
    Mutant(
        "names: bound before the content is there",
        "sync/push.py",
        "    pending = under_way or _capture(local, record.synced_ms)\n    CAPTURED()\n    after",
        "    if remote_name is not None:\n        bind_name(local, connection, remote_name, head)\n"
        "    pending = under_way or _capture(local, record.synced_ms)\n"
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
        "if isinstance(standing, VolumeRecord) and self.names.is_untouched(",
        "if not isinstance(standing, VolumeRecord) and self.names.is_untouched(",
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
        "sync/publish.py",
        "or (has_content and is_untouched_there(",
        "or (not has_content and is_untouched_there(",
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
        "names: what changed between two parts of a delta is missed",
        "sync/names_delta.py",
        "        if asked == seen:\n",
        "        if asked:\n",
        (NAMES_DELTA,),
    ),
    Mutant(
        "names: a delta is put over what was forgotten between its parts",
        "sync/names_delta.py",
        "            if after:\n                return None\n",
        "",
        (NAMES_DELTA,),
    ),
    Mutant(
        "names: what lay below a directory that moved stays known",
        "sync/names_delta.py",
        "not in self._gone and not _lies_below(row.name, below)",
        "not in self._gone",
        (NAMES_DELTA,),
    ),
    Mutant(
        "names: a remote that lost changes is taken for one that lags",
        "sync/names_delta.py",
        "        if part.head < seen:\n",
        "        if part.head < 0:\n",
        (HEAD_LOST, "-k", "names"),
    ),
    Mutant(
        "names: a change at a revision that was lost is taken for a new one",
        "sync/names_push.py",
        "        if namespace is None or lsn > namespace.seen:\n",
        "        if namespace is None or lsn > 0:\n",
        (HEAD_LOST, "-k", "names"),
    ),
    Mutant(
        "names: what a move leaves below its old name isn't told",
        "server/metastore/recent_changes.py",
        "for name in change.names if change.below)",
        "for name in change.names if change.below and False)",
        (NAMES_DELTA,),
    ),
    Mutant(
        "names: a node remembers every change",
        "server/metastore/recent_changes.py",
        "self.forget(reach_at(change.lsn))",
        "self.forget(0)",
        (NAMES_DELTA,),
    ),
    Mutant(
        "names: a node says that it remembers what it has forgotten",
        "server/metastore/namespace_state.py",
        "if revision < reach_at(self.state.head):",
        "if revision < 0:",
        (NAMES_DELTA,),
    ),
    Mutant(
        "names: all names of one target are looked through for each",
        "sync/names_pull.py",
        "        while names:\n            name = names.pop()\n",
        "        for name in names:\n",
        (NAMES_SYNC, "-k", "one_target"),
    ),
    Mutant(
        "names: an empty database that is open stays empty",
        "fuse/exchange/moving.py",
        "if file.length or file.dirty or any(handle.blind for handle in file.handles):",
        "if not file.length or file.dirty or any(handle.blind for handle in file.handles):",
        (MOUNT_SYNC, "-k", "opened_when_it_was_empty and delete"),
    ),
    Mutant(
        "names: a database comes under who only writes",
        "fuse/exchange/moving.py",
        "if file.length or file.dirty or any(handle.blind for handle in file.handles):",
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
        "fuse/exchange/remote_watch.py",
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
        "vfs/apsw_connection.py",
        "raise ours from (None if ours is error else error)",
        "raise",
        ("tests/integration/test_vfs_connections.py", "-k", "with_block"),
    ),
    Mutant(
        "errors: a with block says that it can't roll back what SQLite has rolled back",
        "vfs/apsw_connection.py",
        "            if error is not None and not self.in_transaction:\n                return False\n",
        "",
        ("tests/integration/test_vfs_connections.py", "-k", "rolled_back_itself"),
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
        "server/store/probe.py",
        "    if not probing or not create:\n",
        "    if not probing:\n",
        (WORDS, "-k", "not_served"),
    ),
    Mutant(
        "words: a store's directory is made from its beginning",
        "server/store/directory_tree.py",
        "        if not os.path.isdir(parent):\n            raise NotFound(",
        "        if not os.path.isdir(parent):\n            _make_root(parent)\n        if not os.path.isdir(parent):\n"
        "            raise NotFound(",
        (WORDS, "-k", "begins_wrong"),
    ),
    Mutant(
        "words: a wrong token reads like none",
        "server/http/access_control.py",
        'Unauthorized(_WRONG, reason="wrong") if given',
        'Unauthorized(_MISSING, reason="wrong") if given',
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
        '            raise Unavailable("the process is ending", determinate=False, hopeless=True) from None\n'
        "        except Exception as error:\n            raise strip_traceback(error)",
        "            return self.start(job).result()\n        except CancelledError:\n"
        '            raise Unavailable("the process is ending", determinate=False, hopeless=True) from None\n'
        "        except Exception:\n            raise",
        ("tests/integration/test_tracebacks.py", "-k", "pushed_by or nobody"),
    ),
    Mutant(
        "words: what ends with the process is told as never awaited",
        "remote/loop.py",
        "            await _cancel_tasks()\n",
        "",
        ("tests/integration/test_portal.py", "-k", "silence"),
    ),
    Mutant(
        "serve: a request whose caller left outlives the server",
        "server/http/run_node.py",
        "            await under_way.ended()\n",
        "            pass\n",
        ("tests/integration/test_http.py", "-k", "outlives"),
    ),
    Mutant(
        "serve: a process is taken apart under its server's threads",
        "cli/main.py",
        '    if "granian" in sys.modules:\n',
        "    if False:\n",
        ("tests/integration/test_cli.py", "-k", "interpreter_whole"),
    ),
    Mutant(
        "words: a statement's error brings our frames along",
        "vfs/codes.py",
        "    told = strip_traceback(error)\n",
        "    told = error\n",
        ("tests/integration/test_tracebacks.py", "-k", "remote or SQL"),
    ),
    Mutant(
        "words: what is open when Python ends is closed too late",
        "vfs/system.py",
        "                connection.close(force=True)\n",
        "                pass\n",
        ("tests/integration/test_tracebacks.py", "-k", "few_lines and remote"),
    ),
    Mutant(
        "names: removed here, written there: it stays removed",
        "sync/names_pull.py",
        " and not self._is_again(row, entry):",
        ":",
        (NAMES_SYNC, "-k", "written_there"),
    ),
    Mutant(
        "names: removed there, and what was written here isn't told yet: it goes",
        "sync/names_pull.py",
        "        if row is not None and not record.attributes.says_as(row.attributes):\n            # What",
        "        if False:\n            # What",
        (NAMES_SYNC, "-k", "written_there"),
    ),
    Mutant(
        "names: what became part of another has its old name again",
        "sync/names_pull.py",
        "            if name in self.claims or name in self.dropped:\n",
        "            if name in self.claims:\n",
        (NAMES_SYNC, "-k", "part_of_another"),
    ),
    Mutant(
        "names: what has content there makes way, since it is empty here",
        "sync/names_pull.py",
        "self.names.is_untouched(standing) and not has_content:",
        "self.names.is_untouched(standing):",
        (NAMES_SYNC, "-k", "makes_way_for_none"),
    ),
    Mutant(
        "names: an answer that was lost is taken for a change that the remote lost",
        "sync/names_push.py",
        "        return lsn <= namespace.head or any(row.revision == lsn for row in self.rows.values())\n",
        "        return True\n",
        (ASKED, "-k", "sent_again"),
    ),
    Mutant(
        "names: a change is noted once it was answered",
        "sync/asked_names.py",
        "    environment.update(note)\n    try:\n",
        "    try:\n",
        (ASKED, "-k", "not_answered"),
    ),
    Mutant(
        "names: a change whose answer was lost is forgotten",
        "sync/asked_names.py",
        "isinstance(error, UsageError) or (isinstance(error, Unavailable) and error.determinate)",
        "True",
        (ASKED, "-k", "not_answered"),
    ),
    Mutant(
        "names: what a refused change asked for is asked for ever",
        "sync/asked_names.py",
        "            environment.update(forget)\n",
        "            pass\n",
        (ASKED, "-k", "nothing_is_asked_again"),
    ),
    Mutant(
        "names: a pull settles nothing",
        "sync/namespace.py",
        "            settle_names(self._environment, connection)\n",
        "",
        (ASKED, "-k", "not_answered"),
    ),
    Mutant(
        "names: what was removed before its answer is known stays there",
        "sync/names_push.py",
        "row = msgspec.structs.replace(row, revision=lsn, dropped=key is None)",
        "row = msgspec.structs.replace(row, revision=lsn)",
        (ASKED, "-k", "not_answered"),
    ),
    Mutant(
        "names: a volume asks for its new name before the old one's answer is known",
        "sync/publish.py",
        "        record = _settle_name(local, connection, record)\n",
        "        pass\n",
        (ASKED, "-k", "renamed_before_its_name"),
    ),
    Mutant(
        "names: an alias whose answer was lost is a rename",
        "sync/names_push.py",
        "self._bound(self._bearer(row), row, lsn, alias=asked.alias)",
        "self._bound(self._bearer(row), row, lsn)",
        (ASKED, "-k", "unanswered_alias"),
    ),
    Mutant(
        "names: what two settle at once is recorded twice",
        "sync/publish.py",
        "        is_new = asked is None or NameTable(local.environment, txn).forget_asked(asked)\n",
        "        is_new = asked is None or NameTable(local.environment, txn).forget_asked(asked) or True\n",
        (ASKED, "-k", "settled_by_another"),
    ),
    Mutant(
        "names: what replaces a file is bound over what was written to it since",
        "sync/publish.py",
        "    if there is None or there.revision not in (0, entry.revision):\n",
        "    if there is None:\n",
        (NAMES_SYNC, "-k", "replaced_elsewhere"),
    ),
    Mutant(
        "names: what others made of the attributes is undone with what was made of them here",
        "sync/attributes.py",
        "        return Attributes.from_wire(theirs_alone | {",
        "        return self if kept else Attributes.from_wire(theirs_alone | {",
        (NAMES_SYNC, "-k", "mode_that_one_gives"),
    ),
    Mutant(
        "names: what is swapped has no name in between",
        "sync/names_push.py",
        "if not (self._break_circle(pending) or self._move_some(pending) or self._bind_over(pending)):",
        "if not (self._move_some(pending) or self._bind_over(pending)):",
        (NAMES_SYNC, "-k", "name_all_the_while"),
    ),
)
