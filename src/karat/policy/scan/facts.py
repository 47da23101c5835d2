"""What one Python file says about op tests, as far as its text alone can say it.

Frozen data that travels between processes as msgpack. Nothing here is resolved: a base is an expression, a name is
a name, and which class they mean is decided by `names` when every file is known.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class Expression(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An expression that should be a class or a function."""

    text: str  # As written, shortened.
    names: tuple[str, ...] = ()  # Dotted names that it may mean; none: computed in a way that only running it tells.
    function: str = ""  # The dotted name that is called, for `make_base(OpTest)`.
    arguments: tuple[Expression, ...] = ()
    keywords: dict[str, Expression] = {}


class Decorator(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A decorator of a class or method that may keep a test from running or from being held to the rule."""

    name: str  # As written, dotted: `skip_check_grad_ci`, `unittest.skipIf`.
    line: int
    reason: str | None = None  # The reason, where it is a literal.
    condition: str = ""  # The condition of skipIf, skipUnless and xfail, as the condition under which the test counts.

    @property
    def last(self) -> str:
        return self.name.rpartition(".")[2]


class MethodCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call in a method that may check a gradient, or lead to one that does."""

    name: str
    line: int
    receiver: Literal["self", "super", "class", "free"] = "self"
    owner: str = ""  # For `Parent.test_x(self)` the class; for a free function its whole dotted name.
    when: tuple[str, ...] = ()  # Conditions on the way to it.
    caught: bool = False  # It stands in a `try` that takes its failure for granted, or in `assertRaises`.
    keywords: dict[str, str] = {}  # Keyword → its text; for checks only.
    numbers: dict[str, float] = {}  # Keywords whose value is a number that can be read off.


Value = str | bool | None  # A truth, a word, None or a dtype that is set; `?` where it cannot be read off.


class Method(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A method of a class that may be an op test."""

    name: str
    line: int
    calls: tuple[MethodCall, ...] = ()
    empty: str = ""  # Why it does nothing: `holds only pass`; nothing where it does something.
    does: bool = False  # It calls or asserts something, whatever that is.
    decorators: tuple[Decorator, ...] = ()
    when: tuple[str, ...] = ()  # Conditions under which it exists.
    sets: tuple[tuple[str, Value], ...] = ()
    """In order, attributes of self and what they are set to; `init()` and `super.setUp()` are methods that are called."""


class Flag(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    line: int
    value: str = ""
    owner: str = ""
    """The object it is set on, where that is not the class itself: `TestX` in `TestX.exist_check_grad = True`."""
    scope: int = 0  # For a flag that is set outside of any class.


class ClassFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    qualname: str
    line: int
    scope: int = 0  # The scope it is defined in.
    body: int = 0  # Its own scope.
    bases: tuple[Expression, ...] = ()
    decorators: tuple[Decorator, ...] = ()
    methods: tuple[Method, ...] = ()
    flags: tuple[Flag, ...] = ()
    attributes: dict[str, str] = {}
    """Assignments in the class body that may stand for a method: `test_check_grad = None`; name → text."""
    op: str | None = None  # `op_type`, where it is a literal.
    values: dict[str, Value] = {}  # What its body sets attributes to.
    when: tuple[str, ...] = ()  # Conditions under which the class exists.


class Binding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A name that a scope binds, in the order of the file."""

    scope: int
    name: str
    line: int
    kind: Literal["module", "from", "star", "class", "function", "alias", "loop", "deleted"]
    module: str = ""  # For imports: the module, with a dot in front for every level up.
    target: str = ""  # For `from`: the name there.
    index: int = 0  # For classes and functions: which one.
    reference: Expression | None = None
    """For aliases, and the names of loops, which are bound before what stands in the same line."""


class Scope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The module, a function or a class body."""

    kind: Literal["module", "function", "class"]
    parent: int = -1
    name: str = ""
    parameters: tuple[str, ...] = ()
    defaults: dict[str, Expression] = {}
    constants: dict[str, bool] = {}  # Parameters whose default is a constant, and whether it is true.
    returns: tuple[Expression, ...] = ()  # What a function returns, for those that make classes.


class Made(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call that may make classes: `create_test_fp16_class(TestParent)`."""

    scope: int
    line: int
    call: Expression


class FileFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    scopes: tuple[Scope, ...] = ()
    classes: tuple[ClassFacts, ...] = ()
    bindings: tuple[Binding, ...] = ()
    made: tuple[Made, ...] = ()
    flags: tuple[Flag, ...] = ()  # Flags that are set outside of the class they are set on.
    problem: str = ""  # Why there is nothing: a syntax error, an encoding that does not fit.
    lost: bool = False  # The file could not even be read.
    line: int = 0  # Where the problem is.
