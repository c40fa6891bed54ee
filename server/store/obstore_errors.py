"""obstore errors: what an error of obstore's means, as one of ours in one line.

A store that has never answered, and can't be reached, is most likely a mistake in its URL, endpoint or credentials, or
there is no network: that is told at once (`Unavailable.hopeless`). One that has answered before is waited for.

An obstore error is many lines: what was asked for and what became of it, then the answer's page, then the causes as
Rust shows them. Only the first line is shown, without what may hold a signature; the causes tell which words it gets.
"""

from __future__ import annotations

import re
from typing import Final

from obstore import exceptions

from ...volume.errors import AlreadyExists, BadInput, BudwoodError, NotFound, Unauthorized, Unavailable, Unsupported

FAILURES: Final = (exceptions.BaseError, OSError, ValueError, NotImplementedError)
"""All that obstore raises."""

_NO_BUCKET: Final = re.compile(r"NoSuchBucket|ContainerNotFound|bucket does not exist")
_QUERY: Final = re.compile(r"\?\S*")
"""May hold a signature, which is a secret."""
_HOST: Final = re.compile(r"https?://[^/\s]+")

_UNREACHED: Final = re.compile(r"kind: Connect\b|kind: Builder\b")
_WHY: Final = (
    (re.compile(r"dns error|failed to lookup address"), "no such host is known"),
    (re.compile(r"ConnectionRefused"), "nothing listens there"),
    (re.compile(r"NetworkUnreachable|HostUnreachable"), "no way leads there"),
    (re.compile(r"InvalidContentType|WrongVersion"), "it doesn't speak TLS, so write http:// if that is meant"),
    (re.compile(r"UnknownIssuer|InvalidCertificate|CertificateRequired"), "its certificate isn't trusted here"),
    (re.compile(r"BadScheme"), "http:// needs AWS_ALLOW_HTTP=true (AZURE_ALLOW_HTTP, GOOGLE_ALLOW_HTTP)"),
)
_CODES: Final = {
    "InvalidAccessKeyId": "the access key isn't known there",
    "SignatureDoesNotMatch": "the secret key doesn't belong to the access key",
    "ExpiredToken": "the credentials have expired",
    "InvalidToken": "the session token is wrong: for a long-lived key unset AWS_SESSION_TOKEN",
    "RequestTimeTooSkewed": "this machine's clock is wrong",
    "AccessDenied": "the credentials are known, and may not do this",
}
"""S3's words for a refusal."""
_CODE: Final = re.compile(rf"<Code>({'|'.join(_CODES)})</Code>")
_REGION: Final = re.compile(
    r"<Code>(?:AuthorizationHeaderMalformed|PermanentRedirect)</Code>|redirect without LOCATION"
)
_EXPECTED: Final = re.compile(r"expecting (?:'|&apos;|&#39;)([a-z0-9-]+)|<Region>([a-z0-9-]+)</Region>")
_UNDONE: Final = re.compile(r"status code: 501|<Code>NotImplemented</Code>")
_TOKENS: Final = re.compile(r"token request|metadata/identity|computeMetadata|169\.254\.169\.254")
_PROVIDER: Final = re.compile(r"^.*External AWS credential provider: (?:\w+: )?", re.DOTALL)

_CREDENTIALS: Final = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS, the file of a service account",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}


def translated(error: BaseException, url: str, key: str, *, changing: bool, answered: bool) -> BudwoodError:
    """Of a request for `key`. `changing`: it may have happened; `answered`: the store has answered before."""
    full, scheme = str(error), url.partition(":")[0]
    text = f"{url}: {_first_line(error)}"
    if isinstance(error, exceptions.AlreadyExistsError | exceptions.PreconditionError):
        return AlreadyExists(f"the object {key} exists")
    if _NO_BUCKET.search(full):
        return BadInput(f"{url}: there is no such bucket: create it first")
    if _REGION.search(full):
        found = _EXPECTED.search(full)
        where = f"is {found[1] or found[2]}" if found else "is another"
        return BadInput(f"{url}: the bucket's region {where}: set AWS_REGION to it")
    if isinstance(error, FileNotFoundError):
        return NotFound(f"no object {key}")
    if isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError):
        return _refused(full, url, scheme)
    if _TOKENS.search(full):
        return Unauthorized(f"{url}: no credentials were found: set {_CREDENTIALS.get(scheme, 'them')}")
    if isinstance(error, exceptions.NotSupportedError | NotImplementedError):
        return Unsupported(text)
    if isinstance(error, exceptions.InvalidPathError | exceptions.UnknownConfigurationKeyError | ValueError):
        return BadInput(text)
    if changing and _UNDONE.search(full):
        return Unsupported(f"{url} doesn't take If-None-Match (501), by which a create spares what stands there")
    if _UNREACHED.search(full):
        # Nothing was sent.
        return Unavailable(_unreached(full, url), hopeless=not answered)
    return Unavailable(text, determinate=not changing)


def silent(url: str, seconds: float, *, changing: bool) -> Unavailable:
    """A store that has never answered, and goes on so."""
    scheme = url.partition(":")[0]
    words = "check the endpoint and the network" if scheme == "s3" else f"check the network, and {_CREDENTIALS[scheme]}"
    return Unavailable(f"{url} has not answered within {seconds:g} s: {words}", determinate=not changing, hopeless=True)


def unopened(error: BaseException, url: str) -> BadInput:
    """obstore can't take the URL with what the environment says."""
    needed = _CREDENTIALS.get(url.partition(":")[0])
    hint = f" (credentials come from {needed})" if needed else ""
    return BadInput(f"can't open {url}: {_first_line(error)}{hint}")


def _first_line(error: BaseException) -> str:
    """Without what the server's page says and without secrets."""
    return _QUERY.sub("", str(error).split("\n")[0].split("<?xml")[0].split("<Error>")[0])[:300].rstrip(" :")


def _refused(full: str, url: str, scheme: str) -> Unauthorized:
    code = _CODE.search(full)
    if code:
        return Unauthorized(f"{url}: {code[1]}: {_CODES[code[1]]}; check {_CREDENTIALS['s3']}")
    if _PROVIDER.match(full):
        return Unauthorized(f"{url}: {_PROVIDER.sub('', full).splitlines()[0]}")
    shown = _QUERY.sub("", full.splitlines()[0].split("<")[0])[:300].rstrip(" :")
    return Unauthorized(f"{url}: {shown}: check {_CREDENTIALS.get(scheme, 'the credentials')}")


def _unreached(full: str, url: str) -> str:
    host = _HOST.search(full)
    why = next((words for found, words in _WHY if found.search(full)), "no connection comes about")
    return f"{url}: {host[0] if host else 'the store'} can't be reached: {why}; check the endpoint and the network"
