"""`karat git-setup`."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from karat.cli.output import deliver
from karat.findings import CannotVerify, UsageError
from karat.system.command import Command

_BEGIN, _END = "# >>> karat git-setup", "# <<< karat git-setup"
_BLOCK = re.compile(rf"{_BEGIN}\r?\n.*?{_END}\r?\n", re.DOTALL)
_EXAMPLES = """
  karat git-setup            git merges goldens by metric and step; git diff shows one value per line
  karat git-setup --undo
"""


@click.command(epilog=_EXAMPLES)
@click.option("--undo", is_flag=True, help="Remove all of it.")
@click.option("--merge", nargs=5, metavar="BASE OURS THEIRS SIZE PATH", help="What git calls to merge: %O %A %B %L %P.")
@click.option("--textconv", metavar="FILE", help="What git calls to show a golden, one value per line.")
def command(*, undo: bool, merge: tuple[str, str, str, str, str] | None, textconv: str | None) -> int:
    """Let git merge goldens by metric and step, and show one value per line.

    Writes a block of .gitattributes, to be committed, and two sections of this repository's own configuration. Run it again to bring both up to date.
    """
    if merge is not None:
        return _merge(*merge)
    if textconv is not None:
        from karat.diffs.merge import readable

        deliver("-", "".join(f"{line}\n" for line in readable(_read(textconv), textconv)))
        return 0
    from karat.config import load
    from karat.goldens.provenance import NAME
    from karat.report.terminal import say
    from karat.system import git

    root = git.ensure_repository(Path.cwd(), next_command="git init")
    file = root / ".gitattributes"
    if file.is_symlink() or file.is_dir():
        found = "a symbolic link" if file.is_symlink() else "a folder"
        raise UsageError(
            f"expected a plain file at {file}, found {found}", next_command=Command("ls", "-ld", str(file))
        )
    config = None if undo else load(root)  # before anything is changed
    # Not from the repository's folder: a package of its own that is called karat would be run instead.
    karat = f"{shlex.quote(sys.executable)} -P -m karat git-setup"
    settings = {
        "merge.karat.name": "goldens by metric and step",
        "merge.karat.driver": f"{karat} --merge %O %A %B %L %P",
        "diff.karat.textconv": f"{karat} --textconv",
    }
    known = git.run_git(root, "config", "--local", "--list", "--name-only").decode().split()
    for section in sorted({name.rpartition(".")[0] for name in settings}):
        if any(name.startswith(f"{section}.") for name in known):
            git.run_git(root, "config", "--local", "--remove-section", section)
    before = file.read_bytes().decode("utf-8", "surrogateescape") if file.exists() else ""
    kept = _BLOCK.sub("", before)
    if config is None:
        after = kept
    else:
        for name, value in settings.items():
            git.run_git(root, "config", "--local", name, value)
        # .gitattributes knows no braces; of two lines that fit a file, the last one counts.
        block = [_BEGIN]
        for glob in dict.fromkeys(one for path in config.paths for one in _expanded(path)):
            both = "merge=karat " if glob.endswith((".json", "*")) else ""
            block.append(f"{_pattern(glob)} {both}diff=karat")
        block.append(f"{NAME} merge=karat")
        left_out = dict.fromkeys(one for path in config.exclude for one in _expanded(path))
        block += [*(f"{_pattern(glob)} !merge !diff" for glob in left_out), _END]
        gap = "\n" if kept and not kept.endswith("\n") else ""
        after = kept + gap + "".join(f"{line}\n" for line in block)
    if not after and before:
        file.unlink()
    elif after != before:
        deliver(str(file), after.encode("utf-8", "surrogateescape"))
    if undo:
        say("git merges and shows goldens as any other file again")
    else:
        shown = os.path.relpath(file)
        say(
            f"{'wrote' if after != before else 'kept'} {shown}, and merge.karat and diff.karat in this repository's configuration"
        )
        say(f"next: git diff -- {shown}  # and commit it; whoever else is to have it runs karat git-setup", sys.stderr)
    return 0


def _merge(base: str, ours: str, theirs: str, size: str, path: str) -> int:
    """Git's contract: the result replaces OURS; 0 without a conflict, 1 with one, and 129 or more where nothing was merged."""
    from karat.diffs.merge import merge
    from karat.system.files import write_bytes

    try:
        marker_size = int(size) if size.isdecimal() else 7
        merged, clean = merge(_read(base), _read(ours), _read(theirs), path, marker_size=marker_size)
        write_bytes(ours, merged, durable=False)
    except (CannotVerify, OSError) as error:
        from karat.report.terminal import say

        say(f"karat: {path} was not merged: {error}", sys.stderr)
        return 129
    return 0 if clean else 1


def _read(file: str) -> bytes:
    from karat.system.foreign.limits import GOLDEN, read_plain

    try:
        return read_plain(Path(file), GOLDEN)
    except OSError as error:
        said = f"expected to read {file}, but: {error.strerror or error}"
        raise CannotVerify(said, next_command=Command("ls", "-l", file)) from error


def _expanded(glob: str) -> Iterator[str]:
    found = re.search(r"\{([^{}/]*)\}", glob)
    if found is None:
        yield glob
        return
    for word in found[1].split(","):
        yield from _expanded(glob[: found.start()] + word + glob[found.end() :])


def _pattern(glob: str) -> str:
    """From the root of the repository, as karat's globs are, and quoted where git wants it."""
    placed = glob if glob.startswith("**/") else f"/{glob}"
    return '"' + placed.replace("\\", "\\\\").replace('"', '\\"') + '"' if re.search(r'[\s"#!\\]', placed) else placed
