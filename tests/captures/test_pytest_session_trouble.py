from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from factories.capturing import PASSING
from factories.pytest_runs import Suite, clean_environment


@pytest.mark.slow
def test_a_configuration_that_is_wrong_fails_before_any_test(suite: Suite) -> None:
    suite.write("karat.toml", "[bundles]\ncaptures = []\n")
    done = suite.capture()
    assert done.code == pytest.ExitCode.USAGE_ERROR
    assert "unknown key 'captures'; did you mean 'capture'?" in done.out


FAILING = """
    import threading
    import numpy as np

    def test_fine(golden): golden.check(1, 1, inputs=())

    def test_lock(golden): golden.check(1, 1, inputs={"lock": threading.Lock()})

    def test_objects(golden): golden.check(1, 1, inputs=[np.array([object()])])

    def test_no_program(golden): golden.check(1, 1, inputs=(), program="gone.pte")

    def test_odd_program(golden): golden.check(1, 1, inputs=(), program=object())
"""


@pytest.mark.slow
def test_what_cannot_be_captured_is_told_and_fails_no_test(suite: Suite) -> None:
    suite.write("test_it.py", FAILING)
    done = suite.capture()
    assert (done.code, done.count("passed")) == (0, 5), done.out
    assert "1 case captured" in done.out
    assert "4 failed" in done.out
    assert "inputs/lock" in done.out or "inputs['lock']" in done.out, done.out
    assert "gone.pte" in done.out
    assert "program: expected a path or bytes, found object" in done.out
    again = f"next: pytest test_it.py::test_lock --karat-capture={suite.captures} --karat-strict"
    assert again in done.out
    assert "--karat-strict would" in done.out
    assert suite.tests() == ["test_it.py::test_fine|"]
    assert suite.leftovers() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "variables", "code"),
    [
        (("--karat-strict",), {}, 1),
        ((), {"CI": "true"}, 1),
        ((), {"CI": "false"}, 0),
        (("--no-karat-strict",), {"CI": "true"}, 0),
    ],
)
def test_strict_sessions_fail_for_it(
    suite: Suite, words: tuple[str, ...], variables: dict[str, str], code: int
) -> None:
    suite.write("test_it.py", FAILING)
    done = suite.capture(*words, **variables)
    assert done.code == code
    assert done.count("passed") == 5


@pytest.mark.slow
def test_a_failed_capture_leaves_a_claim_that_says_so(suite: Suite) -> None:
    suite.write("test_it.py", FAILING)
    suite.capture()
    claims = [json.loads(p.read_text()) for p in suite.captures.glob(".karat/*/claims/*.json")]
    states = {c["identity"]["test"].rpartition("::")[2]: c["state"] for c in claims}
    assert states == {
        "test_fine": "published",
        "test_lock": "failed",
        "test_objects": "failed",
        "test_no_program": "failed",
        "test_odd_program": "failed",
    }


@pytest.mark.slow
def test_a_test_that_compared_by_itself_is_captured_as_weaker_evidence(suite: Suite) -> None:
    suite.write(
        "test_it.py",
        """
        def test_own(golden):
            assert 1 + 1 == 2
            golden.capture(inputs=(1, 1), expected=2, note="assert")
        """,
    )
    done = suite.capture("--karat-strict")
    assert done.code == 0
    assert "info caller-compared: test_it.py::test_own compared by its own means" in done.out
    (manifest,) = suite.manifests()
    assert manifest["comparator"] == {"name": "caller", "note": "assert"}


@pytest.mark.slow
def test_a_case_in_the_place_of_something_else_is_not_written_over_it(suite: Suite) -> None:
    suite.write("test_it.py", "def test(golden): golden.check(1, 1, inputs=())\n")
    suite.capture()
    (manifest,) = suite.manifests()
    folder = suite.captures / manifest["path"]
    (folder / "manifest.json").unlink()
    (folder / "notes.txt").write_text("mine")
    done = suite.capture("--karat-strict")
    assert done.code == 1
    assert "found a folder without manifest.json" in done.out
    assert (folder / "notes.txt").read_text() == "mine"


@pytest.mark.slow
def test_a_directory_that_cannot_be_used_fails_before_any_test(suite: Suite) -> None:
    suite.write("test_it.py", "def test(): open('ran', 'w')\n")
    suite.write("captures", "a file")
    done = suite.capture()
    assert done.code == pytest.ExitCode.USAGE_ERROR
    assert "ERROR: --karat-capture: expected a directory that can be written to at" in done.out
    assert "next: ls -ld" in done.out
    assert not (suite.root / "ran").exists()


def test_an_unusable_session_name_fails_before_any_test(suite: Suite) -> None:
    done = suite.capture("--karat-session", "../elsewhere")
    assert done.code == pytest.ExitCode.USAGE_ERROR
    assert "--karat-session: expected up to 100 letters" in done.out
    assert not suite.captures.exists()


@pytest.mark.slow
def test_a_disk_that_fills_up_in_the_middle_fails_no_test(suite: Suite) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs the right to mount a tmpfs")
    suite.captures.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(suite.captures)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    suite.write(
        "test_it.py",
        """
        import numpy as np
        import pytest

        @pytest.mark.parametrize("kib", [100, 2000, 1])
        def test_big(golden, kib):
            x = np.zeros(kib << 10, dtype=np.uint8)
            golden.check(x, x, inputs=())
        """,
    )
    try:
        done = suite.capture()
        published = suite.tests()
        strict = suite.capture("--karat-strict")
        leftovers = suite.leftovers()
    finally:
        subprocess.run(["umount", str(suite.captures)], check=True)
    assert (done.code, done.count("passed")) == (0, 3), done.out
    assert "2 cases captured" in done.out
    assert "fail capture-failed: test_it.py::test_big[2000]" in done.out
    assert "No space left on device" in done.out
    assert f"next: df -h {suite.captures}" in done.out
    assert published == ["test_it.py::test_big[100]|", "test_it.py::test_big[1]|"]
    assert strict.code == 1
    assert leftovers == []


@pytest.mark.slow
def test_a_session_that_was_killed_is_tidied_up_by_the_next(suite: Suite) -> None:
    suite.write(
        "test_it.py",
        """
        import os, signal

        def test(golden):
            golden.check(1, 1, inputs=())
            if os.environ.get("KILL"):
                os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    assert suite.capture("--karat-session", "a", KILL="1").code != 0
    assert len(suite.leftovers()) == 1
    assert suite.manifests() == []
    assert suite.capture("--karat-session", "b", "--deselect", "test_it.py::test").code == 5
    assert suite.leftovers() == []
    assert list(suite.captures.glob(".karat/a/claims/*")) == []
    assert suite.capture("--karat-session", "a").code == 0
    assert len(suite.manifests()) == 1


@pytest.mark.slow
def test_an_interrupted_session_leaves_nothing_half_done(suite: Suite) -> None:
    suite.write(
        "test_it.py",
        """
        def test_one(golden): golden.check(1, 1, inputs=())

        def test_two(golden):
            golden.check(1, 1, inputs=())
            raise KeyboardInterrupt
        """,
    )
    done = suite.capture()
    assert done.code == pytest.ExitCode.INTERRUPTED
    assert suite.tests() == ["test_it.py::test_one|"]
    assert suite.leftovers() == []


@pytest.mark.slow
def test_the_installed_entry_point_is_enough(suite: Suite) -> None:
    suite.write("test_it.py", PASSING)
    words = [sys.executable, "-m", "pytest", "-q", "--karat-capture", "captures"]
    done = subprocess.run(words, cwd=suite.root, env=clean_environment(), capture_output=True, check=False)
    assert done.returncode == 0
    assert len(suite.manifests()) == 1
