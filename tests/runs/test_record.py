from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import msgspec
import pytest

from factories.editors import save_last_moment
from factories.repositories import Repository, curves, golden_text
from karat.goldens.provenance import LockEntry, Provenance
from karat.runs.record import LockLine, RecordOptions, origin_of, record

GITHUB = {
    "GITHUB_RUN_ID": "123",
    "GITHUB_RUN_ATTEMPT": "2",
    "GITHUB_JOB": "bert",
    "GITHUB_SHA": "abc",
    "GITHUB_TOKEN": "planted-secret",
    "ACTIONS_RUNTIME_TOKEN": "planted-secret",
}
GITLAB = {
    "CI_PIPELINE_ID": "77",
    "CI_JOB_ID": "9",
    "CI_JOB_NAME": "bert",
    "CI_COMMIT_SHA": "def",
    "CI_JOB_IMAGE": "nvcr/x:1",
    "CI_JOB_TOKEN": "planted-secret",
}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (GITHUB, {"run": "123", "attempt": 2, "job": "bert", "commit": "abc"}),
        (GITLAB, {"run": "77", "job": "bert", "commit": "def", "image": "nvcr/x:1"}),
        (
            {"TF_BUILD": "True", "BUILD_BUILDID": "5", "SYSTEM_JOBATTEMPT": "3", "BUILD_SOURCEVERSION": "ab"},
            {"run": "5", "attempt": 3, "commit": "ab"},
        ),
        ({"BUILDKITE": "true", "BUILDKITE_BUILD_ID": "b-1", "BUILDKITE_RETRY_COUNT": "0"}, {"run": "b-1"}),
        ({}, {}),
        ({"GITHUB_RUN_ID": "", "GITHUB_RUN_ATTEMPT": "two"}, {}),
    ],
)
def test_what_ci_knows(environment: dict[str, str], expected: dict[str, object]) -> None:
    found = msgspec.to_builtins(origin_of(environment, accepted=False))
    assert "planted-secret" not in str(found)
    del found["source"], found["date"]
    assert found == expected


def test_samples_that_are_saved_meanwhile_are_kept(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(3):
        repository.write(f"run{n}.json", golden_text(curves(n, steps=5)))
    golden, samples = repository.root / "g.json", repository.root / "g.samples.json"
    monkeypatch.chdir(repository.root)
    record(golden, ["run0.json", "run1.json"], RecordOptions())
    typed = samples.read_bytes().replace(b"run0", b"typed")
    save_last_moment(monkeypatch, samples, typed)
    result, _ = record(golden, ["run2.json"], RecordOptions(accept_incomplete=True))
    (kept,) = [f for f in result.findings if f.kind == "kept-edits" and f.path == "g.samples.json"]
    subprocess.run(["bash", "-c", str(kept.next)], check=True)
    assert samples.read_bytes() == typed


DATA = b"golden"
SHA = hashlib.sha256(DATA).hexdigest()
PLAIN = Provenance(source="record")
FORCED = Provenance(source="record", accepted="--accept-incomplete")


@pytest.mark.parametrize(
    ("entries", "origin", "known"),
    [
        ({}, PLAIN, True),  # nobody has begun a lock
        ({}, FORCED, False),
        ({"other": LockEntry(source="github", sha256=SHA)}, PLAIN, False),
        ({"g": LockEntry(source="github", sha256=SHA)}, PLAIN, True),
        ({"g": LockEntry(source="github", sha256="0")}, PLAIN, False),
        ({"g": LockEntry(source="github", sha256=SHA)}, FORCED, False),
        ({"g": LockEntry(source="record", sha256=SHA, accepted="x")}, FORCED, True),
        ({"g": LockEntry(source="record", sha256=SHA, metrics={"lr": FORCED})}, FORCED, True),
    ],
)
def test_what_the_lock_says_already(
    entries: dict[str, LockEntry],
    origin: Provenance,
    known: bool,  # noqa: FBT001
) -> None:
    line = LockLine(file=Path("goldens.lock.json"), path="g", entries=entries)
    assert line.knows(DATA, origin) is known
