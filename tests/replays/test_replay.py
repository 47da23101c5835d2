from __future__ import annotations

import shutil
import threading
import zipfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from conftest import missing
from factories.captured import capture, identity
from factories.runners import doubling, flip, write_module
from karat.bundles.manifest import Comparator
from karat.findings import ExitCode, UsageError
from karat.replays.judge import ReplayOutcome, ReplayReport
from karat.replays.options import CaseOptions, FunctionSpec, ReplayOptions
from karat.replays.replay import replay


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with the module `runner`, and a bundle of three cases beside it."""
    monkeypatch.chdir(write_module(tmp_path))
    doubling(tmp_path / "bundle")
    return tmp_path


def run(
    name: str,
    bundle: str | Path = "bundle",
    *,
    case: CaseOptions | None = None,
    only: tuple[str, ...] = (),
    timeout: float | None = 30.0,
    jobs: int = 1,
    keep: Path | None = None,
) -> ReplayReport:
    options = ReplayOptions(
        runner=FunctionSpec(module="runner", name=name),
        case=case or CaseOptions(),
        only=only,
        timeout=timeout,
        jobs=jobs,
        keep=keep,
    )
    return replay(bundle, options)


def outcomes(report: ReplayReport) -> list[str]:
    """By number of the case, whatever the order of the bundle."""
    ordered = sorted(report.cases, key=lambda case: case.identity.test)
    return [case.outcome.value for case in ordered]


def kinds(report: ReplayReport) -> set[str]:
    return {f.kind for f in report.all_findings() if f.severity != "info"}


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_what_gives_the_same_matches() -> None:
    report = run("run", jobs=2)
    assert outcomes(report) == ["match"] * 3
    assert report.exit_code is ExitCode.OK
    assert all(len(case.comparisons) == 1 for case in report.cases)
    numbers = report.cases[0].comparisons[0].numbers
    assert numbers is not None
    assert numbers.bit_equal == numbers.elements == 8


@pytest.mark.slow
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", ["of_program", "Model.run", "noisy"])
def test_a_program_a_method_and_a_noisy_function_match(name: str) -> None:
    assert outcomes(run(name)) == ["match"] * 3


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_within_the_recorded_tolerance_matches_and_outside_does_not() -> None:
    assert outcomes(run("slightly_off")) == ["match"] * 3
    report = run("off")
    assert outcomes(report) == ["mismatch"] * 3
    assert kinds(report) == {"tensor-mismatch"}
    assert report.exit_code is ExitCode.FAIL
    assert all(finding.path for finding in report.all_findings() if finding.severity == "fail")


@pytest.mark.slow
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("crash_on_one", "SIGSEGV (signal 11); it printed last: about to crash"),
        ("raise_on_one", "it raised ValueError: no such operator (runner.py:"),
        ("hang_on_one", "it took longer than 1 s"),
        ("raise_the_unspeakable", "it raised Unspeakable: its message could not be read (runner"),
    ],
)
def test_a_program_that_fails_costs_its_own_case(name: str, said: str) -> None:
    report = run(name, timeout=1.0 if name.startswith("hang") else 30.0)
    assert outcomes(report) == ["match", "failed", "match"]
    (finding,) = [f for f in report.all_findings() if f.severity == "fail"]
    assert finding.kind == "replay-failed"
    assert said in finding.message
    assert finding.next is not None
    assert report.exit_code is ExitCode.FAIL


@pytest.mark.usefixtures("here")
def test_leaving_is_not_returning() -> None:
    report = run("leave_on_one")
    assert outcomes(report) == ["match", "failed", "failed"]
    assert any("exit status 7" in f.message for f in report.all_findings())


@pytest.mark.usefixtures("here")
def test_outputs_that_cannot_be_compared_are_named() -> None:
    report = run("odd")
    assert outcomes(report) == ["failed"] * 3
    assert "actual['doubled']" in report.cases[0].findings[0].message


@pytest.mark.usefixtures("here")
def test_an_output_that_is_missing_is_a_mismatch_also_if_it_is_the_only_one() -> None:
    report = run("lost")
    assert outcomes(report) == ["mismatch"] * 3
    assert report.exit_code is ExitCode.FAIL


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_a_call_that_goes_elsewhere_does_not_hide_the_bundle() -> None:
    assert outcomes(run("go_elsewhere")) == ["match"] * 3


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_a_fork_that_comes_back_answers_for_nobody() -> None:
    report = run("fork_and_return")
    assert outcomes(report) == ["match"] * 3
    assert len({case.path for case in report.cases}) == 3


@pytest.mark.slow
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", ["write_everywhere", "answer_for_another"])
def test_what_was_written_into_karats_own_pipe_is_no_answer(name: str) -> None:
    report = run(name)
    assert outcomes(report) == ["failed"] * 3
    assert all("is no answer" in case.findings[0].message for case in report.cases)


@pytest.mark.slow
def test_inputs_and_program_are_the_functions_own(here: Path) -> None:
    before = {p: p.read_bytes() for p in (here / "bundle").rglob("*") if p.is_file()}
    assert outcomes(run("spoil")) == ["match"] * 3
    assert {p: p.read_bytes() for p in (here / "bundle").rglob("*") if p.is_file()} == before


@pytest.mark.slow
@pytest.mark.parametrize("file", ["inputs.safetensors", "expected.safetensors", "program/model.pte", "manifest.json"])
def test_a_damaged_case_is_never_run(file: str, here: Path) -> None:
    shutil.rmtree(here / "bundle")
    doubling(here / "bundle", 1)
    (target,) = (here / "bundle").rglob(file)
    flip(target, -1 if file.endswith("pte") else -9)
    report = run("leave_mark")
    assert outcomes(report) == ["damaged"]
    assert report.exit_code is ExitCode.FAIL
    assert not (here / "ran").exists()
    assert kinds(report) == {"bundle-damaged"}


@pytest.mark.slow
def test_damage_of_one_costs_no_other(here: Path) -> None:
    flip(min((here / "bundle").rglob("inputs.safetensors")))
    assert sorted(outcomes(run("run"))) == ["damaged", "match", "match"]


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_a_wider_tolerance_is_never_silent() -> None:
    report = run("off", case=CaseOptions(atol=1.0))
    assert outcomes(report) == ["match"] * 3
    assert kinds(report) == {"tolerance-widened"}
    assert "rtol 0.001, atol 1e-05" in report.cases[0].findings[0].message


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_a_narrower_tolerance_finds_more() -> None:
    report = run("slightly_off", case=CaseOptions(rtol=1e-6))
    assert outcomes(report) == ["mismatch"] * 3


@pytest.mark.slow
def test_without_a_recorded_tolerance_the_dtypes_own_is_used_and_said(here: Path) -> None:
    x = np.ones(4, np.float32)
    capture(
        here / "other",
        identity("test_c"),
        inputs=(x,),
        expected={"doubled": x * 2},
        comparator=Comparator(name="caller"),
    )
    report = run("run", "other")
    assert outcomes(report) == ["match"]
    assert "caller-compared" in {f.kind for f in report.all_findings()}
    assert outcomes(run("off", "other")) == ["mismatch"]


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_only_what_was_chosen_runs() -> None:
    report = run("run", only=("models/portable",))
    assert [case.identity.flow for case in report.cases] == ["portable"]
    nothing = run("run", only=("models/portabel",))
    assert nothing.exit_code is ExitCode.CANNOT_VERIFY
    assert kinds(nothing) == {"nothing-compared"}


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("name", "said"),
    [("rum", "no attribute 'rum'"), ("not_a_function", "it cannot be called"), ("Model.rum", "no attribute 'rum'")],
)
def test_a_wrong_function_is_told_before_anything_runs(name: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        run(name)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("runer", "No module named 'runer'"),
        ("broken", "but: ZeroDivisionError: division by zero (broken.py:1)"),
        ("needy", "No module named 'not_installed_anywhere'"),
        ("deadly", "SIGKILL (signal 9)"),
    ],
)
def test_a_module_that_cannot_be_imported_is_told(module: str, said: str, here: Path) -> None:
    (here / "broken.py").write_text("1 / 0\n", encoding="utf-8")
    (here / "needy.py").write_text("import not_installed_anywhere\n", encoding="utf-8")
    (here / "deadly.py").write_text("import os\nos.kill(os.getpid(), 9)\n", encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        replay("bundle", ReplayOptions(runner=FunctionSpec(module=module, name="run")))
    assert said in str(caught.value)


@pytest.mark.slow
def test_a_zip_on_a_path_with_spaces_and_letters_beyond_ascii(here: Path) -> None:
    target = here / "neue Prüfungen" / "ナイトリー build.zip"
    target.parent.mkdir()
    with zipfile.ZipFile(target, "w") as packed:
        for path in sorted((here / "bundle").rglob("*")):
            if path.is_file():
                packed.write(path, path.relative_to(here / "bundle").as_posix())
    assert outcomes(run("of_program", target)) == ["match"] * 3


@pytest.mark.slow
def test_a_bundle_that_nobody_may_write_to(here: Path) -> None:
    folders = [p for p in (here / "bundle").rglob("*") if p.is_dir()]
    for path in folders:
        path.chmod(0o555)
    before = {p: p.stat() for p in (here / "bundle").rglob("*")}
    assert outcomes(run("spoil")) == ["match"] * 3
    # Root may write everywhere, and then must not have.
    after = {p: p.stat() for p in (here / "bundle").rglob("*")}
    assert {p: (s.st_mtime_ns, s.st_ino) for p, s in after.items()} == {
        p: (s.st_mtime_ns, s.st_ino) for p, s in before.items()
    }
    for path in folders:
        path.chmod(0o755)


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_two_replays_at_once_do_not_meet() -> None:
    reports: list[ReplayReport] = []
    threads = [threading.Thread(target=lambda: reports.append(run("run"))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [outcomes(report) for report in reports] == [["match"] * 3] * 2


@pytest.mark.slow
def test_what_a_case_was_given_and_left_is_kept_where_asked(here: Path) -> None:
    report = run("noisy", keep=here / "kept")
    work = Path(report.cases[0].work or "")
    assert work.is_relative_to(here / "kept")
    assert (work / "program" / "model.pte").read_bytes() == b"2"
    assert b"garbage" in (work / "log.txt").read_bytes()
    assert (work / "outputs" / "tensors.txt").read_text(encoding="utf-8").startswith("karat-raw 2")
    with pytest.raises(UsageError, match="new or empty folder"):
        run("run", keep=here / "kept")


@pytest.mark.slow
def test_nothing_is_left_behind_otherwise(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(here / "scratch"))
    run("crash_on_one")
    assert list((here / "scratch").iterdir()) == []


@pytest.mark.slow
def test_inputs_become_what_was_asked_for(here: Path) -> None:
    if find_spec("torch") is None:
        missing("torch (pip install torch)")
    code = "def run(program, inputs):\n    (x,) = inputs\n    assert type(x).__module__ == 'torch'\n    return {'doubled': x + x}\n"
    (here / "with_torch.py").write_text(f"import torch\n{code}", encoding="utf-8")
    options = ReplayOptions(runner=FunctionSpec(module="with_torch", name="run"), case=CaseOptions(framework="torch"))
    report = replay("bundle", options)
    assert outcomes(report) == ["match"] * 3, [f.message for f in report.all_findings()]


def test_outcomes_are_ordered_by_gravity() -> None:
    assert next(o.value for o in sorted(ReplayOutcome, key=lambda o: o.rank)) == "damaged"
