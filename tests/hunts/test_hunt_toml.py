from __future__ import annotations

import contextlib
import datetime as dt
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from factories.commands import karat
from factories.hunt_files import text
from factories.hunts import stepped, values_hunt
from factories.repositories import Repository
from karat.engines.job import EngineSettings
from karat.findings import UsageError
from karat.hunts.hunt_toml import PRESETS, from_tables, parse, preset_scripts, preset_text, read
from karat.hunts.settings import (
    CheckoutSettings,
    ContainerSettings,
    CostSettings,
    CrashSettings,
    HuntSettings,
    MetricSettings,
    PackageSettings,
    ProbeSettings,
    RepositorySettings,
    SearchSettings,
    SplitSettings,
    ValueSettings,
    stages,
)

HERE = Path("hunt.toml")
SECTIONS: dict[str, type[msgspec.Struct]] = {
    "At the top": HuntSettings,
    "[probe]": ProbeSettings,
    "[[probe.metrics]]": MetricSettings,
    "[probe.crash]": CrashSettings,
    "[containers]": ContainerSettings,
    "[[repositories]]": RepositorySettings,
    "[checkouts], [commits]": CheckoutSettings,
    "[packages]": PackageSettings,
    "[values]": ValueSettings,
    "[split]": SplitSettings,
    "[search]": SearchSettings,
    "[cost]": CostSettings,
    "[engine]": EngineSettings,
}
STRUCTS = list(SECTIONS.values())
METRIC = '[[probe.metrics]]\nname = "m"\n'
DATED = '[containers]\nimage = "x:{date:%Y}"\nstart = 2023-07-06\n'
REPOSITORIES = '[[repositories]]\nname = "xla"\nurl = "/r/xla"\n'


def mistake(toml: str) -> str:
    with pytest.raises(UsageError) as caught:
        parse(toml, HERE)
    assert str(caught.value).startswith("hunt.toml: ")
    assert caught.value.next_command == "edit hunt.toml"
    return str(caught.value).removeprefix("hunt.toml: ")


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        (text("wat = 1"), "probe: unknown key 'wat'"),
        (text('"" = 1'), "probe: unknown key '' (known: "),
        (text("timeouts = 1"), "did you mean 'timeout'?"),
        (text(METRIC + 'wich = "last"'), "probe.metrics number 1: unknown key 'wich'; did you mean 'which'?"),
        (text(METRIC + 'seconds = true\nwhich = "lst"'), "probe.metrics number 1: which must be first or last"),
        (text("timeout = [1]"), "probe.timeout must be a number or a text, found a list"),
        (text("repeats = 1.5"), "probe.repeats must be a whole number, found a decimal number"),
        (text("repeats = 0"), "probe.repeats must be a whole number >= 1"),
        (text("repeats = 1_000_000_000"), "probe.repeats must be a whole number <= 10000"),
        (text("timeout = 1" + "0" * 18), "probe.timeout: expected a duration"),
        (text('timeout = "1000000 weeks"'), "probe.timeout: expected a duration"),
        (text(rest='[engine]\nmemory = "1' + "0" * 400 + ' GB"\n'), "engine.memory: expected a size"),
        (text(rest="[engine]\ncores = inf\n"), "engine.cores must be"),
        (text("warmups = -1"), "probe.warmups must be a whole number >= 0"),
        (text('timeout = "soon"'), "probe.timeout: expected a duration"),
        (text("timeout = 0"), "probe.timeout must be greater than 0"),
        (text("skip_exit_codes = [0]"), "probe.skip_exit_codes"),
        (text('[probe.env]\n"A=B" = "x"\n' + METRIC + "seconds = true"), "probe.env"),
        (text(command='"it\'s"'), "probe.command: expected a command with closed quotes"),
        (text(command="[]"), "probe.command: expected a command"),
        (
            text(METRIC),
            "expected exactly one of regex, json, junit, exit_code, seconds, instructions, golden, found none of them",
        ),
        (text(METRIC + 'regex = "(x)"\nseconds = true'), "found regex and seconds"),
        (text(METRIC + 'regex = "x"'), "expected a group"),
        (text(METRIC + 'regex = "("'), "expected a regular expression"),
        (text(METRIC + 'json = "a["'), "json: expected a path"),
        (text(METRIC + 'golden = "g.json"'), "expected file (what the run leaves) beside golden"),
        (text(METRIC + 'junit = "*"'), "expected file (what the run leaves) beside junit"),
        (text(METRIC + 'seconds = true\nbetter = "equal"\nthreshold = 1'), "expected no threshold"),
        (text(METRIC + 'json = "x"\nthreshold = 1'), 'expected better = "higher" or "lower"'),
        (text(METRIC + 'seconds = true\nbetter = "lower"\nthreshold = nan'), "threshold must be a finite number"),
        (text((METRIC + "seconds = true\n") * 2), "found 'm' twice"),
        (text('[[probe.metrics]]\nname = "crash"\nseconds = true'), "which karat uses itself"),
        (text('[[probe.metrics]]\nname = " "\nseconds = true'), "expected a name"),
        (text('[probe.crash]\nkind = "exception"'), "expected pattern"),
        (text('[probe.crash]\npattern = "("'), "probe.crash.pattern"),
        (text('[probe.crash]\nsignal = "SIGSEGV"'), 'expected kind = "signal"'),
        (text('[probe.crash]\nkind = "signal"\nsignal = "SEGV"'), "expected a signal such as"),
        ('stages = ["values"]\n[values]\nlist = ["a"]\n[probe]\ncommand = "x"', "found neither"),
        ("[probe]\ncommand = 'x'", "expected stages to be set, found nothing"),
        (text(rest="stages = []\n"), "stages: expected at least one of"),
        (text(rest='stages = ["value"]\n'), "did you mean 'values'?"),
        (text(rest='stages = ["values by day"]\n'), "expected 'values' without a step"),
        (text(rest='stages = ["containers per day"]\n'), "or 'containers by day'"),
        (text(rest='stages = ["containers by 0 days"]\n'), "or 'containers by day'"),
        (text(rest='stages = ["containers by day"]\n'), "stages names containers: expected a table [containers]"),
        (text(rest='stages = ["packages"]\n'), "stages names packages: expected a table [packages]"),
        (text(rest='stages = ["commits"]\n'), "stages names commits: expected [[repositories]]"),
        (text(rest='stages = ["values", "commits"]\n'), "expected values alone"),
        (text(rest='stages = ["commits", "checkouts by hour"]\n' + REPOSITORIES), "expected coarse to fine"),
        (text(rest='stages = ["containers by day", "containers by week"]\n' + DATED), "expected coarse to fine"),
        (text(rest='stages = ["containers"]\n[containers]\nimage = "x"\n'), "expected a template with {date"),
        (
            text(rest='stages = ["containers"]\n[containers]\nimage = "x{date:%d}"\n'),
            "containers.start: expected the first day",
        ),
        (text(rest='stages = ["checkouts"]\n' + REPOSITORIES), "checkouts.start"),
        (text(rest='stages = ["commits"]\n' + REPOSITORIES), "expected good (repository = revision), or start"),
        (text(rest='stages = ["commits"]\n' + REPOSITORIES * 2), "repositories: expected each name once"),
        (
            text(
                rest='stages = ["commits"]\n' + REPOSITORIES + '[commits.good]\nxlo = "a"\n[commits.bad]\nxla = "b"\n'
            ),
            "commits.good: no repository is called 'xlo'; did you mean 'xla'?",
        ),
        (text(rest='stages = ["containers"]\n' + DATED), "containers.end: expected the last day"),
        (text(rest=DATED + "end = 2023-01-01\n"), "containers: expected start up to end"),
        (text(rest=DATED.replace("2023-07-06", '"July"')), "containers.start: expected a day or a time"),
        (text(rest=DATED.replace("2023-07-06", "[1]")), "containers.start must be a day with a time, found a list"),
        (text(rest=DATED + 'cache = "many"\n'), "containers.cache: expected a size"),
        (text(rest="[values]\nlist = []\n"), "values.list: expected texts, found none"),
        (text(rest="[search]\nconfidence = 1.0\n"), "search.confidence must be"),
        (text(rest="[search]\nsmallest = 1.0\n"), "search.smallest must be"),
        (text(rest="[search]\nmax_runs = -1\n"), "search.max_runs must be"),
        (text(rest="[search]\nruns_per_point = 0\n"), "search.runs_per_point must be a whole number >= 1"),
        (text(rest="[search]\nmax_time = 'soon'\n"), "search.max_time: expected a duration such as"),
        (text(rest="[search]\nmax_cost = 5\n"), "search.max_cost: expected prices in [cost]"),
        (text(rest="[cost]\ngpu_second = nan\n"), "cost.gpu_second must be a number >= 0"),
        (text(rest="[engine]\nslots = -1\n"), "engine.slots must be"),
        (text(rest="[engine]\ngpus = -1\n"), "engine.gpus must be"),
        (text(rest='[engine]\nmemory = "lots"\n'), "engine.memory: expected a size"),
        (text(rest='[packages]\nname = "toy[fast]"\n'), "packages.name: expected the name of a project"),
        (text(rest='[packages]\nname = "--help"\n'), "packages.name: expected the name of a project"),
        (text(command='["a\\u0000b"]'), "probe.command number 1: expected a text without NUL"),
        (text('[probe.env]\nA = "\\u0000"\n' + METRIC + "seconds = true"), "a text without NUL"),
        (text(rest='work = "\\u0000"\n'), "work: expected a text without NUL"),
        (text(rest='[values]\nlist = ["a", "b\\u0000"]\n'), "values.list number 2: expected a text without NUL"),
        (text('[probe.env]\n"A\\u0000" = "x"\n' + METRIC + "seconds = true"), "probe.env: expected a text without NUL"),
        (text(command='[""]'), "probe.command: expected a command that begins with a program"),
        (text('[probe.crash]\nkind = "signal"\nsignal = "SIG_DFL"'), "expected a signal such as"),
        (text(rest="[engine.resources]\ntpu = nan\n"), "engine.resources[...] must be a number >= 0"),
        (text(rest=DATED + "ahead = -1\n"), "containers.ahead must be"),
        (text(rest='skip = ["a.."]\n'), "skip: expected a point or a range"),
    ],
)
def test_a_mistake_is_said_with_its_key(toml: str, said: str) -> None:
    assert said in mistake(toml)


def test_a_mistake_of_a_megabyte_is_said_in_a_sentence() -> None:
    said = mistake(text(f'timeout = "{"a" * 1_000_000}"'))
    assert said.startswith("probe.timeout: expected a duration")
    assert len(said) < 2000


def test_a_byte_order_mark_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "hunt.toml").write_text(text(), encoding="utf-8-sig")
    assert read(tmp_path / "hunt.toml") == parse(text(), HERE)


def test_a_file_that_cannot_be_read_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="found no such file") as caught:
        read(tmp_path / "hunt.toml")
    assert caught.value.next_command == f"karat hunt init --output {tmp_path / 'hunt.toml'}"
    (tmp_path / "hunt.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="expected UTF-8"):
        read(tmp_path / "hunt.toml")
    (tmp_path / "hunt.toml").write_text("a = ", encoding="utf-8")
    with pytest.raises(UsageError, match="expected TOML") as caught:
        read(tmp_path / "hunt.toml")
    assert caught.value.next_command == f"edit {tmp_path / 'hunt.toml'}"
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match="Is a directory"):
        read(tmp_path / "folder")


def test_days_are_moments_and_times_have_a_zone() -> None:
    read_back = parse(text(rest=DATED + "end = 2023-07-08T06:00:00\n"), HERE).containers
    assert read_back is not None
    assert read_back.start == dt.datetime(2023, 7, 6, tzinfo=dt.UTC)
    assert read_back.end == dt.datetime(2023, 7, 8, 6, tzinfo=dt.UTC)
    quoted = parse(text(rest=DATED.replace("2023-07-06", '"2023-07-06"')), HERE).containers
    assert quoted is not None
    assert quoted.start == read_back.start


def test_settings_survive_a_journal() -> None:
    settings = parse(text(rest=DATED), HERE)
    assert msgspec.json.decode(msgspec.json.encode(settings), type=HuntSettings) == settings


def test_stages_have_the_step_they_say_or_their_tables() -> None:
    found = stages(
        parse(
            text(
                rest=f'stages = ["containers", "checkouts by 2 hours", "commits"]\n{DATED}end = 2023-09-01\nstep = "1 week"\n{REPOSITORIES}'
            ),
            HERE,
        )
    )
    assert [(stage.timeline, stage.step) for stage in found] == [
        ("containers", 604800),
        ("checkouts", 7200),
        ("commits", None),
    ]


def test_a_crash_alone_is_enough_to_look_at() -> None:
    assert parse(text('[probe.crash]\nkind = "hang"'), HERE).probe.crash is not None


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.just(10**400),
    st.floats(),
    st.text(max_size=10),
    st.sampled_from(
        ["1 day", "1 h", "(a)", "a b", "values", "commits by hour", "equal", "any", "bisect", "xla", "9" * 400 + " s"]
    ),
    st.dates(),
    st.datetimes(),
)
KEYS = st.sampled_from(sorted({key for struct in STRUCTS for key in struct.__struct_fields__}))
TABLES = st.recursive(
    st.dictionaries(KEYS, ODD, max_size=4),
    lambda inner: st.dictionaries(KEYS, st.one_of(inner, st.lists(st.one_of(inner, ODD), max_size=3), ODD), max_size=5),
    max_leaves=12,
)
GOOD: dict[str, Any] = {
    "stages": ["values"],
    "values": {"list": ["a"]},
    "probe": {"command": "x", "metrics": [{"name": "m", "seconds": True}]},
}


@pytest.mark.slow
@given(TABLES)
def test_whatever_is_written_is_a_hunt_or_a_mistake_that_is_said(table: dict[str, object]) -> None:
    for raw in (table, {**GOOD, **table}, {**GOOD, "probe": {**GOOD["probe"], **table}}):
        with contextlib.suppress(UsageError):
            from_tables(raw, HERE)


@pytest.mark.slow
@given(st.sampled_from(STRUCTS), st.data())
def test_every_key_of_every_table_may_be_anything(struct: type[msgspec.Struct], data: st.DataObject) -> None:
    table = {key: data.draw(ODD) for key in struct.__struct_fields__ if data.draw(st.booleans())}
    places: list[dict[str, object]] = [
        {"containers": table},
        {"repositories": [table]},
        {"checkouts": table},
        {"packages": table},
        {"search": table},
        {"engine": table},
        {"probe": {"command": "x", "metrics": [{"name": "m", **table}]}},
        {"probe": {"command": "x", "crash": table}},
        {"values": table},
    ]
    for place in places:
        with contextlib.suppress(UsageError):
            from_tables({**GOOD, **place}, HERE)


@pytest.mark.slow
@pytest.mark.parametrize(("work", "shown"), [("", []), ('work = "mine"\n', ["?? mine/"])])
def test_what_a_hunt_keeps_is_in_nobodys_status(tmp_path: Path, work: str, shown: list[str]) -> None:
    theirs = Repository(tmp_path)
    file = values_hunt(tmp_path, stepped(3))
    file.write_text(work + file.read_text(encoding="utf-8"), encoding="utf-8")
    theirs.write(".gitignore", "ran.txt\n")
    theirs.commit()
    assert karat("hunt", "run", cwd=tmp_path).code == 0
    assert theirs.git("status", "--porcelain").splitlines() == shown
    again = karat("hunt", "run", "--fresh", cwd=tmp_path)
    assert again.code == 0, again.err


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_hunt_file(name: str, repository: Repository, tmp_path: Path) -> None:
    repository.commit()
    file = tmp_path / "hunt.toml"
    file.write_text(preset_text(name, repository.root), encoding="utf-8")
    settings = read(file)
    assert settings.stages
    assert "@" not in settings.name


def test_the_folder_says_its_repository_branch_and_tag(repository: Repository, tmp_path: Path) -> None:
    repository.commit()
    repository.git("tag", "v1.0")
    repository.commit()
    repository.git("checkout", "-q", "-b", "größer")
    inner = repository.root / "tools"
    inner.mkdir()
    file = tmp_path / "hunt.toml"
    file.write_text(preset_text("git", inner), encoding="utf-8")
    settings = read(file)
    assert settings.repositories[0].branch == "größer"
    assert settings.repositories[0].url == ".."
    assert settings.commits is not None
    name = settings.repositories[0].name
    assert (settings.commits.good, settings.commits.bad) == ({name: "v1.0"}, {name: "größer"})


def test_without_a_tag_it_begins_some_way_back(repository: Repository, tmp_path: Path) -> None:
    commits = [repository.commit() for _ in range(3)]
    file = tmp_path / "hunt.toml"
    file.write_text(preset_text("git", repository.root), encoding="utf-8")
    settings = read(file)
    assert settings.commits is not None
    assert list(settings.commits.good.values()) == commits[:1]


def test_without_a_repository_another_preset_is_advised(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="git repository") as raised:
        preset_text("git", tmp_path)
    assert raised.value.next_command == "karat hunt init --preset pypi"


def test_a_repository_without_commits_has_nothing_to_hunt_in(repository: Repository) -> None:
    with pytest.raises(UsageError, match="expected commits"):
        preset_text("git", repository.root)


def test_a_misspelt_preset_is_guessed() -> None:
    with pytest.raises(UsageError, match="did you mean 'jax-nightly'"):
        preset_text("jax-nightlies", Path())


def _scripts(folder: Path) -> Path:
    """The scripts of the preset, and programs that only say their words."""
    folder.mkdir()
    for name, body in preset_scripts("jax-nightly").items():
        (folder / name).write_text(body, encoding="utf-8")
    for name in ("pip", "python3", "build-jax.sh"):
        program = folder / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text('#!/bin/sh\necho "$(basename "$0") $*"\n', encoding="utf-8")
        program.chmod(0o755)
    return folder


def _said(script: Path, cwd: Path) -> list[str]:
    path = f"{script.parent / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", script], cwd=cwd, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_the_scripts_of_jax_nightly_do_what_it_says(repository: Repository, tmp_path: Path) -> None:
    commit = repository.commit()
    scripts = _scripts(tmp_path / "dir with blanks")
    assert {file.name for file in scripts.glob("*.sh")} == {
        word.removeprefix("/dir/") for word in re.findall(r'"(/dir/\w+\.sh)"', preset_text("jax-nightly", tmp_path))
    }
    area = tmp_path / "area"
    (area / "jax/dist").mkdir(parents=True)
    wheel, other = area / "jax/dist/jaxlib-0.4.14.whl", area / "jax/dist/notes"
    wheel.touch()
    other.touch()
    repository.root.rename(area / "xla")
    assert _said(scripts / "build.sh", area) == [f"build-jax.sh --src-path-jax {area}/jax --src-path-xla {area}/xla"]
    assert (wheel.exists(), other.exists()) == (False, True)
    assert _said(scripts / "what.sh", area) == [f"commit.xla={commit}"]


DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "hunt-toml.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("title", SECTIONS)
def test_every_key_has_its_row_and_no_other_has(title: str) -> None:
    section = re.split(r"^##+ ", PAGE.partition(f"# {title}\n")[2], maxsplit=1, flags=re.MULTILINE)
    rows = re.findall(r"^\| `([a-z_]+)` \| (.+) \|$", section[0], re.MULTILINE)
    assert [key for key, _ in rows] == list(SECTIONS[title].__struct_fields__)


@pytest.mark.parametrize("page", sorted(DOCS.glob("hunt*.md")), ids=lambda path: path.stem)
def test_every_hunt_on_a_page_is_one(page: Path) -> None:
    blocks = re.findall(r"^```toml\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    whole = [block for block in blocks if re.search(r"^stages\b", block, re.MULTILINE)]
    assert whole or page.stem != "hunt-toml"
    for block in whole:
        parse(block, Path("hunt.toml"))


def test_a_pattern_that_python_only_warns_of_is_taken() -> None:
    pattern = "speed: ([[0-9]+)"  # "possible nested set"; here, a warning is an error
    assert parse(text(f"{METRIC}regex = '{pattern}'"), HERE).probe.metrics[0].regex == pattern
