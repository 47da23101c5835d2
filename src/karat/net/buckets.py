"""Object storage behind `s3://`, `gs://` and `az://`: where it is, and how it is opened.

Credentials and endpoints come from the environment variables that obstore knows; with none of them
set, nothing is signed, which is how public buckets are read. What obstore says of an error is never
shown: it holds URLs, and Azure's hold signatures.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

import karat
from karat.findings import UsageError
from karat.net.transport import is_loopback
from karat.system.command import Command

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w{1,60})</Code>")
_OPTIONS: Mapping[str, Any] = {
    "user_agent": f"karat/{karat.__version__}",
    "connect_timeout": timedelta(seconds=15),
    "read_timeout": timedelta(seconds=60),
    # Of a whole request, body and all; what has fallen silent is noticed by the one above.
    "timeout": timedelta(hours=6),
}
_RETRY: Mapping[str, Any] = {"max_retries": 4, "retry_timeout": timedelta(seconds=60)}

# With any of these set, there are credentials, or somebody has said that there are none.
_SIGNING: Mapping[str, tuple[str, ...]] = {
    "s3": (
        "AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_SKIP_SIGNATURE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    ),
    "gs": (
        "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH", "GOOGLE_SERVICE_ACCOUNT_KEY",
        "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SKIP_SIGNATURE",
    ),
    "az": (
        "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY",
        "AZURE_STORAGE_TOKEN", "AZURE_STORAGE_CLIENT_ID", "AZURE_CLIENT_ID", "AZURE_FEDERATED_TOKEN_FILE",
        "AZURE_MSI_ENDPOINT", "AZURE_USE_AZURE_CLI", "AZURE_STORAGE_USE_EMULATOR", "AZURE_SKIP_SIGNATURE",
    ),
}  # fmt: skip
_ENDPOINTS: Mapping[str, tuple[str, ...]] = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": (),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
_ALLOW_HTTP: Mapping[str, str] = {"s3": "AWS_ALLOW_HTTP", "az": "AZURE_ALLOW_HTTP"}
_LOOK: Mapping[str, str] = {
    "s3": "aws s3 ls s3://{bucket}/{prefix}",
    "gs": "gcloud storage ls gs://{bucket}/{prefix}",
    "az": "az storage blob list --container-name {bucket} --prefix {prefix}",
}


class BucketAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A bucket, and the folder in it that is the root."""

    scheme: str
    bucket: str
    prefix: str

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")

    @property
    def look(self) -> str:
        """The command with which a person looks for themselves."""
        prefix = shlex.quote(f"{self.prefix}/") if self.prefix else ""
        return _LOOK[self.scheme].format(bucket=self.bucket, prefix=prefix).rstrip()


def parse_address(url: str) -> BucketAddress:
    """The parts of a bucket's URL; what follows the bucket is taken as it stands, as `aws s3` does."""
    scheme, found, rest = url.partition("://")
    bucket, _, prefix = rest.partition("/")
    if not found or scheme not in _SIGNING or not re.fullmatch(r"[\w.-]+", bucket) or "?" in prefix:
        # What was found is not repeated: a query may be a signature, a user a password.
        forms = "s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX, without user or query"
        raise UsageError(f"expected {forms}, found something else", next_command="karat refresh --help")
    return BucketAddress(scheme=scheme, bucket=bucket, prefix=prefix.strip("/"))


def is_anonymous(scheme: str, env: Mapping[str, str]) -> bool:
    """Whether nothing is to be signed, because nothing to sign with is known.

    A machine's own role is not looked for, since asking where there is none means waiting for nobody;
    whoever has one says so: AWS_SKIP_SIGNATURE=false, or its like for the other stores.
    """
    if any(env.get(name) for name in _SIGNING[scheme]):
        return False
    home = env.get("HOME")  # obstore, too, looks there by HOME alone
    login = ".config/gcloud/application_default_credentials.json"
    return scheme != "gs" or not (home and (Path(home) / login).exists())


def allows_http(scheme: str, env: Mapping[str, str]) -> bool:
    """Whether the endpoint is plain http: on this very machine always, elsewhere if somebody says so."""
    endpoint = next((env[name] for name in _ENDPOINTS[scheme] if env.get(name)), "")
    if not endpoint.lower().startswith("http://"):
        return False
    switch = _ALLOW_HTTP[scheme]
    if is_loopback(urlsplit(endpoint).hostname or "") or env.get(switch, "").lower() in {"true", "1"}:
        return True
    said = "expected an https endpoint for the bucket, found plain http, over which anyone can listen"
    raise UsageError(said, next_command=Command("export", f"{switch}=true"))


def open_objects(address: BucketAddress, *, anonymous: bool) -> ObjectStore:
    """A client of the bucket; nothing has been asked of it yet."""
    try:
        from obstore.store import AzureStore, GCSStore, S3Store
    except ImportError:
        said = f"{address.scheme}:// needs obstore, which is not installed"
        raise UsageError(said, next_command="pip install 'karat[bucket]'") from None
    http = allows_http(address.scheme, os.environ)
    more: dict[str, Any] = {"skip_signature": True} if anonymous else {}
    more["client_options"] = {**_OPTIONS, "allow_http": http}
    more["retry_config"] = dict(_RETRY)
    if address.prefix:
        more["prefix"] = address.prefix
    kinds: dict[str, Any] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
    try:
        return kinds[address.scheme](address.bucket, **more)  # type: ignore[no-any-return]
    except Exception as error:  # noqa: BLE001 - obstore's errors share no base
        absent = "Account must be specified" in str(error)
        wrong = "AZURE_STORAGE_ACCOUNT_NAME is not set" if absent else "it is incomplete or wrong"
    said = f"expected the environment to say how {address.url} is reached, found that {wrong}"
    raise UsageError(said, next_command="env | grep -E '^(AWS|GOOGLE|AZURE)_' | cut -d= -f1")


def reason_of(error: Exception) -> str:
    """What happened, without the URL to which it did."""
    text = str(error)
    status, code = _STATUS.search(text), _CODE.search(text)
    if status is None:
        return "no answer from the server"
    return f"HTTP {status[1]}" + (f" ({code[1]})" if code else "")
