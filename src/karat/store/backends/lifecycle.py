"""Lifecycle: a bucket's own rule that deletes old objects in `expiring/`, for those who never run `karat gc`.

A bucket knows ages and no references, so the rule allows more time than any reference has: its days plus some slack.
A push that reuses an object older than the slack renews it (`upload.renew_objects`). So an object is at most
slack days old when a reference to it is made, and outlives that reference.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec

from karat.findings import CannotVerify, UsageError
from karat.store.backends import Absent, Backend
from karat.store.objects import seal, unseal
from karat.system.command import Command

KEY = "lifecycle.json"
SLACK = 30  # Days.


class LifecycleRule(msgspec.Struct, frozen=True, kw_only=True):
    """lifecycle.json: the bucket deletes objects that are this many days old."""

    schema: str = "karat.lifecycle/1"
    days: int


class AppliedRule(msgspec.Struct, frozen=True, kw_only=True):
    """What became of karat's rule of a bucket."""

    id: str
    days: int
    changed: bool


def covers(backend: Backend, keep: int, again: Command) -> bool:
    """Whether the bucket deletes by age; `UsageError` if it would do so too early for this push."""
    rule = read(backend)
    if rule is None:
        return False
    if rule.days < keep + SLACK:
        raise UsageError(
            f"expected the bucket's own rule to leave {keep + SLACK} days ({keep} and {SLACK} of slack), "
            f"found {rule.days}; objects would be gone before the reference expires",
            next_command=again.plus("--keep", str(keep), "--lifecycle", "--store", backend.url),
        )
    return True


def apply(backend: Backend, keep: int) -> AppliedRule:
    """Add or lengthen karat's rule of the bucket; other rules stay, and no rule is shortened."""
    from karat.store.backends.bucket import BucketBackend

    if not isinstance(backend, BucketBackend):
        said = f"--lifecycle: expected a bucket, found {backend.url}, which has no rules of its own"
        raise UsageError(said, next_command="karat gc")
    address = backend.address
    before = read(backend)
    days = max(keep + SLACK, before.days if before else 0)
    prefix = f"{address.prefix}/expiring/" if address.prefix else "expiring/"
    if address.scheme != "s3":
        said = f"--lifecycle: expected s3://, whose rules karat can add to without losing others, found {address.scheme}://"
        raise UsageError(said, next_command="karat gc")
    # First what pushes go by: a rule that nobody knows of would delete what they reuse.
    backend.put(KEY, seal(LifecycleRule(days=days)), replace=True)
    return _apply_s3(address.bucket, prefix, days)


def _apply_s3(bucket: str, prefix: str, days: int) -> AppliedRule:
    try:
        import boto3  # type: ignore[import-untyped]
    except ImportError:
        said = "--lifecycle needs boto3, which is not installed"
        raise UsageError(said, next_command="pip install 'karat[lifecycle]'") from None
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    endpoint = next((os.environ[name] for name in names if os.environ.get(name)), None)
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    client = boto3.client("s3", endpoint_url=endpoint, region_name=region or "us-east-1")
    name = f"karat-expiring:{prefix.removesuffix('/expiring/') if '/expiring/' in prefix else ''}"
    try:
        try:
            rules: list[dict[str, Any]] = client.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
        except Exception as error:
            if _code(error) != "NoSuchLifecycleConfiguration":
                raise
            rules = []
        mine = [rule for rule in rules if rule.get("ID") == name]
        others = [rule for rule in rules if rule.get("ID") != name]
        found = [rule.get("Expiration", {}).get("Days", 0) for rule in mine]
        # A bucket's rules all have the old form, or all the new one.
        old = any("Prefix" in rule for rule in others)
        where: dict[str, Any] = {"Prefix": prefix} if old else {"Filter": {"Prefix": prefix}}
        wanted = {
            "ID": name,
            "Status": "Enabled",
            **where,
            "Expiration": {"Days": max([days, *found])},
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7},
        }
        changed = mine != [wanted]
        if changed:
            rules = [*others, wanted]
            client.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": rules})
    except Exception as error:  # noqa: BLE001 - botocore's errors hold URLs
        said = f"expected to read and write the lifecycle rules of s3://{bucket}, found {_code(error)}"
        then = Command("aws", "s3api", "get-bucket-lifecycle-configuration", "--bucket", bucket)
        raise CannotVerify(said, next_command=then) from None
    finally:
        client.close()
    return AppliedRule(id=name, days=wanted["Expiration"]["Days"], changed=changed)


def _code(error: Exception) -> str:
    answer = getattr(error, "response", {})
    code = answer.get("Error", {}).get("Code") if isinstance(answer, dict) else None
    return str(code or type(error).__name__)


def read(backend: Backend) -> LifecycleRule | None:
    try:
        return unseal(backend.get(KEY), LifecycleRule)
    except Absent:
        return None
    except ValueError as error:  # includes msgspec's
        said = f"expected {KEY} of {backend.url} to say when the bucket deletes, found: {error}"
        raise CannotVerify(said, next_command=backend.look(KEY)) from error
