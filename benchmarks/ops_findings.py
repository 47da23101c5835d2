"""Wrong derivatives of released frameworks, shown without karat: autodiff against central differences in float64.

Usage: python benchmarks/ops_findings.py [torch|jax|paddle]... Prints for each fault what the framework says and what
differences at two steps say; fails if one of them is not there (any more). docs/ops-findings.md has the same table.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
RNG = np.random.default_rng(0)
STEPS = (1e-4, 1e-5)
WRONG = 3e-9
"""Off by more than this, and by more than twice what the two differences disagree by."""


def drawn(*shape: int) -> Array:
    return np.asarray(RNG.uniform(0.3, 2.0, shape) * RNG.choice([-1.0, 1.0], shape)).round(3)


def paddle_cases() -> dict[str, tuple[Callable[..., Any], list[Array], int]]:
    """Name → function, inputs, the input whose gradient is wrong."""
    import paddle

    at, functional = paddle.to_tensor, paddle.nn.functional
    mask, triangle = at([True, False, True]), np.tril(drawn(3, 3)) + 2 * np.eye(3)
    cotangent = at(drawn(3) + 1j * drawn(3))

    def pulled(re: Any, im: Any) -> Any:
        x = paddle.complex(re, im)
        found = paddle.grad(paddle.square(x), x, cotangent, create_graph=True)[0]
        return found.real() + 2 * found.imag()

    padded = at(drawn(1, 1, 3), stop_gradient=False)

    def unpadded(weights: Any) -> Any:
        out = functional.pad(padded, [1, 2], value=0.5, data_format="NCL")
        return paddle.grad(out, padded, weights, create_graph=True)[0]

    return {
        "nn.functional.pad(value=0.5), second order": (unpadded, [drawn(1, 1, 6)], 0),
        "square of complex numbers, second order": (pulled, [drawn(3), drawn(3)], 1),
        "nn.functional.group_norm without weight and bias": (
            lambda x: functional.group_norm(x, 2),
            [drawn(2, 4, 3)],
            0,
        ),
        "linalg.eigvalsh of a batch": (lambda x: paddle.linalg.eigvalsh(x @ x.mT), [drawn(2, 2, 2)], 0),
        "linalg.eigh of a batch": (lambda x: paddle.linalg.eigh(x @ x.mT)[0], [drawn(2, 2, 2)], 0),
        "linalg.triangular_solve(unitriangular=True)": (
            lambda x, y: paddle.linalg.triangular_solve(x, y, upper=False, unitriangular=True),
            [triangle, drawn(3, 2)],
            0,
        ),
        "unfold with windows that overlap": (lambda x: paddle.unfold(x, 0, 3, 2), [drawn(6)], 0),
        "masked_fill, its value": (lambda x, value: paddle.masked_fill(x, mask, value), [drawn(3), drawn()], 1),
        "lerp, its weight": (paddle.lerp, [drawn(3), drawn(3), drawn(3)], 2),
        "diag_embed": (paddle.diag_embed, [drawn(2, 3)], 0),
        "diagonal_scatter, what is written": (paddle.diagonal_scatter, [drawn(3, 4), drawn(3)], 1),
        "nn.functional.gaussian_nll_loss, its variance": (
            functional.gaussian_nll_loss,
            [drawn(4), drawn(4), abs(drawn(4))],
            2,
        ),
        "linalg.eigvals": (lambda x: paddle.linalg.eigvals(x).real(), [np.diag([1.0, 4.0]) + 0.1 * drawn(2, 2)], 0),
        "linalg.lstsq": (lambda x, y: paddle.linalg.lstsq(x, y)[0], [drawn(4, 2), drawn(4, 1)], 0),
        "linalg.householder_product": (paddle.linalg.householder_product, [drawn(3, 2), abs(drawn(2))], 0),
        "matmul of (2, 1, 3, 4) and (3, 4, 2)": (paddle.matmul, [drawn(2, 1, 3, 4), drawn(3, 4, 2)], 1),
        "broadcast_tensors, one of the outputs": (
            lambda x, y: paddle.broadcast_tensors([x, y])[0],
            [drawn(3, 1), drawn(1, 4)],
            0,
        ),
        "norm(p=3), dist, cdist, pairwise_distance": (lambda x: paddle.norm(x, 3), [drawn(4)], 0),
        "nn.functional.avg_pool1d, 2d, adaptive": (lambda x: functional.avg_pool1d(x, 3, 2, 1), [drawn(1, 2, 6)], 0),
        "nn.functional.interpolate": (
            lambda x: functional.interpolate(x, [6], None, "linear", data_format="NCW"),
            [drawn(1, 2, 4)],
            0,
        ),
        "nn.functional.selu": (functional.selu, [-abs(drawn(4))], 0),
        "nn.functional.cross_entropy(label_smoothing=)": (
            lambda x: functional.cross_entropy(x, at([1, 0, 3]), label_smoothing=0.1),
            [drawn(3, 4)],
            0,
        ),
    }


def jax_cases() -> dict[str, tuple[Callable[..., Any], list[Array], int]]:
    import jax

    jax.config.update("jax_enable_x64", True)
    return {
        "scipy.special.spence between 1 and 2": (jax.scipy.special.spence, [np.array([1.2, 1.6, 2.0])], 0),
        "scipy.special.i0 at 0 (jax#40628)": (jax.scipy.special.i0, [np.array([0.0])], 0),
        "numpy.ldexp at 0 (jax#38001)": (lambda x: jax.numpy.ldexp(x, 2), [np.array([0.0])], 0),
        "numpy.std along an axis of size 1": (lambda x: jax.numpy.std(x, axis=1), [drawn(3, 1)], 0),
    }


def torch_cases() -> dict[str, tuple[Callable[..., Any], list[Array], int]]:
    import torch

    def pushed(call: Callable[..., Any]) -> Callable[..., Any]:
        """The derivative along a direction, by forward mode; its own gradient is the second derivative."""
        return lambda x: torch.func.jvp(call, (x,), (torch.arange(1.0, x.numel() + 1).to(x).cos().reshape(x.shape),))[1]

    exponent = torch.tensor([-1, 2, 3], dtype=torch.int32)
    twice, targets = torch.tensor([0, 1, 0]), torch.tensor([[1, 2]])
    tau, y = torch.tensor([0.7, 0.4], dtype=torch.float64), torch.tensor(drawn(3, 2))
    lengths = torch.tensor([4]), torch.tensor([2])
    return {
        "ldexp with a negative int32 exponent (pytorch#196680)": (lambda x: torch.ldexp(x, exponent), [drawn(3)], 0),
        "ctc_loss without log_softmax (pytorch#52241)": (
            lambda x: torch.nn.functional.ctc_loss(x, targets, *lengths),
            [-abs(drawn(4, 1, 3))],
            0,
        ),
        "cholesky_inverse, forward mode (pytorch#196682)": (torch.cholesky_inverse, [np.tril(abs(drawn(3, 3)))], 0),
        "triangular_solve(unitriangular=True), forward mode (pytorch#196707)": (
            lambda x: torch.triangular_solve(y, x, upper=False, unitriangular=True)[0],
            [np.tril(drawn(3, 3))],
            0,
        ),
        'scatter_reduce("prod"), forward mode (pytorch#196702)': (
            lambda x: torch.scatter_reduce(torch.ones_like(x), 0, twice, x, "prod"),
            [drawn(3)],
            0,
        ),
        "sinc at 0, reverse over reverse (pytorch#196703)": (
            lambda x: torch.autograd.grad(torch.sinc(x).sum(), x, create_graph=True)[0],
            [np.array([0.0, 0.5])],
            0,
        ),
        "linalg.det, reverse over forward (pytorch#196696)": (pushed(torch.linalg.det), [drawn(3, 3)], 0),
        "linalg.householder_product, reverse over forward (pytorch#196698)": (
            pushed(lambda x: torch.linalg.householder_product(x, tau)),
            [drawn(3, 2)],
            0,
        ),
        "layer_norm, reverse over forward (pytorch#196700)": (
            pushed(lambda x: torch.nn.functional.layer_norm(x, (4,))),
            [drawn(2, 4)],
            0,
        ),
    }


CASES = {"torch": torch_cases, "jax": jax_cases, "paddle": paddle_cases}


def main() -> int:
    names = sys.argv[1:] or list(CASES)
    if len(names) == 2 and names[1] not in CASES:
        return one(*names)
    wrong = 0
    for framework in names:
        for name in CASES[framework]():
            # A process for each: one of the faults ends it.
            argv = [sys.executable, __file__, framework, name]
            done = subprocess.run(argv, check=False, capture_output=True, text=True)
            said = (
                done.stdout.strip()
                if done.returncode in {0, 1}
                else f"the process is ended by signal {-done.returncode}"
            )
            print(f"{framework}.{name}: {said}", flush=True)
            wrong += done.returncode == 0
    return 1 if wrong else 0


def one(framework: str, name: str) -> int:
    """1 if it is wrong, 0 if it is right."""
    call, inputs, k = CASES[framework]()[name]
    tensors, gradient, numbers = (speak_forward if "forward mode" in name else SPEAK[framework])(call)
    weights = np.cos(np.arange(1.0, numbers(tensors(inputs)).size + 1))

    def loss(value: Array) -> float:
        out = numbers(tensors([*inputs[:k], value, *inputs[k + 1 :]]))
        return float(out.ravel() @ weights)

    expected = [differences(loss, inputs[k], step) for step in STEPS]
    try:
        found = gradient(tensors(inputs), weights, k)
    except Exception as error:  # noqa: BLE001 - that is the fault
        print(f"{type(error).__name__}: {str(error).strip().splitlines()[-1].strip()[:90]}")
        return 1
    if found is None:
        at = np.unravel_index(int(np.argmax(np.abs(expected[0]))), expected[0].shape)
        print(f"None, differences {expected[0][at]:.9g}, {expected[1][at]:.9g}")
        return 1
    off, doubt = np.abs(found - expected[0]), np.abs(expected[1] - expected[0])
    at = np.unravel_index(int(np.argmax(np.where(np.isfinite(found), off, np.inf))), found.shape)
    print(f"{found[at]:.9g}, differences {expected[0][at]:.9g}, {expected[1][at]:.9g}")
    return 0 if off[at] <= WRONG + 2 * doubt[at] else 1


def differences(loss: Callable[[Array], float], value: Array, step: float) -> Array:
    found = np.zeros_like(value)
    for at in np.ndindex(*value.shape):
        moved = np.zeros_like(value)
        moved[at] = step
        found[at] = (loss(value + moved) - loss(value - moved)) / (2 * step)
    return found


def speak_paddle(call: Callable[..., Any]) -> tuple[Any, Any, Any]:
    import paddle

    def tensors(values: list[Array]) -> list[Any]:
        return [paddle.to_tensor(one, stop_gradient=False) for one in values]

    def gradient(given: list[Any], weights: Array, k: int) -> Array | None:
        out = call(*given)
        if out.stop_gradient:
            return None
        # Of all inputs at once, as a training step asks for them.
        found = paddle.grad(out, given, paddle.to_tensor(weights.reshape(out.shape)), allow_unused=True)[k]
        return None if found is None else np.asarray(found.numpy())

    return tensors, gradient, lambda given: call(*given).numpy()


def speak_jax(call: Callable[..., Any]) -> tuple[Any, Any, Any]:
    import jax

    def gradient(given: list[Any], weights: Array, k: int) -> Array:
        out, pull = jax.vjp(call, *given)
        return np.asarray(pull(weights.reshape(out.shape))[k])

    return lambda values: [jax.numpy.asarray(one) for one in values], gradient, lambda given: np.asarray(call(*given))


def speak_torch(call: Callable[..., Any]) -> tuple[Any, Any, Any]:
    import torch

    def gradient(given: list[Any], weights: Array, k: int) -> Array:
        out = call(*given)
        return np.asarray(torch.autograd.grad(out, given, torch.tensor(weights).reshape(out.shape))[k])

    def tensors(values: list[Array]) -> list[Any]:
        return [torch.tensor(one, requires_grad=True) for one in values]

    return tensors, gradient, lambda given: call(*given).detach().numpy()


def speak_forward(call: Callable[..., Any]) -> tuple[Any, Any, Any]:
    import torch

    def gradient(given: list[Any], weights: Array, k: int) -> Array:
        found = np.zeros(given[k].shape)
        for at in np.ndindex(*found.shape):
            tangent = torch.zeros_like(given[k])
            tangent[at] = 1.0
            pushed = torch.func.jvp(lambda x: call(*given[:k], x, *given[k + 1 :]), (given[k],), (tangent,))[1]
            found[at] = pushed.detach().numpy().ravel() @ weights
        return found

    tensors, _, numbers = speak_torch(call)
    return tensors, gradient, numbers


SPEAK = {"torch": speak_torch, "jax": speak_jax, "paddle": speak_paddle}

if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    sys.exit(main())
