"""Exports to a bucket of a server that is not Amazon's, wherever it is said where that is; by moto."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.lakes import Export, made, rows_of

from budwood.spark_export.export.delta import DeltaTarget
from budwood.spark_export.export.files import locate, name_of, within
from budwood.spark_export.export.iceberg import IcebergTarget
from budwood.spark_export.export.parquet import ParquetTarget
from budwood.spark_export.export.run import FORMATS, Format
from budwood.spark_export.export.s3_location import S3Location, arrow_query, s3_location
from budwood.spark_export.export.target import Target
from budwood.volume.errors import BadInput

from .store_servers import environment, served

VARIABLES = (
    "AWS_ENDPOINT",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_PROFILE",
)


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with (
        served("moto", tmp_path_factory.mktemp("moto")) as bucket,
        environment({**bucket.variables, "AWS_EC2_METADATA_DISABLED": "true"}),
    ):
        yield bucket.url.partition("endpoint=")[2]


def target_of(format_: Format, url: str, catalogs: Path) -> Target:
    match format_:
        case "parquet":
            return ParquetTarget(url)
        case "delta":
            return DeltaTarget(url)
        case "iceberg":
            return IcebergTarget(url, catalog=f"sqlite:///{catalogs / 'catalog.db'}")


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("way", ["url", "variable"])
def test_a_table_in_a_bucket_is_what_was_exported(
    tmp_path: Path, endpoint: str, format_: Format, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"s3{'a' if way == 'url' else ''}://bucket/{way}/{format_}/shop/orders"
    if way == "url":
        url += f"?endpoint={endpoint}&region=us-east-1"
    else:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    export = Export(target_of(format_, url, tmp_path), rows_a_file=10)
    export.replace(1, made(range(30)))
    export.replace(2, made(range(40)))
    rows = made(range(41))
    if format_ != "parquet":
        export.merge(3, made(range(40)), rows)
    else:
        export.replace(3, rows)
    export.target.advance(export.state(4, rows))
    export.target.sweep()
    export.target.retain(0)
    again = Export(target_of(format_, url, tmp_path))
    again.target.sweep()
    assert again.target.state() == export.state(4, rows)
    assert rows_of(again.target.read()) == export.expected(rows)


def test_what_a_url_says_of_s3_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert s3_location("s3://bucket/x") == S3Location()
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    # Arrow asks Amazon where the bucket is.
    assert (arrow_query("s3://bucket/x"), arrow_query("s3://bucket/x?region=here")) == ("", "region=here")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://store.example")
    assert s3_location("s3://bucket/x") == S3Location("https://store.example", "eu-west-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://s3.example")
    monkeypatch.setenv("AWS_REGION", "eu-west-2")
    assert s3_location("s3://bucket/x") == S3Location("https://s3.example", "eu-west-2")
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.delenv("AWS_REGION")
    assert s3_location("s3://bucket/x").region == "us-east-1"
    url = "s3a://bucket/x?endpoint=http://127.0.0.1:9&region=here"
    assert s3_location(url) == S3Location("http://127.0.0.1:9", "here")
    assert (name_of(f"{url.replace('x', 'x/a.parquet', 1)}"), within(url, url.replace("/x", "/x/y/z"))) == (
        "a.parquet",
        "y/z",
    )
    with pytest.raises(BadInput, match="must begin with http"):
        locate("s3://bucket/x?endpoint=127.0.0.1:9")
