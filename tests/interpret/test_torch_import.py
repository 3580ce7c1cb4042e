"""Imported networks with the kernels of fusions give what the same programs give without."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import static
from tstatic.testing.tolerance import MOST_ULPS, ulp

torch = pytest.importorskip("torch")
nets = pytest.importorskip("tests.torch_import.nets")
SWITCHES = (
    "fused_attention", "fused_feedforward", "fuse_gemm_epilogue", "build_cinn_pass", "fuse_bn_act_ops", "fuse_bn_add_act_ops",
    "fuse_embedding_grad_add",
)  # fmt: skip


def small_gpt() -> Any:
    return nets.GPT(words=8, width=8, tokens=4, heads=2, layers=1)


class Block(torch.nn.Module):
    """A block of a ResNet behind a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.block = torch.nn.Conv2d(2, 4, 3, padding=1), nets.Block(4, 4, 1, False)

    def forward(self, x: Any) -> Any:
        return self.block(self.stem(x)).mean((2, 3))


CASES = {
    "gpt": (
        small_gpt,
        lambda: torch.randint(0, 8, (2, 4)),
        ("fused_attention", "fused_attention_grad", "fused_feedforward"),
    ),
    "resnet": (Block, lambda: torch.randn(2, 2, 5, 5), ("fused_batch_norm_act", "fused_bn_add_activation")),
}


def trained(net: Any, loss: Any, feed: dict[str, Any], fused: bool) -> tuple[dict[str, Any], list[str]]:
    """Returns the losses of two steps and the state behind them, and the fused operators."""
    strategy = static.BuildStrategy()
    for switch in SWITCHES:
        setattr(strategy, switch, fused)
    compiled = static.CompiledProgram(net.program, strategy)
    exe = static.Executor()
    losses = [exe.run(compiled, feed=feed, fetch_list=[loss])[0] for _ in range(2)]
    explained = compiled.explain([loss], {name: a.shape for name, a in feed.items()})
    return {"loss": np.array(losses), **net.state_dict()}, [one.op for one in explained.applied]


@pytest.mark.parametrize("name", sorted(CASES))
def test_fused_as_unfused(name: str) -> None:
    make, draw, expected = CASES[name]
    torch.manual_seed(6)
    module, x = make(), draw()
    net = paddle.from_torch(module, x)
    with static.program_guard(net.program, net.startup):
        loss = paddle.mean(paddle.square(net.fetch_vars[0] - 0.5))
        paddle.optimizer.SGD(0.1).minimize(loss)
    static.Executor().run(net.startup)
    before = net.state_dict()
    feed = {net.feed_names[0]: x.numpy()}
    plain, nothing = trained(net, loss, feed, False)
    net.program.set_state_dict(before)
    found, ops = trained(net, loss, feed, True)
    assert nothing == []
    assert set(expected) <= set(ops)
    for key, wanted in plain.items():
        allowed = MOST_ULPS * float(ulp(np.array(max(1.0, np.abs(wanted).max())), "float32"))
        np.testing.assert_allclose(found[key], wanted, rtol=0, atol=allowed, err_msg=key)
    assert any(np.abs(found[key] - a).max() > 1e-3 for key, a in before.items()), "it was trained"
