"""Snapshots in real runs of pytest: written, compared, refused, repeated, and named when stale."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from factories.pytest_runs import Suite

pytestmark = pytest.mark.slow

TRAIN = """
    import os
    import pytest

    SCALE = float(os.environ.get("SCALE", "1"))

    def curve(steps=20):
        return [SCALE / (step + 1) for step in range(steps)]

    def test_loss(golden):
        golden.series("loss", curve(int(os.environ.get("STEPS", "20"))))
        assert "BROKEN" not in os.environ

    @pytest.mark.parametrize("model", ["a", "b c"])
    def test_table(golden, model):
        golden.table("accuracy", {model: 0.5 * SCALE})

    class TestArrays:
        def test_both(self, golden):
            import numpy as np

            golden.tensors("logits", {"x": np.arange(4.0) * SCALE}, rtol=1e-3)
            golden.document("config", {"lr": 0.1 * SCALE, "names": ["a"]})
"""


def goldens(suite: Suite) -> dict[str, bytes]:
    found = (path for path in suite.root.rglob("*") if path.is_file() and "goldens" in path.parts)
    return {path.relative_to(suite.root).as_posix(): path.read_bytes() for path in found}


def test_from_nothing_to_green_to_red_to_reviewed(suite: Suite) -> None:
    suite.write("tests/test_train.py", TRAIN)
    first = suite.run("-q", "tests")
    assert first.count("failed") == 4, first.out
    assert "no golden yet for the series 'loss'" in first.out
    assert "to create it: pytest tests/test_train.py::test_loss --karat-update" in first.out
    assert goldens(suite) == {}

    # A bare --karat-update takes no path for its glob.
    made = suite.run("-q", "--karat-update", "tests/test_train.py", "-n2")
    assert (made.code, made.count("passed")) == (0, 4), made.out
    assert "5 snapshots written to the working tree; next: karat review" in made.out
    names = sorted(goldens(suite))
    assert [name.rpartition("-")[0] if "logits" in name else name for name in names] == [
        "tests/goldens/test_train/TestArrays.test_both/config.json",
        "tests/goldens/test_train/TestArrays.test_both/logits",
        "tests/goldens/test_train/TestArrays.test_both/logits",
        "tests/goldens/test_train/test_loss/loss.json",
        "tests/goldens/test_train/test_table-a/accuracy.csv",
        next(name for name in names if "b_c" in name),
    ]
    before = goldens(suite)
    assert suite.run("-q", "tests").code == 0
    assert suite.run("-q", "--karat-update", SCALE="1.00001").code == 0
    assert goldens(suite) == before, "what passes is not rewritten"

    red = suite.run("-q", SCALE="1.01")
    assert (red.code, red.count("failed")) == (1, 4), red.out
    for said in (
        "the series 'loss' differs from the golden tests/goldens/test_train/test_loss/loss.json",
        "20 of 20 steps out of tolerance",
        "o golden, x now, * both",
        "to review it: pytest tests/test_train.py::test_loss --karat-update && karat diff --only",
        "the tensors 'logits' differ from the golden",
        "the table 'accuracy' differs",
    ):
        assert said in red.out, said
    assert goldens(suite) == before

    one = suite.run("-q", "--karat-update=loss", SCALE="1.01")
    assert (one.code, one.count("failed"), one.count("passed")) == (1, 3, 1), one.out
    assert {name for name in names if goldens(suite)[name] != before[name]} == {
        "tests/goldens/test_train/test_loss/loss.json"
    }
    whole = suite.run("-q", "--karat-update", SCALE="1.01")
    assert whole.code == 0, whole.out
    assert "changed tests/goldens/test_train/test_table-a/accuracy.csv" in whole.out
    assert "created" not in whole.out
    assert suite.run("-q", SCALE="1.01").code == 0


def test_nothing_incomplete_is_taken(suite: Suite) -> None:
    suite.write("test_train.py", TRAIN)
    only = ("-q", "--karat-update", "test_train.py::test_loss")
    broken = suite.run(*only, BROKEN="1")
    assert "loss.json was not written: its test did not pass" in broken.out
    assert goldens(suite) == {}
    nan = suite.run(*only, SCALE="nan")
    assert "it cannot become the golden: a golden must not hold NaN or infinities: loss: nan at step 0" in nan.out
    in_ci = suite.run(*only, CI="true")
    assert in_ci.code == 4
    assert "add --karat-update-in-ci" in in_ci.out
    assert goldens(suite) == {}
    assert suite.run(*only, "--karat-update-in-ci", CI="true").code == 0
    before = goldens(suite)
    assert len(before) == 1
    short = suite.run(*only, STEPS="13")
    assert short.code == 1
    assert "7 of 20 steps have no value" in short.out
    assert "to have no such golden any more, delete goldens/test_train/test_loss/loss.json" in short.out
    assert goldens(suite) == before
    alone = suite.run("-q", "--karat-repeat", "3")
    assert (alone.code, "together with --karat-update" in alone.out) == (4, True), alone.out


def test_stale_snapshots_are_named_after_a_full_run_alone(suite: Suite) -> None:
    suite.write("tests/test_train.py", TRAIN)
    suite.write("tests/test_gone.py", "def test_it(golden): golden.document('a', [1])\n")
    suite.write("tests/test_skip.py", "import pytest\ndef test_it(golden): golden.document('a', [1])\n")
    suite.write("tests/goldens/gpt/model.json", "{}")
    assert suite.run("-q", "--karat-update").code == 0
    (suite.root / "tests/test_gone.py").unlink()
    text = (suite.root / "tests/test_train.py").read_text()
    suite.write(
        "tests/test_train.py", text.replace('"b c"', '"d"').replace('golden.document("config"', 'print("config"')
    )
    suite.write("tests/test_skip.py", "import pytest\n@pytest.mark.skip\ndef test_it(golden): ...\n")
    assert suite.run("-q", "tests", "--karat-update=accuracy").code == 0
    for words in (("tests",), (), ("-n2",)):
        full = suite.run("-q", *words)
        assert full.code == 0, full.out
        stale = [line.split()[-1] for line in full.out.splitlines() if line.startswith("stale: no test asks for")]
        assert [path.partition("-")[0] for path in stale] == [
            "tests/goldens/test_train/TestArrays.test_both/config.json",
            "tests/goldens/test_train/test_table",
            "tests/goldens/test_gone",
        ], full.out
        assert "delete the stale ones if nobody needs them" in full.out
    for some in (("-k", "test_loss or test_it"), ("tests/test_train.py",), ("-n2", "-k", "loss")):
        assert "stale" not in suite.run("-q", *some).out
    assert "stale" not in suite.run("-q", SCALE="2").out


def test_environments_have_goldens_of_their_own(suite: Suite) -> None:
    suite.write(
        "test_env.py",
        """
        import os
        import pytest

        @pytest.fixture(autouse=True)
        def _environment(golden):
            golden.environment(os.environ.get("WHERE", ""))

        def test_loss(golden):
            golden.series("loss", [float(os.environ.get("SCALE", "1"))] * 5)
        """,
    )
    folder = suite.root / "goldens/test_env/test_loss"
    assert suite.run("-q", "--karat-update").code == 0
    assert suite.run("-q", WHERE="cuda-sm90").code == 0, "the closest one is the one without an environment"
    assert suite.run("-q", "--karat-update", WHERE="cuda-sm90").code == 0
    assert [p.name for p in folder.iterdir()] == ["loss.json"], "nothing differs, so nothing is written"
    other = suite.run("-q", WHERE="cuda-sm90", SCALE="2")
    assert other.code == 1
    look = "karat diff goldens/test_env/test_loss/loss.json goldens/test_env/test_loss/loss@cuda-sm90.json"
    assert look in other.out, "the golden of this environment is a file of its own, which --only loss.json never shows"
    made = suite.run("-q", "--karat-update", WHERE="cuda-sm90", SCALE="2")
    assert "created goldens/test_env/test_loss/loss@cuda-sm90.json" in made.out
    assert suite.run("-q", WHERE="cuda-sm90-h100", SCALE="2").code == 0
    plain = suite.run("-q")
    assert (plain.code, "stale" in plain.out) == (0, False)
    assert suite.run("-q", WHERE="a b").code == 1


@pytest.mark.parametrize("xdist", [(), ("-n2",)])
def test_repeats_record_noise_and_become_the_tolerance(suite: Suite, xdist: tuple[str, ...]) -> None:
    suite.write(
        "test_noisy.py",
        """
        import itertools
        import os
        import pytest

        runs = itertools.count()

        @pytest.fixture
        def scale():
            return float(os.environ.get("SCALE", "1")) + 0.004 * (next(runs) % 5)

        def test_loss(golden, scale):
            golden.series("loss", [scale / (step + 1) for step in range(20)])

        def test_other(scale):
            assert next(runs) >= 0
        """,
    )
    made = suite.run("-q", "--karat-update", "--karat-repeat", "5", *xdist, "test_noisy.py::test_loss")
    assert (made.code, made.count("passed")) == (0, 1), made.out
    folder = suite.root / "goldens/test_noisy/test_loss"
    samples = json.loads((folder / "loss.samples.json").read_bytes())
    assert [len(samples["runs"]), len(samples["metrics"]["loss"]["values"])] == [5, 5]
    assert len({tuple(row) for row in samples["metrics"]["loss"]["values"]}) == 5
    assert "tolerance from 5 repeats; to see it: karat tolerance --golden" in made.out
    assert suite.run("-q", SCALE="1.012").code == 0
    red = suite.run("-q", SCALE="1.1")
    assert (red.code, "loss.samples.json]" in red.out) == (1, True), red.out
    found = suite.python("-m", "karat", "tolerance", "--golden", str(folder / "loss.json"))
    assert "loss" in found.out, found.out


def test_karat_toml_may_keep_all_snapshots_in_one_tree(suite: Suite) -> None:
    suite.write("karat.toml", '[snapshots]\nfolder = "expected"\n')
    suite.write("pkg/tests/test_a.py", "def test_it(golden): golden.series('loss', [1, 2, 3])\n")
    made = suite.run("-q", "--karat-update")
    assert (suite.root / "expected/pkg/tests/test_a/test_it/loss.json").exists(), made.out
    assert "is no golden for karat diff: add its folder to paths in [goldens] of karat.toml" in made.out
    assert suite.run("-q").code == 0


def test_mistakes_are_told_in_a_sentence(suite: Suite) -> None:
    suite.write(
        "test_wrong.py",
        """
        import numpy as np

        def test_twice(golden):
            golden.series("loss", [1, 2])
            golden.series("loss", [1, 2])

        def test_no_name(golden):
            golden.series("", [1, 2])

        def test_no_curve(golden):
            golden.series("loss", "abc")

        def test_not_storable(golden):
            golden.tensors("x", object())

        def test_nan_tensor(golden):
            golden.tensors("x", np.array([np.nan]))

        def test_nan_tensor_that_is_meant(golden):
            golden.tensors("x", np.array([np.nan]), equal_nan=True)

        def test_changed_later(golden):
            x = np.zeros(3)
            golden.tensors("x", x)
            x += 1
        """,
    )
    done = suite.run("-q", "--karat-update")
    assert (done.count("failed"), done.count("passed")) == (5, 2), done.out
    for said in (
        "golden.series('loss'): this test has a snapshot of that name already; each needs its own",
        "expected a name for the snapshot",
        "loss: expected a list, an array or a mapping of values, found str 'abc'",
        "golden.tensors('x') cannot be stored",
        "it would not even match itself",
    ):
        assert said in done.out, said
    assert suite.run("-q", "-k", "meant or later").count("passed") == 2


def test_a_damaged_golden_is_no_match_and_a_read_only_folder_is_told(suite: Suite) -> None:
    suite.write("test_train.py", TRAIN)
    assert suite.run("-q", "--karat-update").code == 0
    for path in suite.root.rglob("*"):
        if path.name in {"loss.json", "expected.safetensors", "config.json"}:
            path.write_bytes(path.read_bytes()[:-20])
    done = suite.run("-q")
    assert (done.code, done.count("failed")) == (1, 2), done.out
    assert "the golden is damaged" in done.out
    blocked = suite.root / "goldens/test_train/test_loss"
    (blocked / "loss.json").unlink()
    blocked.rmdir()
    Path(blocked).write_text("in the way")
    told = suite.run("-q", "--karat-update", "test_train.py::test_loss")
    assert told.code == 1
    assert "expected to write" in told.out
    assert "INTERNALERROR" not in told.out
