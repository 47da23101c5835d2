"""Collecting: what has had its time goes, what anything needs stays, and what is not known stops it."""

from __future__ import annotations

import contextlib
import os
import shutil
from datetime import timedelta
from functools import partial
from pathlib import Path

import msgspec
import pytest

from factories.s3_proxy import S3Proxy
from factories.stores import Killed, Memory, Watched, case, cases, contents, dying, pulled, pushed
from karat.findings import CannotVerify
from karat.store import pins, references
from karat.store.backends import Backend, StoreProblem, open_backend
from karat.store.gc import GcOptions, GcResult, collect
from karat.store.leases import LeaseTimes, lease
from karat.store.objects import EXPIRING, KEPT, every, key_of, seal
from karat.store.pins import Locked, write_lock
from karat.store.verify import verify_store

NONE = LeaseTimes(patience=0.0, poll=0.0)


def days_pass(backend: Backend, days: float, s3: S3Proxy | None = None) -> None:
    """Everything in the store grows older: objects by their times, references by what they say."""
    for entry in references.entries(backend):
        old = references.read(backend, entry)
        shift = timedelta(days=days)
        new = msgspec.structs.replace(
            old,
            date=references.format_date(references.parse_date(old.date) - shift),
            expires=references.format_date(references.parse_date(old.expires) - shift),
        )
        references.forget(backend, [entry])
        backend.put(references.key_for(new), seal(new))
    if s3 is not None:
        for key in s3.keys(backend.url.split("/")[2]).values():
            key.last_modified -= timedelta(days=days)
        return
    for one in backend.list(""):
        path = backend.local(one.key)
        assert path is not None
        then = one.modified - days * 86400
        os.utime(path, (then, then))


@pytest.fixture
def aging(backend: Backend, request: pytest.FixtureRequest) -> S3Proxy | None:
    """What `days_pass` needs of a bucket."""
    is_bucket = backend.url.startswith("s3:")
    return request.getfixturevalue("s3") if is_bucket else None


def copied(template: Backend, name: str) -> Backend:
    """Another store with the same in it, times and all."""
    root = template.local("")
    assert root is not None
    shutil.copytree(root, root.parent / name, copy_function=shutil.copy2)
    return open_backend(str(root.parent / name))


def whys(told: GcResult) -> dict[str, str]:
    return {one.digest[:6]: one.why for one in told.references}


@pytest.mark.slow
def test_expired_references_go_with_what_only_they_need(
    backend: Backend, aging: S3Proxy | None, tmp_path: Path
) -> None:
    old = pushed(backend, cases(4))
    days_pass(backend, 91, aging)
    new = pushed(backend, cases(4, changed=1))
    dry = collect(backend, GcOptions(dry_run=True))
    assert whys(dry) == {old.digest[:6]: "expired", new.digest[:6]: "live"}
    assert len(references.entries(backend)) == 2
    told = collect(backend, GcOptions())
    assert told.freed == dry.freed > 70_000
    assert [entry.start for entry in references.entries(backend)] == [new.digest[:12]]
    assert verify_store(backend).findings == ()
    assert verify_store(backend).orphans == 0
    assert pulled(backend, "models/nightly", tmp_path / "out") == contents(cases(4, changed=1))
    assert list(backend.list("gc/")) == []


def test_the_newest_of_a_name_stays_unless_told_otherwise(folder: Backend) -> None:
    pushed(folder, cases(2))
    days_pass(folder, 400)
    told = collect(folder, GcOptions())
    assert list(whys(told).values()) == ["newest"]
    assert "the newest of its name" in told.references[0].because
    assert verify_store(folder).findings == ()
    assert collect(folder, GcOptions(expire_newest=True)).freed > 140_000
    assert list(every(folder, EXPIRING, 1)) == []


def test_keep_and_retention(folder: Backend) -> None:
    pushed(folder, cases(1), keep=200)
    pushed(folder, cases(2), retention=20)
    pushed(folder, cases(3))
    pushed(folder, cases(4))
    days_pass(folder, 50)
    told = collect(folder, GcOptions(dry_run=True))
    assert [one.why for one in told.references] == ["live", "expired", "live", "live"]


@pytest.mark.slow
def test_pins_are_kept_and_when_they_go_their_objects_move(
    backend: Backend, aging: S3Proxy | None, tmp_path: Path
) -> None:
    pinned = pushed(backend, cases(3), pin="release 1.2")
    pushed(backend, [*cases(2), case(7)])
    days_pass(backend, 100, aging)
    told = collect(backend, GcOptions())
    assert whys(told)[pinned.digest[:6]] == "pinned"
    assert {tally.fate for tally in told.objects} >= {"duplicate", "needed"}
    assert verify_store(backend).findings == ()
    # Collected twice, the references of the pinned one too: the pin alone keeps it.
    references.forget(backend, [one for one in references.entries(backend) if one.start == pinned.digest[:12]])
    collect(backend, GcOptions())
    assert pulled(backend, f"sha256:{pinned.digest}", tmp_path / "a") == contents(cases(3))
    assert pins.remove(backend, pinned.digest)
    assert not pins.remove(backend, pinned.digest)
    days_pass(backend, 2, aging)
    told = collect(backend, GcOptions())
    assert {tally.fate for tally in told.objects} >= {"moved"}
    assert list(every(backend, KEPT, 1)) == []
    assert verify_store(backend).findings == ()
    expected = contents([*cases(2), case(7)])
    assert pulled(backend, "models/nightly", tmp_path / "b") == expected


def test_what_a_lock_names_stays(folder: Backend, tmp_path: Path) -> None:
    locked = pushed(folder, cases(3))
    lock = tmp_path / "bundles.lock.json"
    line = Locked(store="elsewhere", digest=locked.digest, date="")
    absent = Locked(store="elsewhere", digest="0" * 64, date="")
    write_lock(lock, {"models/nightly": line, "models/of-another-store": absent})
    pushed(folder, cases(3, changed=3))
    days_pass(folder, 100)
    told = collect(folder, GcOptions(locks=(lock,)))
    assert whys(told)[locked.digest[:6]] == "locked"
    references.forget(folder, [one for one in references.entries(folder) if one.start == locked.digest[:12]])
    collect(folder, GcOptions(locks=(lock,), grace=0))
    assert pulled(folder, f"sha256:{locked.digest}", tmp_path / "out") == contents(cases(3))
    collect(folder, GcOptions(grace=0))
    assert folder.head(key_of(locked.digest)) is None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda store: store.put("refs/models/nightly/README", b"what is this"),
        lambda store: store.put(references.entries(store)[0].key, b"<html>", replace=True),
        lambda store: store.delete([references.entries(store)[-1].key]),
        lambda store: store.put("pins/" + "0" * 64 + ".json", b"{}"),
        lambda store: store.put("pins/odd", b"{}"),
        lambda store: store.put("pushes/1.json", b"half a le"),
        lambda store: store.put(key_of(references.resolve(store, "models/nightly").digest), b"<html>", replace=True),
        lambda store: store.delete([key_of(references.resolve(store, "models/nightly").digest)]),
    ],
    ids=["stranger", "reference", "reference-gone", "pin", "odd-pin", "lease", "snapshot", "snapshot-gone"],
)
@pytest.mark.parametrize("dry_run", [True, False])
def test_what_cannot_be_read_stops_it_before_anything_is_deleted(
    folder: Backend, spoil: object, *, dry_run: bool
) -> None:
    pushed(folder, cases(2))
    days_pass(folder, 100)
    pushed(folder, cases(2, changed=1))
    pushed(folder, cases(2, changed=2))
    spoil(folder)  # type: ignore[operator]
    before = {one.key for one in folder.list("")}
    with pytest.raises(CannotVerify):
        collect(folder, GcOptions(grace=0, dry_run=dry_run))
    assert {one.key for one in folder.list("")} == before


@pytest.mark.parametrize("content", [None, b"", b"<<<<<<< HEAD\n", b'{"schema": "x"}'])
def test_a_lock_that_cannot_be_read_stops_it(folder: Backend, tmp_path: Path, content: bytes | None) -> None:
    pushed(folder, cases(1))
    lock = tmp_path / "bundles.lock.json"
    if content is not None:
        lock.write_bytes(content)
    with pytest.raises(CannotVerify):
        collect(folder, GcOptions(locks=(lock,)))


def test_a_snapshot_that_the_bucket_s_rule_took_does_not_stop_it_for_ever(folder: Backend) -> None:
    told = pushed(folder, cases(1))
    days_pass(folder, 400)
    pushed(folder, cases(2), "models/other")
    folder.delete([key_of(told.digest)])
    collected = collect(folder, GcOptions())
    assert [one.why for one in collected.references] == ["gone", "live"]
    assert [entry.name for entry in references.entries(folder)] == ["models/other"]


def test_what_moves_back_takes_the_place_of_a_damaged_one(tmp_path: Path) -> None:
    bucket = Memory()
    told = pushed(bucket, cases(1), pin="why")
    for one in list(every(bucket, EXPIRING, 1)):
        bucket.put(one.key, b"<html>", replace=True)
    pins.remove(bucket, told.digest)
    collect(bucket, GcOptions(grace=0, workers=1))
    assert list(every(bucket, KEPT, 1)) == []
    assert pulled(bucket, "models/nightly", tmp_path / "out") == contents(cases(1))


def test_young_objects_stay_for_their_grace(folder: Backend) -> None:
    folder.put(key_of("a" * 64), b"orphan")
    assert collect(folder, GcOptions()).freed == 0
    assert collect(folder, GcOptions(grace=0)).freed == 6


def test_what_a_push_at_work_needs_is_spared(folder: Backend) -> None:
    for digit in "ab":
        folder.put(key_of(digit * 64), b"found there by a push")
    days_pass(folder, 100)
    with lease(folder, "push", objects=("a" * 64,)):
        told = collect(folder, GcOptions())
    assert told.leases == 1
    assert folder.head(key_of("a" * 64)) is not None
    assert folder.head(key_of("b" * 64)) is None


def test_leftovers_of_the_killed_are_cleared(folder: Backend) -> None:
    folder.put(".staging/half", b"half an object")
    pushed(folder, cases(1))
    days_pass(folder, 3)
    assert collect(folder, GcOptions()).abandoned == 1
    assert list(folder.list(".staging/")) == []


@pytest.mark.slow
def test_killed_before_any_step_nothing_that_is_named_is_lost(tmp_path: Path) -> None:
    template = open_backend(str(tmp_path / "template"))
    pushed(template, cases(2), "models/old")
    pushed(template, cases(3), "models/pinned", pin="why")
    pins.remove(template, references.resolve(template, "models/pinned").digest)
    days_pass(template, 100)
    pushed(template, cases(4, changed=1), "models/old")
    prepared = partial(copied, template)
    counted = Watched(prepared("counted"), lambda *_: None)
    collect(counted, GcOptions(expire_newest=True))
    assert counted.count > 20
    for at in range(1, counted.count + 1):
        store = prepared(f"store{at}")
        with pytest.raises(Killed):
            collect(dying(store, at), GcOptions(expire_newest=True))
        assert verify_store(store).findings == ()
        # As time passes, the marker is nobody's.
        for one in store.list("gc/"):
            path = store.local(one.key)
            assert path is not None
            os.utime(path, (0, 0))
        collect(store, GcOptions(expire_newest=True))
        verified = verify_store(store)
        assert (verified.findings, verified.orphans) == ((), 0)
        assert len(references.entries(store)) == 1


@pytest.mark.slow
def test_a_push_at_any_moment_of_a_collection_loses_nothing(tmp_path: Path) -> None:
    """The push either waits (here: gives up at once, and comes again) or is seen and spared."""
    some = cases(2)
    template = open_backend(str(tmp_path / "template"))
    pushed(template, some, "models/old")
    days_pass(template, 100)
    pushed(template, [case(9)], "models/old")
    prepared = partial(copied, template)
    counted = Watched(prepared("counted"), lambda *_: None)
    collect(counted, GcOptions())
    waited = 0
    for at in range(1, counted.count + 1):
        store = prepared(f"store{at}")
        done: list[bool] = []

        def before(
            number: int, _verb: str, _key: str, at: int = at, store: Backend = store, done: list[bool] = done
        ) -> None:
            if number == at:
                with contextlib.suppress(StoreProblem):  # store-busy
                    pushed(store, some, "models/new", times=NONE)
                    done.append(True)

        collect(Watched(store, before), GcOptions())
        if not done:
            waited += 1
            pushed(store, some, "models/new")
        assert verify_store(store).findings == ()
        assert pulled(store, "models/new", tmp_path / f"out{at}") == contents(some)
    assert 0 < waited < counted.count, "both ways must have been tried"


@pytest.mark.slow
def test_a_collection_at_any_moment_of_a_push_loses_nothing(tmp_path: Path) -> None:
    some = cases(2)
    template = open_backend(str(tmp_path / "template"))
    pushed(template, some[:1], "models/old")
    days_pass(template, 100)
    pushed(template, [case(9)], "models/old")
    prepared = partial(copied, template)
    counted = Watched(prepared("counted"), lambda *_: None)
    pushed(counted, some, "models/new", pin="why", workers=1)
    freed = 0
    for at in range(1, counted.count + 1):
        store = prepared(f"store{at}")
        told: list[GcResult] = []

        def before(
            number: int, _verb: str, _key: str, at: int = at, store: Backend = store, told: list[GcResult] = told
        ) -> None:
            if number == at:
                told.append(collect(store, GcOptions(grace=0)))

        pushed(Watched(store, before), some, "models/new", pin="why", workers=1)
        assert len(told) == 1
        freed += bool(told[0].freed)
        assert verify_store(store).findings == ()
        kept = {one.key[-64:] for one in every(store, KEPT, 1)}
        new = references.resolve(store, "models/new").digest
        assert new in kept
    assert freed, "some collections must have had something to take"
