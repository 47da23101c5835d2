from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from factories.desks import BIG, GOLDEN, Desk
from factories.forge import Forge


@pytest.fixture
def desk(forge: Forge, tmp_path: Path) -> Desk:
    return Desk(forge, tmp_path)


@pytest.mark.slow
def test_a_second_run_fetches_nothing(desk: Desk) -> None:
    desk.add("small", {"golden.json": GOLDEN})
    desk.add("large", {"golden.json": GOLDEN, "model.bin": BIG})
    desk.fetch()
    before = len(desk.forge.requests)
    found = desk.fetch()
    assert desk.contents == {name: {"golden.json": GOLDEN} for name in ("small", "large")}
    assert {fetched.received for fetched in found.values()} == {0}
    assert not [r for r in desk.forge.requests[before:] if "zip" in r.path]
    assert {r.status for r in desk.forge.requests[before:]} == {304}


@pytest.mark.slow
def test_a_second_run_that_wants_more_fetches_only_that(desk: Desk) -> None:
    desk.add("large", {"golden.json": GOLDEN, "model.bin": BIG, "other.txt": b"other"})
    desk.fetch()
    found = desk.fetch(wanted=lambda name: name != "model.bin")
    assert desk.contents == {"large": {"golden.json": GOLDEN, "other.txt": b"other"}}
    assert 0 < found["large"].received < 20_000


@pytest.mark.slow
def test_a_damaged_cache_is_not_believed(desk: Desk, tmp_path: Path) -> None:
    desk.add("small", {"golden.json": GOLDEN})
    desk.add("large", {"golden.json": GOLDEN, "model.bin": BIG})
    desk.fetch()
    kept = [path for path in (tmp_path / "cache" / "v1" / "shelves").rglob("*") if path.is_file()]
    assert len(kept) >= 4
    for path in kept:
        if path.name != "record":
            path.write_bytes(path.read_bytes()[::-1])
    found = desk.fetch()
    assert not [fetched.findings for fetched in found.values() if fetched.findings]
    assert desk.contents == {name: {"golden.json": GOLDEN} for name in ("small", "large")}


@pytest.mark.slow
def test_a_damaged_start_of_a_download_is_thrown_away(desk: Desk, tmp_path: Path) -> None:
    desk.add("a", {"big.json": BIG})
    desk.forge.faults.no_ranges()
    desk.forge.faults.cut(r"a\.zip", after=900_000, times=None)
    assert desk.kind() == "transfer-failed"
    desk.forge.faults.clear()
    (part,) = (tmp_path / "cache").rglob("0-.part")
    part.write_bytes(bytes(part.stat().st_size))
    assert not desk.only().findings
    assert desk.contents["a"]["big.json"] == BIG


SCRIPT = """
import sys
from karat.sources.github import GitHub
source = GitHub("owner/name", run_id=123)
for fetched in source.fetch(source.listing().artifacts, lambda _: True):
    assert not fetched.findings, fetched.findings
    print(fetched.received)
source.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_what_arrived_before_the_end_of_a_process_is_not_fetched_again(
    desk: Desk, tmp_path: Path, how: signal.Signals
) -> None:
    made = desk.add("a", {"big.json": BIG})
    desk.forge.faults.slow(r"a\.zip", rate=1_000_000, times=2)
    env = {**os.environ, **desk.env}
    process = subprocess.Popen([sys.executable, "-c", SCRIPT], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with process:
        for _ in range(1000):
            if sum(p.stat().st_size for p in (tmp_path / "cache").rglob("0-.part")) > 200_000:
                break
            time.sleep(0.01)
        process.send_signal(how)
        process.communicate(timeout=20)
    assert process.returncode == (-how if how == signal.SIGKILL else -signal.SIGINT)
    desk.forge.faults.clear()
    fetched = desk.only(wanted=lambda _: True)
    assert desk.contents["a"]["big.json"] == BIG
    assert fetched.received < len(made.body) - 150_000


@pytest.mark.slow
def test_two_processes_fetch_one_artifact_once(desk: Desk) -> None:
    desk.add("a", {"golden.json": GOLDEN})
    desk.forge.latency = 0.05
    env = {**os.environ, **desk.env}
    processes = [subprocess.Popen([sys.executable, "-c", SCRIPT], env=env, stdout=subprocess.PIPE) for _ in range(2)]
    received = [int(process.communicate(timeout=60)[0]) for process in processes]
    assert min(received) == 0
    assert len(desk.forge.seen(host="blob")) == 1


def test_whoever_has_enough_may_come_again(desk: Desk) -> None:
    for i in range(6):
        desk.add(f"a{i}", {"golden.json": GOLDEN})
    source = desk.source()
    artifacts = source.listing().artifacts
    first = list(itertools.islice(source.fetch(artifacts, lambda _: True), 1))
    again = list(source.fetch(artifacts, lambda _: True))
    assert (len(first), len(again)) == (1, 6)
    source.close()
