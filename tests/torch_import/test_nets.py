"""Ten networks of torch as programs: results, gradients, three steps of training and running statistics are torch's."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import static
from tstatic.testing.tolerance import MOST_ULPS, ulp

torch = pytest.importorskip("torch")
nets = pytest.importorskip("tests.torch_import.nets")
RATE, STEPS = 0.1, 3


def close(ours: Any, theirs: Any, what: str, largest: float = 0.0) -> None:
    """Both round float32 sums in their own order: at most MOST_ULPS units in the last place of the largest element.

    Args:
        largest: A number that was added or subtracted on the way, where it is larger than the result.
    """
    wanted = theirs.detach().numpy()
    assert ours.shape == wanted.shape, what
    assert ours.dtype == wanted.dtype, what
    most = max(largest, float(np.abs(wanted).max(initial=0)))
    allowed = MOST_ULPS * float(ulp(np.array(most), "float32"))
    np.testing.assert_allclose(ours, wanted, rtol=0, atol=allowed, err_msg=what)


def leaves(results: Any) -> list[Any]:
    return torch.utils._pytree.tree_leaves(results)


def feed_of(net: Any, arguments: Any) -> dict[str, Any]:
    return {name: a.numpy() for name, a in zip(net.feed_names, arguments, strict=True)}


def check_evaluation(name: str, module: Any, net: Any, program: Any) -> None:
    """Compares with the module in evaluation mode, for batches that are larger and smaller than the example."""
    exe = static.Executor()
    for size in (5, 1):
        arguments = nets.NETS[name].arguments(size)
        with torch.no_grad():
            wanted = leaves(module(*arguments))
        found = exe.run(program, feed=feed_of(net, arguments), fetch_list=net.fetch_vars)
        for label, ours, theirs in zip(net.output_names, found, wanted, strict=True):
            close(ours, theirs, f"{name}: {label}, batch of {size}")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits", "resnet", "deepfm"])
def test_a_module_in_evaluation_mode(name: str) -> None:
    module = nets.made(name, train=False)
    torch.manual_seed(1)
    net = paddle.from_torch(module, nets.NETS[name].arguments(3))
    check_evaluation(name, module, net, net.program)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "gpt" else pytest.mark.slow) for name in sorted(nets.NETS)]
)
def test_training(name: str) -> None:
    module = nets.made(name)
    torch.manual_seed(2)
    # Of another size than the batches of the training.
    net = paddle.from_torch(module, nets.NETS[name].arguments(2))
    check_evaluation(name, copy.deepcopy(module).eval(), net, net.program.clone(for_test=True))
    batches = [nets.NETS[name].arguments(4) for _ in range(STEPS)]
    weights = [[torch.randn_like(one) for one in leaves(copy.deepcopy(module)(*batch))] for batch in batches]
    trained = [p for p in module.parameters() if p.requires_grad]
    with static.program_guard(net.program, net.startup):
        loss = 0.0
        for number, result in enumerate(net.fetch_vars):
            weight = static.data(f"weight_{number}", [None if s < 0 else s for s in result.shape], "float32")
            loss = loss + paddle.mean(result * weight)
        paddle.optimizer.SGD(RATE).minimize(loss)
    exe = static.Executor()
    exe.run(net.startup)
    names = dict(module.named_parameters())
    gradients = [f"{net.variables[n].name}@GRAD" for n in names]
    for step, (batch, given) in enumerate(zip(batches, weights, strict=True)):
        feed = feed_of(net, batch) | {f"weight_{i}": w.numpy() for i, w in enumerate(given)}
        ours, *found = exe.run(net.program, feed=feed, fetch_list=[loss, *gradients])
        theirs = sum((r * w).mean() for r, w in zip(leaves(module(*batch)), given, strict=True))
        for parameter in trained:
            parameter.grad = None
        theirs.backward()
        close(np.asarray(ours), theirs, f"{name}: loss of step {step}", 1.0)
        largest = max(float(p.grad.abs().max()) for p in trained)
        for n, gradient in zip(names, found, strict=True):
            close(gradient, names[n].grad, f"{name}: gradient of {n} in step {step}", largest)
        with torch.no_grad():
            for parameter in trained:
                parameter -= RATE * parameter.grad
    state = net.state_dict()
    for n, value in module.state_dict().items():
        close(state[n], value, f"{name}: {n} after {STEPS} steps", 1.0)
