"""Waivers: every place where a project lets a gradient go unchecked, or be checked less."""

from __future__ import annotations

import hashlib

import msgspec


class Waiver(msgspec.Struct, frozen=True, kw_only=True):
    """One of them, on one side of a range."""

    rule: str
    kind: str
    """`skip`, `flag`, `tolerance`, `step`, `bound`, `own-gradients`, `no-grad`, `exemption`, `baseline`, `setting`."""
    path: str
    line: int = 0
    scope: str = ""
    """The class or function it stands in, or the tests an exemption speaks of."""
    op: str = ""
    about: str = ""
    """Which of several in one scope: the argument, and the call that it is given to."""
    value: str = ""
    """What is granted, where that is neither a number nor a list: a reason, an expression."""
    amounts: tuple[float, ...] = ()
    """Where more is laxer: tolerances, the day an exemption ends."""
    parts: tuple[str, ...] = ()
    """Where more of them is laxer: inputs without a gradient."""
    shown: str = ""
    """What is granted, for people."""
    body: str = ""
    """A digest of the definition around it, by which moved code is known."""

    @property
    def identity(self) -> tuple[str, ...]:
        """What it is about, whatever it grants; the file is not a part of it."""
        return (self.rule, self.kind, self.scope, self.op, self.about)

    @property
    def grant(self) -> tuple[object, ...]:
        """What it grants."""
        return (self.value, self.amounts, self.parts)

    @property
    def label(self) -> str:
        """For tables: what it is, and where it stands."""
        where = f" of {self.scope}" if self.scope not in {"", "*"} else ""
        op = f" (op {self.op})" if self.op else ""
        return f"{self.about or self.kind}{where}{op}"

    @property
    def place(self) -> str:
        """`file.py:12`."""
        return f"{self.path}:{self.line}" if self.line else self.path

    def no_laxer_than(self, other: Waiver) -> bool:
        """Whether it grants nothing that the other did not."""
        if self.value != other.value or len(self.amounts) != len(other.amounts):
            return False
        # Not `>`, which is false for NaN.
        tighter = all(mine <= its for mine, its in zip(self.amounts, other.amounts, strict=True))
        return tighter and set(self.parts) <= set(other.parts)


class PolicyChange(msgspec.Struct, frozen=True, kw_only=True):
    """A waiver that a range adds, or makes laxer."""

    waiver: Waiver
    before: Waiver | None = None
    note: str = ""
    """What else a person should know: that a class was renamed, that nothing but the op changed."""

    @property
    def what(self) -> str:
        """`added` or `changed`."""
        return "added" if self.before is None else "changed"

    @property
    def digest(self) -> str:
        """What a sign-off is bound to: the change itself, wherever the branch's head is."""
        sides = [_signed(self.waiver), _signed(self.before) if self.before else None]
        return hashlib.sha256(msgspec.json.encode(sides)).hexdigest()


def _signed(waiver: Waiver) -> list[object]:
    texts = (*waiver.identity, waiver.path, waiver.value)
    safe = [text.encode("utf-8", "backslashreplace").decode() for text in texts]
    # Infinity, which an exemption without an end has, is no number of JSON.
    return [*safe, [repr(amount) for amount in waiver.amounts], list(waiver.parts)]
