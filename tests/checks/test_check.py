from __future__ import annotations

import os
import shlex
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, strategies as st

from factories.checked import TABLE, kinds, only, options, outcomes, run
from factories.commands import karat_here
from factories.repositories import Repository, curves, golden_text
from karat.checks.check import check
from karat.compare.gate.result import CheckOutcome
from karat.compare.rules import PartialRule, RuleBook
from karat.findings import ExitCode, Severity
from karat.settings import CheckSettings

EXPECTED = "x,instructions,1000,0.1\n\n\n\nx,size,50,0.05\n\n\n\ny,instructions,2000,0.1\n"


def test_a_result_equal_to_its_golden_passes(tmp_path: Path) -> None:
    report = run(tmp_path, TABLE, TABLE)
    assert (report.outcome, report.exit_code, report.compared) == (CheckOutcome.PASS, ExitCode.OK, 6)
    assert list(report.all_findings()) == []


def test_every_failing_finding_has_a_next_command(tmp_path: Path) -> None:
    report = run(tmp_path, TABLE, TABLE.replace("pass,11", "pass,13").replace("a,pass,3", ""))
    assert report.exit_code is ExitCode.FAIL
    assert kinds(report) == {"lost-rows", "out-of-tolerance"}
    commands = {f.kind: f.next for f in report.all_findings()}
    assert set(commands.values()) == {"karat diff golden.csv actual.csv --html report.html"}
    assert only(report).refresh == "karat record actual.csv -o golden.csv --accept-incomplete"


@pytest.mark.parametrize(
    ("environment", "command"),
    [
        (
            {"GITHUB_RUN_ID": "25", "GITHUB_REPOSITORY": "o/n"},
            "karat refresh --source github --repo o/n --run-id 25 --scope only-failing --only golden.csv",
        ),
        (
            {"CI_PIPELINE_ID": "7"},
            "karat refresh --source gitlab --pipeline-id 7 --scope only-failing --only golden.csv",
        ),
        ({"GITHUB_RUN_ID": "1; rm -rf /", "GITHUB_REPOSITORY": "o/n"}, "karat record actual.csv -o golden.csv"),
    ],
)
def test_in_ci_the_command_fetches_this_very_run(tmp_path: Path, environment: dict[str, str], command: str) -> None:
    worse = TABLE.replace("pass,11", "pass,13")
    assert only(run(tmp_path, TABLE, worse, environment=environment)).refresh == command


def test_a_job_that_passes_is_not_among_those_that_fail(tmp_path: Path) -> None:
    there = {"GITHUB_RUN_ID": "25", "GITHUB_REPOSITORY": "o/n"}
    better = TABLE.replace("pass,11", "pass,9")
    assert "--scope all --only" in (only(run(tmp_path, TABLE, better, environment=there)).refresh or "")
    strict = run(tmp_path, TABLE, better, environment=there, improved="fail")
    assert "--scope only-failing" in (only(strict).refresh or "")
    fewer = run(tmp_path, TABLE, TABLE.replace("a,pass,3", ""), environment=there)
    assert (only(fewer).refresh or "").endswith(" --prune")


def test_a_result_of_another_form_is_taken_in_the_form_of_the_golden(tmp_path: Path) -> None:
    plain = "x,instructions,1101\nx,size,50\ny,instructions,2000\n"
    words = shlex.split(only(run(tmp_path, EXPECTED, plain)).refresh or "")
    assert karat_here(*words[1:], cwd=tmp_path).code == 0
    assert (tmp_path / "golden.csv").read_text() == EXPECTED.replace("1000", "1101")


def test_an_improvement_warns_and_tells_how_to_take_it(tmp_path: Path) -> None:
    better = TABLE.replace("pass,11", "pass,9")
    report = run(tmp_path, TABLE, better)
    assert (report.outcome, report.exit_code) == (CheckOutcome.IMPROVED, ExitCode.OK)
    (finding,) = report.all_findings()
    assert (finding.kind, finding.severity, finding.next) == (
        "improved",
        Severity.WARN,
        "karat diff golden.csv actual.csv --html report.html",
    )
    assert only(report).refresh == "karat record actual.csv -o golden.csv"
    strict = run(tmp_path, TABLE, better, improved="fail")
    assert (strict.outcome, strict.exit_code) == (CheckOutcome.IMPROVED, ExitCode.FAIL)


@pytest.mark.parametrize(
    ("unknown", "outcome", "code", "seen"),
    [
        ("warn", CheckOutcome.PASS, ExitCode.OK, {"missing-golden"}),
        ("fail", CheckOutcome.MISSING_GOLDEN, ExitCode.FAIL, {"missing-golden"}),
        ("ignore", CheckOutcome.PASS, ExitCode.OK, set()),
    ],
)
def test_rows_without_a_golden(
    tmp_path: Path, unknown: str, outcome: CheckOutcome, code: ExitCode, seen: set[str]
) -> None:
    report = run(tmp_path, TABLE, TABLE + "d,pass,0\n", unknown=unknown)
    assert (report.outcome, report.exit_code, kinds(report)) == (outcome, code, seen)


def test_a_row_that_stands_twice_fails_even_if_both_agree(tmp_path: Path) -> None:
    report = run(tmp_path, TABLE, TABLE + "a,pass,3\n")
    assert report.exit_code is ExitCode.FAIL
    assert kinds(report) == {"duplicate-row"}


def test_a_named_result_without_a_golden_fails(tmp_path: Path) -> None:
    (tmp_path / "actual.csv").write_text(TABLE)
    report = check(["actual.csv"], "nowhere.csv", options(tmp_path))
    assert (report.outcome, report.exit_code) == (CheckOutcome.MISSING_GOLDEN, ExitCode.FAIL)
    assert only(report).refresh == "karat record actual.csv -o nowhere.csv"


def test_a_run_that_left_nothing_fails(tmp_path: Path) -> None:
    (tmp_path / "golden.csv").write_text(TABLE)
    report = check(["gone.csv"], "golden.csv", options(tmp_path))
    assert (report.outcome, report.exit_code) == (CheckOutcome.MISSING_ACTUAL, ExitCode.FAIL)


@pytest.mark.parametrize("broken", ["", "\0\1\2", '{"a": [1, 2', "<<<<<<< HEAD\n{}\n"])
def test_an_unreadable_golden_cannot_verify_and_an_unreadable_result_fails(tmp_path: Path, broken: str) -> None:
    report = run(tmp_path, broken, TABLE)
    assert (report.outcome, report.exit_code) == (CheckOutcome.CANNOT_VERIFY, ExitCode.CANNOT_VERIFY)
    report = run(tmp_path, TABLE, broken)
    assert (report.outcome, report.exit_code) == (CheckOutcome.FAIL, ExitCode.FAIL)


def test_a_result_whose_bytes_cannot_be_had_cannot_verify(tmp_path: Path) -> None:
    (tmp_path / "golden.csv").write_text(TABLE)
    unreadable = Path("/proc/self/mem")  # a plain file that even root cannot read from its start
    if not unreadable.exists():
        pytest.skip("needs /proc")
    report = check([str(unreadable)], "golden.csv", options(tmp_path))
    assert (report.outcome, report.exit_code) == (CheckOutcome.CANNOT_VERIFY, ExitCode.CANNOT_VERIFY)


def test_a_certain_failure_outranks_cannot_verify(tmp_path: Path) -> None:
    (tmp_path / "golden.csv").write_text("\0")
    (tmp_path / "actual.csv").write_text(TABLE)
    report = check(["actual.csv", "gone.csv"], "golden.csv", options(tmp_path))
    assert {c.outcome for c in report.checks} == {CheckOutcome.CANNOT_VERIFY, CheckOutcome.MISSING_ACTUAL}
    assert report.exit_code is ExitCode.FAIL


def test_a_golden_of_another_shape_fails(tmp_path: Path) -> None:
    report = run(tmp_path, TABLE, '{"x": {"y": "z"}}')
    assert (report.exit_code, kinds(report)) == (ExitCode.FAIL, {"type-changed"})


def test_metrics_that_are_only_shown_are_no_evidence(tmp_path: Path) -> None:
    table = "name,speedup\na,1.5\nb,2.5\n"
    report = run(tmp_path, table, table)
    assert outcomes(report) == {"(rows)": "pass", "speedup": "info"}
    assert (report.outcome, report.exit_code) == (CheckOutcome.NOTHING_COMPARED, ExitCode.FAIL)
    book = RuleBook.of([PartialRule("speedup", {"check": "at-least", "rtol": 0.1})])
    assert run(tmp_path, table, table, rules=book).exit_code is ExitCode.OK
    slower = run(tmp_path, table, "name,speedup\na,1.3\nb,2.5\n", rules=book)
    assert slower.exit_code is ExitCode.FAIL
    faster = run(tmp_path, table, "name,speedup\na,9.0\nb,2.5\n", rules=book)
    assert faster.outcome is CheckOutcome.IMPROVED


def test_one_golden_of_which_nothing_was_compared_fails_among_others(tmp_path: Path) -> None:
    for side in ("golden", "new"):
        (tmp_path / side).mkdir()
        (tmp_path / side / "a.csv").write_text(TABLE)
        (tmp_path / side / "b.csv").write_text("name,speedup\na,1.5\nb,2.5\n")
    report = check(["new"], "golden", options(tmp_path))
    assert [c.outcome.value for c in report.checks] == ["nothing-compared", "pass"]
    assert (report.exit_code, report.findings) == (ExitCode.FAIL, ())
    assert [f.kind for f in report.checks[0].findings] == ["nothing-compared"]


def test_folders_agree_or_say_what_is_missing(tmp_path: Path) -> None:
    for name in ("golden/a.csv", "golden/b.csv", "new/a.csv", "new/c.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(TABLE)
    report = check(["new"], "golden", options(tmp_path))
    assert [(c.golden, c.outcome.value) for c in report.checks] == [
        ("b.csv", "missing-actual"),
        (None, "missing-golden"),
        ("a.csv", "pass"),
    ]
    assert report.exit_code is ExitCode.FAIL


def test_a_folder_in_which_nothing_has_a_golden_compared_nothing(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new/c.csv").write_text(TABLE)
    (tmp_path / "golden").mkdir()
    for unknown in ("warn", "ignore"):
        report = check(["new"], "golden", options(tmp_path, unknown=unknown))
        assert (report.outcome, report.exit_code) == (CheckOutcome.NOTHING_COMPARED, ExitCode.FAIL)
        assert "nothing-compared" in kinds(report)


# Instruction counts: rows have margins of their own, and results are plain.


@pytest.mark.parametrize(
    ("actual", "outcome"),
    [
        (EXPECTED, CheckOutcome.PASS),
        ("x,instructions,1099\nx,size,50\ny,instructions,2000\n", CheckOutcome.PASS),
        ("x,instructions,1101\nx,size,50\ny,instructions,2000\n", CheckOutcome.FAIL),
        ("x,instructions,1000\nx,size,54\ny,instructions,2000\n", CheckOutcome.FAIL),
        ("x,instructions,899\nx,size,50\ny,instructions,2000\n", CheckOutcome.IMPROVED),
        ("x,instructions,1000\ny,instructions,2000\n", CheckOutcome.FAIL),
        ("x,instructions,nan\nx,size,50\ny,instructions,2000\n", CheckOutcome.FAIL),
        ("benchmark,metric,value\nx,instructions,1000\nx,size,50\ny,instructions,2000\n", CheckOutcome.PASS),
    ],
)
def test_plain_results_against_expectations_with_margins(tmp_path: Path, actual: str, outcome: CheckOutcome) -> None:
    report = run(tmp_path, EXPECTED, actual)
    assert report.outcome is outcome
    assert report.exit_code is (ExitCode.FAIL if outcome is CheckOutcome.FAIL else ExitCode.OK)


def test_a_result_may_have_more_columns_and_other_names(tmp_path: Path) -> None:
    actual = "dev,name,batch_size,acc,graph_breaks\ncuda,a,4,pass,3\ncuda,b,4,pass,11.0\ncuda,c,4,fail_to_run,\n"
    settings = CheckSettings(columns={"acc": "accuracy"})
    report = run(tmp_path, TABLE, actual, settings=settings, fill={"graph_breaks": "3"})
    assert report.outcome is CheckOutcome.PASS
    assert outcomes(report)["(unknown columns)"] == "missing-golden"


DAMAGE = st.lists(
    st.tuples(
        st.integers(0, len(TABLE)),
        st.integers(0, 30),
        st.sampled_from(["", "nan", "inf", "-1", ",", "\n", '"', "\0", "pass", "a,pass,3\n"]),
    ),
    max_size=4,
)


@pytest.mark.slow
@given(DAMAGE, st.booleans())
def test_any_damage_ends_in_an_outcome_and_every_failure_in_a_command(
    edits: list[tuple[int, int, str]],
    golden: bool,  # noqa: FBT001 - drawn
) -> None:
    damaged = TABLE
    for at, length, text in edits:
        damaged = damaged[:at] + text + damaged[at + length :]
    with TemporaryDirectory() as folder:
        sides = (damaged, TABLE) if golden else (TABLE, damaged)
        report = run(Path(folder), *sides)
    assert (report.exit_code == 0) == (report.outcome in {CheckOutcome.PASS, CheckOutcome.IMPROVED})
    failed = [f for f in report.all_findings() if f.severity is Severity.FAIL]
    assert bool(failed) == bool(report.exit_code)
    assert all(f.next for f in failed)
    if not golden and report.exit_code == 0:
        assert all(f"\n{name}," in damaged for name in "abc")


def test_exact_that_makes_nothing_exact_fails(tmp_path: Path) -> None:
    """A misspelt name would pass as if the metric had been exact."""
    golden = golden_text(curves(1, steps=20))
    report = run(tmp_path, golden, golden, "json", exact=("lm-loss", "lm loss"))
    assert (report.outcome, report.exit_code) == (CheckOutcome.NOTHING_COMPARED, ExitCode.FAIL)
    (told,) = report.findings
    assert "--exact 'lm-loss'" in told.message
    assert "did you mean 'lm loss'?" in told.message
    assert run(tmp_path, golden, golden, "json", exact=("lm*",)).exit_code is ExitCode.OK
    assert run(tmp_path, golden, golden, "json", exact=("iteration-time",)).exit_code == 1
    (tmp_path / "golden.json").write_text("")
    unread = check(["actual.json"], "golden.json", options(tmp_path, exact=("lm-loss",)))
    assert unread.exit_code is ExitCode.CANNOT_VERIFY


def test_exact_names_a_leaf_by_its_last_element_as_rules_do(tmp_path: Path) -> None:
    golden, moved = '{"a": {"logprobs": [1.0, 2.0]}}', '{"a": {"logprobs": [1.0, 2.0001]}}'
    assert run(tmp_path, golden, moved, "json").exit_code is ExitCode.OK
    assert run(tmp_path, golden, moved, "json", exact=("logprobs",)).exit_code is ExitCode.FAIL


@pytest.mark.parametrize(
    "damaged",
    [TABLE.splitlines()[0] + "\n", TABLE + "a,pass,3\n", TABLE + "d,pass\n", "", "\x00"],
    ids=["no rows", "a row twice", "a ragged row", "no bytes", "no table"],
)
def test_what_is_damaged_is_never_offered_as_the_golden(tmp_path: Path, damaged: str) -> None:
    report = run(tmp_path, TABLE, damaged)
    assert report.exit_code is ExitCode.FAIL
    assert only(report).refresh is None
    assert not any("karat record" in (f.next or "") for f in report.all_findings())


def test_what_is_only_shown_is_not_counted_as_compared(tmp_path: Path) -> None:
    report = run(tmp_path, TABLE, TABLE, rules=RuleBook.of([PartialRule("*", {"check": "info"})]))
    assert (report.outcome, report.compared) == (CheckOutcome.NOTHING_COMPARED, 0)
    assert only(report).findings[0].next == "karat config --metric accuracy"


def test_a_result_without_a_golden_is_told_a_place_where_it_would_be_found(repository: Repository) -> None:
    repository.write("out/new case.csv", TABLE)
    report = check(["out/new case.csv"], "auto", options(repository.root))
    assert only(report).refresh == "karat record 'out/new case.csv' -o 'goldens/new case.csv'"
    repository.write("goldens/new case.csv", TABLE)
    assert check(["out/new case.csv"], "auto", options(repository.root)).exit_code is ExitCode.OK


@pytest.mark.parametrize(("unknown", "code"), [("ignore", ExitCode.OK), ("warn", ExitCode.OK), ("fail", ExitCode.FAIL)])
def test_a_run_that_goes_on_behind_its_golden(tmp_path: Path, unknown: str, code: ExitCode) -> None:
    whole = curves(1, steps=30)
    short = golden_text({name: values[:20] for name, values in whole.items()})
    report = run(tmp_path, short, golden_text(whole), "json", unknown=unknown)
    assert report.exit_code is code
    assert ("missing-golden" in kinds(report)) == (unknown != "ignore")


def test_a_result_that_shares_no_row_is_never_offered_as_the_golden(tmp_path: Path) -> None:
    other = TABLE.replace("a,", "x,").replace("b,", "y,").replace("c,", "z,")
    report = run(tmp_path, TABLE, other)
    assert report.exit_code is ExitCode.FAIL
    assert only(report).refresh is None


def test_a_pipe_in_a_folder_of_results_is_not_waited_for(tmp_path: Path) -> None:
    for name in ("goldens/x.csv", "new/x.csv"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(TABLE)
    os.mkfifo(tmp_path / "new" / "pipe.csv")
    report = check(["new"], "goldens", options(tmp_path))
    assert [(c.actual, c.outcome) for c in report.checks] == [
        ("new/pipe.csv", CheckOutcome.MISSING_GOLDEN),
        ("new/x.csv", CheckOutcome.PASS),
    ]


def test_results_that_agree_may_share_a_golden(tmp_path: Path) -> None:
    for name in ("goldens/x.csv", "one/x.csv", "two/x.csv"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(TABLE)
    report = check(["one/x.csv", "two/x.csv"], "goldens", options(tmp_path))
    assert [c.outcome for c in report.checks] == [CheckOutcome.PASS]


def test_two_columns_are_never_renamed_into_one(tmp_path: Path) -> None:
    settings = CheckSettings(columns={"speed": "graph_breaks"})
    golden, actual = "name,graph_breaks\na,3\n", "name,speed,graph_breaks\na,9,3\n"
    report = run(tmp_path, golden, actual, settings=settings)
    assert outcomes(report)["graph_breaks"] == "pass"


def test_what_is_farthest_beyond_its_tolerance_comes_first(tmp_path: Path) -> None:
    old = {name: curves(1)["lm loss"] for name in ("a loss", "b loss", "c loss", "d loss")}
    new = {**old, "a loss": old["a loss"] * 1.06, "b loss": old["b loss"] * 3, "c loss": old["c loss"] * 1.2}
    results = only(run(tmp_path, golden_text(old), golden_text(new), suffix="json")).results
    assert [r.metric for r in results] == ["b loss", "c loss", "a loss", "d loss"]
