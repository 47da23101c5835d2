"""The cases of a bundle as pytest items: the plugin that `karat replay BUNDLE --pytest` loads.

The session then has these items and no others. Each worker of pytest-xdist collects them all, as pytest
wants it, and replays its share through a runner of its own, so a crash costs one item here, too.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from karat.bundles.cases import Case, cases
from karat.findings import KaratError, Severity
from karat.replays import judge
from karat.replays.judge import ReplayedCase
from karat.replays.options import ReplayOptions, is_chosen
from karat.replays.replay import is_damaged, open_runners, require_capture_root, with_next_command
from karat.replays.report import comparison_line
from karat.replays.runners import Runner
from karat.report.words import log_line
from karat.store.place import open_word


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--karat-replay", metavar="JSON", help=argparse.SUPPRESS)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> bool | None:
    config = session.config
    if config.pluginmanager.hasplugin("dsession"):
        return None
    stack = ExitStack()
    try:
        told = config.getoption("karat_replay")
        name, options = msgspec.json.decode(
            told, type=tuple[str, ReplayOptions], dec_hook=lambda kind, text: kind(text)
        )
        # Each worker of xdist keeps its own cases in a folder of its own.
        worker = os.environ.get("PYTEST_XDIST_WORKER", "")
        options = msgspec.structs.replace(options, jobs=1, keep=options.keep and options.keep / worker)
        bundle = Bundle.from_parent(session, name=name, options=options, stack=stack)
        items = list(bundle.collect())
        if items and not config.option.collectonly:
            bundle.prepare()
    except KaratError as error:
        raise pytest.UsageError(f"{error}\nnext: {error.next_command}") from error
    finally:
        # Also if the session ends before its first item.
        config.add_cleanup(stack.close)
    session.items = list(items)
    hook = config.hook
    done = pytest.CollectReport(bundle.nodeid, "passed", longrepr=None, result=[*items])
    hook.pytest_collectreport(report=done)
    hook.pytest_collection_modifyitems(session=session, config=config, items=session.items)
    hook.pytest_collection_finish(session=session)
    session.testscollected = len(session.items)
    return True


class Bundle(pytest.Collector):
    def __init__(self, *, options: ReplayOptions, stack: ExitStack, **rest: Any) -> None:
        super().__init__(nodeid=rest["name"], **rest)
        self._options, self._stack = options, stack
        self._runner: Runner | None = None

    def collect(self) -> Iterator[ReplayItem]:
        place = self._stack.enter_context(closing(open_word(self.name, store=self._options.store)))
        require_capture_root(place, self._options)
        for case in cases(place):
            if is_chosen(case.path, case.manifest.identity, self._options.only):
                yield ReplayItem.from_parent(self, name=case.path, case=case)

    def prepare(self) -> None:
        """Open the runner; a function that cannot be imported is reported before the first item."""
        (self._runner,) = self._stack.enter_context(open_runners(self.name, self._options, 1))

    def replay(self, case: Case) -> ReplayedCase:
        if is_damaged(case) or self._runner is None:
            replayed = judge.damaged(case, *case.findings)
        else:
            replayed = self._runner.replay(case)
        return with_next_command(replayed, self.name, self._options)


class ReplayItem(pytest.Item):
    def __init__(self, *, case: Case, **rest: Any) -> None:
        super().__init__(**rest)
        self._case = case

    def runtest(self) -> None:
        """Replay it; a finding that fails, fails the item."""
        bundle = self.getparent(Bundle)
        if bundle is None:
            raise RuntimeError("a case without its bundle")
        replayed = bundle.replay(self._case)
        self.user_properties.append(("outcome", replayed.outcome.value))
        lines = [f"{replayed.outcome.value}: {replayed.path}"]
        lines += [f"  {comparison_line(comparison)}" for comparison in replayed.comparisons]
        lines += [f"  {finding.severity.value} {finding.kind}: {finding.message}" for finding in replayed.findings]
        lines += [f"next: {finding.next}" for finding in replayed.findings if finding.next][:1]
        text = "\n".join(map(log_line, lines))
        if replayed.severity is Severity.FAIL:
            pytest.fail(text, pytrace=False)
        self.add_report_section("call", "karat replay", text)

    def reportinfo(self) -> tuple[Path, None, str]:
        return Path(self.name), None, self._case.manifest.identity.test
