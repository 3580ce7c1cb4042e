"""Updates in torch that walk over large parameters in parts, or once."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tests.ops.test_torch_forms import call, drawn, outputs, tensors
from tstatic.ir.opdef import op_def
from tstatic.ops.update import _torch

torch = pytest.importorskip("torch")


def updated(type: str, count: int, attrs: dict[str, object]) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    definition = op_def(type)
    scalars = {"LearningRate": 0.1, "Beta1Pow": 0.9, "Beta2Pow": 0.99}
    ins = []
    for slot in definition.inputs:
        if slot.name in ("Param", "Grad", "Moment1", "Moment2", "Velocity"):
            ins.append(rng.random((count // 3, 3), np.float32) + np.float32(0.1))
        else:
            ins.append(np.array([scalars[slot.name]], "f4") if slot.name in scalars else None)
    sample = replace(drawn(definition), ins=tuple(ins), attrs=attrs)
    made = call(definition, sample, tensors(sample, "cpu"), "cpu", outputs(definition, sample, "cpu"))
    return [t.numpy() for t in made if t is not None]


@pytest.mark.parametrize(
    ("type", "attrs"), [("adam", {}), ("adamw", {"coeff": 0.1, "with_decay": True}), ("momentum", {"mu": 0.9})]
)
@pytest.mark.parametrize("count", [96, 99])
def test_parts_give_what_the_whole_gives(
    type: str, attrs: dict[str, object], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = updated(type, count, attrs)
    parts: list[int] = []
    split = torch.Tensor.split
    monkeypatch.setattr(_torch, "PART", 16)
    monkeypatch.setattr(torch.Tensor, "split", lambda t, size: parts.append(size) or split(t, size))
    found = updated(type, count, attrs)
    assert parts
    assert set(parts) == {16}
    for a, b in zip(whole, found, strict=True):
        # Another position in a vector register may round a product and a sum once instead of twice.
        np.testing.assert_array_max_ulp(a, b, 2)


def test_tensors_of_a_gpu_and_views_stay_whole() -> None:
    large = torch.zeros(2 * _torch.PART, device="meta")
    assert len(list(_torch.in_parts(large, large))) == 1
    columns = torch.zeros(4, _torch.PART).t()
    assert len(list(_torch.in_parts(columns))) == 1
    assert len(list(_torch.in_parts(columns.contiguous()))) == 4


ADAM = ("Param", "Grad", "LearningRate", "Moment1", "Moment2", "Beta1Pow", "Beta2Pow")


@pytest.mark.parametrize("decay", [False, True])
@pytest.mark.parametrize(
    ("betas", "powers", "rate"),
    [
        ((0.9, 0.999), (0.9, 0.999), 0.01),
        ((0.9, 0.999), (0.3, 0.71), 0.01),  # no powers of these at all
        ((0.0, 0.5), (0.0, 0.25), 0.1),
        ((0.9, 0.0), (0.5, 0.0), 0.1),
        ((0.9, 0.999), (0.9, 1.0), 0.01),  # nothing is known of the second moment
        ((0.9, 0.999), (0.9, 0.999), 0.0),
        ((0.9, 0.999), (0.9, 0.999), -0.01),
    ],
)
def test_adam_in_place_computes_what_it_computes_elsewhere(
    betas: tuple[float, float], powers: tuple[float, float], rate: float, decay: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    definition = op_def("adamw" if decay else "adam")
    values = [torch.from_numpy(rng.random((7, 5), np.float32)) for _ in range(4)]
    numbers = [torch.tensor([n], dtype=torch.float32) for n in (rate, *powers)]
    given = dict(zip(ADAM, (*values[:2], numbers[0], *values[2:], *numbers[1:]), strict=True))
    attrs = definition.complete(
        {"beta1": betas[0], "beta2": betas[1], **({"coeff": 0.1, "lr_ratio": 0.5} if decay else {})}
    )
    picked = definition.pick(definition.lower, attrs)
    fused = torch.ops.aten._fused_adamw_.default
    calls: list[int] = []
    monkeypatch.setattr(
        torch.ops.aten, "_fused_adamw_", SimpleNamespace(default=lambda *a, **k: calls.append(1) or fused(*a, **k))
    )
    results = []
    for in_place in (False, True):
        own = {name: t.clone() for name, t in given.items()}
        outs = {slot.name: own.get(slot.name.removesuffix("Out")) for slot in definition.outputs}
        if not in_place:
            outs = {name: t if t is None else torch.empty_like(t) for name, t in outs.items()}
        ins = [own.get(slot.name) for slot in definition.inputs]
        definition.lower(torch, *ins, **picked, out=tuple(outs.values()))
        results.append([t.numpy() for t in outs.values() if t is not None])
    assert len(calls) == (rate > 0 and powers[1] < 1)
    assert len(results[0]) == 5
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(b, a, rtol=3e-6, atol=1e-7)
