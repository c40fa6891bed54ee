"""Options of the data source: each has its meaning or one clear error; none is passed over."""

from __future__ import annotations

import pytest

from budwood.spark_export.source.options import check_read_once, parse
from budwood.tables.scan_plan import Engine, Mismatch, Target
from budwood.volume.errors import BadInput

TABLE = {"volume": "v", "table": "t"}


def test_options_have_delta_s_names_in_any_case_and_typed_values() -> None:
    request = parse(
        {
            **TABLE,
            "VERSIONASOF": "7",
            "columns": ' id, "odd, ""name""" ,price',
            "splitbytes": "8m",
            "engine": "General",
            "rowIdColumn": "_rowid",
            "typeMismatch": "string",
            "numericAs": "text",
            "untypedAs": "long",
            "decimals": "TRUE",
            "type.Price": "decimal",
            "leaseSeconds": "90.5",
            "cacheBytes": "1 KiB",
            "token": "secret",
        }
    )
    assert (request.version, request.columns, request.split_bytes) == (7, ("id", 'odd, "name"', "price"), 8 << 20)
    assert (request.engine, request.rowid, request.lease_seconds) == (Engine.GENERAL, "_rowid", 90.5)
    types = request.types
    assert (types.mismatch, types.numeric, types.untyped) == (Mismatch.STRING, Target.TEXT, Target.LONG)
    assert (types.decimals, types.booleans, types.types) == (True, False, {"price": Target.DECIMAL})
    assert request.cache_bytes == 1024
    assert "secret" not in repr(request)


def test_a_feed_s_options() -> None:
    request = parse(
        {
            **TABLE,
            "readChangeFeed": "true",
            "startingVersion": "latest",
            "endingTimestamp": "2030-01-31T12:00:00+01:00",
            "maxVersionsPerTrigger": "3",
            "failOnDataLoss": "false",
        }
    )
    assert (request.feed, request.starting_version, request.ending_ms) == (True, "latest", 1896087600000)
    assert (request.most_versions, request.fail_on_data_loss) == (3, False)


@pytest.mark.parametrize(
    ("text", "last", "first"),
    [
        ("2030-01-31T12:00:00.000999Z", 1896091200000, 1896091200001),
        ("2030-01-31T12:00:00.123Z", 1896091200123, 1896091200123),
        ("1969-12-31T23:59:59.9995Z", -1, 0),
    ],
)
def test_a_time_between_two_milliseconds_is_never_a_later_end_nor_an_earlier_start(
    text: str, last: int, first: int
) -> None:
    assert parse({**TABLE, "timestampAsOf": text}).time_ms == last
    feed = parse({**TABLE, "readChangeFeed": "true", "startingTimestamp": text, "endingTimestamp": text})
    assert (feed.starting_ms, feed.ending_ms) == (first, last)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"table": "t"}, "option volume is missing"),
        ({"volume": "v"}, "table, query and metadata says what to read, and none is given"),
        ({**TABLE, "query": "SELECT 1"}, "says what to read, not table and query"),
        ({**TABLE, "tabel": "t"}, "option tabel is unknown: did you mean table?"),
        ({**TABLE, "zzz": "t"}, "option zzz is unknown: there are volume, table,"),
        ({**TABLE, "path": "/x"}, "load() takes no path"),
        ({**TABLE, "versionAsOf": "0"}, "option versionAsOf '0': it must be an LSN, a whole number from 1, or @LABEL"),
        ({**TABLE, "versionAsOf": "@"}, "@ stands before a label"),
        ({**TABLE, "versionAsOf": "1_0"}, "option versionAsOf '1_0'"),
        ({**TABLE, "versionAsOf": "9" * 19}, "it must be an LSN, a whole number from 1"),
        (
            {**TABLE, "versionAsOf": "1", "timestampAsOf": "2030-01-01T00:00:00Z"},
            "versionAsOf and timestampAsOf exclude",
        ),
        ({**TABLE, "timestampAsOf": "2030-01-01"}, "it must be a time with its offset"),
        ({**TABLE, "timestampAsOf": "yesterday"}, "it must be a time with its offset"),
        ({**TABLE, "numPartitions": "0"}, "option numPartitions '0'"),
        ({**TABLE, "numPartitions": "2", "splitBytes": "5"}, "numPartitions and splitBytes exclude"),
        ({**TABLE, "splitBytes": "many"}, "option splitBytes 'many': it must be bytes"),
        ({**TABLE, "columns": "a,,b"}, "it must be names of columns parted by commas"),
        ({**TABLE, "columns": ""}, "it must be names of columns parted by commas"),
        ({**TABLE, "columns": "a,"}, "it must be names of columns parted by commas"),
        ({**TABLE, "engine": "turbo"}, "it must be one of pages, general"),
        ({**TABLE, "typeMismatch": "ignore"}, "it must be one of fail, null, string"),
        ({**TABLE, "type.a": "int"}, "option type.a 'int': it must be one of long,"),
        ({**TABLE, "numericAs": "date"}, "it must be one of long, double, string, binary, text"),
        ({**TABLE, "dates": "yes"}, "it must be true or false"),
        ({**TABLE, "leaseSeconds": "nan"}, "it must be seconds"),
        ({**TABLE, "leaseSeconds": "0.5"}, "it must be seconds"),
        ({**TABLE, "option.table": "t"}, "CREATE TEMPORARY VIEW"),
        ({**TABLE, "startingVersion": "first"}, "it must be an LSN, a whole number from 1, or latest"),
        ({**TABLE, "startingVersion": "3", "versionAsOf": "4"}, "exclude each other"),
        ({"volume": "v", "metadata": "rows"}, "it must be one of history, tables, files, snapshots, pages"),
        ({"volume": "v", "metadata": "files", "columns": "a"}, "option columns is for tables"),
        ({"volume": "v", "query": "SELECT 1", "numPartitions": "2"}, "option numPartitions is for tables"),
        ({"volume": "v", "query": "SELECT 1", "readChangeFeed": "true"}, "can't follow a query"),
        ({"volume": " ", "table": "t"}, "option volume ' ': it is empty"),
    ],
)
def test_what_can_t_be_meant_is_refused_in_one_line_that_names_the_option(options: dict[str, str], said: str) -> None:
    with pytest.raises(BadInput) as refused:
        parse(options)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_refused_token_is_not_shown() -> None:
    with pytest.raises(BadInput) as refused:
        parse({**TABLE, "token": "secret", "engine": "x"})
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"startingVersion": "3"}, "option startingVersion is for changes"),
        ({"endingTimestamp": "2030-01-31T12:00:00Z"}, "option endingTimestamp is for changes"),
        ({"maxVersionsPerTrigger": "2"}, "option maxVersionsPerTrigger is for streams"),
        (
            {"readChangeFeed": "true", "startingVersion": "1", "failOnDataLoss": "false"},
            "failOnDataLoss is for streams",
        ),
    ],
)
def test_what_a_read_can_t_go_by_is_refused(option: dict[str, str], said: str) -> None:
    request = parse({"volume": "shop", "table": "orders"} | option)
    with pytest.raises(BadInput, match=said):
        check_read_once(request)
