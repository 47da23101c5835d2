from __future__ import annotations

from pathlib import Path

import pytest

from karat.config import PRESETS, find, load
from karat.findings import Severity, UsageError
from karat.goldens.paths import DEFAULT_GLOBS


def write(folder: Path, text: str, name: str = "karat.toml") -> Path:
    (folder / ".git").mkdir(exist_ok=True)
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return folder


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    config = load(tmp_path)
    assert config.paths == DEFAULT_GLOBS
    assert (config.file, config.preset) == (None, None)


def test_every_threshold_can_be_set(tmp_path: Path) -> None:
    write(
        tmp_path,
        '[[rules]]\nmetric = "lm loss"\nnoise = 1e-6\ndrift_max = 0.5\nworst = "warn"\nexact = true\nbetter = "lower"\n',
    )
    rule = load(tmp_path).rule_book().rule_for("lm loss")
    assert (rule.noise, rule.drift_max, rule.worst, rule.exact, rule.better) == (
        1e-6,
        0.5,
        Severity.WARN,
        True,
        "lower",
    )
    assert rule.origin == "karat.toml"


def test_pyproject_is_read_too_and_karat_toml_wins(tmp_path: Path) -> None:
    write(tmp_path, '[tool.karat.goldens]\npaths = ["a/*.json"]\n', "pyproject.toml")
    assert load(tmp_path).paths == ("a/*.json",)
    write(tmp_path, '[goldens]\npaths = ["b/*.json"]\n')
    assert load(tmp_path).paths == ("b/*.json",)


def test_the_search_goes_up_and_stops_at_the_repository(tmp_path: Path) -> None:
    write(tmp_path, "")
    inner = tmp_path / "x" / "y"
    inner.mkdir(parents=True)
    assert find(inner) == tmp_path / "karat.toml"
    (tmp_path / "x" / ".git").mkdir()
    assert find(inner) is None


def test_a_link_that_leads_nowhere_is_an_error_and_not_no_configuration(tmp_path: Path) -> None:
    (tmp_path / "karat.toml").symlink_to(tmp_path / "gone")
    with pytest.raises(UsageError, match=r"karat\.toml, but: No such file"):
        load(tmp_path)


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_load_and_say_where_values_came_from(tmp_path: Path, preset: str) -> None:
    write(tmp_path, f'preset = "{preset}"\n[goldens]\nexclude = ["old/**"]\n')
    config = load(tmp_path)
    assert config.paths != DEFAULT_GLOBS
    assert config.origins["goldens.paths"] == f"preset {preset}"
    assert config.origins["goldens.exclude"] == "karat.toml"


def test_a_projects_rule_stands_before_the_presets(tmp_path: Path) -> None:
    write(tmp_path, 'preset = "megatron-lm"\n[[rules]]\nmetric = "lm loss"\nrtol = 0.5\n')
    assert load(tmp_path).rule_book().rule_for("lm loss").rtol == 0.5
    assert load(tmp_path).rule_book().rule_for("mtp_1 loss").rtol == 0.05


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("presets = 1", "unknown key 'presets'; did you mean 'preset'"),
        ('preset = "megatron"', "no preset is called 'megatron'; did you mean 'megatron-lm'"),
        ("[goldens]\npath = []", "unknown key 'path'; did you mean 'paths'"),
        ("[goldens]\npaths = 3", "paths must be a list of texts, found 3"),
        ("goldens = 3", "must be a table"),
        ("rules = 3", "must be a list of tables"),
        ("rules = [3]", "expected a table, found 3"),
        ("[[rules]]\nnoise = 1", "expected metric to be set"),
        ('[[rules]]\nmetric = "x"\nnoize = 1', "unknown key 'noize'; did you mean 'noise'"),
        ('[[rules]]\nmetric = "x"\nnoise = "1"', "noise must be a number"),
        ('[[rules]]\nmetric = "x"\nnoise = nan', "noise must be a number >= 0"),
        ('[[rules]]\nmetric = "x"\nnoise = -1', "noise must be a number >= 0"),
        ('[[rules]]\nmetric = "x"\nexact = 1', "exact must be true or false"),
        ('[[rules]]\nmetric = "x"\nworst = "bad"', "worst must be fail or warn or info"),
        ('[[rules]]\nmetric = "x"\nrtol = inf', "rtol must be a number <= 1e+300"),
        ('[[rules]]\nmetric = "x"\natol = inf', "atol must be a number <= 1e+300"),
        ('[[rules]]\nmetric = "x"\noutliers = inf', "outliers must be a number <= 1e+300"),
        ('[[rules]]\nmetric = "x"\noutlier_share = 0.5', "outlier_share must be a number < 0.5"),
        ('[[rules]]\nmetric = "x"\nwarm_up = 1', "warm_up must be a number < 1"),
        ('[[rules]]\nmetric = "x"\nmin = 1', 'expected check = "range" beside min'),
        ('[[rules]]\nmetric = "x"\ncheck = "range"', 'expected min or max beside check = "range"'),
        ('[[rules]]\nmetric = "x"\ncheck = "range"\nmin = nan', "min must be a number >= -1e+300"),
        ('[[rules]]\nmetric = "x"\ncheck = "range"\nmax = -inf', "max must be a number >= -1e+300"),
        ('[[rules]]\nmetric = "x"\ncheck = "range"\nmin = 2\nmax = 1', "expected min up to max, found 2 and 1"),
        ('[[rules]]\nmetric = "x"\ncheck = "approx"\nwindow = [1, 2]', 'expected check = "median" beside a window'),
        ('[[rules]]\nmetric = "x"\nwindow = [2, 1]', "expected a window from its first step to its last, found [2, 1]"),
        ("check = 5", "karat.toml: [check] must be a table, found 5"),
        ("refresh = 5", "karat.toml: [refresh] must be a table, found 5"),
        ("record = 5", "karat.toml: [record] must be a table, found 5"),
        ('[check]\nimproved = "yes"', "improved must be fail or warn, found 'yes'"),
        ("[check]\nrequests = 5", "requests must be a text, found a number"),
        ('[check]\nactual = "x"', "actual must be a list, found a text"),
        ("[[exempt]]\nkind = 1", "kind must be a text, found a number"),
        ('[[exempt]]\nkind = "flaky"', "expected owner to be set, found nothing"),
        ("x = = 1", "expected TOML"),
        ('fail_on = ["bad"]', "karat.toml fail_on: expected fail, warn"),
    ],
)
def test_mistakes_are_errors_that_say_what_to_do(tmp_path: Path, text: str, complaint: str) -> None:
    write(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        load(tmp_path)
    assert complaint in str(caught.value)
    if "is called" not in complaint:
        # `karat config` would meet the same mistake.
        assert caught.value.next_command == f"edit {tmp_path / 'karat.toml'}"


@pytest.mark.parametrize("text", ["tool = 5", 'tool = "karat"', "[tool]\nother = 5"])
def test_a_pyproject_without_karat_is_none_of_its_business(tmp_path: Path, text: str) -> None:
    write(tmp_path, text, "pyproject.toml")
    assert load(tmp_path).file is None


def test_a_tool_karat_that_is_no_table_is_said(tmp_path: Path) -> None:
    write(tmp_path, "[tool]\nkarat = 5", "pyproject.toml")
    with pytest.raises(UsageError, match="to be a table, found 5"):
        load(tmp_path)


def test_bounds_may_be_negative_or_alone(tmp_path: Path) -> None:
    write(tmp_path, '[[rules]]\nmetric = "x"\ncheck = "range"\nmin = -2\n')
    rule = load(tmp_path).rule_book().rule_for("x")
    assert (rule.check, rule.min, rule.max) == ("range", -2.0, None)


def test_a_maximum_of_outliers_without_an_end_is_the_default(tmp_path: Path) -> None:
    write(tmp_path, '[[rules]]\nmetric = "x"\noutliers_max = inf\ndrift_max = inf\n')
    assert load(tmp_path).rule_book().rule_for("x").outliers_max == float("inf")


def test_a_choice_that_may_be_absent_names_its_choices(tmp_path: Path) -> None:
    write(tmp_path, '[policy]\nforge = "gitea"\n')
    with pytest.raises(UsageError, match=r"forge must be github or gitlab, found 'gitea'"):
        load(tmp_path)


def test_approvers_are_of_rules_that_there_are(tmp_path: Path) -> None:
    write(tmp_path, '[policy.approvers]\nweak = ["@a"]\ndefault = ["@b"]\n')
    assert load(tmp_path).policy.approvers == {"weak": ("@a",), "default": ("@b",)}
    write(tmp_path, '[policy.approvers]\ntolerence = ["@a"]\n')
    said = r"karat.toml \[policy\]: approvers: unknown key 'tolerence'.*tolerance.*determinism, weak.*default"
    with pytest.raises(UsageError, match=said):
        load(tmp_path)
