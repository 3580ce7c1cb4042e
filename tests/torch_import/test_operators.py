"""Each converter of an ATen operator gives torch's results and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import static
from tstatic.interop import from_torch as _converters  # noqa: F401 - it registers them
from tstatic.interop.conversion import FAMILIES

torch = pytest.importorskip("torch")
cases = pytest.importorskip("tests.torch_import.cases")
OTHERWISE = {
    "aten.masked_select.default", "aten.nonzero.default",  # refused: test_errors.py
    "aten.native_dropout.default", "aten._native_batch_norm_legit_functional.default",  # of the functional form, and random:
    "aten._native_batch_norm_legit_no_training.default", "aten.rand.default", "aten.randn.default",  # test_semantics.py
    "aten.rand_like.default", "aten.randn_like.default",
}  # fmt: skip
"""Converters that no family calls."""


def test_converters_that_no_family_calls_exist() -> None:
    """A list of exceptions that outlives its converters hides the next one of that name."""
    assert {name for own in FAMILIES.values() for name in own} >= OTHERWISE
    assert cases.FAMILIES.keys() == FAMILIES.keys()


def results_of(results: Any) -> list[Any]:
    return torch.utils._pytree.tree_leaves(results)


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(cases.FAMILIES))
def test_results_and_gradients(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called = set[str]()
    own = FAMILIES[family]
    for name, convert in list(own.items()):
        monkeypatch.setitem(own, name, lambda *a, _n=name, _c=convert, **k: (called.add(_n), _c(*a, **k))[1])
    torch.manual_seed(3)
    module = cases.Family(cases.FAMILIES[family])
    whole = {name: make() for name, make in cases.WHOLE.items()}
    net = paddle.from_torch(module, (whole,), dynamic_shapes=None)
    theirs = results_of(module(whole))
    floats = [n for n, t in enumerate(theirs) if t.requires_grad]
    weights = {f"w{n}": torch.randn_like(theirs[n]) for n in floats}
    with static.program_guard(net.program, net.startup):
        loss = paddle.zeros([])
        for n in floats:
            weight = static.data(f"w{n}", list(theirs[n].shape), str(theirs[n].dtype).removeprefix("torch."))
            loss = loss + paddle.cast(paddle.sum(net.fetch_vars[n] * weight), "float32")
        gradients = dict(static.append_backward(loss))
    sum((theirs[n] * weights[f"w{n}"]).sum().float() for n in floats).backward()
    # Inputs that the family does not read are no inputs of the graph.
    feed = {name.removeprefix("whole_"): a for name, a in whole.items()}
    given = {name: feed[name.removeprefix("whole_")].numpy() for name in net.feed_names}
    found = static.Executor().run(
        net.program,
        feed={**given, **{n: w.numpy() for n, w in weights.items()}},
        fetch_list=[*net.fetch_vars, *gradients.values()],
    )
    for name, ours, wanted in zip(net.output_names, found[: len(theirs)], theirs, strict=True):
        value = wanted.detach().numpy()
        assert ours.dtype == value.dtype, name
        assert ours.shape == value.shape, name
        np.testing.assert_allclose(ours, value, rtol=3e-5, atol=3e-6, err_msg=f"{family}: {name}")
    for parameter, gradient in zip(gradients, found[len(theirs) :], strict=True):
        value = module.get_parameter(parameter.name).grad.numpy()
        largest = float(np.abs(value).max())
        np.testing.assert_allclose(
            gradient, value, rtol=1e-4, atol=2e-5 * largest, err_msg=f"{family}: {parameter.name}"
        )
    reached = {n for n, p in module.named_parameters() if p.grad is not None and p.grad.abs().max() > 0}
    assert reached <= {p.name for p in gradients}
    assert own
    assert own.keys() - called == OTHERWISE & own.keys(), "a case for each converter, and none for the exceptions"
