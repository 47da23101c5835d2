"""What public functions return: plain data, a table, and a cell of a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from karat.findings import UsageError

_MOST_ROWS = 200  # Rows in a notebook; the rest is counted.


class Result:
    """Mixed into every result. A class says what it is as data, as rows and in one line; the rest follows."""

    __slots__ = ()

    if TYPE_CHECKING:

        def to_json(self) -> bytes:
            """The result as its published JSON schema has it."""
            ...

        def rows(self) -> list[dict[str, Any]]:
            """The result as a table: one dictionary per row, all with the same keys."""
            ...

        def headline(self) -> str:
            """The result in one line."""
            ...

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data, as its published JSON schema has it."""
        import json

        found: dict[str, Any] = json.loads(self.to_json())
        return found

    def to_pandas(self) -> Any:
        """The table as a pandas `DataFrame`."""
        try:
            import pandas as pd
        except ImportError as error:
            said = "to_pandas needs pandas, which is not installed"
            raise UsageError(said, next_command="pip install pandas") from error
        return pd.DataFrame(self.rows())

    def _repr_html_(self) -> str:
        """The headline and the table, as a notebook shows them."""
        from html import escape

        rows = self.rows()
        more = len(rows) - _MOST_ROWS
        parts = [f"<p><b>karat</b>: {escape(self.headline())}</p>"]
        if rows:
            head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in rows[0])
            body = "".join(f"<tr>{''.join(map(_cell, row.values()))}</tr>" for row in rows[:_MOST_ROWS])
            parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
        if more > 0:
            parts.append(f"<p>and {more:,} more rows: to_pandas() has them all</p>")
        return f"<div>{''.join(parts)}</div>"


def _cell(value: object) -> str:
    from html import escape

    if isinstance(value, str):  # notebooks set cells to the right, which suits numbers
        return f'<td style="text-align: left">{escape(value)}</td>'
    return f"<td>{'' if value is None else escape(f'{value:.4g}' if isinstance(value, float) else str(value))}</td>"
