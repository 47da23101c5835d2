"""What commands share: common options, where reports go, and what a terminal shows."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from karat.findings import CannotVerify, Finding, UsageError, exit_code, parse_fail_on
from karat.system.command import Command, takes

if TYPE_CHECKING:
    from karat.report.terminal import Line

_words: list[str] = []
_leaving: list[bool] = []
_limit: list[int] = []
_told: list[bool] = []
F = TypeVar("F", bound=Callable[..., object])


quiet_option = click.option("-q", "--quiet", is_flag=True, help="Print only the requested outputs.")

jobs_option = click.option(
    "-j", "--jobs", type=click.IntRange(1, 64), metavar="N", help="Number of processes (default: chosen automatically)."
)
preset_option = click.option("--preset", metavar="NAME", help="megatron-lm or pytorch-dynamo; overrides karat.toml.")
fail_on_option = click.option(
    "--fail-on",
    multiple=True,
    metavar="WHAT",
    callback=lambda context, _, words: (
        parse_fail_on(words, "--fail-on", f"{context.command_path} --help") if words else None
    ),
    help="Exit with 1 on findings of this severity or worse: fail (default), warn, info or none; or also on this kind of "
    "finding. Repeatable.",
)


history_option = click.option(
    "--history/--no-history",
    default=None,
    help="Hold moves against those of earlier refreshes in git. Default: as in karat.toml, else once it was asked for.",
)
_WRITES = {
    "csv": "Write file,metric,n_steps,avg_rel_diff",
    "sarif": "Write SARIF 2.1.0 for code scanning",
    "markdown": "Write a Markdown report",
    "html": "Write one self-contained page",
    "junit": "Write JUnit XML",
}


def together(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Several options as one decorator, in their order."""
    return lambda function: functools.reduce(lambda made, option: option(made), reversed(options), function)


def repeatable(name: str, metavar: str, said: str, *, to: str | None = None) -> Callable[[F], F]:
    """An option that may be given several times, handed on as `to`."""
    names = (name, to) if to else (name,)
    return click.option(*names, multiple=True, metavar=metavar, help=f"{said} Repeatable.")


class Reports(msgspec.Struct, frozen=True):
    """Where a command's reports go: files that were asked for, the terminal, and CI."""

    targets: Mapping[str, str | None]
    quiet: bool
    github: bool | None = None

    @property
    def taken(self) -> bool:
        """Whether a report has stdout for itself."""
        return "-" in self.targets.values()

    @property
    def shown(self) -> bool:
        """Whether a person is to read it on stdout."""
        return not (self.quiet or self.taken)

    def wants(self, *names: str) -> bool:
        """Whether one of these reports was asked for."""
        return any(self.targets[name] is not None for name in names)

    def write(self, **made: Callable[[], bytes | str | Iterable[bytes]]) -> None:
        """Make and deliver what was asked for, and nothing else: stdout last, for what it says must still hold then."""
        for name, make in sorted(made.items(), key=lambda one: self.targets[one[0]] == "-"):
            if (target := self.targets[name]) is not None:
                deliver(target, make())

    def show(self, lines: Callable[[], Iterable[Line | str]]) -> None:
        """On stdout, if that is not quiet and not taken."""
        if self.shown:
            from karat.report.terminal import print_lines

            print_lines(lines(), sys.stdout)

    def end(self, findings: Iterable[Finding], fail_on: Sequence[str] = ("fail",), otherwise: str = "") -> None:
        """Every failure ends with the next command: the first finding's that makes the exit code."""
        if not self.quiet:
            last_line(findings, fail_on, otherwise)

    def finish(
        self,
        schema: str,
        report: Any,
        lines: Callable[[], Iterable[Line | str]],
        *,
        fail_on: Sequence[str] = ("fail",),
        otherwise: str = "",
        ci: Mapping[str, Any] | None = None,
        **made: Callable[[], bytes | str],
    ) -> int:
        """Write and show a report with findings, tell CI of it, and the next command; the exit code that it deserves."""
        from karat.report.json import encode_report

        code = int(exit_code(report.findings, fail_on=fail_on))
        self.write(json=lambda: encode_report(schema, report, code=code), **made)
        self.show(lines)
        if ci:
            self.tell_ci(findings=report.findings, **ci)
        self.end(report.findings, fail_on, otherwise if code else "")
        return code

    def tell_ci(
        self,
        verb: str,
        headline: str,
        findings: Sequence[Finding],
        *,
        own_junit: bool = False,
        checked: Iterable[str] = (),
        summary: Callable[[int], str] | None = None,
    ) -> None:
        """JUnit XML, unless the gate has its `own_junit`, and GitHub's annotations and step summary.

        `checked` are paths, of which each is a test.
        """
        if not own_junit:
            from karat.report.junit import render_findings

            self.write(junit=lambda: render_findings(verb, checked, findings))
        github = self.github
        if github is None:
            from karat.system.ci import provider_of

            github = provider_of() == "github"
        if github:
            from karat.report.github import add_step_summary, findings_summary, workflow_commands

            stream = sys.stderr if self.taken else sys.stdout
            stream.write(workflow_commands(findings, verb))
            add_step_summary(summary or (lambda room: findings_summary(f"{verb}: {headline}", findings, room)))


def report_options(schema: str, *kinds: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """`--json`, others by name and `--quiet`, handed on as `out`; with `junit` comes `--github`."""
    options = [
        click.option("--json", "json_file", metavar="F", help=f"Write the report, schema {schema}; - is stdout.")
    ]
    options += [click.option(f"--{kind}", metavar="F", help=f"{_WRITES[kind]}; - is stdout.") for kind in kinds]
    if "junit" in kinds:
        said = "Write annotations and a step summary; by default where GITHUB_ACTIONS is true."
        options.append(click.option("--github/--no-github", default=None, help=said))

    def decorate(function: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(function)
        def called(*, json_file: str | None, quiet: bool, github: bool | None = None, **given: Any) -> int:
            targets = {"json": json_file, **{kind: given.pop(kind) for kind in kinds}}
            one_report_each({f"--{kind}": target for kind, target in targets.items()})
            return function(**given, out=Reports(targets, quiet, github))

        return together(*options, quiet_option)(called)

    return decorate


_number = click.IntRange(min=1)
request_options = together(
    click.option("--pr", "pull", type=_number, metavar="N", help="The pull request on GitHub. Default: CI's."),
    click.option("--merge-request", "merge", type=_number, metavar="N", help="The one on GitLab. Default: CI's."),
    click.option("--repo", metavar="O/N", help="Repository or project. Default: CI's, else the remote origin's."),
)
"""Which pull or merge request it is about."""


def remember(words: Sequence[str]) -> None:
    """Keep what was typed, for advice and records; `karat demo` types for the user."""
    _words[:] = words
    _limit.clear()
    _told.clear()


def json_wanted() -> bool:
    """Whether `--json -` was typed: whoever reads stdout expects a document, whatever happens."""
    own = _words[: _words.index("--")] if "--" in _words else _words  # what follows -- is somebody else's
    pairs = pairwise([*own, ""])
    return "--json=-" in own or ("--json", "-") in pairs or (own[:1] == ["config"] and "--json" in own)


def json_error(message: str, next_command: str, code: int) -> None:
    """With `--json -`, the error as a document on stdout, schema karat.error/1; nothing if the report is there already."""
    if json_wanted() and not _told:
        from karat.report.json import encode

        document = {"schema": "karat.error/1", "exit_code": code, "error": message, "next": str(next_command)}
        deliver("-", encode(document))


def limit_json(context: click.Context, option: click.Parameter, value: int | None) -> None:  # noqa: ARG001 - click's
    """What `--json-limit` says, until the report is written."""
    _limit[:] = [value] if value else []


def _on_stdout(text: bytes) -> bytes:
    """A JSON report for a program: on one line, with lists no longer than `--json-limit`."""
    import msgspec

    if not _limit:
        return msgspec.json.format(text, indent=-1) + b"\n"
    left_out: dict[str, int] = {}

    def cut(value: object, where: str) -> object:
        if isinstance(value, dict):
            return {key: cut(item, f"{where}.{key}" if where else str(key)) for key, item in value.items()}
        if isinstance(value, list):
            if len(value) > _limit[0]:
                left_out[where] = left_out.get(where, 0) + len(value) - _limit[0]
            return [cut(item, f"{where}[]") for item in value[: _limit[0]]]
        return value

    shortened = cut(msgspec.json.decode(text), "")
    more = {"left_out": left_out} if left_out else {}
    return msgspec.json.encode({**shortened, **more} if isinstance(shortened, dict) else shortened) + b"\n"


def with_exit_code(report: bytes, code: int) -> bytes:
    """A JSON report with the exit code behind its schema, for programs that see nothing but stdout."""
    return re.sub(rb'("schema": ?"[^"]*",)(\s*)', rb'\1\2"exit_code": %d,\2' % code, report, count=1)


def typed() -> Command:
    return Command("karat", *_words)


def leave_at_once() -> None:
    """Let the process end without waiting for libraries that would end it their own way, with a code of their own."""
    _leaving.append(True)


def left_at_once() -> bool:
    """Whether somebody asked for that."""
    return bool(_leaving)


def one_report_each(targets: Mapping[str, str | None]) -> None:
    """Two reports in one place would be neither."""
    by_target: dict[str, list[str]] = {}
    for option, target in targets.items():
        if target is not None:
            by_target.setdefault(target, []).append(option)
    for target, options in by_target.items():
        if len(options) > 1 or not target:
            place = "stdout" if target == "-" else target
            said = f"expected at most one report on {place}, found {' and '.join(options)}"
            said = said if target else f"expected a file for {options[0]}, found an empty name"
            raise UsageError(said, next_command=Command("karat", _words[0] if _words else "diff", "--help"))


def complain(message: str, next_command: str) -> None:
    """An error in karat's voice, on stderr; names in it are not to be trusted."""
    from karat.report.terminal import say

    say(f"karat: {message}", sys.stderr)
    say(f"next: {next_command}", sys.stderr)


def last_line(findings: Iterable[Finding], fail_on: Sequence[str] = ("fail",), otherwise: str = "") -> None:
    """Every failure ends with the next command: the first finding's that makes the exit code."""
    from karat.report.terminal import say

    helpful = (f.next for f in findings if f.next and not takes(f.next) and exit_code([f], fail_on=fail_on))
    found = next(helpful, otherwise)
    if found:
        sys.stdout.flush()  # in a log both streams are one, and this is the end of it
        say(f"next: {found}", sys.stderr)


def deliver(target: str, content: bytes | str | Iterable[bytes]) -> None:
    """Write a report, whole or in pieces, to a file, all of it or nothing, or to stdout for `-`."""
    whole = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    pieces = [whole] if isinstance(whole, bytes) else whole
    if target == "-" and json_wanted():
        whole = b"".join(pieces)
        _told.append(True)
        pieces = [_on_stdout(whole) if whole.startswith(b"{") else whole]
    shown = target == "-" or (target.startswith(("/dev/", "/proc/")) and not target.startswith("/dev/shm/"))  # noqa: S108
    if shown:
        from karat.report.words import in_a_log
        from karat.system.ci import in_ci, provider_of

        # Not every CI sets the variable CI.
        seen = in_ci() or provider_of() is not None or sys.stdout.isatty()
        text = in_a_log(b"".join(pieces).decode("utf-8", "backslashreplace"), escaping=seen)
        pieces = [text.encode()]
    if target == "-":
        sys.stdout.flush()
        # An unbuffered stdout may take a part and say so.
        rest = memoryview(b"".join(pieces))
        while rest:
            rest = rest[sys.stdout.buffer.write(rest) :]
        sys.stdout.buffer.flush()
        return
    from karat.system.files import write_bytes

    path = Path(target)
    try:
        if shown or (path.exists() and not path.is_file()):
            # /dev/stdout, a pipe of the shell: nothing to replace atomically.
            path.write_bytes(b"".join(pieces))
        else:
            write_bytes(path.resolve(), pieces, durable=False)
    except OSError as error:
        said = f"expected to write {target}, but: {error.strerror or error}"
        raise CannotVerify(said, next_command=Command("ls", "-ld", str(path.parent))) from error


def progress_line(
    stream: IO[str], words: str, *, least: int = 200, every: int = 50
) -> Callable[[int, int], None] | None:
    """A line on a terminal that counts: `words` with {done} and {total}; None elsewhere.

    Nothing is shown of work with fewer than `least` steps, which is over before anyone has read the line.
    """
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        return None

    def show(done: int, total: int) -> None:
        if total >= least and (done % every == 0 or done >= total):
            text = words.format(done=f"{done:,}", total=f"{total:,}")
            stream.write("\r\033[K" if done >= total else f"\r{text}")
            stream.flush()

    return show


def bytes_line(stream: IO[str], verb: str) -> Callable[[int, int], None] | None:
    """The same for bytes: `packing 120/400 MB`."""
    show = progress_line(stream, f"{verb} {{done}}/{{total}} MB", least=64, every=1)
    return show and (lambda done, total: show(done // 1_000_000, total // 1_000_000))
