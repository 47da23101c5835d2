from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from importlib import resources
from pathlib import Path

import jsonschema
import msgspec
import pytest

from karat.bundles.manifest import Identity
from karat.captures.records import Claim, Taken, claim_path, host, read, take, update, withdraw


def claim(*, by: str = "first", pid: int | None = None, on: str | None = None) -> Claim:
    identity = Identity(suite="s", flow="f", test="t", subtest="")
    return Claim(identity=identity, path="s/f/t", by=by, host=on or host(), pid=pid or os.getpid())


def dead_pid() -> int:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return done.pid


def test_one_of_many_at_once_has_it(tmp_path: Path) -> None:
    path = claim_path(tmp_path / "claims", "s/f/t")
    won: list[int] = []
    start = threading.Barrier(8)

    def contend(number: int) -> None:
        start.wait()
        try:
            take(path, claim(by=str(number)))
        except Taken:
            return
        won.append(number)

    crowd = [threading.Thread(target=contend, args=(n,)) for n in range(8)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
    assert len(won) == 1
    standing = read(path)
    assert standing is not None
    assert standing.by == str(won[0])


def test_who_has_it_is_told(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    take(path, claim(by="first"))
    with pytest.raises(Taken) as caught:
        take(path, claim(by="second"))
    assert caught.value.claim == claim(by="first")


def test_a_claim_fits_its_schema(tmp_path: Path) -> None:
    schemas = resources.files("karat").joinpath("schemas")
    schema = json.loads(schemas.joinpath("karat.claim.1.json").read_text(encoding="utf-8"))
    take(tmp_path / "c.json", claim())
    said = json.loads((tmp_path / "c.json").read_bytes())
    jsonschema.validate(said, schema)
    assert said.keys() == schema["properties"].keys()
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(said | {"state": "gone"}, schema)


def test_a_withdrawn_claim_is_free(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    take(path, claim())
    withdraw(path)
    withdraw(path)
    take(path, claim(by="second"))
    assert read(path) == claim(by="second")


@pytest.mark.parametrize("state", ["staged", "failed"])
def test_a_dead_process_and_a_failed_capture_hold_nothing_for_long(
    tmp_path: Path, state: str
) -> None:
    path = tmp_path / "c.json"
    pid = dead_pid() if state == "staged" else os.getpid()
    take(path, claim(by="first", pid=pid))
    update(path, msgspec.structs.replace(claim(by="first", pid=pid), state=state))
    take(path, claim(by="second"))
    assert read(path) == claim(by="second")
    assert [p.name for p in tmp_path.iterdir()] == ["c.json"]


@pytest.mark.parametrize("state", ["staged", "published"])
def test_another_machines_and_a_published_claim_stand(tmp_path: Path, state: str) -> None:
    path = tmp_path / "c.json"
    on = "elsewhere" if state == "staged" else None
    standing = msgspec.structs.replace(claim(pid=dead_pid(), on=on), state=state)
    take(path, standing)
    with pytest.raises(Taken):
        take(path, claim(by="second"))
    assert read(path) == standing


def test_a_claim_that_is_being_written_is_taken(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_bytes(b'{"schema"')
    with pytest.raises(Taken) as caught:
        take(tmp_path / "c.json", claim())
    assert caught.value.claim is None


def test_who_finds_a_claim_finds_it_whole(tmp_path: Path) -> None:
    """Eight at once, many times: those who come late always read who came first."""
    taken: list[Claim | None] = []

    def race(start: threading.Barrier, turn: int) -> None:
        start.wait()
        try:
            take(tmp_path / f"{turn}.json", claim())
        except Taken as error:
            taken.append(error.claim)

    for turn in range(50):
        start = threading.Barrier(8)
        crowd = [threading.Thread(target=race, args=(start, turn)) for _ in range(8)]
        for one in crowd:
            one.start()
        for one in crowd:
            one.join()
    assert len(taken) == 7 * 50
    assert None not in taken
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"] * 50
