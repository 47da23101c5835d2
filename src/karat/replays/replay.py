"""Replay a bundle: run every chosen case here, and hold its outputs against what was recorded."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import msgspec
from msgspec.structs import replace

from karat.bundles.cases import Case, cases
from karat.bundles.manifest import Environment
from karat.bundles.places import Place, require_root
from karat.findings import CannotVerify, ExitCode, Finding, KaratError, Severity, UsageError, fail, info
from karat.replays import judge
from karat.replays.options import FunctionSpec, Progress, ReplayOptions, is_chosen, nothing_chosen
from karat.replays.outcome import ReplayedCase, ReplayReport
from karat.replays.processes import WorkerSetup, WorkFolders
from karat.replays.runners import CommandRunner, FunctionRunner, Runner, replay_all
from karat.store.place import open_word
from karat.system.command import Command
from karat.system.secrets import withhold

_KEPT = "replayed"
_SHOWN = 8
# pytest: 0 passed, 1 failed, 2 interrupted, 3 internal error, 4 usage, 5 nothing collected.
_UNKNOWN = ExitCode.CANNOT_VERIFY
_PYTEST_CODES = {0: ExitCode.OK, 1: ExitCode.FAIL, 3: _UNKNOWN, 4: ExitCode.USAGE, 5: _UNKNOWN}


def replay(bundle: str | Path, options: ReplayOptions, progress: Progress | None = None) -> ReplayReport:
    try:
        opened = open_word(str(bundle), store=options.store)
    except UsageError:
        raise
    except KaratError as error:
        # Whoever reads only reports must not find yesterday's.
        own: Finding | None = getattr(error, "finding", None)
        finding = own or fail("cannot-read", str(error), path=str(bundle), next=error.next_command)
        return ReplayReport(bundle=str(bundle), runner=str(options.runner), cases=(), findings=(finding,))
    with closing(opened) as place:
        require_capture_root(place, options)
        whole = cases(place)
        wanted = [c for c in whole if is_chosen(c.path, c.manifest.identity, options.wanted)]
        done = {case.path: judge.damaged(case, *case.findings) for case in wanted if is_damaged(case)}
        sound = [case for case in wanted if case.path not in done]
        if sound:
            with open_runners(bundle, options, len(sound)) as runners:
                done |= {each.path: each for each in replay_all(sound, runners, progress)}
        findings = [*place.findings()]
        if not wanted:
            known = [(case.path, case.manifest.identity) for case in whole]
            findings.append(nothing_chosen(str(bundle), options.wanted, known))
        is_function = isinstance(options.runner, FunctionSpec)
        environments = [case.manifest.environment for case in wanted]
        findings += environment_differences(environments, packages=is_function)
        return ReplayReport(
            bundle=str(bundle),
            runner=str(options.runner),
            cases=tuple(with_next_command(done[c.path], str(bundle), options) for c in wanted),
            findings=tuple(findings),
        )


def is_damaged(case: Case) -> bool:
    """Whether something is wrong with a case before one of its tensors is read."""
    return any(finding.severity is Severity.FAIL for finding in case.findings)


@contextmanager
def open_runners(bundle: str | Path, options: ReplayOptions, count: int) -> Iterator[Sequence[Runner]]:
    """As many runners as were asked for and have work; the first is known to have its function."""
    spec, environment = options.runner, withhold(os.environ, options.passed(str(bundle)))
    with closing(WorkFolders(options.keep)) as folders:

        def runner() -> Runner:
            if not isinstance(spec, FunctionSpec):
                return CommandRunner(spec, options.case, folders, options.timeout, environment)
            setup = WorkerSetup(bundle=str(bundle), store=options.store, function=spec, options=options.case)
            isolated = options.isolated
            return FunctionRunner(setup, folders, environment, timeout=options.timeout, isolated=isolated)

        runners = [runner() for _ in range(min(options.jobs, count))]
        try:
            if isinstance(runners[0], FunctionRunner):
                runners[0].prepare()
            yield runners
        finally:
            for opened in runners:
                opened.close()


def run_pytest(bundle: str, options: ReplayOptions, words: Sequence[str]) -> int:
    """Replay in a pytest session with an item for every case, on this terminal; returns karat's exit code."""
    text = msgspec.json.encode(options, enc_hook=str).decode()
    done = subprocess.run(
        [*(sys.executable, "-m", "pytest"), *("--karat-replay", bundle, "--karat-replay-settings", text), *words],
        check=False,
    )
    if done.returncode == 2:
        return 130
    if done.returncode not in _PYTEST_CODES:
        said = f"expected pytest to run the session, but it ended with {done.returncode}"
        raise CannotVerify(said, next_command="python -m pytest --version")
    return int(_PYTEST_CODES[done.returncode])


def with_next_command(case: ReplayedCase, bundle: str, options: ReplayOptions) -> ReplayedCase:
    alone = Command(*_command(bundle, options), "--only", case.path, "--keep", _KEPT)
    verify = Command("karat", "verify", bundle)
    if options.store:
        verify = verify.plus("--store", options.store)
    findings = tuple(
        f
        if f.next or f.severity is not Severity.FAIL
        else replace(f, next=str(verify if f.kind == "bundle-damaged" else alone))
        for f in case.findings
    )
    return replace(case, findings=findings)


def require_capture_root(place: Place, options: ReplayOptions) -> None:
    """UsageError if the capture directory begins further down than the bundle that was given."""
    require_root(place, lambda roots: _command(roots[0], options))


def _command(bundle: str, options: ReplayOptions) -> list[str]:
    how = "--run" if isinstance(options.runner, FunctionSpec) else "--command"
    given = {
        "--store": options.store or None,
        "--framework": options.case.framework,
        "--rtol": options.case.rtol,
        "--atol": options.case.atol,
    }
    words = [word for o, value in given.items() if value is not None for word in (o, str(value))]
    verify = [] if options.case.verify else ["--no-verify"]
    passed = [word for name in options.env_pass for word in ("--env-pass", name)]
    return ["karat", "replay", bundle, how, str(options.runner), *words, *verify, *passed]


def environment_differences(recorded: Sequence[Environment], *, packages: bool) -> Iterator[Finding]:
    """One finding for all that differs between the captures and this machine.

    A difference explains much and proves nothing, so it is information, once for all cases. Packages matter if karat
    calls a function of this Python, not if a command runs by itself.
    """
    tally: Counter[str] = Counter()
    for environment in recorded:
        tally.update(_differences(environment, packages=packages))
    if not tally:
        return
    total = len(recorded)
    shown = [what if n == total else f"{what} ({n} of {total} cases)" for what, n in tally.most_common(_SHOWN)]
    more = f"; and {len(tally) - _SHOWN} more" if len(tally) > _SHOWN else ""
    yield info("environment-changed", f"captured elsewhere: {'; '.join(shown)}{more}")


def _differences(environment: Environment, *, packages: bool) -> Iterator[str]:
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
    for name, recorded in environment.packages.items():
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            if find_spec(name) is None:  # else it is there under another name
                yield f"{name} {recorded}, here none"
            continue
        if not same_version(recorded, found):
            yield f"{name} {recorded}, here {found}"


def same_version(one: str, other: str) -> bool:
    """Whether two versions are one; a build's own suffix counts only if both have one."""
    if "+" in one and "+" in other:
        return one == other
    return one.partition("+")[0] == other.partition("+")[0]
