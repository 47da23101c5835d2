from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import karat
from factories.pytest_runs import Suite


@pytest.fixture(autouse=True)
def _outside_of_ci(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("CI", "KARAT_CAPTURE_DIR", "GOLDEN_ARTIFACTS_DIR", "KARAT_SESSION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def test_it_is_off_unless_a_directory_is_named(tmp_path: Path) -> None:
    assert karat.capture("t", inputs=(), expected=1) is None
    report = karat.check_and_capture("t", actual=1.0, expected=1.0, inputs=())
    assert report.passed
    assert list(tmp_path.iterdir()) == []


def test_a_directory_is_given_or_in_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = karat.capture("t", inputs=(1,), expected=1, directory=tmp_path / "given", suite="s")
    assert given is not None
    assert (given / "manifest.json").is_file()
    assert given.relative_to(tmp_path / "given").parts[:2] == ("s", "default")
    monkeypatch.setenv("GOLDEN_ARTIFACTS_DIR", str(tmp_path / "var"))
    told = karat.capture("t", inputs=(1,), expected=1, flow="f")
    assert told is not None
    assert told.relative_to(tmp_path / "var").parts[:2] == ("default", "f")


def test_what_is_captured_comes_back(tmp_path: Path) -> None:
    x = np.arange(4, dtype=np.float32)
    karat.check_and_capture("t", actual={"y": x * 2}, expected={"y": x + x}, inputs=(x, 3), directory=tmp_path)
    (case,) = karat.cases(karat.open_bundle(tmp_path))
    restored = case.inputs().value
    assert restored[1] == 3
    np.testing.assert_array_equal(restored[0], x)
    np.testing.assert_array_equal(case.expected().value["y"], x * 2)


def test_a_mismatch_raises_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(karat.Mismatch, match="t: 1 of 1 compared values differ") as caught:
        karat.check_and_capture("t", actual=1.0, expected=2.0, inputs=(), directory=tmp_path / "d")
    assert not caught.value.report.passed
    assert isinstance(caught.value, AssertionError)
    assert not (tmp_path / "d").exists()


def test_nan_is_no_match_unless_asked() -> None:
    nan = np.array([np.nan, 1.0])
    with pytest.raises(karat.Mismatch):
        karat.check_and_capture("t", actual=nan, expected=nan.copy(), inputs=())
    assert karat.check_and_capture("t", actual=nan, expected=nan.copy(), inputs=(), equal_nan=True).passed


def test_what_cannot_be_compared_is_no_match() -> None:
    with pytest.raises(karat.UsageError, match=r"t: actual cannot be compared: .* found builtins.object"):
        karat.check_and_capture("t", actual=object(), expected=1, inputs=())
    with pytest.raises(karat.UsageError, match="t: expected cannot be compared"):
        karat.check_and_capture("t", actual=1, expected=(1, object()), inputs=())


def test_nothing_compared_is_no_match() -> None:
    with pytest.raises(karat.Mismatch, match="nothing was compared"):
        karat.check_and_capture("t", actual=(), expected=(), inputs=())


def test_a_second_capture_of_one_identity_raises_strict_or_not(tmp_path: Path) -> None:
    place = karat.capture("t", inputs=(), expected=1, directory=tmp_path)
    with pytest.raises(karat.CaptureFailed, match=r"t .* was captured before") as caught:
        karat.capture("t", inputs=(), expected=2, directory=tmp_path, strict=False)
    assert caught.value.finding.kind == "captured-twice"
    assert place is not None
    assert b'"expected": 1' in (place / "manifest.json").read_bytes()
    assert karat.capture("t", inputs=(), expected=2, directory=tmp_path, subtest="2") != place


def test_what_cannot_be_stored_warns_or_where_strict_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.warns(karat.CaptureWarning, match="cannot-store: t ") as caught:
        assert karat.capture("t", inputs=(object(),), expected=1, directory=tmp_path) is None
    assert caught[0].filename == __file__
    with pytest.warns(karat.CaptureWarning, match="cannot-store: u ") as caught:
        karat.check_and_capture("u", actual=1, expected=1, inputs=(object(),), directory=tmp_path)
    assert caught[0].filename == __file__
    with pytest.raises(karat.CaptureFailed, match="was not captured"):
        karat.capture("t", inputs=(object(),), expected=1, directory=tmp_path, strict=True)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(karat.CaptureFailed):
        karat.capture("t", inputs=(object(),), expected=1, directory=tmp_path)


def test_a_directory_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(karat.CaptureFailed, match="expected a directory that can be written to"):
        karat.capture("t", inputs=(), expected=1, directory=tmp_path / "file", strict=True)
    with pytest.warns(karat.CaptureWarning, match="expected a directory that can be written to"):
        karat.capture("t", inputs=(), expected=1, directory=tmp_path / "file")


UNITTEST = """
    import unittest

    import karat

    class TestScale(unittest.TestCase):
        def test_double(self):
            karat.check_and_capture(self, actual=[2.0], expected=[2.0], inputs=(1,))

        def test_fails(self):
            karat.check_and_capture(self, actual=[2.0], expected=[3.0], inputs=(1,))

        def test_fails_later(self):
            karat.check_and_capture(self, actual=1, expected=1, inputs=())
            self.fail("later")
"""


def test_unittest_captures_what_passed(suite: Suite) -> None:
    suite.write("models/test_scale.py", UNITTEST)
    suite.write("models/__init__.py", "")
    done = suite.python("-m", "unittest", "models.test_scale", KARAT_CAPTURE_DIR="captures")
    assert done.code == 1
    assert "FAILED (failures=2)" in done.out
    (identity,) = [m["identity"] for m in suite.manifests()]
    assert (identity["suite"], identity["test"]) == ("models", "models.test_scale.TestScale.test_double")


OUTCOMES = """
    import unittest

    import karat

    class Base(unittest.TestCase):
        def capture(self, **more): karat.capture(self, inputs=(), expected=1, **more)

    class TestOutcomes(Base):
        def test_passes(self): self.capture()

        @unittest.expectedFailure
        def test_expected_to_fail(self): self.capture(); self.fail()

        @unittest.expectedFailure
        def test_passes_unexpectedly(self): self.capture()

        def test_skips_later(self): self.capture(); self.skipTest("no device")

        def test_cleanup_fails(self):
            self.addCleanup(self.fail)
            self.capture()

        def test_a_subtest_fails(self):
            self.capture()
            with self.subTest(n=1): self.capture(); self.fail()

        def test_a_subtest_is_skipped(self):
            self.capture()
            for n in range(3):
                with self.subTest(n=n):
                    self.capture()
                    if n == 1: self.skipTest("no device")

        def test_passes_twice(self): self.capture(); self.capture()

    class TestTearDown(Base):
        def tearDown(self): self.fail("in tearDown")
        def test_fails_after_all(self): self.capture()

    class TestAsync(unittest.IsolatedAsyncioTestCase):
        async def test_passes(self): karat.capture(self, inputs=(), expected=1)
        async def test_fails(self): karat.capture(self, inputs=(), expected=1); self.fail()
"""


@pytest.mark.parametrize("ci", ["", "true"])
def test_unittest_captures_what_passed_once_all_of_it_has(suite: Suite, ci: str) -> None:
    suite.write("test_it.py", OUTCOMES)
    done = suite.python("-W", "always", "-m", "unittest", "test_it", KARAT_CAPTURE_DIR="captures", CI=ci)
    counts = "FAILED (failures=4, skipped=2, expected failures=1, unexpected successes=1)"
    assert counts in done.out  # the second capture of one identity is no error of a test that passes
    assert "CaptureWarning: captured-twice: test_it.TestOutcomes.test_passes_twice" in done.out
    assert suite.tests() == [
        "test_it.TestAsync.test_passes|",
        "test_it.TestOutcomes.test_a_subtest_is_skipped|",
        "test_it.TestOutcomes.test_a_subtest_is_skipped|n=0",
        "test_it.TestOutcomes.test_a_subtest_is_skipped|n=2",
        "test_it.TestOutcomes.test_passes_twice|",
        "test_it.TestOutcomes.test_passes|",
    ]
    assert suite.leftovers() == []


def test_a_case_that_cannot_be_put_into_place_is_an_error_of_a_strict_unittest(suite: Suite) -> None:
    suite.write(
        "test_it.py",
        """
        import unittest

        import karat

        class TestIt(unittest.TestCase):
            def test_it(self):
                place = karat.capture(self, inputs=(), expected=1)
                assert not place.exists()
                place.parent.mkdir(parents=True)
                place.write_text("in the way")
        """,
    )
    lax = suite.python("-W", "always", "-m", "unittest", "test_it", KARAT_CAPTURE_DIR="captures")
    assert lax.code == 0, lax.out
    assert "CaptureWarning: capture-failed: test_it.TestIt.test_it" in lax.out
    (suite.captures / "test_it").rename(suite.root / "aside")
    strict = suite.python("-m", "unittest", "test_it", KARAT_CAPTURE_DIR="captures", CI="true")
    assert "FAILED (errors=1)" in strict.out
    assert "CaptureFailed: test_it.TestIt.test_it" in strict.out
    assert suite.tests() == []


SUBTESTS = """
    import unittest

    import karat

    class TestShapes(unittest.TestCase):
        def test_all(self):
            for i in range(2):
                with self.subTest("shape", i=i):
                    karat.check_and_capture(self, actual=i, expected=i, inputs=())
                with self.subTest(i=i):
                    karat.capture(self, expected=i, inputs=(), subtest="own")
            karat.capture(self, expected=1, inputs=())
"""


@pytest.mark.slow
@pytest.mark.parametrize("runner", ["unittest", "pytest"])
def test_subtests_of_unittest_are_cases_of_their_own(suite: Suite, runner: str) -> None:
    suite.write("test_it.py", SUBTESTS)
    done = suite.python("-m", runner, "test_it.py", KARAT_CAPTURE_DIR="captures")
    assert done.code == 0, done.out
    assert suite.tests() == [
        "test_it.TestShapes.test_all|",
        "test_it.TestShapes.test_all|i=0 / own",
        "test_it.TestShapes.test_all|i=1 / own",
        "test_it.TestShapes.test_all|shape (i=0)",
        "test_it.TestShapes.test_all|shape (i=1)",
    ]


def test_what_two_forked_processes_capture_is_one_session(suite: Suite) -> None:
    suite.write(
        "script.py",
        """
        import os

        import karat

        karat.capture("first", inputs=(), expected=0, directory="captures")
        children = []
        for n in range(2):
            children.append(os.fork())
            if not children[-1]:
                karat.capture("same", inputs=(), expected=n, directory="captures")
                os._exit(0)
        ends = [os.waitpid(child, 0)[1] for child in children]
        raise SystemExit(sum(end != 0 for end in ends))
        """,
    )
    done = suite.python("script.py")
    assert done.code == 1
    assert "CaptureFailed: same [default/default] was captured before" in done.out
    assert suite.tests() == ["first|", "same|"]


@pytest.mark.slow
def test_in_pytest_the_plain_functions_wait_for_the_end_of_the_test(suite: Suite) -> None:
    suite.write("models/test_scale.py", UNITTEST)
    suite.write("models/__init__.py", "")
    done = suite.capture("--karat-session", "one")
    assert (done.count("passed"), done.count("failed")) == (1, 2)
    assert suite.tests() == ["models.test_scale.TestScale.test_double|"]
    assert suite.manifests()[0]["session"] == "one"
    assert "1 case captured" in done.out
    assert "1 dropped with their tests" in done.out


@pytest.mark.slow
def test_in_pytest_markers_and_options_hold_for_the_plain_functions(suite: Suite) -> None:
    suite.write(
        "models/test_it.py",
        """
        import karat
        import pytest

        def test_options(): karat.capture("one", inputs=(), expected=1)

        @pytest.mark.karat(suite="marked", flow="f")
        def test_marked(): karat.capture("two", inputs=(), expected=1)

        @pytest.mark.karat(capture=False)
        def test_not(): karat.capture("three", inputs=(), expected=1)
        """,
    )
    assert suite.capture("--karat-flow", "portable").code == 0
    identities = [m["identity"] for m in suite.manifests()]
    assert {(i["suite"], i["flow"], i["test"]) for i in identities} == {
        ("models", "portable", "one"),
        ("marked", "f", "two"),
    }


@pytest.mark.slow
def test_in_pytest_a_harness_need_not_name_its_test(suite: Suite) -> None:
    suite.write("harness.py", "import karat\ndef run(): karat.check_and_capture(actual=1, expected=1, inputs=())\n")
    suite.write("conftest.py", "import harness\n")
    suite.write(
        "models/test_it.py",
        """
        import unittest

        import harness
        import karat
        import pytest

        @pytest.mark.parametrize("n", [1, 2])
        def test_one(n): harness.run()

        def test_differs(): karat.check_and_capture(actual=1, expected=2, inputs=())

        class TestIt(unittest.TestCase):
            def test_two(self):
                with self.subTest(k=3): harness.run()
        """,
    )
    done = suite.capture()
    assert suite.tests() == [
        "models/test_it.py::TestIt::test_two|k=3",
        "models/test_it.py::test_one[1]|",
        "models/test_it.py::test_one[2]|",
    ], done.out
    without = suite.run()
    for out in (done.out, without.out):
        assert "Mismatch: models/test_it.py::test_differs: 1 of 1 compared values differ" in out


def test_outside_of_pytest_a_name_is_needed(tmp_path: Path) -> None:
    with pytest.raises(karat.UsageError, match="expected the name of the test") as caught:
        karat.capture(inputs=(), expected=1, directory=tmp_path)
    assert "karat.capture(self" in str(caught.value.next_command)


@pytest.mark.slow
def test_golden_in_a_unittest_class(suite: Suite) -> None:
    suite.write(
        "test_it.py",
        """
        import unittest
        import pytest

        class TestIt(unittest.TestCase):
            @pytest.fixture(autouse=True)
            def _golden(self, golden): self.golden = golden

            def test_one(self): self.golden.check(1, 1, inputs=())
        """,
    )
    assert suite.capture().code == 0
    assert suite.tests() == ["test_it.py::TestIt::test_one|"]


@pytest.mark.slow
def test_two_processes_with_one_session_share_their_claims(suite: Suite) -> None:
    code = "import karat; karat.capture('t', inputs=(), expected=1, directory='captures')"
    assert suite.python("-c", code, KARAT_SESSION="s").code == 0
    second = suite.python("-c", code, KARAT_SESSION="s")
    assert second.code == 1
    assert "captured before in session s" in second.out
    assert suite.python("-c", code, KARAT_SESSION="other").code == 0
    assert suite.leftovers() == []


def test_the_configuration_holds_for_scripts_too(suite: Suite) -> None:
    suite.write("karat.toml", '[bundles]\ncapture = ["models"]\nflow = "cpu"\nraw = true\n')
    suite.write(
        "script.py",
        """
        import karat
        for suite in ("models", "operators"):
            print(karat.capture("t", inputs=([1.5],), expected=1, suite=suite) is not None)
        """,
    )
    done = suite.python("script.py", KARAT_CAPTURE_DIR="captures")
    assert done.out.split() == ["True", "False"], done.out
    assert [m["identity"]["flow"] for m in suite.manifests()] == ["cpu"]


@pytest.mark.parametrize("call", [karat.capture, karat.check_and_capture])
def test_a_misspelt_keyword_is_refused_also_if_capturing_is_off(call: Callable[..., object]) -> None:
    values = {"inputs": (), "expected": 1} | ({"actual": 1} if "check" in call.__name__ else {})
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'programm'"):
        call("t", **values, programm=b"")
