"""Replay a bundle: run every chosen case here, and hold its outputs against what was recorded."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
from msgspec.structs import replace

from karat.bundles.cases import Case, cases
from karat.bundles.places import Place, require_root
from karat.findings import CannotVerify, ExitCode, Finding, KaratError, Severity, UsageError, fail
from karat.replays import judge
from karat.replays.judge import ReplayedCase, ReplayReport
from karat.replays.options import FunctionSpec, Progress, ReplayOptions, is_chosen, nothing_chosen
from karat.replays.processes import WorkerSetup, WorkFolders
from karat.replays.runners import CommandRunner, FunctionRunner, Runner, replay_all
from karat.store.place import open_word
from karat.system.command import Command
from karat.system.secrets import withhold

_KEPT = "replayed"
# pytest: 0 passed, 1 failed, 2 interrupted, 3 internal error, 4 usage, 5 nothing collected.
_PYTEST_CODES = {0: ExitCode.OK, 1: ExitCode.FAIL, 4: ExitCode.USAGE, **dict.fromkeys((3, 5), ExitCode.CANNOT_VERIFY)}


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
        wanted = [c for c in whole if is_chosen(c.path, c.manifest.identity, options.only)]
        done = {case.path: judge.damaged(case, *case.findings) for case in wanted if is_damaged(case)}
        sound = [case for case in wanted if case.path not in done]
        if sound:
            with open_runners(bundle, options, len(sound)) as runners:
                done |= {each.path: each for each in replay_all(sound, runners, progress)}
        findings = [*place.findings()]
        if not wanted:
            known = {case.path: case.manifest.identity for case in whole}
            findings.append(nothing_chosen(str(bundle), options.only, known))
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
                return CommandRunner(spec, options, folders, environment)
            setup = WorkerSetup(bundle=str(bundle), store=options.store, function=spec, options=options.case)
            return FunctionRunner(setup, options, folders, environment)

        runners = [runner() for _ in range(min(options.jobs, count))]
        try:
            runners[0].prepare()
            yield runners
        finally:
            for opened in runners:
                opened.close()


def run_pytest(bundle: str, options: ReplayOptions, words: Sequence[str]) -> int:
    """Replay in a pytest session with an item for every case, on this terminal; returns karat's exit code."""
    told = msgspec.json.encode((bundle, options), enc_hook=str).decode()
    plugin = ("-p", "karat.replays.pytest_items", "--karat-replay", told)
    done = subprocess.run([sys.executable, "-m", "pytest", *plugin, *words], check=False)
    if done.returncode == 2:
        return 130
    if done.returncode not in _PYTEST_CODES:
        said = f"expected pytest to run the session, but it ended with {done.returncode}"
        raise CannotVerify(said, next_command="python -m pytest --version")
    return int(_PYTEST_CODES[done.returncode])


def with_next_command(case: ReplayedCase, bundle: str, options: ReplayOptions) -> ReplayedCase:
    alone = Command(*_command(bundle, options), "--only", case.path, "--keep", _KEPT)
    verify = Command("karat", "verify", bundle, *(("--store", options.store) if options.store else ()))
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
    passed = [word for name in options.env_pass for word in ("--env-pass", name)]
    return ["karat", "replay", bundle, how, str(options.runner), *words, *passed]
