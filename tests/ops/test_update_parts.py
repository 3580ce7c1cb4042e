"""Updates in torch that walk over large parameters in parts."""

from __future__ import annotations

from dataclasses import replace

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
