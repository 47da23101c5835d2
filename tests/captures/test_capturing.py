"""Capture on: what is published, what is dropped, and what the session says of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from factories.pytest_runs import Suite, clean_environment

PASSING = """
    import numpy as np

    def test_scale(golden):
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        golden.check(2 * x, x + x, inputs=(x,), program=b"program", rtol=1e-3, note="by hand")
"""


def test_a_passing_test_leaves_one_whole_case(suite: Suite) -> None:
    suite.write("models/test_it.py", PASSING)
    done = suite.capture(KARAT_IMAGE="torch:nightly", SOURCE_DATE_EPOCH="1700000000")
    assert done.code == 0, done.out
    (manifest,) = suite.manifests()
    assert manifest["identity"] == {
        "suite": "models",
        "flow": "default",
        "test": "models/test_it.py::test_scale",
        "subtest": "",
    }
    assert manifest["comparator"]["name"] == "karat"
    assert manifest["comparator"]["rtol"] == 1e-3
    assert manifest["comparator"]["note"] == "by hand"
    assert manifest["comparator"]["results"][0]["numbers"]["bit_equal"] == 6
    assert manifest["created"] == "2023-11-14T22:13:20Z"
    assert manifest["environment"]["image"] == "torch:nightly"
    assert manifest["environment"]["packages"].keys() >= {"karat", "numpy"}
    folder = suite.captures / manifest["path"]
    files = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    assert files == [
        "expected.safetensors",
        "inputs.safetensors",
        "manifest.json",
        "program/program.bin",
    ]
    assert suite.leftovers() == []


def test_header_and_summary_say_where_how_many_and_what_next(suite: Suite) -> None:
    suite.write("models/test_it.py", PASSING)
    words = ("--karat-session", "nightly-1", "-p", "no:xdist")
    done = suite.capture(*words, GOLDEN_ARTIFACTS_DIR="elsewhere")
    header = f"karat: capturing into {suite.captures} (--karat-capture), session nightly-1"
    assert header in done.out
    other = suite.root / "elsewhere"
    assert f"karat: --karat-capture wins over GOLDEN_ARTIFACTS_DIR={other}" in done.out
    assert f"1 case captured into {suite.captures} (" in done.out
    assert f"Next: karat pack {suite.captures}" in done.out
    assert not other.exists()


@pytest.mark.parametrize("variable", ["KARAT_CAPTURE_DIR", "GOLDEN_ARTIFACTS_DIR"])
def test_a_variable_switches_it_on(suite: Suite, variable: str) -> None:
    suite.write("models/test_it.py", PASSING)
    assert suite.run(**{variable: "captures"}).code == 0
    assert len(suite.manifests()) == 1


def test_only_tests_that_passed_to_their_end_are_published(suite: Suite) -> None:
    suite.write(
        "test_it.py",
        """
        import pytest

        def check(golden):
            golden.check([1, 2.0], [1, 2.0], inputs=())

        @pytest.fixture
        def breaks_late():
            yield
            raise RuntimeError("teardown")

        def test_passes(golden): check(golden)

        def test_mismatch(golden): golden.check([1, 2.0], [1, 3.0], inputs=())

        def test_fails_afterwards(golden):
            check(golden)
            assert False

        def test_skips_afterwards(golden):
            check(golden)
            pytest.skip("enough")

        def test_xfails_afterwards(golden):
            check(golden)
            pytest.xfail("known")

        @pytest.mark.xfail
        def test_marked(golden):
            check(golden)
            assert False

        def test_breaks_in_teardown(golden, breaks_late): check(golden)
        """,
    )
    done = suite.capture()
    assert done.code == 1
    assert suite.tests() == ["test_it.py::test_passes|"]
    assert "1 case captured" in done.out
    assert "5 dropped with their tests" in done.out
    assert suite.leftovers() == []
    # A test that did not pass left no claim, so that it may be run again.
    again = suite.root / "captures" / ".karat"
    assert len(list(again.glob("*/claims/*.json"))) == 1


def test_bytes_are_as_they_were_when_checked(suite: Suite) -> None:
    suite.write(
        "test_it.py",
        """
        import numpy as np

        def test_changes_its_input(golden):
            x = np.zeros(3, dtype=np.uint8)
            golden.check(x, x.copy(), inputs={"x": x})
            x[:] = 7
        """,
    )
    assert suite.capture().code == 0
    (manifest,) = suite.manifests()
    statistics = [t["statistics"] for t in manifest["tensors"] if t["role"] == "input"]
    assert [s["max"] for s in statistics] == [0]


def test_a_mismatch_is_told_in_numbers(suite: Suite) -> None:
    suite.write(
        "test_it.py",
        """
        import numpy as np

        def test_off(golden):
            expected = np.arange(8, dtype=np.float32)
            actual = expected.copy()
            actual[5] += 1
            actual[6] = np.nan
            golden.check({"logits": actual}, {"logits": expected}, inputs=())
        """,
    )
    done = suite.run("-q")
    assert done.code == 1
    for words in (
        "1 of 1 compared values differ from what was expected",
        "logits: float32 8",
        "mismatches: 2 of 8 (25.00%), the first at [5]",
        "at [5] (expected 5, actual 6)",
        "max ULP",
        "SQNR dB",
        "cosine",
        "expected 0 NaN and 0 inf, actual 1 NaN and 0 inf",
        "(of the dtype)",
    ):
        assert words in done.out, done.out
    assert "in compared" not in done.out  # karat's own frames are not the user's business


def test_two_checks_of_one_test_need_names(suite: Suite) -> None:
    suite.write(
        "test_it.py",
        """
        def test_unnamed(golden):
            golden.check(1, 1, inputs=())
            golden.check(2, 2, inputs=())

        def test_named(golden):
            golden.check(1, 1, inputs=(), subtest="one")
            golden.check(2, 2, inputs=(), subtest="two")
        """,
    )
    done = suite.capture("--no-karat-strict")
    assert done.code == 1
    assert done.count("passed") == 2
    assert "fail captured-twice: test_it.py::test_unnamed" in done.out
    assert 'next: give each capture a name of its own: subtest="…"' in done.out
    assert suite.tests() == [
        "test_it.py::test_named|one",
        "test_it.py::test_named|two",
        "test_it.py::test_unnamed|",
    ]
    first = next(m for m in suite.manifests() if "unnamed" in m["identity"]["test"])
    assert first["expected"] == 1


def test_an_earlier_sessions_case_is_replaced_and_the_same_sessions_is_not(suite: Suite) -> None:
    suite.write("test_it.py", "def test(golden): golden.check(1, 1, inputs=())\n")
    assert suite.capture("--karat-session", "a").code == 0
    suite.write("test_it.py", "def test(golden): golden.check(2, 2, inputs=())\n")
    twice = suite.capture("--karat-session", "a")
    assert twice.code == 1
    assert "captured before in session a by test_it.py::test in main" in twice.out
    assert "next: pytest --karat-session NEW_NAME" in twice.out
    assert [m["expected"] for m in suite.manifests()] == [1]
    assert suite.capture("--karat-session", "b").code == 0
    assert [(m["expected"], m["session"]) for m in suite.manifests()] == [(2, "b")]
    assert suite.leftovers() == []


def test_shards_that_share_directory_and_session_are_one(suite: Suite) -> None:
    suite.write("test_a.py", "def test(golden): golden.check(1, 1, inputs=())\n")
    suite.write("test_b.py", "def test(golden): golden.check(1, 1, inputs=())\n")
    environ = {"GITHUB_ACTIONS": "true", "GITHUB_RUN_ID": "7", "GITHUB_RUN_ATTEMPT": "1"}
    assert suite.capture("test_a.py", **environ).code == 0
    assert suite.capture("test_b.py", **environ).code == 0
    assert {m["session"] for m in suite.manifests()} == {"github-7-1"}
    assert len(suite.manifests()) == 2
    assert suite.capture("test_b.py", **environ).code == 1


def test_a_rerun_of_what_failed_is_no_second_capture(suite: Suite) -> None:
    suite.write(
        "test_it.py",
        """
        import os

        def test(golden):
            golden.check(1, 1, inputs=())
            assert os.path.exists("good")
        """,
    )
    assert suite.capture("--karat-session", "a").code == 1
    assert suite.manifests() == []
    suite.write("good", "")
    assert suite.capture("--karat-session", "a").code == 0
    assert len(suite.manifests()) == 1


def test_a_plugin_may_run_a_test_again_until_it_passes(suite: Suite) -> None:
    suite.write(
        "conftest.py",
        """
        from _pytest.runner import runtestprotocol

        def pytest_runtest_protocol(item, nextitem):
            for attempt in range(3):
                reports = runtestprotocol(item, nextitem=nextitem, log=False)
                if all(report.passed for report in reports):
                    break
            for report in reports:
                item.ihook.pytest_runtest_logreport(report=report)
            return True
        """,
    )
    suite.write(
        "test_it.py",
        """
        tries = []

        def test_flaky(golden):
            tries.append(1)
            golden.check(len(tries), len(tries), inputs=())
            assert len(tries) == 3
        """,
    )
    done = suite.capture()
    assert (done.code, done.count("passed")) == (0, 1), done.out
    assert [m["expected"] for m in suite.manifests()] == [3]
    assert "2 dropped with their tests" in done.out


def test_what_a_test_that_did_not_pass_could_not_leave_is_not_missed(suite: Suite) -> None:
    suite.write(
        "test_it.py",
        """
        import pytest

        @pytest.mark.xfail
        def test_expected_to_fail(golden):
            golden.check(1, 1, inputs=(object(),))
            golden.check(1, 1, inputs=(), subtest="a")
            golden.check(1, 1, inputs=(), subtest="a")
            assert False
        """,
    )
    done = suite.capture("--karat-strict")
    assert done.code == 0, done.out
    assert "0 cases captured" in done.out
    assert "3 dropped with their tests" in done.out
    assert "cannot-store" not in done.out
    assert "captured-twice" not in done.out
    assert list(suite.captures.glob(".karat/*/claims/*")) == []


def test_a_case_that_somebody_took_away_is_not_called_captured(suite: Suite) -> None:
    suite.write(
        "test_it.py",
        f"""
        import shutil

        def test_a(golden): golden.check(1, 1, inputs=())
        def test_b(golden): shutil.rmtree({str(suite.captures)!r})
        def test_c(golden): golden.check(1, 1, inputs=())
        """,
    )
    done = suite.capture("--karat-strict")
    assert (done.code, done.count("passed")) == (1, 3), done.out
    assert "1 case captured" in done.out
    assert "fail capture-failed: test_it.py::test_a was captured into test_it/default/" in done.out
    assert suite.tests() == ["test_it.py::test_c|"]


def test_a_conftest_may_name_the_directory(suite: Suite) -> None:
    suite.write(
        "conftest.py",
        f"""
        import os

        def pytest_configure(): os.environ["GOLDEN_ARTIFACTS_DIR"] = {str(suite.captures)!r}
        """,
    )
    suite.write("test_it.py", "def test(golden): golden.check(1, 1, inputs=())\n")
    done = suite.run("-n", "1")
    assert done.code == 0, done.out
    assert "1 case captured" in done.out


@pytest.mark.parametrize("config", [(), ("-c", "/dev/null")])
def test_the_directory_never_changes_the_names_of_tests(
    suite: Suite, config: tuple[str, ...]
) -> None:
    (suite.root / "pytest.ini").unlink()
    suite.write("test_it.py", "def test(golden): golden.check(1, 1, inputs=())\n")
    elsewhere = suite.root.parent / "captures"
    words = (".", *config, "-p", "no:cacheprovider")
    assert suite.run(*words, "--karat-capture", str(elsewhere)).code == 0
    before = sorted(elsewhere.glob("*/*/*/manifest.json"))
    again = suite.run(*words, "--karat-capture", str(elsewhere))
    if again.code:  # all but pytest 9.0, which knows that the option takes a value
        assert again.code == pytest.ExitCode.USAGE_ERROR, again.out
        told = f"expected {suite.root} as pytest's root folder, found {suite.root.parent}"
        assert told in again.out
        assert f"next: pytest --karat-capture={elsewhere}" in again.out
    assert sorted(elsewhere.glob("*/*/*/manifest.json")) == before
    assert suite.run(*words, f"--karat-capture={elsewhere}").code == 0
    assert sorted(elsewhere.glob("*/*/*/manifest.json")) == before


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


def test_the_installed_entry_point_is_enough(suite: Suite) -> None:
    suite.write("test_it.py", PASSING)
    words = [sys.executable, "-m", "pytest", "-q", "--karat-capture", "captures"]
    done = subprocess.run(
        words, cwd=suite.root, env=clean_environment(), capture_output=True, check=False
    )
    assert done.returncode == 0
    assert len(suite.manifests()) == 1
