"""Who is at work in a store: leases, markers, and processes that are no more."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest

from factories.stores import Watched, cases, pushed
from karat.findings import CannotVerify
from karat.store import pins, references
from karat.store.backends import Backend, StoreProblem
from karat.store.gc import GcOptions, collect
from karat.store.leases import (
    COLLECTORS,
    LEASES,
    Lease,
    LeaseTimes,
    abandoned,
    lease,
    live_leases,
    other_collectors,
    this_process,
    wait_for_collectors,
)

QUICK = LeaseTimes(patience=0.2, poll=0.05)


def a_marker(backend: Backend, process: str, name: str = "other") -> str:
    key = f"{COLLECTORS}{name}.json"
    data = msgspec.json.encode(Lease(id=name, kind="gc", process=process))
    backend.put(key, data, replace=True)
    return key


def aged(folder: Backend, key: str, seconds: float) -> None:
    path = folder.local(key)
    assert path is not None
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_a_lease_names_what_is_needed_and_goes(backend: Backend) -> None:
    with lease(backend, "push", objects=("a", "b"), snapshots=("c",)) as held:
        (found,) = live_leases(backend, held.now(), LeaseTimes())
        assert (found.objects, found.snapshots, found.kind) == (("a", "b"), ("c",), "push")
        held.check()
    assert live_leases(backend, 0.0, LeaseTimes()) == []


def test_a_push_waits_for_a_collector_and_goes_on_when_it_is_done(folder: Backend) -> None:
    key = a_marker(folder, "another machine/1-2")
    timer = threading.Timer(0.3, lambda: folder.delete([key]))
    told: list[str] = []
    with lease(folder, "push") as held:
        timer.start()
        wait_for_collectors(folder, held, LeaseTimes(patience=30, poll=0.02), told.append)
        assert folder.head(key) is None
    assert len(told) == 1
    assert "waiting for `karat gc`" in told[0]


def test_a_collector_that_does_not_end_is_store_busy(backend: Backend) -> None:
    a_marker(backend, "another machine/1-2")
    with pytest.raises(StoreProblem, match="which did not end in time") as caught:
        pushed(backend, cases(1), times=QUICK)
    assert caught.value.finding.kind == "store-busy"
    assert caught.value.exit_code == 3
    with pytest.raises(StoreProblem, match="did not end"):
        collect(backend, GcOptions())
    assert list(backend.list("expiring/")) == []
    assert len(list(backend.list(COLLECTORS))) == 1, "nobody takes another's marker away"


def test_a_marker_that_nobody_renews_is_nobody_s(folder: Backend) -> None:
    key = a_marker(folder, "another machine/1-2")
    aged(folder, key, LeaseTimes().collector + 1)
    assert pushed(folder, cases(1), times=QUICK).cases == 1
    assert collect(folder, GcOptions()).abandoned == 1
    assert folder.head(key) is None


def test_a_killed_process_of_this_machine_is_known_at_once(folder: Backend, tmp_path: Path) -> None:
    code = "from karat.store.leases import this_process; print(this_process())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    dead = done.stdout.strip()
    assert dead.count("/") == this_process().count("/") == 2
    key = a_marker(folder, dead)
    assert pushed(folder, cases(1), times=QUICK).cases == 1
    with lease(folder, "gc") as held:
        assert other_collectors(folder, held, LeaseTimes()) == []
        assert abandoned(folder, held, LeaseTimes()) == [key]
    a_marker(folder, this_process())
    with pytest.raises(StoreProblem):
        pushed(folder, cases(2), times=QUICK)
    # The number of a process is used again; when it began is not.
    a_marker(folder, this_process().rpartition("-")[0] + "-1")
    assert pushed(folder, cases(2), times=QUICK).cases == 2
    assert tmp_path


def test_a_lease_ends_with_its_process(folder: Backend) -> None:
    code = "from karat.store.leases import this_process; print(this_process())"
    dead = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    for number, process in enumerate((dead, this_process(), "another machine/1-2", "")):
        held = Lease(id=str(number), kind="push", process=process, objects=("a" * 64,))
        folder.put(f"{LEASES}{number}.json", msgspec.json.encode(held))
    with lease(folder, "gc") as held_marker:
        found = live_leases(folder, held_marker.now(), LeaseTimes())
        assert sorted(one.id for one in found) == ["1", "2", "3"]
        assert abandoned(folder, held_marker, LeaseTimes()) == [f"{LEASES}0.json"]


def test_old_leases_are_nobody_s_and_young_ones_are(folder: Backend) -> None:
    folder.put("pushes/old.json", msgspec.json.encode(Lease(id="old", kind="push", process="x")))
    aged(folder, "pushes/old.json", LeaseTimes().lease + 5)
    with lease(folder, "gc") as held:
        assert live_leases(folder, held.now(), LeaseTimes()) == []
        assert abandoned(folder, held, LeaseTimes()) == ["pushes/old.json"]
        aged(folder, "pushes/old.json", LeaseTimes().lease - 60)
        assert [one.id for one in live_leases(folder, held.now(), LeaseTimes())] == ["old"]
        assert abandoned(folder, held, LeaseTimes()) == []


def test_a_lease_that_cannot_be_read_stops_a_collector(folder: Backend) -> None:
    pushed(folder, cases(1))
    folder.put("pushes/x.json", b"<html>")
    with pytest.raises(CannotVerify, match="expected a lease"):
        collect(folder, GcOptions(grace=0))


def test_a_held_lease_is_renewed_by_itself(folder: Backend) -> None:
    with lease(folder, "push", times=LeaseTimes(renewal=0.02)) as held:
        aged(folder, held.key, 1000)
        until = time.monotonic() + 10
        while time.time() - held.now() > 900 and time.monotonic() < until:
            time.sleep(0.01)
        assert time.time() - held.now() < 900


@pytest.mark.parametrize("silence", [80.0, 10_000.0])
def test_a_collector_that_was_stopped_does_not_come_back(
    folder: Backend, monkeypatch: pytest.MonkeyPatch, silence: float
) -> None:
    """As SIGSTOP, or the lid of a laptop: meanwhile a push gave its marker up, and relies on the object."""
    pushed(folder, cases(2))
    orphan = "expiring/sha256/ab/" + "ab" * 32
    folder.put(orphan, b"orphan")
    began = time.monotonic()
    slept = [0.0]
    monkeypatch.setattr("karat.store.leases._clock", lambda: time.monotonic() - began + slept[0])

    def before(_number: int, verb: str, key: str) -> None:
        if verb == "list" and key.startswith("kept/"):
            slept[0] = silence
            # The thread that renews it wakes first.
            until = time.monotonic() + 10
            while threads() and time.monotonic() < until:
                time.sleep(0.001)

    def threads() -> list[threading.Thread]:
        return [one for one in threading.enumerate() if one.name == "karat-lease"]

    options = GcOptions(grace=0, times=LeaseTimes(beat=0.005))
    with pytest.raises(CannotVerify, match="to be renewed in time"):
        collect(Watched(folder, before), options)
    assert folder.get(orphan) == b"orphan"


def test_a_push_that_slept_through_its_lease_names_nothing(folder: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    slept = [0.0]
    monkeypatch.setattr("karat.store.leases._clock", lambda: slept[0])

    def before(_number: int, verb: str, key: str) -> None:
        if verb == "put" and key.startswith("expiring/"):
            slept[0] = 13 * 3600.0

    with pytest.raises(CannotVerify, match="to be renewed in time"):
        pushed(Watched(folder, before), cases(1))
    digest = pushed(folder, cases(1), "models/other").digest
    references.forget(folder, references.entries(folder))

    def amid(_number: int, _verb: str, key: str) -> None:
        if key.startswith(("kept/", "expiring/")):
            slept[0] += 13 * 3600.0

    with pytest.raises(CannotVerify, match="to be renewed in time"):
        pins.pin(Watched(folder, amid), digest, "why")
    assert list(folder.list("pins/")) == []
    with lease(folder, "push") as held:
        slept[0] += 13 * 3600.0
        with pytest.raises(CannotVerify, match="to be renewed in time"):
            held.renew()
    assert list(folder.list("refs/")) == []


def test_another_user_s_hidden_process_is_alive(folder: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mounted with hidepid, /proc shows nothing of it; the system still knows that it is there."""
    machine = this_process().rpartition("/")[0]
    a_marker(folder, f"{machine}/1-1")

    def hidden(number: int) -> None:
        assert number

    def not_ours(number: int, signal: int) -> None:
        raise PermissionError(number, signal)

    monkeypatch.setattr("karat.store.leases.process_of", hidden)
    monkeypatch.setattr("os.kill", not_ours)
    with pytest.raises(StoreProblem, match="did not end in time"):
        pushed(folder, cases(1), times=QUICK)


def test_a_collector_whose_marker_was_taken_stops_before_it_deletes(folder: Backend) -> None:
    pushed(folder, cases(2))
    folder.put("expiring/sha256/ab/" + "ab" * 32, b"orphan")

    def before(_number: int, verb: str, key: str) -> None:
        if verb == "list" and key.startswith("kept/"):
            folder.delete([one.key for one in folder.list(COLLECTORS)])

    with pytest.raises(CannotVerify, match="to be renewed in time"):
        collect(Watched(folder, before), GcOptions(grace=0))
    assert folder.get("expiring/sha256/ab/" + "ab" * 32) == b"orphan"
