"""Must-show 1: parametrised static and dynamic shapes, two flows, four workers; and workers that die."""

from __future__ import annotations

from hashlib import sha256

import pytest

from factories.pytest_runs import XDIST, Suite
from karat.bundles.places import open_place
from karat.bundles.verify import verify_place

SHAPES = """
    import numpy as np
    import pytest

    SIZES = {"static": [(2, 3)], "dynamic": [(1, 3), (5, 3), (0, 3)]}

    @pytest.fixture(params=["portable", "delegated"])
    def flow(request): return request.param

    @pytest.mark.parametrize("model", ["linear", "softmax", "norm"])
    @pytest.mark.parametrize("shapes", ["static", "dynamic"])
    def test_model(golden, flow, model, shapes):
        generator = np.random.default_rng(7)
        for size in SIZES[shapes]:
            x = generator.standard_normal(size, dtype=np.float32)
            y = np.tanh(x) * len(model)
            golden.check(
                {"y": y}, {"y": y.copy()}, inputs=(x,), program=model.encode(),
                subtest="x".join(map(str, size)), seeds={"numpy": 7},
            )
"""


def fingerprints(suite: Suite) -> dict[str, str]:
    """Path → hash of every file of every case that holds tensors or a program."""
    files = [*suite.captures.glob("*/*/*/*.safetensors"), *suite.captures.glob("*/*/*/program/*")]
    return {path.relative_to(suite.captures).as_posix(): sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.slow
def test_every_case_stands_alone_and_twice_gives_the_same_bytes(suite: Suite) -> None:
    suite.write("models/test_shapes.py", SHAPES)
    first = suite.capture(*XDIST)
    assert (first.code, first.count("passed")) == (0, 12), first.out
    assert "24 cases captured" in first.out
    manifests = suite.manifests()
    assert len(manifests) == 24
    flows = [m["identity"]["flow"] for m in manifests]
    assert sorted(set(flows)) == ["delegated", "portable"]
    assert flows.count("portable") == flows.count("delegated") == 12
    assert len({m["path"] for m in manifests}) == 24
    assert len({m["session"] for m in manifests}) == 1
    assert len(fingerprints(suite)) == 24 * 3
    before = fingerprints(suite)
    second = suite.capture(*XDIST)
    assert second.code == 0, second.out
    assert "24 cases captured" in second.out
    assert fingerprints(suite) == before
    assert {m["session"] for m in suite.manifests()} != {m["session"] for m in manifests}
    assert suite.leftovers() == []
    verified = verify_place(open_place(suite.captures))
    assert (verified.cases, verified.tensors) == (24, 48)
    assert [finding for finding in verified.findings if finding.severity != "info"] == []


@pytest.mark.slow
def test_one_identity_in_two_workers_is_found(suite: Suite) -> None:
    suite.write(
        "test_it.py",
        """
        import karat
        import pytest

        @pytest.mark.parametrize("n", range(4))
        def test_it(n): karat.check_and_capture("same name", actual=1, expected=1, inputs=())
        """,
    )
    done = suite.capture("-n", "2", "--no-karat-strict")
    assert done.code == 1
    assert "fail captured-twice: same name" in done.out
    assert "NEW_NAME" not in done.out  # another session would have it twice just the same
    assert suite.tests() == ["same name|"]


@pytest.mark.slow
def test_a_worker_that_dies_takes_only_its_own_test_with_it(suite: Suite) -> None:
    suite.write(
        "test_it.py",
        """
        import os, signal
        import pytest

        @pytest.mark.parametrize("n", range(8))
        def test_it(golden, n):
            golden.check(n, n, inputs=())
            if n == 3:
                os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    done = suite.capture("-n", "2", "--karat-strict")
    assert done.code == 1
    assert done.count("failed") == 1
    assert "7 cases captured" in done.out
    assert "1 dropped with their tests" in done.out
    assert len(suite.manifests()) == 7
    assert suite.leftovers() == []


@pytest.mark.slow
def test_findings_of_workers_reach_the_summary_and_the_exit_code(suite: Suite) -> None:
    suite.write(
        "test_it.py",
        """
        import pytest

        @pytest.mark.parametrize("n", range(4))
        def test_it(golden, n): golden.check(n, n, inputs=(object(),))
        """,
    )
    done = suite.capture("-n", "2", CI="true")
    assert (done.code, done.count("passed")) == (1, 4)
    assert done.out.count("fail cannot-store: test_it.py::test_it[") == 4
    assert "0 cases captured" in done.out


@pytest.mark.slow
def test_what_workers_tell_counts_although_their_journals_are_gone(suite: Suite) -> None:
    suite.write(
        "test_it.py",
        f"""
        import shutil

        def test_it(golden):
            golden.check(1, 1, inputs=(object(),))
            shutil.rmtree({str(suite.captures / ".karat")!r})
        """,
    )
    done = suite.capture("-n", "1", "--karat-strict")
    assert (done.code, done.count("passed")) == (1, 1), done.out
    assert "fail cannot-store: test_it.py::test_it" in done.out


@pytest.mark.slow
def test_a_directory_that_cannot_be_used_starts_no_worker(suite: Suite) -> None:
    suite.write("test_it.py", "def test(): open('ran', 'w')\n")
    suite.write("captures", "a file")
    done = suite.capture("-n", "2")
    assert done.code == pytest.ExitCode.USAGE_ERROR
    assert "expected a directory that can be written to" in done.out
    assert not (suite.root / "ran").exists()
