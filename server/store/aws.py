"""Aws: what an s3:// URL is opened with: the credentials, region and endpoint that AWS's own tools would take.

    credentials   AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; else what the profile says that AWS_PROFILE names, or the
                  default one, in ~/.aws/credentials and ~/.aws/config: keys, single sign-on, another role, a program
                  that tells them; else the role of the container or machine. AWS_SKIP_SIGNATURE=true does without, for
                  a public bucket
    region        AWS_REGION, AWS_DEFAULT_REGION, the profile's; else us-east-1
    endpoint      AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_ENDPOINT, the profile's `endpoint_url`; else Amazon's. One
                  that begins with http:// is meant so

What the URL itself says (`?profile=`, `?region=`, `?endpoint=`) goes before all of it, as options of `aws` do: a
profile that is named so goes before keys in the environment, too.

obstore reads no files, refuses http:// unless told twice, and where the environment holds no keys it asks after the
machine's role for half a minute. So botocore finds all this, which asks for a second; it takes a while to load, and is
loaded only where there is a profile to read, or nothing in the environment.

Credentials are found when the store is opened, so that a mistake is told at once, and asked for again before they end.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any, Final
from urllib.parse import urlsplit

from ...volume.errors import BadInput, Unauthorized
from ...volume.s3_environment import first_of, s3_endpoint, s3_region
from .store_url import StoreUrl

_KEYS: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
_PROFILES: Final = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE")
_FILES: Final = {"AWS_CONFIG_FILE": "~/.aws/config", "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials"}
_CLIENT: Final = (
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "http1_only",
    "http2_keep_alive_interval",
    "http2_keep_alive_timeout",
    "http2_keep_alive_while_idle",
    "http2_only",
    "pool_idle_timeout",
    "pool_max_idle_per_host",
    "proxy_ca_certificate",
    "proxy_excludes",
    "proxy_url",
    "randomize_addresses",
    "read_timeout",
    "timeout",
    "user_agent",
)
"""Of obstore's client; each is read from the environment, as AWS_TIMEOUT, unless any is given."""
_TTL: Final = timedelta(minutes=10)
"""botocore renews what ends by itself; so often it is asked whether it has."""

_WHERE_FROM: Final = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile of ~/.aws in AWS_PROFILE (`aws configure`)"
)

Provider = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Settings:
    """obstore's `config`, `client_options` and `credential_provider`; what isn't here it takes from the environment."""

    config: dict[str, str] = field(default_factory=dict[str, str])
    client: dict[str, str] = field(default_factory=dict[str, str])
    provider: Provider | None = None


def find_settings(given: StoreUrl) -> Settings:
    """For a bucket, whose URL errors name. Blocks, while a role or a single sign-on is asked.

    Raises BadInput for what can't be meant, Unauthorized where no credentials are found.
    """
    url = given.shown
    signed = not _is_true(os.environ.get("AWS_SKIP_SIGNATURE", ""))
    has_keys = all(os.environ.get(name) for name in _KEYS)
    region, endpoint = given.region or s3_region(), given.endpoint or s3_endpoint()
    if (has_keys or not signed) and not _has_profile(given.profile):
        return _settings(url, region, endpoint)
    _settings(url, region, endpoint)
    botocore = _Botocore(url, given.profile)
    try:
        # Keys in the environment go before the profile's; but a name that nothing has is a mistake all the same.
        botocore.session.get_scoped_config()
        region = region or botocore.session.get_config_variable("region")
        endpoint = endpoint or _endpoint(botocore.session)
        provider = botocore.provider() if signed else None
    except botocore.error as error:
        raise botocore.translated(error) from error
    return _settings(url, region, endpoint, provider)


def _settings(url: str, region: str, endpoint: str, provider: Provider | None = None) -> Settings:
    config = {"region": region} if region else {}
    client: dict[str, str] = {}
    if endpoint:
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise BadInput(f"{url}: the endpoint {endpoint!r} is no URL: write http://HOST:PORT, or https://…")
        config["endpoint"] = endpoint.rstrip("/")
        if parts.scheme == "http":
            client = {name: os.environ.get(f"AWS_{name.upper()}", "") for name in _CLIENT}
            client = {name: value for name, value in client.items() if value} | {"allow_http": "true"}
    return Settings(config, client, provider)


class _Botocore:
    """A session of botocore's, which is untyped. Raises BadInput where it isn't installed."""

    def __init__(self, url: str, profile: str) -> None:
        self.url = url
        self._profile = profile
        try:
            exceptions: Any = import_module("botocore.exceptions")
            module: Any = import_module("botocore.session")
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "botocore":
                raise
            words = "what ~/.aws or a role says needs botocore: pip install 'budwood[s3]', or set"
            raise BadInput(f"{url}: {words} {' and '.join(_KEYS)}, without a profile") from error
        self.error: type[Exception] = exceptions.BotoCoreError
        self._unknown: type[Exception] = exceptions.ProfileNotFound
        self.session: Any = module.Session(profile=profile or None)

    def provider(self) -> Provider:
        credentials: Any = self.session.get_credentials()
        if credentials is None:
            raise Unauthorized(f"{self.url}: no AWS credentials were found: {_WHERE_FROM}")

        def provide() -> dict[str, object]:
            frozen = credentials.get_frozen_credentials()
            return {
                "access_key_id": frozen.access_key,
                "secret_access_key": frozen.secret_key,
                "token": frozen.token,
                "expires_at": datetime.now(UTC) + _TTL,
            }

        provide()
        return provide

    def translated(self, error: Exception) -> BadInput | Unauthorized:
        if isinstance(error, self._unknown):
            name, there = (
                self._profile or first_of(_PROFILES),
                ", ".join(sorted(self.session.available_profiles)) or "none",
            )
            said = "?profile=" if self._profile else "AWS_PROFILE"
            return BadInput(f"{self.url}: {said} is {name!r}, which ~/.aws doesn't have; it has {there or 'none'}")
        return Unauthorized(f"{self.url}: {' '.join(str(error).split())}")


def _endpoint(session: Any) -> str:
    """That of the profile: its own, or that of the section `services` which it names."""
    profile: dict[str, Any] = session.get_scoped_config()
    skip = os.environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS") or profile.get("ignore_configured_endpoint_urls", "")
    if _is_true(str(skip)):
        return ""
    services: dict[str, Any] = session.full_config.get("services", {}).get(profile.get("services"), {})
    return str(services.get("s3", {}).get("endpoint_url") or profile.get("endpoint_url") or "")


def _has_profile(named: str) -> bool:
    files = (os.environ.get(name) or usual for name, usual in _FILES.items())
    return bool(named or first_of(_PROFILES)) or any(os.path.exists(os.path.expanduser(name)) for name in files)


def _is_true(text: str) -> bool:
    return text.strip().lower() in ("1", "true", "yes", "on")
