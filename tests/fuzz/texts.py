"""Readers of goldens, and of configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from factories import hunt_files
from factories.repositories import curves, golden_text
from fuzz.reader import READERS, Read, Reader, in_file, reader, text_of
from karat import api, config
from karat.checks.text import lines as check_lines, render_junit
from karat.diffs import history
from karat.diffs.report import (
    data as data_report,
    html as html_report,
    markdown as markdown_report,
    text as text_report,
)
from karat.engines.runner import read_identity
from karat.findings import KaratError
from karat.goldens import formats, provenance
from karat.hunts import hunt_toml
from karat.policy import exemptions
from karat.policy.approvals import code_owners, reviews
from karat.policy.gate.lists import BASELINE
from karat.runs.repeats import read_samples

_CURVES = {name: curve[:6] for name, curve in curves(1).items()}
GOLDENS: Mapping[str, Sequence[bytes]] = {
    "series-json": (golden_text(_CURVES).encode(), golden_text(_CURVES, indent=None, stop=3).encode(), b'{"loss": {"1": 2.5, "2": "nan"}}'),
    "series-lines": (b'{"step": 1, "loss": 2.5, "grad": {"norm": 1}}\n{"step": 2, "loss": 2.25}\n', b'{"iteration":1,"a b":1e-5}\r\n'),
    "series-text": (b"1.5\n2.25\nnan\n-3e-7\n", b"10.5 10.4 10.3\n", b"0: 1.5\n1: 1.25\n"),
    "table-csv": (b"model,accuracy,graph_breaks\nresnet,pass,0\nbert,fail_accuracy,3\n\n\nvit,pass,1\n", b'a;b;"c;d"\r\nx;"1\n2";3\r\n'),
    "document-json": (b'{"a": [1, 2.50, {"b": null}], "c": "\\u00e9", "d": true}\n', b"[1, [2, [3]]]", b'{"a": {"1": 2}, "a": 3}'),
}  # fmt: skip


def _golden(name: str, _: Path) -> Reader:
    form = formats.named(name)

    def read(data: bytes) -> None:
        form.claims(data)
        form.read(data)
        golden = formats.read(data, "golden").golden
        if golden is not None:
            formats.write(golden, like=data)
            formats.write(golden)

    return Reader(GOLDENS[name], read)


for _name in GOLDENS:
    READERS[f"golden {_name}"] = partial(_golden, _name)


@reader("goldens.lock.json")
def _golden_lock(folder: Path) -> Reader:
    line = b'"a/golden.json": {"source":"github","run":"7","attempt":1,"commit":"%s","job":"x","platform":"h100","sha256":"%s"}'
    seed = b'{\n%s,\n"schema": "karat.lock/1"\n}\n' % (line % (b"a" * 40, b"b" * 64))
    return Reader((seed,), lambda data: provenance.decode_lock(data, folder / "goldens.lock.json"))


@reader("samples")
def _samples(folder: Path) -> Reader:
    seed = b'{"schema": "karat.samples/1", "runs": [{"name": "a", "sha256": "%s"}], "metrics": {"loss": {"steps": [1, 2], "values": [[2.5, "nan"]]}}}'
    return Reader((seed % (b"a" * 64),), in_file(folder / "golden.samples.json", read_samples))


# Configuration

_DOCS = Path(__file__).parents[2] / "docs"


def _documented(page: str, read: Read) -> list[bytes]:
    """The TOML of a page that can be read as it stands."""
    found = re.findall(r"^```toml\n(.*?)^```", (_DOCS / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [text.encode() for text in found if _is_accepted(read, text.encode())]


def _is_accepted(read: Read, data: bytes) -> bool:
    try:
        read(data)
    except KaratError:
        return False
    return True


@reader("karat.toml")
def _karat_toml(folder: Path) -> Reader:
    (folder / ".git").mkdir()

    def read(_: Path) -> None:
        config.load(folder).rule_book()

    call = in_file(folder / "karat.toml", read)
    return Reader(
        [
            seed
            for page in ("config.md", "refresh.md", "record.md", "policy-approvals.md")
            for seed in _documented(page, call)
        ],
        call,
    )


@reader("pyproject.toml")
def _pyproject(folder: Path) -> Reader:
    (folder / ".git").mkdir()
    seed = b'[project]\nname = "x"\n[tool.karat.goldens]\npaths = ["a/**"]\n[tool.karat.record]\nsteps = 5\n'
    return Reader((seed,), in_file(folder / "pyproject.toml", lambda _: config.load(folder).rule_book()))


@reader("hunt.toml")
def _hunt_toml(folder: Path) -> Reader:
    call = text_of(lambda text: hunt_toml.parse(text, folder / "hunt.toml"))
    pages = ("hunt-toml.md", "hunt-containers.md", "hunt-packages.md", "hunt-checkouts.md", "hunt.md")
    seeds = [seed for page in pages for seed in _documented(page, call)]
    return Reader([*seeds, hunt_files.text().encode()], call)


@reader("exemptions.toml")
def _exemptions(_: Path) -> Reader:
    return Reader(_documented("policy.md", exemptions.parse), exemptions.parse)


@reader("policy baseline")
def _baseline(_: Path) -> Reader:
    return Reader(
        (b'{\n"tanh": null,\n"schema": "karat.policy-baseline/1"\n}\n',), lambda data: BASELINE.parse(data, "b.json")
    )


@reader("kept history")
def _kept_history(folder: Path) -> Reader:
    golden = history.Replaced("a.json", bytes(20), b"\1" * 20, {"lm loss": 1e-5})
    refreshes = [history.Refresh("a" * 40, 1_760_000_000, [golden])]
    kept = history.KeptHistory(tip="a" * 40, refreshes=refreshes)
    return Reader((msgspec.msgpack.encode(kept),), in_file(folder / "h", lambda path: history.load(path).moves()))


@reader("sign-off list")
def _sign_off(folder: Path) -> Reader:
    seed = b'schema = "karat.sign-off/1"\n[[approved]]\ndigest = "%s"\nrule = "exempt"\n' % (b"a" * 64)
    return Reader((seed,), in_file(folder / "s.toml", lambda path: reviews.read(path, None)))


@reader("CODEOWNERS")
def _code_owners(_: Path) -> Reader:
    seed = (
        b"# who\n*.js @octo/web ann@example.org\n/docs/**/a?.md @ann\n!/docs/x @b\n[Section][2] @octo/a @b\n^[Optional]\n/a/ \n"
        b"a\\ b/*/c[0-9] @ann\n"
    )

    def read(text: str) -> None:
        for forge in ("github", "gitlab"):
            code_owners.parse(text, forge).of("docs/deep/down/a1.md")

    return Reader((seed,), text_of(read))


@reader("golden against golden")
def _against(folder: Path) -> Reader:
    """A diff and a check of each with what it was, in every form in which they are told."""
    (folder / ".git").mkdir()
    seeds = [seed for some in GOLDENS.values() for seed in some]

    def read(data: bytes) -> None:
        (folder / "new").write_bytes(data)
        (folder / "old").write_bytes(seeds[len(data) % len(seeds)])
        for one, other in (("old", "new"), ("new", "old")):
            found = api.diff(one, other, cwd=folder)
            for render in (data_report.render_json, html_report.render, markdown_report.render):
                render(found)
            b"".join(data_report.render_csv(found))
            list(text_report.lines(found, width=80))
            checked = api.check(one, other, cwd=folder)
            render_junit(checked)
            list(check_lines(checked))

    return Reader(seeds, read)


@reader("identify command")
def _identify(_: Path) -> Reader:
    seeds = (b"commit.xla=abc\nversion = 1.5\nnoise\n", b'{"commit": {"xla": "abc"}, "n": [1, 2]}')
    return Reader(seeds, read_identity)
