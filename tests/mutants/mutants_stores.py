"""Mutants of how a bucket is opened, and what its mistakes are told as."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

MOUNT_SYNC: Final = "tests/integration/test_mount_sync.py"
S3_SETUP: Final = "tests/integration/test_store_s3_setup.py"

MUTANTS: Final = (
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
        "server/store/obstore_errors.py",
        "hopeless=not answered)",
        "hopeless=False)",
        (S3_SETUP, "-k", "mistake or answered"),
    ),
    Mutant(
        "s3: a store that has gone for a moment is given up",
        "server/store/obstore_errors.py",
        "hopeless=not answered)",
        "hopeless=True)",
        (S3_SETUP, "-k", "answered_before"),
    ),
    Mutant(
        "s3: what has no hope is tried until the deadline",
        "server/store/retrying.py",
        "            if error.hopeless:\n                raise\n",
        "",
        ("tests/unit/test_store_settle.py", "-k", "no_hope"),
    ),
    Mutant(
        "import: rotten pages are imported without a word",
        "sync/import_check.py",
        "    if damage is not None:\n",
        '    if damage is None and found:\n        return ""\n    if not found:\n',
        ("tests/integration/test_import_check.py", "-k", "rotten"),
    ),
    Mutant(
        "import: what its owner left so is refused",
        "sync/import_check.py",
        'each.startswith(_PAGES) or "malformed" in each',
        'each != "ok"',
        ("tests/integration/test_import_check.py", "-k", "forbids"),
    ),
)
