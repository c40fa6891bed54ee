"""S3 location: where a bucket of a lake is, told to each of the libraries that read and write there in its own words.

Arrow writes data files, deltalake and pyiceberg commit, and each knows other variables of the environment. What a URL
says goes first, as it does for stores (`s3://bucket/prefix?endpoint=http://127.0.0.1:9000&region=eu-west-1`), then what
AWS's own tools take (s3_environment.py). Credentials each finds by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from ...volume.errors import BadInput
from ...volume.s3_environment import s3_endpoint, s3_region

_ANYWHERE: Final = "us-east-1"
"""What servers that have no regions take."""
_SCHEMES: Final = ("s3", "s3a")
"""Spark's users write s3a."""


@dataclass(frozen=True, slots=True)
class S3Location:
    """Empty where nothing is said, and AWS's own is meant."""

    endpoint: str = ""
    region: str = ""

    @property
    def is_plain(self) -> bool:
        """Whether it speaks HTTP without TLS."""
        return self.endpoint.startswith("http://")

    def arrow_query(self) -> dict[str, str]:
        """Options of pyarrow.fs.FileSystem.from_uri; of a bucket of Amazon's it finds the region out."""
        if not self.endpoint:
            return {}
        scheme, _, host = self.endpoint.partition("://")
        return {"scheme": scheme, "endpoint_override": host.rstrip("/"), "region": self.region}

    def delta_options(self) -> dict[str, str]:
        """Storage options of deltalake."""
        plain = "true" if self.is_plain else ""
        said = {"AWS_ENDPOINT_URL": self.endpoint, "AWS_ALLOW_HTTP": plain, "AWS_REGION": self.region}
        return {name: value for name, value in said.items() if value}

    def iceberg_properties(self) -> dict[str, str]:
        """Properties of pyiceberg's FileIO."""
        said = {"s3.endpoint": self.endpoint, "s3.region": self.region}
        return {name: value for name, value in said.items() if value}


def is_s3(url: str) -> bool:
    return urlsplit(url).scheme in _SCHEMES


def s3_location(url: str) -> S3Location:
    """Of a URL that is one of S3. Raises BadInput for an endpoint that is none."""
    said = dict(parse_qsl(urlsplit(url).query))
    endpoint = said.get("endpoint") or s3_endpoint()
    if endpoint and not endpoint.startswith(("http://", "https://")):
        raise BadInput(f"the endpoint {endpoint!r} of S3 must begin with http:// or https://")
    region = said.get("region") or s3_region()
    return S3Location(endpoint, region or (_ANYWHERE if endpoint else ""))


def arrow_query(url: str) -> str:
    """The query of a URL as pyarrow takes it: what is Arrow's own stays."""
    parts = urlsplit(url)
    own = [(name, value) for name, value in parse_qsl(parts.query) if name != "endpoint"]
    return urlencode({**s3_location(url).arrow_query(), **dict(own)})
