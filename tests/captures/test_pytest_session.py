"""Capture on: what is published, what is dropped, and what the session says of it."""

from __future__ import annotations

import pytest

from factories.capturing import PASSING
from factories.pytest_runs import Suite


@pytest.mark.slow
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
    assert files == ["expected.safetensors", "inputs.safetensors", "manifest.json", "program/program.bin"]
    assert suite.leftovers() == []


@pytest.mark.slow
def test_header_and_summary_say_where_how_many_and_what_next(suite: Suite) -> None:
    suite.write("models/test_it.py", PASSING)
    words = ("--karat-session", "nightly-1", "-p", "no:xdist")
    done = suite.capture(*words, GOLDEN_ARTIFACTS_DIR="elsewhere")
    header = f"karat: capturing into {suite.captures} (--karat-capture), session nightly-1"
    assert header in done.out
    other = suite.root / "elsewhere"
    assert f"1 case captured into {suite.captures} (" in done.out
    assert f"Next: karat pack {suite.captures}" in done.out
    assert not other.exists()


@pytest.mark.slow
@pytest.mark.parametrize("variable", ["KARAT_CAPTURE_DIR", "GOLDEN_ARTIFACTS_DIR"])
def test_a_variable_switches_it_on(suite: Suite, variable: str) -> None:
    suite.write("models/test_it.py", PASSING)
    assert suite.run(**{variable: "captures"}).code == 0
    assert len(suite.manifests()) == 1


@pytest.mark.slow
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


@pytest.mark.slow
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
        "found 2 of 8 elements outside; first at [5]; worst at [5]: expected 5, found 6",
        "ULP",
        "SQNR dB",
        "cosine",
        "NaN 0 → 1",
        "(dtype)",
    ):
        assert words in done.out, done.out
    assert "in compared" not in done.out  # karat's own frames are not the user's business


@pytest.mark.slow
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
    assert suite.tests() == ["test_it.py::test_named|one", "test_it.py::test_named|two", "test_it.py::test_unnamed|"]
    first = next(m for m in suite.manifests() if "unnamed" in m["identity"]["test"])
    assert first["expected"] == 1


@pytest.mark.slow
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


@pytest.mark.slow
def test_shards_that_share_directory_and_session_are_one(suite: Suite) -> None:
    suite.write("test_a.py", "def test(golden): golden.check(1, 1, inputs=())\n")
    suite.write("test_b.py", "def test(golden): golden.check(1, 1, inputs=())\n")
    environ = {"GITHUB_ACTIONS": "true", "GITHUB_RUN_ID": "7", "GITHUB_RUN_ATTEMPT": "1"}
    assert suite.capture("test_a.py", **environ).code == 0
    assert suite.capture("test_b.py", **environ).code == 0
    assert {m["session"] for m in suite.manifests()} == {"github-7-1"}
    assert len(suite.manifests()) == 2
    assert suite.capture("test_b.py", **environ).code == 1


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("config", [(), ("-c", "/dev/null")])
def test_the_directory_never_changes_the_names_of_tests(suite: Suite, config: tuple[str, ...]) -> None:
    (suite.root / "pytest.ini").unlink()
    suite.write("test_it.py", "def test(golden): golden.check(1, 1, inputs=())\n")
    elsewhere = suite.root.parent / "captures"
    words = (".", *config, "-p", "no:cacheprovider")
    assert suite.run(*words, "--karat-capture", str(elsewhere)).code == 0
    before = sorted(elsewhere.glob("*/*/*/manifest.json"))
    # Most versions of pytest now take the directory for a folder of tests, and its parent for their root folder.
    assert suite.run(*words, "--karat-capture", str(elsewhere)).code == 0
    assert sorted(elsewhere.glob("*/*/*/manifest.json")) == before
    assert suite.run(*words, f"--karat-capture={elsewhere}").code == 0
    assert sorted(elsewhere.glob("*/*/*/manifest.json")) == before
