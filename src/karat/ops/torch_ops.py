"""torch's operators with the samples that torch's own tests use: its OpInfo database.

Inputs that the samples mark as differentiable are differentiated, in float64, in the way torch's own gradient tests call
the operator: through its `gradcheck_wrapper`, which keeps a Hermitian input Hermitian, for one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial, reduce
from typing import Any

from karat.findings import CannotVerify
from karat.ops.catalogue import Operator, Sample
from karat.system.command import Command

_REBUILD = """\
from torch.testing._internal import common_methods_invocations as db, common_utils
info = next(one for one in db.op_db if (one.name, one.variant_test_name) == ({name!r}, {variant!r}))
common_utils.set_rng_seed({seed}); s = list(info.sample_inputs("cpu", torch.float64, requires_grad=True, set_seed=False))[{number}]
call = lambda *x: s.output_process_fn_grad(info.gradcheck_wrapper(info.op, {arguments}))
inputs, kwargs = ({inputs}), {{}}"""


def operators() -> Iterator[Operator]:
    """Every operator of the database; those that cannot be audited say why."""
    try:
        import torch
        from torch.testing._internal.common_methods_invocations import op_db
    except ModuleNotFoundError as error:
        name = error.name or "torch"
        said = f"expected torch's database of operators, but it needs {name}, which is not installed"
        raise CannotVerify(said, next_command=Command("pip", "install", name)) from error
    for info in op_db:
        skip = ""
        if not info.supports_autograd:
            skip = "torch says that it is not differentiable"
        elif torch.float64 not in info.supported_backward_dtypes(torch.device("cpu")):
            skip = "torch says that it has no gradient in float64 on a CPU"
        yield Operator(
            name=f"{info.name}[{info.variant_test_name}]" if info.variant_test_name else info.name,
            framework="torch",
            samples=partial(_samples, info),
            skip=skip,
        )


def _samples(info: Any, seed: int) -> Iterator[Sample]:
    import torch
    from torch.testing._internal.common_utils import set_rng_seed
    from torch.utils import _pytree as tree

    name = info.name if info.name.startswith("torch.") else f"torch.{info.name}"
    public = reduce(lambda found, part: getattr(found, part, None), name.split(".")[1:], torch) is info.op
    # Wrappers other than the default change what goes in or comes out.
    public = public and _is_default(info.gradcheck_wrapper)
    set_rng_seed(seed)
    for number, one in enumerate(info.sample_inputs("cpu", torch.float64, requires_grad=True, set_seed=False)):
        # Differentiable tensors among the keyword arguments follow those that stand by order.
        named = [key for key, value in one.kwargs.items() if isinstance(value, torch.Tensor) and value.requires_grad]
        inputs, ordered = (one.input, *one.args, *(one.kwargs[key] for key in named)), 1 + len(one.args)
        leaves = [[leaf for leaf in tree.tree_leaves(value) if isinstance(leaf, torch.Tensor)] for value in inputs]
        wrt = tuple(n for n, some in enumerate(leaves) if any(leaf.requires_grad for leaf in some))
        if not wrt:
            continue
        direct = public and not named and _is_default(one.output_process_fn_grad)
        given = f"*x[:{ordered}], **{{**s.kwargs, **dict(zip({named}, x[{ordered}:]))}}" if named else "*x, **s.kwargs"
        yield Sample(
            call=info.op if direct else partial(_called, info, one, ordered, named),
            inputs=tree.tree_map(lambda leaf: leaf.detach() if isinstance(leaf, torch.Tensor) else leaf, inputs),
            kwargs=one.kwargs if direct else {},
            description=f"sample {number}",
            source=f"call = {name}" if direct else "",
            rebuild=_REBUILD.format(
                name=info.name,
                variant=info.variant_test_name,
                seed=seed,
                number=number,
                arguments=given,
                inputs="s.input, *s.args, " + "".join(f"s.kwargs[{key!r}], " for key in named),
            ),
            wrt=wrt,
        )


def _is_default(function: Any) -> bool:
    """Whether it is OpInfo's own lambda, which changes nothing."""
    return (function.__module__, function.__name__) == ("torch.testing._internal.opinfo.core", "<lambda>")


def _called(info: Any, sample: Any, ordered: int, named: Sequence[str], *x: Any) -> Any:
    """The operator as torch's own gradient tests call it."""
    kwargs = {**sample.kwargs, **dict(zip(named, x[ordered:], strict=True))}
    return sample.output_process_fn_grad(info.gradcheck_wrapper(info.op, *x[:ordered], **kwargs))
