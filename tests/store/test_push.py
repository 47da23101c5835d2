"""Pushes: only what is missing is sent, and nothing is visible before all of it is there."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from factories.s3_proxy import S3Proxy
from factories.stores import Killed, Watched, case, cases, contents, dying, files_below, made, pulled, pushed
from karat.bundles.places import Place, open_place
from karat.findings import CannotVerify, UsageError
from karat.store import references
from karat.store.backends import Backend
from karat.store.leases import LeaseTimes
from karat.store.objects import EXPIRING, every, key_of
from karat.store.push import Pushed, PushOptions, Refused, gather, push_place
from karat.store.upload import CaseFiles, StoreComparison, plan_upload, upload
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
    assert (len(references.entries(backend)), verified.cases, verified.orphans) == (1, 7, 0)
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
    assert len(puts) == second.new_objects + 3  # the lease, the reference and its link


@pytest.mark.slow
def test_another_night_of_the_same_values_sends_the_snapshot(folder: Backend) -> None:
    first = pushed(folder, cases(200, night="1"))
    second = pushed(folder, cases(200, night="2"))
    assert second.new_objects == 1
    assert second.reused_bytes == first.new_bytes - len(folder.get(key_of(first.digest)))


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


def test_a_flipped_bit_is_mended_once_the_object_is_removed(folder: Backend, tmp_path: Path) -> None:
    push_night(folder, night(tmp_path, "first", cases(3)))
    program = next(one for one in every(folder, EXPIRING, 2) if one.size == 70_000)
    folder.put(program.key, bytes(70_000), replace=True)
    (finding,) = verify_store(folder).findings
    assert finding.path == program.key
    folder.delete([program.key])
    push_night(folder, open_place(tmp_path / "first"))
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


def night(tmp_path: Path, name: str, some: list[CaseFiles]) -> Place:
    """A capture directory of these cases."""
    for path, data in contents(some).items():
        (tmp_path / name / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name / path).write_bytes(data)
    return open_place(tmp_path / name)


def push_night(backend: Backend, place: Place, **options: Any) -> Pushed:
    return push_place(backend, place, "models/nightly", PushOptions(workers=4, **options))


def test_another_night_reads_and_sends_what_changed(backend: Backend, tmp_path: Path) -> None:
    push_night(backend, night(tmp_path, "first", cases(40, night="1")))
    second = cases(40, night="2", changed=2)
    place = night(tmp_path, "second", second)
    # What the manifest of an unchanged case says is in the store; its files are not looked into, and need not be whole.
    unread = next(path for path in (tmp_path / "second").rglob("expected.safetensors") if "case-00030" in str(path))
    unread.write_bytes(bytes(unread.stat().st_size))
    told = push_night(backend, place)
    # Two programs, two packs of small files, at most two runs of manifests, and the snapshot.
    assert told.new_objects <= 7
    assert told.digest == plan_upload(second, 2).digest, "whatever the store had"
    assert pulled(backend, "models/nightly", tmp_path / "out") == contents(second)


@pytest.mark.parametrize("damage", ["seal", "size", "stranger", "changed"])
def test_what_is_not_as_it_was_is_verified(folder: Backend, tmp_path: Path, damage: str) -> None:
    push_night(folder, night(tmp_path, "first", cases(3, night="1")))
    night(tmp_path, "second", cases(3, night="2"))
    victim = next((tmp_path / "second").rglob("manifest.json")).parent
    if damage == "seal":
        data = (victim / "manifest.json").read_bytes()
        (victim / "manifest.json").write_bytes(data.replace(b'"session": "2"', b'"session": "3"'))
    elif damage == "size":
        (victim / "program/model.pte").write_bytes(b"short")
    elif damage == "stranger":
        (victim / "notes.txt").write_bytes(b"?")
    else:
        data = (victim / "manifest.json").read_bytes()
        (victim / "manifest.json").write_bytes(data.replace(b'"karat": "1"', b'"karat": "2"'))
    with pytest.raises(Refused):
        push_night(folder, open_place(tmp_path / "second"))
    assert len(references.entries(folder)) == 1


def test_a_store_that_lost_an_object_gets_it_again(folder: Backend, tmp_path: Path) -> None:
    some = cases(5, night="1")
    push_night(folder, night(tmp_path, "first", some))
    for lost in list(every(folder, EXPIRING, 1))[:3]:
        folder.delete([lost.key])
        push_night(folder, open_place(tmp_path / "first"))
        assert verify_store(folder).findings == ()
    assert pulled(folder, "models/nightly", tmp_path / "out") == contents(some)


def test_files_of_a_disk_are_copied_and_looked_at_again(folder: Backend, tmp_path: Path) -> None:
    """The bytes do not pass through this process, and it is the copy that is hashed."""
    some = cases(1, program=3 << 20)
    gathered = gather(night(tmp_path, "first", some))
    plan = plan_upload(gathered.values(), 1)
    program = next((tmp_path / "first").rglob("model.pte"))
    data = program.read_bytes()
    program.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    none = StoreComparison(to_send=plan.parts())
    with pytest.raises(CannotVerify, match="found that one changed"):
        upload(folder, plan, none, 1)
    program.write_bytes(data)
    upload(folder, plan, none, 1)
    stored = {folder.get(one.key) for one in every(folder, EXPIRING, 1)}
    assert data in stored
    assert list(folder.list(".staging/")) == []
