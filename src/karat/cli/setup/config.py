"""`karat config` and `karat schema`: what holds here, and the schemas of what karat writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from karat.cli.output import deliver, repeatable
from karat.findings import CannotVerify, UsageError
from karat.report.terminal import say
from karat.report.words import count

if TYPE_CHECKING:
    from karat.presets.suite import SuiteFact

_METRICS = ("lm loss", "num-zeros", "mem-allocated-bytes", "iteration-time", "graph_breaks", "expected")
_EXAMPLES = """
  karat config --show-origin
  karat config --metric "lm loss"      the thresholds that judge one metric
  karat config --from-suite            what the suite's own code and data say
"""


@click.command(epilog=_EXAMPLES)
@click.option("--show-origin", is_flag=True, help="Say where each value came from.")
@repeatable("--metric", "NAME", "Show the rule of this metric.", to="metrics")
@click.option("--golden", metavar="PATH", help="Show rules as they hold for this golden.")
@click.option(
    "--from-suite", is_flag=True, help="Show what the suite's own tree says about its gate, and where it says so."
)
@click.option("--preset", metavar="NAME", help="As if karat.toml named this preset.")
@click.option(
    "--json",
    "json_file",
    is_flag=False,
    flag_value="-",
    metavar="[F]",
    help="Write the configuration, schema karat.config/1; -, or no F, is stdout.",
)
def command(
    *, metrics: tuple[str, ...], golden: str | None, from_suite: bool, json_file: str | None, **given: Any
) -> int:
    """Show the configuration in force, and where each value came from."""
    from msgspec import to_builtins
    from msgspec.structs import asdict

    from karat.config import TABLES, load
    from karat.report.json import encode

    config = load(Path.cwd(), preset=given["preset"])
    book = config.rule_book()
    facts: list[SuiteFact] = []
    if from_suite:
        from karat.checks.lookup import Tree, Where

        if (suite := config.suite_tree()) is None:
            raise UsageError(
                "expected a preset, or [suite] in karat.toml, that says where a suite states its gate, found neither",
                next_command="karat config --from-suite --preset megatron-lm",
            )
        tree = Tree(Where(cwd=config.root, globs=tuple(config.paths), exclude=tuple(config.exclude)))
        if not (facts := suite.facts(tree.goldens)):
            raise CannotVerify(
                f"expected files of the suite below {config.root}, found none: the preset's own rules hold",
                next_command="karat config --show-origin",
            )
    values: dict[str, Any] = {
        "preset": config.preset,
        "goldens.paths": list(config.paths),
        "goldens.exclude": list(config.exclude),
        "goldens.cases": list(config.cases),
        "status": list(config.status),
        "fail_on": list(config.fail_on),
        "history": config.history,
    }
    for table in TABLES:
        plain = to_builtins(getattr(config, table))
        values |= {f"{table}.{k}": v for k, v in plain.items() if v not in (None, [], {})}
    if config.exempt:
        values["exempt"] = [to_builtins(entry) for entry in config.exempt]
    rules = {name: asdict(book.gate_rule_for(name, golden or "")) for name in metrics or _METRICS}
    if json_file is not None:
        document = {
            "schema": "karat.config/1",
            "exit_code": 0,
            "file": str(config.file) if config.file else None,
            "values": values,
            "origins": {key: config.origins.get(key, "default") for key in values},
            "rules": rules,
            "suite": to_builtins(facts) if from_suite else None,
        }
        # Thresholds that are off are infinite; JSON has no word for that, so they are null.
        deliver(json_file, encode(document))
        return 0
    if from_suite:
        for fact in facts:
            more = f" and {count(fact.files - 1, 'other file')}" if fact.files > 1 else ""
            say(f"{fact.says}  # {fact.origin}{more}")
        return 0
    say(f"# {config.file or 'no karat.toml found: defaults'}")
    for key, value in values.items():
        origin = f"  # {config.origins.get(key, 'default')}" if given["show_origin"] else ""
        say(f"{key} = {json.dumps(value, ensure_ascii=False)}{origin}")
    for name, rule in rules.items():
        origin = f"  # {rule['pattern']}, {rule['origin']}" if given["show_origin"] else ""
        say("")
        say(f"[rule for {json.dumps(name, ensure_ascii=False)}]{origin}")
        for key, value in rule.items():
            if key not in {"pattern", "origin"} and value is not None:
                shown = f"{value:g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
                say(f"{key} = {shown}")
    return 0


@click.command(epilog="  karat schema karat.diff/1 > karat.diff.1.json")
@click.argument("name", required=False)
def schema(*, name: str | None) -> int:
    """Print a published JSON schema; without NAME, list them."""
    from karat import schemas

    known = schemas.names()
    if name is None:
        deliver("-", "".join(f"{one}\n" for one in known))
        return 0
    if name not in known:
        raise UsageError(f"no schema is called {name!r}; there are {', '.join(known)}", next_command="karat schema")
    deliver("-", json.dumps(schemas.schema(name), indent=2, ensure_ascii=False) + "\n")
    return 0
