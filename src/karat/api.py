"""The public functions: what each command does, from Python. `karat.diff(…)` is `karat diff`.

In: the words of the command as arguments, and karat.toml of the folder `cwd`. Out: a result with `to_dict()`,
`to_pandas()` and a view for notebooks. Nothing is printed. The command line calls these functions, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, partial
from math import isfinite
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from karat.findings import UsageError

if TYPE_CHECKING:
    from karat.changepoints.examine import ChangesReport
    from karat.changepoints.series import Better
    from karat.checks.report import CheckReport
    from karat.compare.history import Past
    from karat.config import Config
    from karat.diffs.diff import DiffOptions
    from karat.diffs.result import Diff
    from karat.hunts.model import HuntReport
    from karat.hunts.settings import HuntSettings
    from karat.refreshes.report import RefreshReport
    from karat.replays.judge import ReplayReport
    from karat.replays.options import Framework, ReplayOptions
    from karat.settings import Improved
    from karat.sources.source import Progress
    from karat.system.command import Command


def diff(  # noqa: PLR0913 - one parameter per option
    old: str | Path | None = None,
    new: str | Path | None = None,
    *,
    cwd: str | Path = ".",
    cached: bool = False,
    only: Sequence[str] = (),
    only_metric: Sequence[str] = (),
    everything: bool = False,
    keep_curves: bool = False,
    provenance: bool = True,
    preset: str | None = None,
    store: str | None = None,
    history: bool | None = None,
    jobs: int | None = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Diff:
    """Compare goldens, old against new, and judge what changed.

    `old` and `new` are git revisions, folders or files; without them, HEAD and the working tree, or what is staged if it is
    `cached` that is asked for. With `history`, moves
    are held against those of earlier refreshes; by default if that was asked for before.
    """
    from karat.config import load
    from karat.diffs.diff import diff as diff_

    config = load(Path(cwd), preset=preset)
    options = diff_options(
        config,
        only=only,
        only_metric=only_metric,
        everything=everything,
        keep_curves=keep_curves,
        provenance=provenance,
        preset=preset,
        history=history,
        jobs=jobs,
        progress=progress,
        store=store or os.environ.get("KARAT_STORE") or (config.store.url if "store:" in f"{old}{new}" else None),
    )
    return diff_(_word(old), _word(new), cwd=cwd, options=options, cached=cached)


def diff_options(config: Config, *, history: bool | None = None, **rest: Any) -> DiffOptions:
    """The options of a diff, with what karat.toml says about goldens and rules."""
    from karat.diffs.diff import DiffOptions

    return DiffOptions(
        history=config.history if history is None else history,
        rules=config.rule_book(),
        status=config.status,
        **config.places(),
        **rest,
    )


def check(  # noqa: PLR0913 - one parameter per option
    actual: str | Path | Iterable[str | Path],
    golden: str | Path = "auto",
    *,
    cwd: str | Path = ".",
    identity: Mapping[str, str] | None = None,
    exact: Sequence[str] = (),
    only: Sequence[str] = (),
    rows: Sequence[str] = (),
    improved: Improved | None = None,
    history: bool | None = None,
    preset: str | None = None,
    jobs: int | None = 1,
) -> CheckReport:
    """Check what a run left against its golden.

    `actual` is a result in any golden format, a TensorBoard event file or folder, JSON Lines, a log, a folder of
    results, or several of them; shards of one table are joined. `golden` is the golden or the folder where goldens are;
    `auto` finds it by identity. `rows` are globs of the rows that `actual` has to have, if it is a part of a table.
    """
    from msgspec.structs import replace

    from karat.checks.check import CheckOptions, check as check_
    from karat.checks.lookup import Where
    from karat.config import load
    from karat.system.dates import day

    config = load(Path(cwd), preset=preset)
    past = cache(partial(_past, Path(cwd), config, history=history))
    if history or (history is None and config.history):
        past()  # which may take long the first time: once, and not in each process
    words = [actual] if isinstance(actual, str | Path) else list(actual)
    refresh_ = config.refresh

    def mapped(path: str, known: Mapping[str, str]) -> tuple[str | None, Mapping[str, str]]:
        from karat.refreshes.identity import target_of_result

        return target_of_result(path, known, refresh_)

    options = CheckOptions(
        where=Where(
            cwd=Path(cwd).absolute(),
            only=tuple(only),
            settings=replace(config.check, improved=improved) if improved else config.check,
            identity=identity or {},
            patterns=(*refresh_.members, *refresh_.artifacts) if refresh_.target else (),
            mapped=mapped if refresh_.members and refresh_.target else None,
            **config.places(),
        ),
        today=day(os.environ),
        exact=tuple(exact),
        jobs=jobs,
        rows=tuple(rows),
        environment={n: os.environ[n] for n in _CI_RUN if n in os.environ},
        past=past,
        **config.checking(),
    )
    return check_([str(word) for word in words], str(golden), options)


def _past(cwd: Path, config: Config, *, history: bool | None) -> Past | None:
    """What earlier refreshes of this repository did; None if nobody asks."""
    from karat.diffs.diff import history_wanted
    from karat.system import git

    options = diff_options(config, history=history, jobs=None)
    root = git.find_root(cwd)
    if root is None or not git.has_commit(root) or not history_wanted(root, options):
        return None
    from karat.diffs.history import read_past

    return read_past(root, git.root_and_head(cwd)[1], options)


def refresh(  # noqa: PLR0913 - one parameter per option
    source: str,
    path: str | Path | None = None,
    *,
    scope: Literal["only-failing", "all"],
    cwd: str | Path = ".",
    repo: str | None = None,
    run_id: str | None = None,
    sha: str | None = None,
    workflow: str | None = None,
    project: str | None = None,
    pipeline_id: str | None = None,
    attempt: int | None = None,
    only: Sequence[str] = (),
    platforms: Sequence[str] = (),
    metrics: Sequence[str] = (),
    accept_incomplete: bool = False,
    prune: bool = False,
    keep_going: bool = False,
    dry_run: bool = False,
    write: bool = False,
    reset: bool = False,
    preset: str | None = None,
    command: Command | None = None,
    progress: Progress | None = None,
    notice: Callable[[str], None] | None = None,
) -> RefreshReport:
    """Bring golden values from CI into the working tree around `cwd`, and judge what came.

    `source` is github, gitlab, folder (with `path`) or the URL of a bucket. In CI nothing is written unless `write` is
    given. `reset` first restores tracked goldens and deletes untracked ones. `command` is what findings advise to run
    again with other options.
    """
    from msgspec import structs

    from karat.config import load
    from karat.goldens.paths import PathFilter
    from karat.refreshes.jobs import RefreshOptions
    from karat.refreshes.refresh import refresh as refresh_
    from karat.refreshes.worktree import ensure_may_write, reset_goldens
    from karat.sources.open import SourceOptions, check_options, open_source, own_files
    from karat.system.command import Command

    typed = command or Command("karat", "refresh")
    ensure_may_write(typed, dry_run=dry_run, write=write)
    config = load(Path(cwd), preset=preset)
    where = SourceOptions(
        source=source,
        path=_word(path),
        repo=repo,
        run_id=run_id,
        sha=sha,
        workflow=workflow,
        project=project,
        pipeline_id=pipeline_id,
        attempt=attempt,
    )
    check_options(where)
    opened = open_source(where, config.refresh, notice)
    exclude = (*config.exclude, *own_files(where, Path(cwd)))
    options = RefreshOptions(
        scope=scope,
        settings=config.refresh,
        rules=config.rule_book(),
        status=config.status,
        only=tuple(only),
        platforms=tuple(platforms),
        metrics=tuple(metrics),
        attempt=attempt,
        accept_incomplete=accept_incomplete,
        prune=prune,
        keep_going=keep_going,
        dry_run=dry_run,
        date=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        command=typed,
        progress=progress,
        notice=notice,
        **config.places() | {"exclude": exclude},
    )
    put_back: tuple[str, ...] = ()
    try:
        if reset:  # only now: a mistake in the options must not cost anyone a golden
            is_golden = PathFilter(config.paths, exclude, options.only)
            put_back = reset_goldens(
                Path(cwd), is_golden, config.paths, narrowed=bool(only), dry_run=dry_run, notice=notice
            )
        return structs.replace(refresh_(opened, Path(cwd), options), reset=put_back)
    finally:
        opened.close()


def replay(  # noqa: PLR0913 - one parameter per option
    bundle: str | Path,
    run: str | None = None,
    *,
    command: str | None = None,
    only: Sequence[str] = (),
    framework: Framework | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    store: str | None = None,
    timeout: float | None = 600.0,
    jobs: int = 1,
    keep: Path | None = None,
    env_pass: Sequence[str] = (),
    progress: Callable[[int, int], None] | None = None,
) -> ReplayReport:
    """Run captured programs on this machine, and compare their outputs with the captured ones.

    `bundle` is a folder, a zip or a reference into a store. What runs a program is a function, `run="module:function"`,
    or a `command` with placeholders. It sees no secrets of the environment, except the variables in `env_pass`.
    """
    from karat.replays.replay import replay as replay_

    options = replay_options(
        run,
        command=command,
        only=tuple(only),
        framework=framework,
        rtol=rtol,
        atol=atol,
        store=store,
        timeout=timeout,
        jobs=jobs,
        keep=keep,
        env_pass=tuple(env_pass),
    )
    return replay_(str(bundle), options, progress)


def replay_options(
    run: str | None,
    *,
    command: str | None,
    framework: Framework | None,
    rtol: float | None,
    atol: float | None,
    store: str | None,
    **rest: Any,
) -> ReplayOptions:
    """The options of a replay, with the store of karat.toml; also for the pytest session of `karat replay --pytest`.

    `rest`: the others, as `ReplayOptions` names them.
    """
    from karat.config import load
    from karat.replays.options import CaseOptions, ReplayOptions, parse_command, parse_function

    if (run is None) == (command is None):
        raise UsageError(
            f"expected --run module:function or --command CMD, found {'neither' if run is None else 'both'}",
            next_command="karat replay --help",
        )
    return ReplayOptions(
        runner=parse_function(run) if run is not None else parse_command(command or "", Path.cwd()),
        case=CaseOptions(framework=framework, rtol=rtol, atol=atol),
        store=store or os.environ.get("KARAT_STORE") or load(Path.cwd()).store.url,
        **rest,
    )


def changes(  # noqa: PLR0913 - one parameter per option
    values: Iterable[float | None] | Mapping[str, float | None] | str | Path | Sequence[str] = (),
    *,
    labels: Sequence[str] | None = None,
    metric: str | Sequence[str] = "value",
    better: Better | Mapping[str, Better] | None = None,
    smallest: float = 0.0,
    false_alarms: float = 0.01,
    online: bool = False,
    logs: Sequence[str] = (),
    goldens: Sequence[str] = (),
    fail_on: tuple[str, ...] = ("fail",),
    **reading: Any,
) -> ChangesReport:
    """Find where a series changed its level, crashed, or has a hole.

    `values` are numbers in order, oldest first (None for a point that has no value, NaN for one that crashed), with
    `labels` or as label → value; or files: CSV, JSON, JSON Lines, SQLite, the journal of a hunt. `metric` is the name
    of the numbers, or the columns of the files to look at; `better` may differ by metric. `logs` are globs of logs, and
    `goldens` files whose history in git is read. `reading`: the other options of `karat changes`, such as `since`.
    """
    from karat.changepoints.examine import examine
    from karat.changepoints.readers.read import SeriesCollection, read
    from karat.changepoints.readers.sheets import ReadOptions
    from karat.changepoints.series import DetectOptions, Series

    sources = (values,) if isinstance(values, str | Path) else values if isinstance(values, tuple | list) else ()
    if logs or goldens or (sources and all(isinstance(source, str | Path) for source in sources)):
        chosen = () if metric == "value" else (metric,) if isinstance(metric, str) else tuple(metric)
        directions = {"": better} if isinstance(better, str) else better or {}
        options = ReadOptions(metrics=chosen, better=directions, root=Path(), **reading)
        collected = read([str(source) for source in sources], options, logs=logs, goldens=goldens)
    else:
        held: Any = values
        if hasattr(held, "items"):  # a mapping, or a pandas Series
            labels, numbers = [], []
            for label, value in held.items():
                labels.append(label)
                numbers.append(value)
        else:
            numbers = list(held)
        names = range(len(numbers)) if labels is None else labels
        if len(names) != len(numbers):
            raise UsageError(
                f"expected one label per value, found {len(names):,} labels and {len(numbers):,} values",
                next_command="help(karat.changes)",
            )
        points = tuple(_observation(str(label), value) for label, value in zip(names, numbers, strict=True))
        name = metric if isinstance(metric, str) else "value"
        series = Series(metric=name, observations=points, better=better if isinstance(better, str) else None)
        collected = SeriesCollection(series=(series,))
    detector = DetectOptions(false_alarms=false_alarms, smallest=smallest)
    return examine(collected, detector, online=online, fail_on=fail_on)


def _observation(label: str, value: float | None) -> Any:
    from karat.changepoints.series import Observation, Outcome

    if value is None:
        return Observation(label=label, outcome=Outcome.MISSING)
    if not isfinite(value):
        return Observation(label=label, outcome=Outcome.CRASH, signature=f"the value is {float(value)}")
    return Observation(label=label, values=(float(value),))


def hunt(  # noqa: PLR0913 - one parameter per option
    hunt_toml: str | Path = "hunt.toml",
    *,
    settings: HuntSettings | None = None,
    strategy: Literal["adaptive", "sweep", "bisect"] | None = None,
    metrics: Sequence[str] = (),
    confidence: float | None = None,
    max_runs: int | None = None,
    min_dip: int | None = None,
    max_time: str | float | None = None,
    max_cost: float | None = None,
    priors: bool | None = None,
    stage: str | None = None,
    engine: Literal["local", "ray", "slurm"] | None = None,
    jobs: int | None = None,
    journal: str | Path | None = None,
    fresh: bool = False,
    resume: bool = False,
    progress: IO[str] | None = None,
    abandoned: Callable[[], None] = lambda: None,
) -> HuntReport:
    """Hunt for every regression, dip and crash on the timeline that `hunt_toml` describes.

    Every attempt is in the journal at once: a hunt that is interrupted goes on with `resume`. `fresh` archives a journal
    that is there. `progress` is a stream that shows what happens; `abandoned` is called where the engine cannot be closed.
    `settings` are those of a hunt that has no file, in this folder.
    """
    from karat.hunts.hunt import hunt_into, new_journal, resume_hunt
    from karat.hunts.hunt_toml import Overrides, apply_overrides, journal_path, read
    from karat.hunts.settings import settings_json

    file = Path(hunt_toml if settings is None else f"{settings.name}.toml")
    plain = settings or read(file)
    path = Path(journal) if journal else journal_path(file, plain)
    overrides = Overrides(
        strategy=strategy,
        metrics=tuple(metrics),
        confidence=confidence,
        max_runs=max_runs,
        min_dip=min_dip,
        max_time=max_time,
        max_cost=max_cost,
        priors=priors,
        stage=stage,
        engine=engine,
        jobs=jobs,
    )
    if resume:
        return resume_hunt(path, overrides, progress, abandoned)
    with new_journal(path, file, apply_overrides(plain, overrides), fresh=fresh) as opened:
        if settings is not None:
            opened.set_fact("given", settings_json(plain))
        return hunt_into(opened, file, plain, overrides, progress, abandoned)


_CI_RUN = ("GITHUB_RUN_ID", "GITHUB_REPOSITORY", "CI_PIPELINE_ID")
"""What of the CI's environment the advice of a check names; tokens stay where they are."""


def _word(side: str | Path | None) -> str | None:
    return None if side is None else str(side)
