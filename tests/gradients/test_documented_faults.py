"""Wrong derivatives of torch 2.13.0 and jax 0.10.2 that their issue trackers know, found from ordinary sample inputs.

Another version may have mended them; there the tests are skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import karat
from conftest import framework

RNG = np.random.default_rng(11)
X = RNG.standard_normal((3, 4))
SQUARE = RNG.standard_normal((4, 4)) + 3 * np.eye(4)


def torch_ops(torch: Any) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    x, square = torch.tensor(X), torch.tensor(SQUARE)
    indices = torch.tensor([[0, 1, 2, 1]])
    labels, lengths = torch.tensor([[1, 2], [2, 1]]), torch.tensor([5, 5])
    log_probs = torch.tensor(RNG.standard_normal((5, 2, 3)) - 2)
    return {
        "ldexp": (torch.ldexp, (x, torch.tensor([1, 2, 3, 1], dtype=torch.int32))),
        "cholesky_inverse": (lambda a: torch.cholesky_inverse(a.tril()), (square,)),
        "triangular_solve": (lambda b, a: torch.triangular_solve(b, a, unitriangular=True)[0], (x.T, square)),
        "scatter_reduce": (lambda a, b: a.scatter_reduce(0, indices, b, "prod"), (x, x[:1])),
        "ctc_loss": (
            lambda a: torch.nn.functional.ctc_loss(a, labels, lengths, torch.tensor([2, 2]), reduction="sum"),
            (log_probs,),
        ),
        "sinc": (torch.sinc, (x,)),
        "det": (torch.linalg.det, (square,)),
        "householder_product": (torch.linalg.householder_product, (x.T.contiguous(), x[0, :3])),
        "layer_norm": (lambda a: torch.nn.functional.layer_norm(a, (4,)), (x,)),
    }


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:torch.triangular_solve is deprecated")
@pytest.mark.parametrize(
    ("op", "level", "mode", "order", "at"),
    [
        pytest.param("ldexp", "deep", "reverse", 1, "negative integers", id="pytorch#196680"),
        pytest.param("cholesky_inverse", "default", "forward", 1, "", id="pytorch#196682"),
        pytest.param("triangular_solve", "default", "forward", 1, "", id="pytorch#196707"),
        pytest.param("scatter_reduce", "default", "forward", 1, "", id="pytorch#196702"),
        pytest.param("ctc_loss", "default", "reverse", 1, "", id="pytorch#52241"),
        pytest.param("sinc", "deep", "reverse", 2, "zeros", id="pytorch#196703"),
        pytest.param("det", "deep", "forward-over-forward", 2, "", id="pytorch#196696"),
        pytest.param("det", "deep", "reverse-over-forward", 2, "", id="pytorch#196696-reverse"),
        pytest.param("householder_product", "deep", "forward-over-forward", 2, "", id="pytorch#196698"),
        pytest.param("layer_norm", "deep", "forward-over-forward", 2, "", id="pytorch#196700"),
    ],
)
def test_torch(op: str, level: Any, mode: str, order: int, at: str) -> None:
    torch = framework("torch")
    if not torch.__version__.startswith("2.13.0"):
        pytest.skip(f"torch {torch.__version__} may have mended it")
    function, inputs = torch_ops(torch)[op]
    report = karat.gradcheck(function, inputs, level=level, properties=())
    wrong = {(one.mode, one.order, one.at) for one in report.comparisons if one.verdict == "FAIL"}
    assert (mode, order, at) in wrong, str(report)


@pytest.mark.slow
def test_jax_i0() -> None:
    """jax#40628: i0'(0) is 0, and jax says 1."""
    jax = framework("jax")
    if jax.__version__ != "0.10.2":
        pytest.skip(f"jax {jax.__version__} may have mended it")
    report = karat.gradcheck(jax.scipy.special.i0, (jax.numpy.asarray(X),), level="deep", properties=())
    wrong = {(one.mode, one.order, one.at) for one in report.comparisons if one.verdict == "FAIL"}
    assert any(mode == "reverse" and order == 1 and at.startswith("zeros") for mode, order, at in wrong), str(report)
