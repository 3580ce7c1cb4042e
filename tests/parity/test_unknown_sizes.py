"""Calls whose sizes are all unknown while the program is built give what known sizes give, values and gradients.

A size that is unknown is -1 in a shape; a function that counts with it builds a program that fails when it runs, or is wrong.
"""

from __future__ import annotations

import os
import zlib
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.parity import compare, record, runner
from tstatic import static

EVERYTHING = os.environ.get("TSTATIC_PARITY") == "all"
SHARE = 24
"""One call in so many runs in `make test`."""

ALWAYS = ("signal.overlap_add", "distribution.Dirichlet")
"""These failed once."""
DECIDED_BY_SIZES = ("squeeze", "squeeze_")
"""Without an axis they remove the axes that are known to have size 1: none."""


class Unknown(runner.Builder):
    """Declares every size of what is fed as unknown."""

    def _feed(self, content: dict[str, Any]) -> Any:
        if content.get("fixed") or content.get("lod"):
            return super()._feed(content)
        array, name = runner.fed_value(content), f"x{len(self.feed)}"
        variable = self.paddle.static.data(name, [-1] * array.ndim, content["dtype"])
        variable.stop_gradient = variable.dtype.is_integer or content["dtype"] == "bool" or bool(content.get("stop"))
        self.feed[name] = array
        self.fed.append(variable)
        return variable


def chosen(calls: list[dict[str, Any]], answers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for call, answer in zip(calls, answers, strict=True):
        if "raised" in answer["fixed"] or call.get("compare", "values") != "values" or call["path"] in DECIDED_BY_SIZES:
            continue
        if not runner.has_sizes(call) or call["path"] in ("training", "network", "schedule"):
            continue
        if EVERYTHING or call["path"] in ALWAYS or zlib.crc32(call["id"].encode()) % SHARE == 0:
            found.append(call)
    return found


def differences(call: dict[str, Any], patch: pytest.MonkeyPatch) -> list[str]:
    """Says how the answer to a call of unknown sizes differs; a call that is refused while it is built does not."""
    known = runner.run_call(paddle, call)
    if "raised" in known:
        return []
    with patch.context() as inside:
        inside.setattr(runner, "Builder", Unknown)
        unknown = runner.run_call(paddle, call, False, known)
    if unknown.get("raised") == "build" or unknown.get("gradient_raised") == "gradients":
        return []
    if unknown.get("raised") or (unknown.get("gradient_raised") and not known.get("gradient_raised")):
        return [f"{call['id']}: {unknown.get('text', '')[:300]}"]
    same = [{k: v for k, v in one.items() if k != "declared"} for one in (known, unknown)]
    return [f"{call['id']}: {aspect}: {detail}" for aspect, detail in compare._parts(call, *same)]


@pytest.mark.slow
def test_unknown_sizes_give_what_known_ones_give(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = record.load()
    calls = chosen(recorded["calls"], recorded["answers"])
    assert {c["path"] for c in calls} >= set(ALWAYS)
    wrong = [text for call in calls for text in differences(call, monkeypatch)]
    assert not wrong, f"{len(wrong)} differences:\n" + "\n".join(wrong[:30])


@pytest.mark.parametrize("axis", [0, -1])
def test_frames_of_unknown_length_have_a_gradient(axis: int) -> None:
    """Guards overlap_add of frames whose length is unknown, and the gradient of its gradient."""
    value = np.random.default_rng(1).normal(size=(4, 3)).astype("float32")
    found = []
    for shape in ([-1, -1], [4, 3]):
        with static.program_guard(static.Program(), static.Program()):
            x = static.data("x", shape)
            x.stop_gradient = False
            y = paddle.signal.overlap_add(x, 2, axis=axis)
            (first,) = static.gradients([paddle.sum(y * y * y)], [x])
            (second,) = static.gradients([paddle.sum(first * first)], [x])
            found.append(static.Executor().run(feed={"x": value}, fetch_list=[y, first, second]))
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_normal_distribution_of_unknown_size() -> None:
    """Guards MultivariateNormalDiag, which counted its variables by a size that is -1 where it is unknown."""
    scale = np.diag([0.4, 0.5, 2.0]).astype("float32")
    loc = np.array([0.1, 0.2, 0.3], "float32")
    found = []
    for sizes in ([-1], [3]):
        with static.program_guard(static.Program(), static.Program()):
            given = [static.data("loc", sizes), static.data("scale", sizes * 2)]
            one = paddle.fluid.layers.MultivariateNormalDiag(*given)
            other = paddle.fluid.layers.MultivariateNormalDiag(given[0] + 1.0, given[1] * 2.0)
            fetches = [one.entropy(), one.kl_divergence(other)]
            found.append(static.Executor().run(feed={"loc": loc, "scale": scale}, fetch_list=fetches))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
