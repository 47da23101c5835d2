"""Which case a check is: suite, flow, test and subtest."""

from __future__ import annotations

import pytest

from factories.pytest_runs import Suite


@pytest.mark.slow
def test_ids_of_every_kind_are_cases_of_their_own(suite: Suite) -> None:
    body = """
        import pytest

        IDS = ["a/b", "a\\\\b", "A", "a", "ü", "💡", "x" * 300, "x" * 299 + "y", " ", "..", "con", "a:b*?"]

        @pytest.mark.parametrize("value", range(len(IDS)), ids=IDS)
        def test_it(golden, value): golden.check(value, value, inputs=())

        class TestClass:
            def test_it(self, golden): golden.check(1, 1, inputs=())

            class TestInner:
                def test_it(self, golden): golden.check(1, 1, inputs=())
    """
    suite.write("one/test_it.py", body)
    suite.write("two/one/test_it.py", body)
    done = suite.capture("--import-mode=importlib")
    assert (done.code, done.count("passed")) == (0, 28), done.out
    manifests = suite.manifests()
    assert len(manifests) == 28
    assert {m["identity"]["suite"] for m in manifests} == {"one"}
    assert len({m["path"].lower() for m in manifests}) == 28
    assert all(len(part) <= 120 for m in manifests for part in m["path"].split("/"))
    names = {m["identity"]["test"] for m in manifests}
    assert "two/one/test_it.py::TestClass::TestInner::test_it" in names
    assert f"one/test_it.py::test_it[{'x' * 300}]" in names


@pytest.mark.slow
def test_node_ids_do_not_depend_on_where_pytest_is_started(suite: Suite) -> None:
    suite.write("models/test_it.py", "def test(golden): golden.check(1, 1, inputs=())\n")
    suite.capture("--karat-session", "a")
    (first,) = suite.manifests()
    suite.capture("--karat-session", "b", "--rootdir", ".", "-c", "pytest.ini", "models")
    (second,) = suite.manifests()
    assert first["identity"] == second["identity"]
    assert second["session"] == "b"


@pytest.mark.slow
def test_a_suite_is_the_last_folder_or_in_the_root_the_file(suite: Suite) -> None:
    body = "def test(golden): golden.check(1, 1, inputs=())\n"
    suite.write("backends/models/test_deep.py", body)
    suite.write("test_top.py", body)
    suite.capture()
    assert {m["identity"]["suite"] for m in suite.manifests()} == {"models", "test_top"}


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ("-c", "/dev/null")])
def test_a_suite_is_its_folder_without_a_configuration_too(suite: Suite, words: tuple[str, ...]) -> None:
    (suite.root / "pytest.ini").unlink()
    suite.write("karat.toml", '[bundles]\ncapture = ["models"]\n')
    suite.write("backends/models/test_it.py", "def test(golden): golden.check(1, 1, inputs=())\n")
    suite.capture(*words, "-p", "no:cacheprovider", "backends/models")
    assert [m["identity"]["suite"] for m in suite.manifests()] == ["models"]


@pytest.mark.slow
@pytest.mark.parametrize("tree", ["configured", "git", "site-packages", "plain"])
def test_an_identity_does_not_depend_on_how_pytest_was_started(suite: Suite, tree: str) -> None:
    body = "def test(golden): golden.check(1, 1, inputs=())\n"
    start = ""
    if tree == "git":
        (suite.root / ".git").mkdir()
    if tree == "site-packages":
        (suite.root / ".git").mkdir()
        start = "venv/lib/site-packages/"
    if tree != "configured":
        (suite.root / "pytest.ini").unlink()
    suite.write(f"{start}backends/models/test_it.py", body)
    suite.write(f"{start}backends/test_top.py", body)
    starts = [
        ("-c", "/dev/null", f"{start}backends"),
        ("-c", "/dev/null", f"{start}backends/models", f"{start}backends/test_top.py"),
        (f"{start}backends",),
        ("--rootdir", "/", f"{start}backends"),
    ]
    found = []
    for number, words in enumerate(starts):
        done = suite.capture("-p", "no:cacheprovider", "--karat-session", f"s{number}", *words)
        assert done.code == 0, done.out
        found.append(suite.tests())
    suites = {m["identity"]["suite"] for m in suite.manifests()}
    assert found == [["backends/models/test_it.py::test|", "backends/test_top.py::test|"]] * len(starts)
    assert suites == {"models", "backends"}


@pytest.mark.slow
def test_the_fixture_that_tells_the_flow_is_configured(suite: Suite) -> None:
    suite.write("karat.toml", '[bundles]\nflow_fixture = "test_runner"\n')
    suite.write(
        "s/test_it.py",
        """
        import pytest
        from types import SimpleNamespace

        @pytest.fixture(params=[SimpleNamespace(name="xnnpack")])
        def test_runner(request): return object()

        @pytest.fixture(params=["not this"])
        def flow(request): return request.param

        def test(golden, test_runner, flow): golden.check(1, 1, inputs=())
        """,
    )
    done = suite.capture()
    assert [m["identity"]["flow"] for m in suite.manifests()] == ["xnnpack"], done.out


@pytest.mark.slow
def test_suites_that_are_not_named_are_counted_and_said(suite: Suite) -> None:
    suite.write("karat.toml", '[bundles]\ncapture = ["modells"]\n')
    suite.write("models/test_it.py", "def test(golden): golden.check(1, 1, inputs=())\n")
    ran = suite.capture("models")
    assert suite.manifests() == []
    assert "0 cases captured" in ran.out
    assert "[bundles] capture does not name the suite: models (1)" in ran.out


FLOWS = """
    import enum
    import pytest
    from types import SimpleNamespace

    class Flow(enum.Enum):
        XNNPACK = 1

    @pytest.fixture(params=["portable", "xnnpack"])
    def flow(request): return SimpleNamespace(name=request.param)

    def test_fixture(golden, flow): golden.check(1, 1, inputs=())

    @pytest.mark.parametrize("flow", [Flow.XNNPACK])
    def test_enum(golden, flow): golden.check(1, 1, inputs=())

    @pytest.mark.parametrize("flow", ["text"])
    def test_text(golden, flow): golden.check(1, 1, inputs=())

    @pytest.mark.parametrize("flow", [3])
    def test_number(golden, flow): golden.check(1, 1, inputs=())

    @pytest.mark.karat(flow="marked", suite="chosen")
    def test_marked(golden, flow): golden.check(1, 1, inputs=())

    def test_argument(golden, flow): golden.check(1, 1, inputs=(), flow="given", suite="told")

    def test_plain(golden): golden.check(1, 1, inputs=())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "configured", "plain"),
    [
        ((), "", "default"),
        ((), '[bundles]\nflow = "configured"\n', "configured"),
        (("--karat-flow", "opt"), '[bundles]\nflow = "configured"\n', "opt"),
    ],
)
def test_a_flow_is_told_by_the_nearest_who_knows(
    suite: Suite, words: tuple[str, ...], configured: str, plain: str
) -> None:
    suite.write("s/test_it.py", FLOWS)
    suite.write("karat.toml", configured)
    done = suite.capture(*words)
    assert done.code == 0, done.out
    found = {
        (i["test"].rpartition("::")[2].partition("[")[0], i["suite"], i["flow"])
        for i in (m["identity"] for m in suite.manifests())
    }
    assert found == {
        ("test_fixture", "s", "portable"),
        ("test_fixture", "s", "xnnpack"),
        ("test_enum", "s", "XNNPACK"),
        ("test_text", "s", "text"),
        ("test_number", "s", plain),
        ("test_marked", "chosen", "marked"),
        ("test_argument", "told", "given"),
        ("test_plain", "s", plain),
    }


@pytest.mark.slow
def test_suites_are_captured_as_the_configuration_wants(suite: Suite) -> None:
    body = """
        import pytest

        def test(golden): golden.check(1, 1, inputs=())

        @pytest.mark.karat(capture=False)
        def test_never(golden): golden.check(1, 1, inputs=())

        @pytest.mark.karat(capture=True)
        def test_always(golden): golden.check(1, 1, inputs=())
    """
    suite.write("models/test_it.py", body)
    suite.write("operators/test_it.py", body)
    suite.write("karat.toml", '[bundles]\ncapture = ["mod*"]\n')
    assert suite.capture("--import-mode=importlib").code == 0
    assert suite.tests() == [
        "models/test_it.py::test_always|",
        "models/test_it.py::test|",
        "operators/test_it.py::test_always|",
    ]


@pytest.mark.slow
def test_a_suite_given_as_option_is_that_of_all(suite: Suite) -> None:
    suite.write("models/test_it.py", "def test(golden): golden.check(1, 1, inputs=())\n")
    suite.capture("--karat-suite", "nightly")
    assert [m["identity"]["suite"] for m in suite.manifests()] == ["nightly"]


@pytest.mark.slow
def test_raw_files_on_request_and_layouts_always(suite: Suite) -> None:
    suite.write(
        "test_it.py",
        """
        import numpy as np

        def test_option(golden):
            x = np.arange(6).reshape(2, 3).T
            golden.check(x, x, inputs=(x,))
        """,
    )
    for option in ([], ["--karat-raw"]):
        suite.capture(*option)
        (found,) = suite.manifests()
        assert (suite.captures / found["path"] / "raw" / "tensors.txt").is_file() == bool(option)
        assert [t["strides"] for t in found["tensors"]] == [[1, 3]] * 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("captur=False", "unknown argument 'captur'; did you mean 'capture'?"),
        ("capture=1", "capture must be True or False, found 1"),
        ("suite=3", "suite must be a text, found 3"),
        ("rtol=0.1", "unknown argument 'rtol'"),
        ("False", "expected only named arguments, found False"),
    ],
)
def test_a_marker_that_means_nothing_is_an_error(suite: Suite, arguments: str, said: str) -> None:
    suite.write("test_it.py", MARKED.format(arguments=arguments))
    done = suite.run()
    assert done.code == pytest.ExitCode.INTERRUPTED, done.out
    assert f"test_it.py::TestIt::test_marked: @pytest.mark.karat: {said}" in done.out
    assert not (suite.root / "ran").exists()


MARKED = """
    import pytest

    class TestIt:
        @pytest.mark.karat({arguments})
        def test_marked(self): open("ran", "w")
"""


@pytest.mark.slow
def test_a_marker_that_means_nothing_is_an_error_in_a_worker(suite: Suite) -> None:
    suite.write("test_it.py", MARKED.format(arguments="flo='x'"))
    done = suite.run("-n", "1")
    assert done.code == pytest.ExitCode.TESTS_FAILED, done.out
    assert "@pytest.mark.karat: unknown argument 'flo'; did you mean 'flow'?" in done.out
    assert not (suite.root / "ran").exists()


@pytest.mark.slow
def test_subtests_have_names_of_their_own(suite: Suite) -> None:
    suite.write(
        "test_it.py",
        """
        import pytest

        def test_all(golden, subtests):
            for i in range(2):
                with subtests.test("shape", i=i):
                    golden.check(i, i, inputs=())
                with subtests.test(mode="fast", i=i):
                    golden.check(i, i, inputs=(), subtest="a")
                    golden.check(i, i, inputs=(), subtest="b")
            golden.check(1, 1, inputs=())

        def test_one_fails(subtests, golden):
            with subtests.test("good"):
                golden.check(1, 1, inputs=())
            with subtests.test("bad"):
                golden.check(1, 2, inputs=())
        """,
    )
    done = suite.capture()
    assert done.code == 1
    assert suite.tests() == [
        "test_it.py::test_all|",
        "test_it.py::test_all|mode='fast', i=0 / a",
        "test_it.py::test_all|mode='fast', i=0 / b",
        "test_it.py::test_all|mode='fast', i=1 / a",
        "test_it.py::test_all|mode='fast', i=1 / b",
        "test_it.py::test_all|shape (i=0)",
        "test_it.py::test_all|shape (i=1)",
    ]
    assert "captured-twice" not in done.out


@pytest.mark.slow
def test_a_skipped_subtest_drops_what_is_its_own(suite: Suite) -> None:
    suite.write(
        "test_it.py",
        """
        import pytest

        def test_some(golden, subtests):
            with subtests.test("kept"):
                golden.check(1, 1, inputs=())
            with subtests.test("skipped"):
                golden.check(1, 1, inputs=())
                pytest.skip("not here")
            golden.check(1, 1, inputs=(), subtest="after")
        """,
    )
    done = suite.capture()
    assert done.code == 0
    assert suite.tests() == ["test_it.py::test_some|after", "test_it.py::test_some|kept"]
    assert "2 cases captured" in done.out
    assert "1 dropped with their tests" in done.out
    assert suite.leftovers() == []


@pytest.mark.slow
def test_a_test_that_is_skipped_after_its_subtests_leaves_nothing(suite: Suite) -> None:
    suite.write(
        "test_it.py",
        """
        import pytest

        def test_none(golden, subtests):
            golden.check(1, 1, inputs=(), subtest="before")
            with subtests.test("passed"):
                golden.check(1, 1, inputs=())
            golden.check(1, 1, inputs=(), subtest="after")
            pytest.skip("not here")
        """,
    )
    done = suite.capture()
    assert suite.tests() == []
    assert "3 dropped with their tests" in done.out
