"""Coverage for programs: schema karat.policy-coverage/1."""

from __future__ import annotations

from typing import Any

import msgspec

from karat.findings import exit_code
from karat.policy.coverage import ROW_STATES, Coverage, Row
from karat.report.plain import encode, finding_json

SCHEMA = "karat.policy-coverage/1"


def document(found: Coverage) -> bytes:
    """The JSON text of a matrix."""
    states = found.states
    return encode(
        {
            "schema": SCHEMA,
            "exit_code": int(exit_code(found.findings)),
            "journals": found.journals,
            "sessions": found.sessions,
            "states": {state: states[state] for state in ROW_STATES},
            "columns": [msgspec.to_builtins(column) for column in found.columns],
            "ops": [_row(row) for row in found.rows],
            "findings": [finding_json(finding) for finding in found.findings],
        }
    )


def _row(row: Row) -> dict[str, Any]:
    cells = [{**msgspec.to_builtins(cell.column), **_without_column(cell)} for cell in row.cells]
    return {"op": row.op, "state": row.state, "tests": list(row.tests), "cells": cells}


def _without_column(cell: msgspec.Struct) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(cell)
    return {key: value for key, value in plain.items() if key != "column"}
