"""A bucket's own rule: only karat's is touched, and nothing that a reference needs is too old for it."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest

from factories.s3_proxy import S3Proxy
from factories.stores import cases, pushed
from karat.findings import CannotVerify, UsageError
from karat.store.backends import Backend, lifecycle
from karat.store.backends.bucket import open_bucket
from karat.store.gc import GcOptions, collect
from karat.store.objects import EXPIRING, every
from karat.store.verify import verify_store
from karat.system.command import Command

OTHERS: list[dict[str, Any]] = [
    {"ID": "logs", "Status": "Enabled", "Filter": {"Prefix": "logs/"}, "Expiration": {"Days": 7}},
    {
        "ID": "cold",
        "Status": "Disabled",
        "Filter": {"Prefix": "old/"},
        "Transitions": [{"Days": 30, "StorageClass": "GLACIER"}],
    },
]


def rules(s3: S3Proxy, backend: Backend) -> list[dict[str, Any]]:
    name = backend.url.split("/")[2]
    found: list[dict[str, Any]] = s3.boto.get_bucket_lifecycle_configuration(Bucket=name)["Rules"]
    return found


def test_beside_rules_of_the_old_form_ours_is_one_of_them(s3: S3Proxy, bucket: Backend) -> None:
    """S3 refuses a set of rules of which some have a prefix of their own, and some a filter."""
    old = [{"ID": "logs", "Status": "Enabled", "Prefix": "logs/", "Expiration": {"Days": 7}}]
    s3.boto.put_bucket_lifecycle_configuration(Bucket=bucket.url.split("/")[2], LifecycleConfiguration={"Rules": old})
    before = rules(s3, bucket)
    assert lifecycle.apply(bucket, 90).changed
    first, ours = rules(s3, bucket)
    assert [first] == before
    assert ours["Prefix"] == "golden/store/expiring/"
    assert "Filter" not in ours
    assert not lifecycle.apply(bucket, 90).changed


@pytest.mark.slow
def test_a_rule_by_tags_survives(s3: S3Proxy, bucket: Backend) -> None:
    tagged = [
        {
            "ID": "tagged",
            "Status": "Enabled",
            "Expiration": {"Days": 1},
            "Filter": {"And": {"Prefix": "x/", "Tags": [{"Key": "a", "Value": "b"}]}},
        }
    ]
    s3.boto.put_bucket_lifecycle_configuration(
        Bucket=bucket.url.split("/")[2], LifecycleConfiguration={"Rules": tagged}
    )
    before = rules(s3, bucket)
    lifecycle.apply(bucket, 90)
    assert rules(s3, bucket)[:1] == before


def test_other_rules_survive_and_ours_is_only_lengthened(s3: S3Proxy, bucket: Backend) -> None:
    name = bucket.url.split("/")[2]
    s3.boto.put_bucket_lifecycle_configuration(Bucket=name, LifecycleConfiguration={"Rules": OTHERS})
    before = rules(s3, bucket)
    applied = lifecycle.apply(bucket, 90)
    assert (applied.days, applied.changed) == (120, True)
    after = rules(s3, bucket)
    assert after[:2] == before
    assert after[2]["ID"] == "karat-expiring:golden/store"
    assert after[2]["Filter"] == {"Prefix": "golden/store/expiring/"}
    assert after[2]["Expiration"]["Days"] == 120
    assert after[2]["Status"] == "Enabled"
    assert not lifecycle.apply(bucket, 30).changed
    assert lifecycle.apply(bucket, 200).days == 230
    assert [rule["Expiration"]["Days"] for rule in rules(s3, bucket) if "karat" in rule["ID"]] == [230]
    assert rules(s3, bucket)[:2] == before


def test_two_stores_of_one_bucket_have_a_rule_each(s3: S3Proxy) -> None:
    name = s3.bucket()
    for prefix in ("", "/a", "/b"):
        lifecycle.apply(open_bucket(f"s3://{name}{prefix}"), 90)
    found = {
        rule["ID"]: rule["Filter"]["Prefix"]
        for rule in s3.boto.get_bucket_lifecycle_configuration(Bucket=name)["Rules"]
    }
    assert found == {
        "karat-expiring:": "expiring/",
        "karat-expiring:a": "a/expiring/",
        "karat-expiring:b": "b/expiring/",
    }


def grow_old(s3: S3Proxy, backend: Backend, days: int) -> None:
    for key in s3.keys(backend.url.split("/")[2]).values():
        key.last_modified -= timedelta(days=days)


def ages(backend: Backend) -> list[float]:
    return [(time.time() - one.modified) / 86400 for one in every(backend, EXPIRING, 4)]


@pytest.mark.slow
def test_a_push_makes_young_what_it_reuses(s3: S3Proxy, bucket: Backend) -> None:
    lifecycle.apply(bucket, 90)
    pushed(bucket, cases(3))
    grow_old(s3, bucket, 29)
    assert pushed(bucket, cases(3)).freshened == 0
    grow_old(s3, bucket, 2)
    told = pushed(bucket, cases(3, changed=1))
    assert 0 < told.freshened == told.reused_objects
    # What the new reference needs is young; what only the old one needs keeps its age.
    assert pushed(bucket, cases(3, changed=1)).freshened == 0
    assert max(ages(bucket)) > 30
    assert verify_store(bucket).findings == ()


def test_without_a_rule_nothing_is_made_young(s3: S3Proxy, bucket: Backend) -> None:
    pushed(bucket, cases(1))
    grow_old(s3, bucket, 40)
    assert pushed(bucket, cases(1)).freshened == 0


@pytest.mark.slow
def test_collecting_makes_young_what_the_newest_and_locks_need(s3: S3Proxy, bucket: Backend) -> None:
    lifecycle.apply(bucket, 90)
    pushed(bucket, cases(2))
    grow_old(s3, bucket, 31)
    assert max(ages(bucket)) > 30
    told = collect(bucket, GcOptions())
    assert told.freshened > 0
    assert max(ages(bucket)) < 1
    assert collect(bucket, GcOptions()).freshened == 0


def test_a_push_that_the_rule_would_outrun_is_refused(bucket: Backend) -> None:
    lifecycle.apply(bucket, 90)
    with pytest.raises(UsageError, match="expected the bucket's own rule to leave 130 days") as refused:
        pushed(bucket, cases(1), keep=100, again=Command("karat", "push", "a b", "models/nightly"))
    assert refused.value.next_command == (
        f"karat push 'a b' models/nightly --keep 100 --lifecycle --store {bucket.url}"
    )
    assert list(bucket.list("refs/")) == []
    lifecycle.apply(bucket, 100)
    assert pushed(bucket, cases(1), keep=100).cases == 1


def test_folders_have_no_rules(folder: Backend) -> None:
    with pytest.raises(UsageError, match="expected a bucket"):
        lifecycle.apply(folder, 90)


@pytest.mark.parametrize("url", ["gs://bucket/x", "az://box/x"])
def test_rules_of_other_clouds_are_left_alone(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setattr("karat.store.backends.lifecycle.read", lambda _: None)  # there is no such server here
    with pytest.raises(UsageError, match="expected s3://, whose rules karat can add to"):
        lifecycle.apply(open_bucket(url), 90)


def test_rules_that_cannot_be_had_are_no_answer(s3: S3Proxy) -> None:
    name = s3.bucket()
    backend = open_bucket(f"s3://{name}/x")
    backend.put("lifecycle.json", b"<html>")
    with pytest.raises(CannotVerify, match=r"expected lifecycle\.json"):
        pushed(backend, cases(1))
    with pytest.raises(CannotVerify, match=r"s3://there-is-none, found NoSuchBucket"):
        lifecycle._apply_s3("there-is-none", "expiring/", 120)
