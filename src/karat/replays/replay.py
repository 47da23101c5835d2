"""Advice: the exact command to run next, for every finding of a replay that has none yet."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from msgspec import structs

from karat.bundles.cases import Case, cases
from karat.bundles.manifest import Environment
from karat.bundles.places import Place, require_root
from karat.findings import Finding, KaratError, Severity, UsageError
from karat.replays.judge import placed
from karat.replays.options import Function, Options, chosen, nothing_chosen
from karat.replays.outcome import Outcome, Replayed, ReplayReport
from karat.replays.processes import Hello, Workplaces
from karat.replays.runners import CommandStation, FunctionStation, Station, replay_all
from karat.store.place import open_word
from karat.system.command import Command

_KEPT = "replayed"


def advised(case: Replayed, bundle: str, options: Options) -> Replayed:
    """The case with `next` filled in on what failed."""
    findings = tuple(_advised(finding, case, bundle, options) for finding in case.findings)
    return structs.replace(case, findings=findings)


def require_beginning(place: Place, options: Options) -> None:
    """UsageError where the capture directory begins further down than the bundle that was given."""
    require_root(place, lambda roots: _again(roots[0], options))


def _advised(finding: Finding, case: Replayed, bundle: str, options: Options) -> Finding:
    if finding.next or finding.severity is not Severity.FAIL:
        return finding
    if finding.kind == "bundle-damaged":
        return replace(finding, next=str(Command("karat", "verify", bundle, *_store(options))))
    return replace(finding, next=str(Command(*_alone(case, bundle, options))))


def _alone(case: Replayed, bundle: str, options: Options) -> list[str]:
    """The case by itself, with everything it was given and left kept for a look."""
    return [*_again(bundle, options), "--only", case.path, "--keep", _KEPT]


def _again(bundle: str, options: Options) -> list[str]:
    how = "--run" if isinstance(options.runner, Function) else "--command"
    return [
        *("karat", "replay", bundle, how, str(options.runner)),
        *_store(options),
        *_judging(options),
    ]


def _store(options: Options) -> list[str]:
    return ["--store", options.store] if options.store else []


def _judging(options: Options) -> Iterator[str]:
    judging = options.judging
    said = {"--framework": judging.framework, "--rtol": judging.rtol, "--atol": judging.atol}
    for option, value in said.items():
        if value is not None:
            yield from (option, str(value))
    if not judging.verify:
        yield "--no-verify"


# DOC-HERE environments: Environments: where cases were captured, and how this machine differs from that.
#
# A difference explains much and proves nothing, so it is said once for all cases, as information.

_SHOWN = 8


def differences(recorded: Sequence[Environment], *, packages: bool) -> Iterator[Finding]:
    """One finding for all that differs between the captures and this machine.

    Packages matter where karat calls a function of this Python, not where a command runs by itself.
    """
    tally: Counter[str] = Counter()
    for environment in recorded:
        tally.update(_differing(environment, packages=packages))
    if not tally:
        return
    shown = [_counted(what, n, len(recorded)) for what, n in tally.most_common(_SHOWN)]
    more = f"; and {len(tally) - _SHOWN} more" if len(tally) > _SHOWN else ""
    yield Finding(
        kind="environment-changed",
        severity=Severity.INFO,
        message=f"captured elsewhere: {'; '.join(shown)}{more}",
    )


def _counted(what: str, n: int, cases: int) -> str:
    return what if n == cases else f"{what} ({n} of {cases} cases)"


def _differing(environment: Environment, *, packages: bool) -> Iterator[str]:
    here = platform.system()
    # A kernel's release decides over no number, and differs nearly always.
    if environment.platform.partition(" ")[0] != here:
        yield f"platform {environment.platform}, here {here} {platform.release()}"
    if environment.machine.lower() != platform.machine().lower():
        yield f"machine {environment.machine}, here {platform.machine()}"
    if not packages:
        return
    if environment.python != platform.python_version():
        yield f"Python {environment.python}, here {platform.python_version()}"
    yield from _package_differences(environment.packages.items())


def _package_differences(packages: Iterable[tuple[str, str]]) -> Iterator[str]:
    for name, recorded in packages:
        found = _version(name)
        if found is None and find_spec(name) is not None:
            continue  # it is there under another name, and does not say which
        if found is None or not same_version(recorded, found):
            yield f"{name} {recorded}, here {found or 'none'}"


def same_version(one: str, other: str) -> bool:
    """Whether two versions are one; a build's own suffix counts only where both have one."""
    if "+" in one and "+" in other:
        return one == other
    return one.partition("+")[0] == other.partition("+")[0]


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


# DOC-HERE replaying: Replaying: a bundle and a runner → what became of each case; the front door of this room.


def replay(bundle: str | Path, options: Options) -> ReplayReport:
    """Every chosen case, run here and held against what was recorded."""
    try:
        opened = open_word(str(bundle), store=options.store)
    except UsageError:
        raise
    except KaratError as error:
        # Whoever reads reports, and nothing else, must not find that of the day before.
        return ReplayReport(
            bundle=str(bundle),
            runner=str(options.runner),
            cases=(),
            findings=(_not_opened(error, str(bundle)),),
        )
    with closing(opened) as place:
        require_beginning(place, options)
        whole = cases(place)
        wanted = [c for c in whole if chosen(c.path, c.manifest.identity, options.choice)]
        sound = [case for case in wanted if not is_damaged(case)]
        done = {case.path: already_damaged(case) for case in wanted if is_damaged(case)}
        done |= {result.path: result for result in _replayed(bundle, sound, options)}
        return ReplayReport(
            bundle=str(bundle),
            runner=str(options.runner),
            cases=tuple(advised(done[case.path], str(bundle), options) for case in wanted),
            findings=(*place.findings(), *_about_all(bundle, whole, wanted, options)),
        )


def _not_opened(error: KaratError, bundle: str) -> Finding:
    said: Finding | None = getattr(error, "finding", None)
    return said or Finding(
        kind="cannot-read",
        severity=Severity.FAIL,
        path=bundle,
        message=str(error),
        next=error.next_command,
    )


def _about_all(
    bundle: str | Path, whole: Sequence[Case], wanted: Sequence[Case], options: Options
) -> Iterator[Finding]:
    if not wanted:
        known = [(case.path, case.manifest.identity) for case in whole]
        yield nothing_chosen(str(bundle), options.choice, known)
    environments = [case.manifest.environment for case in wanted]
    yield from differences(environments, packages=isinstance(options.runner, Function))


def is_damaged(case: Case) -> bool:
    """Whether something is wrong with a case before one of its tensors is read."""
    return any(finding.severity is Severity.FAIL for finding in case.findings)


def already_damaged(case: Case) -> Replayed:
    """A case that is not even run."""
    findings = [replace(f, message=f"{f.message}; the case was not run") for f in case.findings]
    return Replayed(
        path=case.path,
        identity=case.manifest.identity,
        outcome=Outcome.DAMAGED,
        findings=placed(findings, case.path),
    )


def _replayed(bundle: str | Path, wanted: Sequence[Case], options: Options) -> list[Replayed]:
    if not wanted:
        return []
    with open_stations(bundle, options, len(wanted)) as stations:
        return replay_all(wanted, stations, options.progress)


@contextmanager
def open_stations(bundle: str | Path, options: Options, count: int) -> Iterator[Sequence[Station]]:
    """As many stations as were asked for and have work; the first is known to have its function."""
    with closing(Workplaces(options.keep)) as workplaces:
        stations = [_station(bundle, options, workplaces) for _ in range(min(options.jobs, count))]
        try:
            if isinstance(stations[0], FunctionStation):
                stations[0].prepare()
            yield stations
        finally:
            for station in stations:
                station.close()


def _station(bundle: str | Path, options: Options, workplaces: Workplaces) -> Station:
    runner = options.runner
    if isinstance(runner, Function):
        hello = Hello(
            bundle=str(bundle), store=options.store, function=runner, judging=options.judging
        )
        return FunctionStation(
            hello, workplaces, timeout=options.timeout, isolated=options.isolated
        )
    return CommandStation(runner, options.judging, workplaces, options.timeout)


__all__ = ["already_damaged", "is_damaged", "open_stations", "replay"]
