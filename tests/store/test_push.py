"""Pushes: only what is missing is sent, and nothing is visible before all of it is there."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from factories.s3_proxy import S3Proxy
from factories.stores import Killed, Watched, case, cases, contents, dying, files_below, made, pulled, pushed
from karat.findings import CannotVerify, UsageError
from karat.store import references
from karat.store.backends import Backend
from karat.store.leases import LeaseTimes
from karat.store.objects import EXPIRING, KEPT, every, key_of
from karat.store.push import Pushed
from karat.store.upload import plan_upload
from karat.store.verify import verify_store


@pytest.mark.slow
def test_what_was_pushed_is_pulled(backend: Backend, tmp_path: Path) -> None:
    some = [*cases(6), case(9, program=0)]
    told = pushed(backend, some)
    assert (told.cases, told.files, told.reused_objects) == (7, 28, 0)
    assert told.size == sum(map(len, contents(some).values()))
    assert pulled(backend, "models/nightly", tmp_path / "out") == contents(some)
    verified = verify_store(backend)
    assert verified.findings == ()
    assert (verified.references, verified.cases, verified.orphans) == (1, 7, 0)
    assert list(backend.list("pushes/")) == []


@pytest.mark.slow
def test_the_same_again_sends_nothing(backend: Backend) -> None:
    first, second = pushed(backend, cases(5)), pushed(backend, cases(5))
    assert (second.new_objects, second.new_bytes) == (0, 0)
    assert second.digest == first.digest
    assert second.reused_bytes == first.new_bytes
    assert len(references.entries(backend)) == 2


@pytest.mark.slow
def test_a_nightly_that_changed_one_percent_sends_about_one_percent(s3: S3Proxy, bucket: Backend) -> None:
    sizes = {"manifest.json": 2000, "inputs.safetensors": 30_000, "program/model.pte": 150_000}
    first = pushed(bucket, cases(100, files=sizes))
    s3.requests.clear()
    second = pushed(bucket, cases(100, files=sizes, changed=1))
    assert second.new_bytes < 0.03 * first.new_bytes
    # Of the changed case: program, inputs, the manifests of its run, and the snapshot.
    assert second.new_objects <= 4
    puts = [(path, size) for method, path, size in s3.requests if method == "PUT"]
    assert sum(size for path, size in puts if "/expiring/" in path) == second.new_bytes
    assert len(puts) == second.new_objects + 2  # the lease and the reference


@pytest.mark.slow
def test_another_night_of_the_same_values_sends_manifests_in_few_objects(folder: Backend) -> None:
    first = pushed(folder, cases(200, night="1"))
    second = pushed(folder, cases(200, night="2"))
    (manifest,) = [data for path, data in contents([case(0, night="2")]).items() if path.endswith("manifest.json")]
    assert second.new_bytes < 200 * (len(manifest) + 700)
    assert second.new_objects < 200 / 8
    assert second.reused_bytes > 0.9 * first.size


@pytest.mark.slow
def test_a_dry_run_says_what_a_push_would_do_and_leaves_nothing(backend: Backend) -> None:
    empty = pushed(backend, cases(3), dry_run=True)
    assert list(backend.list("")) == []
    real = pushed(backend, cases(3))
    assert (empty.new_objects, empty.new_bytes) == (real.new_objects, real.new_bytes)
    again = pushed(backend, cases(4), dry_run=True)
    assert 0 < again.new_objects < real.new_objects
    assert len(references.entries(backend)) == 1


def test_nothing_to_push_is_wrong_usage(folder: Backend) -> None:
    with pytest.raises(UsageError, match="expected cases to push, found none"):
        pushed(folder, [])
    with pytest.raises(UsageError, match="expected a name such as models/nightly"):
        pushed(folder, cases(1), "No Name")


def test_names_that_no_folder_should_hold_are_not_pushed(folder: Backend) -> None:
    with pytest.raises(CannotVerify, match="climbs out of its folder"):
        pushed(folder, [made("s/f/../../c", {"manifest.json": b"{}"})])
    assert list(folder.list("expiring/")) == []


@pytest.mark.slow
def test_an_object_of_the_wrong_size_is_replaced(backend: Backend, tmp_path: Path) -> None:
    pushed(backend, cases(3))
    program = next(one for one in every(backend, EXPIRING, 2) if one.size == 70_000)
    backend.put(program.key, b"<html>", replace=True)
    told = pushed(backend, cases(3))
    assert (told.repaired, told.new_bytes) == (1, 70_000)
    assert pulled(backend, "models/nightly", tmp_path / "out") == contents(cases(3))


def test_a_flipped_bit_is_replaced_where_it_is_looked_for(folder: Backend) -> None:
    pushed(folder, cases(3), pin="why")
    for area in (EXPIRING, KEPT):
        program = next(one for one in every(folder, area, 2) if one.size == 70_000)
        folder.put(program.key, bytes(70_000), replace=True)
    assert pushed(folder, cases(3)).repaired == 0
    assert pushed(folder, cases(3), verify_existing=True).repaired >= 1
    assert verify_store(folder).findings == ()


def test_files_that_change_meanwhile_are_noticed(folder: Backend, tmp_path: Path) -> None:
    from karat.bundles.extents import FileExtent
    from karat.store.upload import CaseFiles

    file = tmp_path / "program"
    file.write_bytes(bytes(100_000))
    extent = FileExtent(path=file, start=0, size=100_000, file_size=100_000, name="program")
    some = [CaseFiles(path="s/f/c", files={"program/p": extent})]

    def before(_number: int, verb: str, key: str) -> None:
        if verb == "put" and key.startswith("pushes/"):
            file.write_bytes(b"\1" * 100_000)

    with pytest.raises(CannotVerify, match="found that one changed"):
        pushed(Watched(folder, before), some)
    assert references.entries(folder) == []
    assert list(folder.list("expiring/")) == []


@pytest.mark.slow
def test_two_at_once_of_the_same_content(backend: Backend, tmp_path: Path) -> None:
    told: list[Pushed] = []
    start = threading.Barrier(3)

    def one(name: str) -> None:
        start.wait()
        told.append(pushed(backend, cases(8), name))

    threads = [threading.Thread(target=one, args=(f"models/{i}",)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({one.digest for one in told}) == 1
    assert len(told) == 3
    assert verify_store(backend).findings == ()
    assert pulled(backend, "models/2", tmp_path / "out") == contents(cases(8))


@pytest.mark.slow
@pytest.mark.parametrize("then", ["same", "other"])
def test_killed_before_any_step_nothing_is_visible_and_the_next_completes(tmp_path: Path, then: str) -> None:
    from karat.store.backends import open_backend

    some = cases(3)
    counted = Watched(open_backend(str(tmp_path / "counted")), lambda *_: None)
    whole = pushed(counted, some, workers=1)
    assert counted.count > 15
    for at in range(1, counted.count + 1):
        store = open_backend(str(tmp_path / f"store{at}"))
        with pytest.raises(Killed):
            pushed(dying(store, at), some, workers=1)
        visible = references.entries(store)
        if visible:  # killed after its last step that matters
            assert references.read(store, visible[0]).digest == whole.digest
            assert verify_store(store).findings == ()
        there = {one.key for one in every(store, EXPIRING, 1)}
        next_cases = some if then == "same" else cases(3, changed=1)
        again = pushed(store, next_cases, workers=1)
        needed = set(map(key_of, [*plan_upload(next_cases, 1).parts(), again.digest]))
        assert again.new_objects == len(needed - there), "only what is missing is sent"
        assert verify_store(store).findings == ()
    assert files_below(tmp_path / "store1")


def test_a_push_whose_lease_lapsed_is_not_named(folder: Backend) -> None:
    def before(_number: int, verb: str, key: str) -> None:
        if verb == "put" and key.startswith(EXPIRING):
            folder.delete([one.key for one in folder.list("pushes/")])

    with pytest.raises(CannotVerify, match="to be renewed in time"):
        pushed(Watched(folder, before), cases(2), times=LeaseTimes())
    assert references.entries(folder) == []
