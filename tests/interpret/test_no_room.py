"""A chip that has no room for a launch gets the kernel's next way; if none fits, the error names operator and line."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.gpu import REAL, StandIn
from tstatic import devices, places, static
from tstatic.devices import cuda
from tstatic.devices.cuda.kernel_launch import KernelLaunching
from tstatic.errors import NoRoomError
from tstatic.places import CPUPlace, CUDAPlace

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.skipif(REAL, reason="a chip decides by itself what fits")

Fits = Callable[[dict[str, Any]], bool]


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """The class of GPUs, whose kernels are launched in the interpreter, as on an H200."""
    made = StandIn()
    made.generated = True
    monkeypatch.setattr(cuda, "device", lambda index: made)
    monkeypatch.setattr(places, "_count_gpus", lambda visible: 1)
    monkeypatch.setitem(devices.DEVICES, made.name, made)
    return made


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The constants and options of all launches that were tried."""
    found: list[dict[str, Any]] = []
    only_fit(monkeypatch, found, lambda named: True)
    return found


def only_fit(monkeypatch: pytest.MonkeyPatch, found: list[dict[str, Any]], fits: Fits) -> None:
    """Lets the chip have room for some launches only, by their constants and options."""

    def prepare(launching: KernelLaunching) -> str:
        found.append(launching._named)
        return "" if fits(launching._named) else "shared memory: 250,000 are needed, and there are 101,376"

    monkeypatch.setattr(KernelLaunching, "prepare", prepare)


def attention() -> tuple[static.CompiledProgram, Any]:
    q, k, v = (static.data(n, [2, 64, 16], "float16") for n in "qkv")
    weights = paddle.nn.functional.softmax(paddle.matmul(q, k, transpose_y=True) * 0.25)
    out = paddle.matmul(weights, v)
    strategy = static.BuildStrategy()
    strategy.fuse_dot_product_attention = True
    return static.CompiledProgram(static.default_main_program(), strategy), out


FEED = {n: np.random.RandomState(i).randn(2, 64, 16).astype("float16") for i, n in enumerate("qkv")}


def test_the_next_way_is_taken_said_once_and_explained(
    device: StandIn, tried: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    compiled, out = attention()
    exe = static.Executor(CUDAPlace(0))
    with devices.use("gpu"):
        before = compiled.explain([out], verbose=True)
    ways = [*before.kernels[0].candidates(device.target)]
    assert len(ways) > 1
    assert "candidates: nothing was timed" in str(before)
    first = ways[0].launches[0].call
    refused = {**first[3], **first[4]}
    only_fit(monkeypatch, tried, lambda named: named != refused)
    with caplog.at_level(logging.WARNING, "tstatic.fusion"):
        for _ in range(3):
            [found] = exe.run(compiled, feed=FEED, fetch_list=[out])
    assert tried[0] == refused
    assert refused not in tried[1:], "planned anew once, and remembered"
    [said] = [r.getMessage() for r in caplog.records]
    assert "no room" in said
    assert "101,376" in said
    [expected] = static.Executor(CPUPlace()).run(feed=FEED, fetch_list=[out])
    np.testing.assert_allclose(found, expected, rtol=2e-2, atol=2e-3)
    with devices.use("gpu"):
        after = str(compiled.explain([out], verbose=True))
    assert (
        f"launched in another of its {len(ways)} ways, as the chip has no room for the first: shared memory: 250,000"
        in after
    )
    # Another Executor, and another program with the same kernel, begin with the way that fits.
    tried.clear()
    static.Executor(CUDAPlace(0)).run(compiled, feed=FEED, fetch_list=[out])
    assert tried
    assert refused not in tried


def test_if_no_way_fits_the_error_names_operator_and_line(
    device: StandIn, tried: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled, out = attention()
    only_fit(monkeypatch, tried, lambda named: False)
    with pytest.raises(NoRoomError, match="has no room for the kernel") as caught:
        static.Executor(CUDAPlace(0)).run(compiled, feed=FEED, fetch_list=[out])
    text = str(caught.value)
    assert "ways to launch it fits" in text
    assert "test_no_room.py" in text
    assert "operator '" in text
    assert len(tried) > 1, "all were tried"
    assert len(tried) == len({str(one) for one in tried})
    # On a chip with room it runs, whatever failed before.
    only_fit(monkeypatch, tried, lambda named: True)
    device.refusals = type(device.refusals)()
    static.Executor(CUDAPlace(0)).run(compiled, feed=FEED, fetch_list=[out])


def test_nothing_has_run_before_the_next_way(
    device: StandIn, tried: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards against updates that are made twice: a parameter of the same program counts its runs."""
    compiled, out = attention()
    count = paddle.create_parameter([1], "float32", attr=paddle.ParamAttr(name="count"))
    paddle.increment(count)
    asked: list[int] = []

    def fits(named: dict[str, Any]) -> bool:
        asked.append(1)
        return len(asked) > 1

    scope = static.Scope()
    with static.scope_guard(scope):
        exe = static.Executor(CUDAPlace(0))
        exe.run(static.default_startup_program())
        before = np.array(scope.find_var("count").get_tensor())  # type: ignore[union-attr]
        only_fit(monkeypatch, tried, fits)
        for _ in range(3):
            exe.run(compiled, feed=FEED, fetch_list=[out])
        after = np.array(scope.find_var("count").get_tensor())  # type: ignore[union-attr]
    assert after - before == 3


def test_strict_numerics_know_one_way(
    device: StandIn, tried: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one may have other bits."""
    x, w = static.data("x", [64, 64], "float16"), static.data("w", [64, 64], "float16")
    out = paddle.nn.functional.gelu(paddle.matmul(x, w))
    strategy = static.BuildStrategy()
    strategy.build_cinn_pass = strategy.enable_auto_fusion = True
    compiled = static.CompiledProgram(static.default_main_program(), strategy)
    feed = {n: np.ones((64, 64), "float16") for n in "xw"}
    only_fit(monkeypatch, tried, lambda named: len(tried) > 1)
    paddle.set_flags({"FLAGS_numerics": "strict"})
    with pytest.raises(NoRoomError, match="only way"):
        static.Executor(CUDAPlace(0)).run(compiled, feed=feed, fetch_list=[out])


class _Compiled:
    def __init__(self, error: Exception | None) -> None:
        self.error = error

    def _init_handles(self) -> None:
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("resource", ["shared memory", "threads", "tensor memory"])
def test_what_triton_raises_before_a_launch_is_the_reason(resource: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from triton.runtime import errors, jit

    class Function(jit.JITFunction):  # type: ignore[misc]
        def __init__(self, error: Exception | None) -> None:
            self.asked: list[Any] = []
            self.error = error

        def warmup(self, *values: Any, grid: Any, **named: Any) -> Any:
            self.asked.append((values, grid, named))
            return _Compiled(self.error)

    for error, reason in (
        (errors.OutOfResources(250_000, 101_376, resource), f"{resource}: 250,000 are needed, and there are 101,376"),
        (None, ""),
    ):
        kernel = Function(error)
        launching = KernelLaunching(kernel, (3,), [1, 2], {"BLOCK": 16, "num_warps": 4}, None, lambda *_: None)
        assert launching.prepare() == reason
        assert kernel.asked == [((1, 2), (3,), {"BLOCK": 16, "num_warps": 4})]
    # A function of the user that chooses its own blocks, and the interpreter's.
    assert KernelLaunching(lambda *_: None, (1,), [], {}, None, lambda *_: None).prepare() == ""
