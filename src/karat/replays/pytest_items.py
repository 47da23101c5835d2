"""A replay as a pytest session: `karat replay --pytest` starts one, with an item for every case."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from karat.bundles.cases import Case, cases
from karat.findings import CannotVerify, ExitCode, KaratError, Severity
from karat.replays.options import (
    DEFAULT_TIMEOUT,
    Choice,
    Function,
    Judging,
    Options,
    Runner,
    chosen,
    parse_command,
    parse_function,
)
from karat.replays.outcome import Replayed
from karat.replays.replay import (
    advised,
    already_damaged,
    is_damaged,
    open_stations,
    require_beginning,
)
from karat.replays.runners import Station
from karat.store.place import open_word
from karat.tensors.report import TITLES, cells, type_text, worst

# pytest: 0 passed, 1 failed, 2 interrupted, 3 internal error, 4 usage, 5 nothing collected.
_CODES = {
    0: ExitCode.OK,
    1: ExitCode.FAIL,
    3: ExitCode.CANNOT_VERIFY,
    4: ExitCode.USAGE,
    5: ExitCode.CANNOT_VERIFY,
}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a session is told beside its bundle and its runner, as JSON."""

    choice: Choice = Choice()
    judging: Judging = Judging()
    store: str | None = None
    timeout: float | None = None
    isolated: bool = False
    keep: str | None = None


def run_pytest(bundle: str, options: Options, words: Sequence[str]) -> int:
    """Run the session, on this terminal; its exit code in karat's words."""
    runner = options.runner
    said = "--karat-run" if isinstance(runner, Function) else "--karat-command"
    settings = Settings(
        choice=options.choice,
        judging=options.judging,
        store=options.store,
        timeout=options.timeout,
        isolated=options.isolated,
        keep=str(options.keep) if options.keep else None,
    )
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest"),
            *("--karat-replay", bundle, said, str(runner)),
            *("--karat-replay-settings", msgspec.json.encode(settings).decode()),
            *words,
        ],
        check=False,
    )
    if done.returncode == 2:
        return 130
    if done.returncode not in _CODES:
        raise CannotVerify(
            f"expected pytest to run the session, but it ended with {done.returncode}",
            next_command="python -m pytest --version",
        )
    return int(_CODES[done.returncode])


# DOC-HERE collecting: Collecting the cases of a bundle as pytest items: what `pytest --karat-replay BUNDLE` runs.
#
# The session then has these items and no others. Each worker of pytest-xdist collects them all, as pytest
# wants it, and replays its share through a station of its own, so a crash costs one item here, too.


class ReplayError(Exception):
    """A case did not match; what it says is the report."""

    def __init__(self, replayed: Replayed) -> None:
        super().__init__(replayed.path)
        self.replayed = replayed


def collect(session: pytest.Session) -> bool | None:
    """Fills the session with the cases of the bundle; None where xdist's workers do it."""
    config = session.config
    if config.pluginmanager.hasplugin("dsession"):
        return None
    stack = ExitStack()
    try:
        bundle = Bundle.from_parent(
            session, name=config.getoption("karat_replay"), options=_options(config), stack=stack
        )
        items = list(bundle.collect())
        if items and not config.option.collectonly:
            bundle.prepare()
    except KaratError as error:
        raise pytest.UsageError(f"{error}\nnext: {error.next_command}") from error
    finally:
        # Also where the session ends before its first item.
        config.add_cleanup(stack.close)
    session.items = list(items)
    hook = config.hook
    done = pytest.CollectReport(bundle.nodeid, "passed", longrepr=None, result=[*items])
    hook.pytest_collectreport(report=done)
    hook.pytest_collection_modifyitems(session=session, config=config, items=session.items)
    hook.pytest_collection_finish(session=session)
    session.testscollected = len(session.items)
    return True


def _options(config: pytest.Config) -> Options:
    run, command = config.getoption("karat_run"), config.getoption("karat_command")
    if (run is None) == (command is None):
        raise pytest.UsageError(
            "expected --karat-run module:function or --karat-command CMD with --karat-replay, "
            f"found {'neither' if run is None else 'both'}"
        )
    cwd = config.invocation_params.dir
    runner: Runner = parse_function(run) if run is not None else parse_command(command, cwd)
    told = config.getoption("karat_replay_settings")
    said = msgspec.json.decode(told, type=Settings) if told else Settings(timeout=DEFAULT_TIMEOUT)
    return Options(
        runner=runner,
        choice=said.choice,
        judging=said.judging,
        store=said.store,
        timeout=said.timeout,
        isolated=said.isolated,
        keep=_keep(said.keep),
    )


def _keep(folder: str | None) -> Path | None:
    """Each worker of xdist keeps its own cases in a folder of its own."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    return Path(folder, worker) if folder else None


class Bundle(pytest.Collector):
    """All chosen cases of a bundle, and the station that replays them."""

    def __init__(self, *, options: Options, stack: ExitStack, **rest: Any) -> None:
        super().__init__(nodeid=rest["name"], **rest)
        self._options, self._stack = options, stack
        self._station: Station | None = None

    def collect(self) -> Iterator[ReplayItem]:
        """An item per case."""
        place = self._stack.enter_context(closing(open_word(self.name, store=self._options.store)))
        require_beginning(place, self._options)
        for case in cases(place):
            if chosen(case.path, case.manifest.identity, self._options.choice):
                yield ReplayItem.from_parent(self, name=case.path, case=case)

    def prepare(self) -> None:
        """The station; a function that cannot be had is told before the first item."""
        stations = self._stack.enter_context(open_stations(self.name, self._options, 1))
        self._station = stations[0]

    def replay(self, case: Case) -> Replayed:
        """What became of a case."""
        if is_damaged(case) or self._station is None:
            replayed = already_damaged(case)
        else:
            replayed = self._station.replay(case)
        return advised(replayed, self.name, self._options)


class ReplayItem(pytest.Item):
    """One case."""

    def __init__(self, *, case: Case, **rest: Any) -> None:
        super().__init__(**rest)
        self._case = case
        identity = case.manifest.identity
        self.extra_keyword_matches.update({identity.suite, identity.flow, identity.test})

    def runtest(self) -> None:
        """Replay it; a finding that fails, fails the item."""
        bundle = self.getparent(Bundle)
        if bundle is None:
            raise RuntimeError("a case without its bundle")
        replayed = bundle.replay(self._case)
        self.user_properties.append(("outcome", replayed.outcome.value))
        at_worst = worst(replayed.comparisons)
        if at_worst is not None:
            named = zip(TITLES, cells(at_worst.numbers), strict=True)
            self.user_properties += [(title, value) for title, value in named if value]
        if replayed.severity is Severity.FAIL:
            raise ReplayError(replayed)
        for line in _lines(replayed):
            self.add_report_section("call", "karat replay", line)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """What karat says, rather than where in karat it was raised."""
        error = excinfo.value
        if isinstance(error, ReplayError):
            return "\n".join(_lines(error.replayed))
        if isinstance(error, KaratError):
            return f"{error}\nnext: {error.next_command}"
        return super().repr_failure(excinfo, style=style)

    def reportinfo(self) -> tuple[Path, None, str]:
        """What pytest shows in front of the outcome."""
        return Path(self.name), None, self._case.manifest.identity.test


def _lines(replayed: Replayed) -> Iterable[str]:
    yield f"{replayed.outcome.value}: {replayed.path}"
    for comparison in replayed.comparisons:
        named = zip(TITLES, cells(comparison.numbers), strict=True)
        numbers = ", ".join(f"{title} {value}" for title, value in named if value)
        yield f"  {comparison.name} {type_text(comparison)}: {numbers}"
    for finding in replayed.findings:
        yield f"  {finding.severity.value} {finding.kind}: {finding.message}"
    advice = next((f.next for f in replayed.findings if f.next), None)
    if advice:
        yield f"next: {advice}"
