"""S3 environment: where S3 is, by the variables that AWS's own tools take. Each of them may be empty."""

from __future__ import annotations

import os
from typing import Final

_REGIONS: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


def first_of(names: tuple[str, ...]) -> str:
    """What the first of these variables says that says anything."""
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


def s3_region() -> str:
    return first_of(_REGIONS)


def s3_endpoint() -> str:
    return first_of(_ENDPOINTS)
