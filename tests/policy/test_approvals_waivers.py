"""Waivers of one file: whatever grants something is seen, and what only mentions it is not."""

from __future__ import annotations

import textwrap

import pytest
from hypothesis import given, strategies as st

from karat.policy.approvals.changes import added_grants
from karat.policy.approvals.waivers import Waiver, waivers_of as of_tree
from karat.policy.scan.source import Unreadable, parse


def waivers_of(source: bytes, path: str) -> tuple[Waiver, ...]:
    return of_tree(parse(source), path)


def found(source: str, path: str = "t.py") -> tuple[Waiver, ...]:
    return tuple(one for one in waivers_of(textwrap.dedent(source).encode(), path) if not one.guard)


SKIPS = {
    "keyword": 'from op_test import skip_check_grad_ci\n@skip_check_grad_ci(reason="why")\nclass T: pass',
    "positional": 'from op_test import skip_check_grad_ci\n@skip_check_grad_ci("why")\nclass T: pass',
    "qualified": 'import op_test\n@op_test.skip_check_grad_ci(reason="why")\nclass T: pass',
    "deeper": 'import a.b as c\n@c.op_test.skip_check_grad_ci("why")\nclass T: pass',
    "imported as": 'from op_test import skip_check_grad_ci as quiet\n@quiet(reason="why")\nclass T: pass',
    "alias": 'from op_test import *\nquiet = skip_check_grad_ci\n@quiet("why")\nclass T: pass',
    "alias of an attribute": 'import op_test\nquiet = op_test.skip_check_grad_ci\n@quiet("why")\nclass T: pass',
    "joined literals": 'from op_test import *\n@skip_check_grad_ci(reason="w"\n    "hy")\nclass T: pass',
    "a constant": 'from op_test import *\nWHY = "why"\n@skip_check_grad_ci(reason=WHY)\nclass T: pass',
    "getattr": 'import op_test\n@getattr(op_test, "skip_check_grad_ci")("why")\nclass T: pass',
    "normalised name": 'from op_test import *\n@\uff53kip_check_grad_ci("why")\nclass T: pass',
}


@pytest.mark.parametrize("how", SKIPS)
def test_a_skip_is_a_skip_however_it_is_spelled(how: str) -> None:
    (one,) = found(SKIPS[how])
    assert (one.rule, one.kind, one.scope, one.value) == ("gradient", "skip", "T", "reason: why")


@pytest.mark.parametrize("one", SKIPS)
@pytest.mark.parametrize("other", ["keyword", "positional"])
def test_spelling_it_otherwise_is_no_change(one: str, other: str) -> None:
    assert added_grants(found(SKIPS[one]), found(SKIPS[other])) == []


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("from op_test import *\n@skip_check_grad_ci\nclass T: pass", "no reason"),
        ("from op_test import *\n@skip_check_grad_ci()\nclass T: pass", "no reason"),
        ('from op_test import *\n@skip_check_grad_ci(reason="")\nclass T: pass', "an empty reason"),
        ("from op_test import *\n@skip_check_grad_ci(reason=why())\nclass T: pass", "why()"),
        ('from op_test import *\nclass T: pass\nT = skip_check_grad_ci("why")(T)', "why"),
        ('from op_test import *\nquiet = skip_check_grad_ci("why")\n@quiet\nclass T: pass', "why"),
        ("from op_test import *\nquiet = lambda c: skip_check_grad_ci('w')(c)\n@quiet\nclass T: pass", "w"),
        ("from op_test import *\nall(map(skip_check_grad_ci, [A, B]))", "passed on as skip_check_grad_ci"),
        ("import op_test\nquiet = [op_test.skip_check_grad_ci]", "passed on as op_test.skip_check_grad_ci"),
    ],
)
def test_other_ways_to_skip(source: str, said: str) -> None:
    assert said in [waiver.shown for waiver in found(source) if waiver.kind == "skip"]


def test_a_factory_of_skipped_classes_skips_with_each_call() -> None:
    factory = """
        from op_test import *
        def create(parent):
            @skip_check_grad_ci(reason="half")
            class TestHalf(parent): pass
        create(TestA)
    """
    (change,) = added_grants(found(factory), found(factory + "    create(TestB)\n"))
    assert change.waiver.about == "skip_check_grad_ci on TestB"
    assert change.waiver.shown == "through create"


CARRIERS = {
    "an attribute of a class": ("class C: quiet = skip_check_grad_ci", "@C.quiet('x')"),
    "a function that is called like a test": ("def testing(c): return skip_check_grad_ci('x')(c)", "@testing"),
    "a static method": ("class C:\n    @staticmethod\n    def q(c): return skip_check_grad_ci('x')(c)", "@C.q"),
    "a partial": ("quiet = partial(skip_check_grad_ci, reason='x')", "@quiet()"),
    "joined texts": ("", "@getattr(op_test, 'skip_' + 'check_grad_ci')('x')"),
    "a dict of names": ("", "@op_test.__dict__.get('skip_check_grad_ci')('x')"),
    "a key": ("", "@vars(op_test)['skip_check_grad_ci']('x')"),
}


@pytest.mark.parametrize("how", CARRIERS)
def test_what_carries_the_skip_is_seen_where_it_is_used(how: str) -> None:
    before, skip = CARRIERS[how]
    head = f"import op_test\nfrom op_test import *\n{before}\n"
    (change,) = added_grants(found(head), found(f"{head}{skip}\nclass T: pass\n"))
    assert (change.what, change.waiver.kind, change.waiver.scope) == ("added", "skip", "T")


WORTH = {
    "multiplied later": "TOL = 0.01\nTOL *= {0}\nself.check_grad(['X'], 'Out', max_relative_error=TOL)",
    "a function": "def pick(): return {0}\nself.check_grad(['X'], 'Out', max_relative_error=pick())",
    "a method": "class T:\n    def tol(self): return {0}\n    def test(self): self.check_grad(['X'], 'Out', max_relative_error=self.tol())",
    "a lambda": "tol = lambda: {0}\nself.check_grad(['X'], 'Out', max_relative_error=tol())",
    "a loop": "for tol in (0.001, {0}): self.check_grad(['X'], 'Out', max_relative_error=tol)",
    "a loop over pairs": "for x, tol in [(1, {0})]: self.check_grad([x], 'Out', max_relative_error=tol)",
    "a comprehension": "[self.check_grad(['X'], 'Out', max_relative_error=tol) for tol in [{0}]]",
    "a parameter": "class T:\n    def check(self, tol): self.check_grad(['X'], 'Out', max_relative_error=tol)\n    def test(self): self.check({0})",
    "a parameter behind a constant of its name": "tol = 1e-9\ndef check(t, tol): t.check_grad(['X'], 'Out', max_relative_error=tol)\ncheck(t, tol={0})",
    "a starred argument": "def check(t, tol): t.check_grad(['X'], 'Out', max_relative_error=tol)\ncheck(*[t, {0}])",
    "all the rest": "def check(f, **more): gradcheck(f, **more)\ncheck(f, rtol={0})",
    "parametrize": "@pytest.mark.parametrize('tol', [{0}])\ndef test(tol): gradcheck(f, rtol=tol)",
    "an entry": "TOLS = dict(a={0})\nself.check_grad(['X'], 'Out', max_relative_error=TOLS['a'])",
    "an annotated attribute": "class T:\n    tol: float = {0}\n    def test(self): self.check_grad(['X'], 'Out', max_relative_error=self.tol)",
    "a dict of pairs": "kw = dict([('max_relative_error', {0})])\nself.check_grad(['X'], 'Out', **kw)",
}


@pytest.mark.parametrize("how", WORTH)
def test_a_tolerance_is_wider_wherever_its_worth_comes_from(how: str) -> None:
    old = found(WORTH[how].format("0.05"))
    (change,) = added_grants(old, found(WORTH[how].format("0.5")))
    assert (change.what, change.waiver.rule) == ("changed", "tolerance")
    assert added_grants(old, found("y = 0.5\n" + WORTH[how].format("5e-2"))) == []


@pytest.mark.parametrize("given", ["5 * {0}", "0.01 if cpu else {0}", "np.float32({0})", "9**9**9**{0}"])
def test_what_is_not_evaluated_is_a_change_also_if_it_is_stricter(given: str) -> None:
    source = f"self.check_grad(['X'], 'Out', max_relative_error={given})"
    for after in ("0.5", "0.04"):
        (change,) = added_grants(found(source.format("0.05")), found(source.format(after)))
        assert (change.what, change.waiver.rule) == ("changed", "tolerance")
    assert added_grants(found(source.format("0.05")), found(source.format("5e-2"))) == []


def test_what_is_passed_on_is_told_once() -> None:
    passing = """
        class T:
            def check(self, max_relative_error):
                self.check_grad(["X"], "Out", max_relative_error=max_relative_error)
            def test(self):
                self.check(max_relative_error=0.05)
    """
    assert len(added_grants(found(passing), found(passing.replace("0.05", "0.5")))) == 1
    assert added_grants(found(passing), found(passing.replace("0.05", "0.04"))) == []


def test_a_reason_that_is_one_of_two() -> None:
    source = "from op_test import *\nWHY = 'a'\nif x: WHY = '{0}'\n@skip_check_grad_ci(WHY)\nclass T: pass\n"
    (change,) = added_grants(found(source.format("b")), found(source.format("c")))
    assert change.waiver.shown == "WHY, by WHY: 'a' and 1 more"


@pytest.mark.parametrize("name", ["'no_need' + '_check_grad'", "NAME"])
def test_a_flag_under_a_name_that_is_put_together(name: str) -> None:
    source = f"NAME = 'no_need_check_grad'\nsetattr(T, {name}, True)"
    assert [(w.kind, w.about) for w in found(source)] == [("flag", "no_need_check_grad of T")]


@pytest.mark.parametrize(
    "source",
    [
        '# @skip_check_grad_ci(reason="why")',
        '"""@skip_check_grad_ci(reason="why")"""',
        "text = 'no_need_check_grad = True; max_relative_error=1'",
        "from op_test import skip_check_grad_ci, OpTest",
        "import op_test.skip_check_grad_ci as quiet",
        'self.check_grad(["X"], "Out")',
        'self.check_grad(["X"], "Out", max_relative_error=None, no_grad_set=None, user_defined_grads=None)',
        'self.check_grad(["X"], "Out", set())',
        "gradcheck(f, x, nondeterminism_bound=0.0)",
        "np.testing.assert_allclose(a, b, rtol=1, atol=1)",
        "del T.no_need_check_grad",
        "if hasattr(cls, 'no_need_check_grad'): pass",
    ],
)
def test_what_grants_nothing_is_no_waiver(source: str) -> None:
    assert found(source) == ()


FLAGS = [
    "class T:\n    no_need_check_grad = True",
    "class T:\n    no_need_check_grad = False",  # it is asked for by hasattr
    "class T:\n    exist_check_grad: bool = True",
    "class T:\n    def setUp(self): self.exist_fp64_check_grad = True",
    "class T:\n    @classmethod\n    def setUpClass(cls): cls.exist_check_grad = True",
    "T.no_need_check_grad = True",
    'setattr(T, "no_need_check_grad", True)',
    'T = type("T", (OpTest,), {"no_need_check_grad": True})',
    "T = type('T', (OpTest,), dict(no_need_check_grad=True))",
    "T.__dict__['no_need_check_grad'] = True",
    "class T:\n    exist_check_grad = exist_fp64_check_grad = True",
    "class T:\n    a, no_need_check_grad = 1, True",
]


@pytest.mark.parametrize("source", FLAGS)
def test_flags_set_by_hand_are_seen(source: str) -> None:
    assert {(w.rule, w.kind) for w in found(source)} == {("gradient", "flag")}


TOLERANCES = {
    "keyword": 'self.check_grad(["X"], "Out", max_relative_error=0.05)',
    "positional": 'self.check_grad(["X"], "Out", None, 0.005, False, 0.05)',
    "with place": 'self.check_grad_with_place(p, ["X"], "Out", max_relative_error=0.05)',
    "with place, positional": 'self.check_grad_with_place(p, ["X"], "Out", None, 0.005, False, 0.05)',
    "constant": 'TOL = 0.05\nself.check_grad(["X"], "Out", max_relative_error=TOL)',
    "dict": 'KW = {"max_relative_error": 0.05}\nself.check_grad(["X"], "Out", **KW)',
    "partial": 'partial(self.check_grad, ["X"], "Out", max_relative_error=0.05)()',
    "attribute": "class T:\n    def setUp(self): self.max_relative_error = 0.05",
    "class": "class T:\n    max_relative_error = 0.05",
    "default": "def check(self, max_relative_error=0.05): pass",
    "factory": "create_test_half(TestX, max_relative_error=0.05)",
    "gradcheck": "import karat as k\nk.gradcheck(f, (x,), rtol=0.05)",
    "per dtype": "OpSpec(op='relu', tolerances={'float16': 0.05})",
    "declaration": "karat.OpSpec(op='relu', atol=0.05)",
}


@pytest.mark.parametrize("how", TOLERANCES)
def test_tolerances_are_read_wherever_they_stand(how: str) -> None:
    amounts = [w.amounts for w in found(TOLERANCES[how]) if w.kind == "tolerance"]
    assert amounts == [(0.05,)]


@pytest.mark.parametrize("how", TOLERANCES)
def test_widened_is_a_change_and_tightened_is_none(how: str) -> None:
    old = found(TOLERANCES[how])
    wide = TOLERANCES[how].replace("0.05", "0.06")
    tight = wide.replace("0.06", "0.04")
    (change,) = added_grants(old, found(wide))
    assert (change.what, change.waiver.amounts) == ("changed", (0.06,))
    assert added_grants(old, found(tight)) == []
    assert added_grants(old, ()) == []  # gone


@pytest.mark.parametrize(
    ("source", "rule", "kind", "shown"),
    [
        ('self.check_grad(["X"], "Out", numeric_grad_delta=0.01)', "tolerance", "step", "0.01"),
        ("gradcheck(f, x, nondeterminism_bound=1e-3)", "determinism", "bound", "0.001"),
        ('self.check_grad(["X"], "Out", {"Y"})', "gradient", "no-grad", "no gradient of Y"),
        ('self.check_grad(["X"], "Out", no_grad_set=set("Y"))', "gradient", "no-grad", "no gradient of Y"),
        ('self.check_grad(["X"], "Out", no_grad_set=self.none())', "gradient", "no-grad", "self.none()"),
        (
            'self.check_grad(["X"], "Out", user_defined_grads=[dx])',
            "weak",
            "own-gradients",
            "its author's own gradients",
        ),
        ("OpSpec(op='relu', no_grad=('y',))", "gradient", "no-grad", "no gradient of y"),
        ("gradcheck(f, x, grads=mine)", "weak", "own-gradients", "its author's own gradients"),
        ('self.check_grad(["X"], "Out", max_relative_error=pick())', "tolerance", "tolerance", "pick()"),
        ('self.check_grad(["X"], "Out", max_relative_error=9**9**9**9)', "tolerance", "tolerance", "9 ** 9 ** 9 ** 9"),
        ('self.check_grad(["X"], "Out", **given)', "tolerance", "tolerance", "**given"),
        ("self.check_grad(*given)", "tolerance", "tolerance", "**given"),
    ],
)
def test_every_other_waiver(source: str, rule: str, kind: str, shown: str) -> None:
    (one,) = found(source)
    assert (one.rule, one.kind, one.shown) == (rule, kind, shown)


def test_fewer_inputs_without_gradient_are_no_change_and_more_are() -> None:
    def check(inputs: str) -> tuple[Waiver, ...]:
        return found(f'self.check_grad(["X"], "Out", no_grad_set={inputs})')

    assert added_grants(check('{"Y", "Z"}'), check('set(["Z"])')) == []
    assert len(added_grants(check('{"Y"}'), check('{"Z", "Y"}'))) == 1


def test_another_step_is_a_change_in_either_direction() -> None:
    def check(step: float) -> tuple[Waiver, ...]:
        return found(f'self.check_grad(["X"], "Out", numeric_grad_delta={step})')

    assert len(added_grants(check(0.01), check(0.02))) == len(added_grants(check(0.01), check(0.001))) == 1


def test_the_op_of_a_class_is_known() -> None:
    source = """
        class T(OpTest):
            def setUp(self):
                self.op_type = "softmax"
            def test_check_grad(self):
                self.check_grad(["X"], "Out", max_relative_error=0.1)
    """
    (one,) = found(source)
    assert (one.op, one.scope) == ("softmax", "T.test_check_grad")
    (change,) = added_grants([one], found(source.replace("softmax", "matmul")))
    assert (change.what, change.waiver.op) == ("added", "matmul")


@pytest.mark.parametrize(
    "source",
    [
        b"def f(:\n",
        b"print 'two'\n",
        b"x = 1\0\n",
        b"# coding: nonsense\nx=1\n",
        b"x = '\xff'\n",
        b"(" * 5000 + b")" * 5000,
        b"x" + b".a" * 50_000,
    ],
)
def test_what_is_no_python_says_so(source: bytes) -> None:
    with pytest.raises(Unreadable):
        waivers_of(source, "t.py")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "latin-1", "utf-7", "utf-16"])
def test_other_encodings_hide_nothing(encoding: str) -> None:
    text = f'# -*- coding: {encoding} -*-\nfrom op_test import *\n@skip_check_grad_ci("é")\nclass T: pass\n'
    body = text.encode(encoding)
    if encoding == "utf-7":
        body = body.replace(b"skip_check", b"+AHM-kip_check")
    try:
        (one,) = waivers_of(body, "t.py")
    except Unreadable:
        assert encoding == "utf-16"  # Python reads none of it either
    else:
        assert one.kind == "skip"


@pytest.mark.parametrize(
    "source",
    [
        "x = x + 'a'\nf(x)",
        "x += 'a'\nsetattr(T, x, 1)",
        "x = f'{x}'\nf(x)",
        "x = y\ny = x\nf(x)",
        "x = x * 2\ngradcheck(f, rtol=x)",
        "def f(): return f()\ngradcheck(f, rtol=f())",
    ],
)
def test_names_that_stand_for_themselves_end(source: str) -> None:
    assert {waiver.kind for waiver in found(source)} <= {"tolerance"}


def test_warnings_of_a_file_are_its_own() -> None:
    assert found('x = "\\d" is 1\nassert (x, "y")') == ()


REASONS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=12)
NAMES = st.sampled_from(["TestA", "TestB", "TestC"])


@st.composite
def modules(draw: st.DrawFn) -> list[str]:
    """Definitions of a test file: skips, tolerances, plain classes."""
    made = []
    for name in draw(st.lists(NAMES, unique=True, max_size=3)):
        skip = draw(st.none() | REASONS)
        error = draw(st.none() | st.floats(1e-9, 1))
        head = f"@skip_check_grad_ci(reason={skip!r})\n" if skip is not None else ""
        given_error = f", max_relative_error={error!r}" if error is not None else ""
        made.append(
            f"{head}class {name}(OpTest):\n    def test_check_grad(self):\n"
            f"        self.check_grad(['X'], 'Out'{given_error})\n"
        )
    return made


@pytest.mark.slow
@given(modules(), st.randoms(use_true_random=False))
def test_order_comments_and_layout_are_no_change(parts: list[str], random: object) -> None:
    head = "from op_test import *\n"
    shuffled = list(parts)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    moved = "# moved\n\n" + head + "\n\n# skip_check_grad_ci\n\n".join(shuffled)
    assert added_grants(found(head + "\n".join(parts)), found(moved)) == []


@pytest.mark.slow
@given(modules(), modules())
def test_a_removal_is_never_a_change_and_an_addition_always_is(old: list[str], new: list[str]) -> None:
    head = "from op_test import *\n"
    before, after = found(head + "\n".join(old)), found(head + "\n".join(new))
    reported = added_grants(before, after)
    assert added_grants(after, after) == []
    assert added_grants(after, ()) == []
    assert len(added_grants((), after)) == len(after)
    for change in reported:
        assert change.waiver in after
        assert not any(change.waiver.identity == w.identity and change.waiver.no_laxer_than(w) for w in before)
