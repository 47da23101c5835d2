"""Object storage behind `s3://`, `gs://` and `az://`: opened, listed and read in ranges.

Credentials and endpoints come from the environment variables that obstore knows; with none of them
set, nothing is signed, which is how public buckets are read. What obstore says of an error is never
shown: it holds URLs, and Azure's hold signatures.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
from msgspec import structs

import karat
from karat.findings import CannotVerify, UsageError
from karat.net.addresses import is_loopback
from karat.system.archives import Unusable
from karat.system.command import Command

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore

_ATTEMPTS = 3
_CHUNK = 1 << 18
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


class StoredFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file below the root of a bucket or folder."""

    name: str  # Relative to the root, with `/`.
    size: int = 0
    modified: float | None = None
    tag: str | None = None  # What tells two contents of one name apart, where the store knows it.
    trouble: str | None = None  # Why it cannot be taken, if it were wanted.


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
        raise UsageError(
            "expected s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX, without user "
            "or query, found something else",
            next_command="karat refresh --help",
        )
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


class BucketStore:
    """One bucket, read only; used from many threads at once."""

    def __init__(self, address: BucketAddress) -> None:
        self._address = address
        self._anonymous = is_anonymous(address.scheme, os.environ)
        self._store = open_objects(address, anonymous=self._anonymous)

    def entries(self) -> Iterator[StoredFile]:
        """Every object below the root."""
        import obstore

        try:
            found = [_stored(one) for page in obstore.list(self._store, chunk_size=1000) for one in page]
        except Exception as error:  # noqa: BLE001 - obstore's errors share no base with FileNotFoundError
            raise self._cannot_list(error) from None
        # A folder may have an empty object of its own.
        folders = {entry.name[:at] for entry in found for at, letter in enumerate(entry.name) if letter == "/"}
        return (entry for entry in found if entry.name and (entry.size or entry.name not in folders))

    def entry(self, name: str) -> StoredFile | None:
        """One object, if it is there."""
        import obstore

        try:
            return structs.replace(_stored(obstore.head(self._store, name)), name=name)
        except FileNotFoundError:
            return None
        except Exception as error:  # noqa: BLE001 - as above
            raise self._cannot_list(error) from None

    def read(self, entry: StoredFile, start: int, end: int) -> Iterator[bytes]:
        """The bytes from `start` up to `end`; after a cut, the rest is asked for."""
        failures = 0
        while start < end:
            before = start
            try:
                for chunk in self._stream(entry, start, end):
                    start += len(chunk)
                    yield chunk
            except Unusable:
                raise
            except Exception as error:  # noqa: BLE001 - as above
                failures = 1 if start > before else failures + 1
                problem = self._problem(error)
                if problem.kind != "transfer-failed" or failures >= _ATTEMPTS:
                    raise problem from None
            else:
                failures = 0 if start > before else failures + 1
                if failures >= _ATTEMPTS:
                    raise Unusable("transfer-failed", f"expected {end:,} bytes, found {start:,}")

    def _stream(self, entry: StoredFile, start: int, end: int) -> Iterator[bytes]:
        import obstore

        options: dict[str, Any] = {"range": (start, end)}
        if entry.tag is not None:
            options["if_match"] = entry.tag
        response = obstore.get(self._store, entry.name, options=options)  # type: ignore[arg-type]
        if response.range != (start, end):
            raise Unusable("transfer-failed", "expected the range that was asked for, found another")
        for chunk in response.stream(min_chunk_size=_CHUNK):
            yield bytes(chunk)

    def _cannot_list(self, error: Exception) -> CannotVerify:
        odd = type(error).__name__ == "InvalidPathError"
        reason = "an object whose name is no plain path" if odd else reason_of(error)
        how = " without credentials" if self._anonymous else ""
        said = f"expected to list {self._address.url}{how}, found {reason}"
        return CannotVerify(said, next_command=self._address.look)

    def _problem(self, error: Exception) -> Unusable:
        """An error of obstore's as a kind of finding."""
        kinds = {
            "NotFoundError": "artifact-missing",
            "FileNotFoundError": "artifact-missing",
            "PermissionDeniedError": "artifact-forbidden",
            "UnauthenticatedError": "artifact-forbidden",
        }
        name = type(error).__name__
        if name == "PreconditionError":
            return Unusable("artifact-missing", "expected what was listed, found that it has changed")
        how = " without credentials" if self._anonymous else ""
        message = f"expected to read it{how}, found {reason_of(error)}"
        return Unusable(kinds.get(name, "transfer-failed"), message, next_command=self._address.look)


def _stored(one: ObjectMeta) -> StoredFile:
    return StoredFile(name=one["path"], size=one["size"], modified=one["last_modified"].timestamp(), tag=one["e_tag"])


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
    except Exception as error:  # noqa: BLE001 - as above
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
