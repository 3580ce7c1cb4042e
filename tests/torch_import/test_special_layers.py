"""Convolutions, pools and recurrences give what torch gives: odd and empty sizes, both widths, gradients, NaN and infinities."""

from __future__ import annotations

import os
import re
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.special_values import differing
from tests.torch_import.test_operators import results_of
from tstatic import static
from tstatic.interop import from_torch as _converters  # noqa: F401 - it registers them
from tstatic.interop.conversion import FAMILIES

torch = pytest.importorskip("torch")
layer_cases = pytest.importorskip("tests.torch_import.layer_cases")

Array = np.ndarray[Any, Any]
SPECIAL = (np.nan, np.inf, -np.inf)


def _filled(module: Any, net: Any, rng: Any, special: float | None) -> None:
    """Draws new values for the arguments of all calls, in the module and in the scope.

    A special value is in a tenth of the places.
    """
    calls = list(module.calls.values())
    for name, parameter in module.named_parameters():
        number, place = map(int, name[1:].split("_"))
        value = rng.standard_normal(tuple(parameter.shape)).astype(str(parameter.dtype).removeprefix("torch."))
        if special is not None and place not in calls[number].spared:
            value[rng.random(value.shape) < 0.1] = special
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(value))
        static.global_scope().find_var(net.variables[name].name).get_tensor().set(value, paddle.CPUPlace())


def _wrong(got: Array, wanted: Array, scale: float = 1.0) -> str:
    if (got.dtype, got.shape) != (wanted.dtype, wanted.shape):
        return f"{got.dtype}{got.shape}, not {wanted.dtype}{wanted.shape}"
    if wanted.dtype.kind != "f":
        bad = got != wanted
    else:
        rtol, atol = (1e-4, 2e-5) if wanted.dtype == np.float32 else (1e-11, 1e-12)
        with np.errstate(all="ignore"):
            bad = ~np.isclose(got, wanted, rtol=rtol, atol=atol * scale, equal_nan=True)
        bad |= differing(got, wanted, None, zeros=False)
    return f"{got[bad][:3]}, not {wanted[bad][:3]}" if bad.any() else ""


def differences(calls: dict[str, Any], dtype: Any, specials: tuple[float, ...] = SPECIAL) -> list[str]:
    """What differs in the calls' results, with and without special values, and in the gradients of their arguments."""
    module, rng, wrong = layer_cases.Family(calls, dtype), np.random.default_rng(7), []
    with static.scope_guard(static.Scope()):
        net = paddle.from_torch(module, (torch.zeros(1),), dynamic_shapes=None)
        names, results, exe = net.output_names, list(net.fetch_vars), static.Executor()
        for special in specials:
            _filled(module, net, rng, special)
            theirs = [one.detach().numpy() for one in results_of(module(None))]
            ours = exe.run(net.program, feed={}, fetch_list=results)
            for name, got, wanted in zip(names, ours, theirs, strict=True):
                text = _wrong(got, wanted)
                wrong += [f"{name} with {special}: {text}"] if text else []
        _filled(module, net, rng, None)
        theirs = results_of(module(None))
        floats = [n for n, one in enumerate(theirs) if one.requires_grad]
        weights = {f"w{n}": rng.standard_normal(tuple(theirs[n].shape)) for n in floats}
        with static.program_guard(net.program, net.startup):
            loss = paddle.zeros([], "float64")
            for n in floats:
                weight = static.data(f"w{n}", list(theirs[n].shape), "float64")
                loss = loss + paddle.sum(paddle.cast(results[n], "float64") * weight)
            gradients = dict(static.append_backward(loss))
        sum((theirs[n].double() * torch.from_numpy(weights[f"w{n}"])).sum() for n in floats).backward()
        found = exe.run(net.program, feed=weights, fetch_list=[*results, *gradients.values()])
    for name, got, one in zip(names, found[: len(theirs)], theirs, strict=True):
        text = _wrong(got, one.detach().numpy())
        wrong += [f"{name}: {text}"] if text else []
    reached = dict(zip((p.name for p in gradients), found[len(theirs) :], strict=True))
    for name, parameter in module.named_parameters():
        # An argument of no elements, or of a batch of none, may be left without a gradient.
        wanted = np.zeros(tuple(parameter.shape), found[0].dtype) if parameter.grad is None else parameter.grad.numpy()
        got = reached.get(name, np.zeros_like(wanted))
        text = _wrong(got, wanted, max(1.0, float(np.abs(wanted).max(initial=0.0))))
        call = list(calls)[int(name[1:].split("_")[0])]
        wrong += [f"{call}: gradient of argument {name.split('_')[1]}: {text}"] if text else []
    return wrong


CONVERTERS = {
    **{f"convolutions {rank}": rf"aten\.conv{rank}d\." for rank in (1, 2, 3)},
    **{f"transposed {rank}": rf"aten\.conv_transpose{rank}d\." for rank in (1, 2, 3)},
    **{
        f"pools {rank}": rf"aten\.(avg|max|adaptive_avg|adaptive_max)_pool{rank}d(_with_indices)?\."
        for rank in (1, 2, 3)
    },
    **{kind: rf"aten\.{kind}\.input" for kind in layer_cases.KINDS},
}
"""Family of calls -> the converters that it must reach."""
OTHERS = r"aten\.(upsample_|_adaptive_avg_pool[23]d\.default|convolution\.default)"
"""Resizing, and other names of the same functions: ``cases.py`` calls them."""
BOTH = tuple(CONVERTERS) if "TSTATIC_SOAK" in os.environ else ("transposed 1",)


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(layer_cases.FAMILIES))
def test_layers(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``padding="same"`` lost the dilation, and ``divisor_override`` divided windows that ``ceil_mode`` cuts by too little."""
    called, own = set[str](), FAMILIES["recurrent" if family in layer_cases.KINDS else "images"]
    for name, convert in list(own.items()):
        monkeypatch.setitem(own, name, lambda *a, _n=name, _c=convert, **k: (called.add(_n), _c(*a, **k))[1])
    for dtype in (torch.float32, torch.float64) if family in BOTH else (torch.float32,):
        assert differences(layer_cases.FAMILIES[family], dtype) == []
    assert {name for name in own if re.match(CONVERTERS[family], name)} <= called


def test_each_converter_of_layers_stands_in_a_family() -> None:
    """A converter that is new in these families needs calls."""
    assert CONVERTERS.keys() == layer_cases.FAMILIES.keys()
    for name in (*FAMILIES["images"], *FAMILIES["recurrent"]):
        assert sum(bool(re.match(one, name)) for one in (OTHERS, *CONVERTERS.values())) == 1, name


def test_a_planted_fault_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool that ignores its padding, and a convolution that loses a NaN of its filter."""
    own, calls = FAMILIES["images"], layer_cases.FAMILIES
    for kind, name, fault in (
        ("pools 1", "aten.avg_pool1d.default", lambda f, c, x, k, s=(), p=(0,), *rest: f(c, x, k, s, p, False, False)),
        ("convolutions 1", "aten.conv1d.default", lambda f, c, x, w, *rest: f(c, x, paddle.nan_to_num(w), *rest)),
    ):
        convert = own[name]
        with monkeypatch.context() as patch:
            patch.setitem(own, name, lambda *a, _f=convert, _g=fault: _g(_f, *a))
            some = {n: call for n, call in calls[kind].items() if n in ("average, padded", "plain")}
            assert differences(some, torch.float32), kind
        assert differences(some, torch.float32) == []
