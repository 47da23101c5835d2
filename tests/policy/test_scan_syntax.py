from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, strategies as st

from karat.policy.scan.facts import ClassFacts, FileFacts, Method
from karat.policy.scan.syntax import facts_of


def facts(text: str) -> FileFacts:
    found = facts_of(text.encode())
    assert found.problem == ""
    return found


def one(text: str) -> ClassFacts:
    (cls,) = facts(text).classes
    return cls


def method(body: str, decorator: str = "") -> Method:
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    (found,) = one(f"class T(OpTest):\n    {decorator}\n    def test_check_grad(self):\n{lines}\n").methods
    return found


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("pass", "holds only pass"),
        ('"""Later."""', "holds only a docstring"),
        ("...", "holds only ..."),
        ('"""Later."""\npass', "holds only pass"),
        ("return", "returns at once"),
        ("return None\nself.check_grad(['X'], 'Out')", "returns at once"),
        ("if False:\n    self.check_grad(['X'], 'Out')", "does nothing that could fail"),
        ("if 0 and self.x:\n    self.check_grad(['X'], 'Out')", "does nothing that could fail"),
        ("while False:\n    self.check_grad(['X'], 'Out')", "does nothing that could fail"),
        ("for x in []:\n    self.check_grad(['X'], 'Out')", "does nothing that could fail"),
        ("x = 1", "does nothing that could fail"),
        ("self.skipTest('slow')\nself.check_grad(['X'], 'Out')", "is skipped"),
        ("pytest.skip('slow')", "is skipped"),
        ("raise unittest.SkipTest('slow')\nself.check_grad(['X'], 'Out')", "is skipped"),
        ("self.check_grad(['X'], 'Out')", ""),
        ("assert self.x", ""),
        ("if True:\n    self.check_grad(['X'], 'Out')", ""),
        ("def inner():\n    self.check_grad(['X'], 'Out')\ninner()", ""),
        ("raise NotImplementedError", ""),
    ],
)
def test_a_test_that_does_nothing_says_why(body: str, why: str) -> None:
    found = method(body)
    assert found.empty == why
    assert bool(found.calls) == (why == "" and "check_grad" in body)


def test_a_skipped_test_is_empty_whatever_its_body() -> None:
    assert method("self.check_grad(['X'], 'Out')", "@unittest.skip('slow')").empty == "is skipped"
    assert method("self.check_grad(['X'], 'Out')", "@unittest.skipIf(c, 'slow')").empty == ""


@pytest.mark.parametrize(
    ("body", "when"),
    [
        ("if core.is_compiled_with_cuda():\n    self.check_grad()", ("core.is_compiled_with_cuda()",)),
        ("if not core.is_compiled_with_cuda():\n    return\nself.check_grad()", ("core.is_compiled_with_cuda()",)),
        ("if self.dtype == np.float16:\n    return\nself.check_grad()", ("not (self.dtype == np.float16)",)),
        ("if a:\n    pass\nelse:\n    self.check_grad()", ("not a",)),
        ("if a:\n    x = 1\nelse:\n    return\nself.check_grad()", ("a",)),
        ("if a:\n    if b:\n        self.check_grad()", ("a", "b")),
        ("with guard():\n    for p in places:\n        self.check_grad()", ()),
        ("try:\n    pass\nfinally:\n    self.check_grad()", ()),
        ("x = 1 if a else 2\nself.check_grad()", ()),
    ],
)
def test_conditions_on_the_way_to_a_check_are_kept(body: str, when: tuple[str, ...]) -> None:
    (call,) = (c for c in method(body).calls if c.name == "check_grad")
    assert call.when == when


@pytest.mark.parametrize(
    ("body", "caught"),
    [
        ("try:\n    self.check_grad()\nexcept Exception:\n    pass", True),
        ("try:\n    self.check_grad()\nexcept:\n    print('oh')", True),
        ("try:\n    self.check_grad()\nexcept (ValueError, AssertionError):\n    pass", True),
        ("with self.assertRaises(AssertionError):\n    self.check_grad()", True),
        ("with contextlib.suppress(AssertionError):\n    self.check_grad()", True),
        ("try:\n    self.check_grad()\nexcept Exception:\n    raise", False),
        ("try:\n    self.check_grad()\nexcept Exception:\n    self.fail('x')", False),
        ("try:\n    self.check_grad()\nexcept ImportError:\n    pass", False),
        ("try:\n    self.check_grad()\nfinally:\n    pass", False),
    ],
)
def test_a_check_whose_failure_is_caught_is_known(body: str, caught: bool) -> None:  # noqa: FBT001
    (call,) = (c for c in method(body).calls if c.name == "check_grad")
    assert call.caught is caught


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ('@skip_check_grad_ci(reason="no kernel")', "no kernel"),
        ('@skip_check_grad_ci(reason="no " "kernel")', "no kernel"),
        ('@skip_check_grad_ci(reason="no " + "kernel")', "no kernel"),
        ('@op_test.skip_check_grad_ci("no kernel")', "no kernel"),
        ("@skip_check_grad_ci()", None),
        ("@skip_check_grad_ci", None),
        ("@skip_check_grad_ci(reason=None)", None),
        ('@skip_check_grad_ci(reason=" ")', " "),
        ("@skip_check_grad_ci(reason=WHY)", None),
        ('@skip_check_grad_ci(reason=f"no {kernel}")', None),
        ("@skip_check_grad_ci(**why)", None),
    ],
)
def test_the_reason_of_a_skip_is_read_off(written: str, reason: str | None) -> None:
    (decorator,) = one(f"{written}\nclass T(OpTest):\n    pass\n").decorators
    assert (decorator.reason, decorator.last) == (reason, "skip_check_grad_ci")


@pytest.mark.parametrize(
    "text",
    [
        "class T(OpTest):\n    no_need_check_grad = False\n",
        "class T(OpTest):\n    def setUp(self):\n        self.no_need_check_grad = True\n",
        "class T(OpTest):\n    def setUp(self):\n        self.__class__.no_need_check_grad = True\n",
        "class T(OpTest):\n    @classmethod\n    def setUpClass(cls):\n        cls.no_need_check_grad = True\n",
        "class T(OpTest):\n    def setUp(this):\n        with a:\n            this.no_need_check_grad: bool = True\n",
    ],
)
def test_flags_are_found_wherever_a_class_sets_them(text: str) -> None:
    (flag,) = one(text).flags
    assert (flag.name, flag.owner) == ("no_need_check_grad", "")


def test_flags_set_from_outside_are_found() -> None:
    found = facts("T.exist_check_grad = True\n").flags
    assert [(flag.name, flag.owner) for flag in found] == [("exist_check_grad", "T")]


def test_tolerances_of_a_check_are_read_off() -> None:
    (call,) = method("self.check_grad(['X'], 'Out', max_relative_error=-1, delta=d, **more)").calls
    assert call.numbers == {"max_relative_error": -1.0}
    assert call.keywords == {"max_relative_error": "-1", "delta": "d", "**": "more"}


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("self.dtype = np.float64", "float64"),
        ("self.dtype = 'float16'", "float16"),
        ("self.dtype = np.uint16", "bfloat16"),
        ("self.dtype = np.float64\n        self.dtype = np.float32", "float32"),
        ("if half: self.dtype = np.float16", "?"),
        ("self.x = 1", None),
        ("self.dtype = self.pick()", "?"),
    ],
)
def test_what_a_method_sets_is_known_where_it_is_plain(text: str, dtype: str | None) -> None:
    (method,) = one(f"class T(OpTest):\n    def setUp(self):\n        {text}\n").methods
    assert dict(method.sets).get("dtype") == dtype


def test_names_say_where_a_class_is() -> None:
    found = facts("def f():\n    class A:\n        class B(A): pass\nif x:\n    class C: pass\n").classes
    assert [c.qualname for c in found] == ["f.<locals>.A", "f.<locals>.A.B", "C"]
    assert found[2].when == ("x",)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (b"print 'two'\nclass T(OpTest): pass\n", "(line 1)"),
        (b"class T(OpTest:\n", "(line 1)"),
        (b"x = '\0'\n", "null bytes"),
        (b"# coding: klingon\nx = 1\n", "klingon"),
        (b"# coding: utf-8\nx = '\xff'\n", "utf-8"),
        (b"x = " + b"(" * 100_000 + b"1" + b")" * 100_000, "nested"),
        (b"x = " + b"-" * 200_000 + b"1", "nested"),
        (b"x = " + b"[" * 150 + b"]" * 150 + b"\n" + b"if 1:\n " * 0 + b"a" + b".b" * 100_000, "nested"),
        (b"x = 1" + b"0" * 5000, "int"),
        (b"#" * (33 << 20), "KARAT_MAX_SOURCE_MB"),
    ],
)
def test_what_cannot_be_parsed_says_why(source: bytes, said: str) -> None:
    found = facts_of(source)
    assert said in found.problem
    assert found.classes == ()


@pytest.mark.parametrize(
    "source",
    [
        b"\xef\xbb\xbfclass T(OpTest): pass\n",
        b"# -*- coding: latin-1 -*-\n# \xe9\xff\nclass T(OpTest): pass\n",
        b"class T(OpTest):\r\n    x = 1\r\n",
        b"class T(OpTest): pass\x0c\n",
    ],
)
def test_encodings_and_line_ends_of_all_kinds_are_read(source: bytes) -> None:
    (cls,) = facts_of(source).classes
    assert (cls.name, cls.bases[0].names) == ("T", ("OpTest",))


@given(st.binary(max_size=300) | st.text(max_size=300).map(lambda t: t.encode("utf-8", "replace")))
def test_no_bytes_make_it_raise(source: bytes) -> None:
    facts_of(source)


STATEMENTS = st.sampled_from(
    [
        "class A(B, c.D[int], metaclass=M):\n    def test_check_grad(self): self.check_grad(x=1)",
        "def f(p, q=A): return p",
        "f(A, q=B)",
        "from . import *",
        "import a.b as c",
        "A = B if c else D",
        "del A",
        "for A in [B, C]: f(A)",
        "X = type('X', (A,), {'test_x': f})",
        "try:\n    class A(B): pass\nexcept E:\n    A = None",
        "@skip_check_grad_ci\nclass Z(A): pass",
        "match x:\n    case 1:\n        class Q(A): pass",
        "async def g(): await h",
        "A.exist_check_grad = 1",
        "x: int",
        "class S(A):\n    x = lambda self, *, y=1, **z: {**z}\n    def test_check_grad(self):\n        with a as b, c: return super().test_x()",
    ]
)


@pytest.mark.slow
@given(st.lists(STATEMENTS, max_size=8))
def test_facts_travel_unchanged(statements: list[str]) -> None:
    found = facts("\n".join(statements) + "\n")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=FileFacts) == found
