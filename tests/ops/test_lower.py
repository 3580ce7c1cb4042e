"""Every op definition's ``ref`` against its torch lowering, over dtypes and layouts; sharing of buffers changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ops.oracles import check_inplace, check_lower
from tests.ops.sampler import op_types, samples
from tstatic.ir.opdef import op_def
from tstatic.ops.base import torch_out as _torch_out


@pytest.mark.parametrize("type", op_types())
def test_lower(type: str) -> None:
    definition = op_def(type)
    seen: dict[str, int] = {}
    tried = 0
    count = 20 if definition.of and op_def(definition.of).of else 40
    for sample in samples(definition, count):
        check_lower(definition, sample, seen)
        tried += 1
    assert tried >= count
    assert seen["compared"] > 0


@pytest.mark.parametrize("type", [t for t in op_types() if op_def(t).inplace or op_def(t).state])
def test_inplace(type: str) -> None:
    definition = op_def(type)
    if not sum(check_inplace(definition, sample) for sample in samples(definition, 12, limit=36)):
        pytest.skip("input and output never have the same shape and dtype")


@pytest.mark.parametrize("sizes", [(2, 2), (0, 4)])
@pytest.mark.parametrize("kind", ["contiguous", "transposed", "empty"])
def test_torchs_kernel_that_cuts_gets_what_it_takes_on_a_gpu(
    kind: str, sizes: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU it ends the process for a size of 0, and reads and writes elsewhere for what is dense and not contiguous."""
    torch = pytest.importorskip("torch")
    plain, called = torch.split_with_sizes_copy, []

    def checked(x: Any, sizes: Any, axis: int, *, out: Any) -> None:
        assert x.is_contiguous()
        assert x.numel()
        assert 0 not in sizes
        called.append(tuple(sizes))
        plain(x, sizes, axis, out=out)

    monkeypatch.setattr(torch, "split_with_sizes_copy", checked)
    x = torch.arange(24.0).reshape(4, 6)
    x = {"contiguous": x.reshape(6, 4), "transposed": x.t(), "empty": x.new_zeros((0, 4))}[kind]
    parts = torch.split(x, sizes, 1)
    out = [torch.full(p.shape, -1.0) for p in parts]
    op_def("split").lower(torch, x, num=0, sections=sizes, axis=1, out=out)  # type: ignore[misc]
    assert all(torch.equal(a, b) for a, b in zip(out, parts, strict=True))
    assert bool(called) == (kind == "contiguous" and 0 not in sizes)


@pytest.mark.parametrize(
    "shapes", [((3, 4), (4, 2)), ((4,), (4,)), ((2, 1, 3, 4), (5, 4, 2)), ((0, 4), (4, 2)), ((3, 4), (4,))]
)
def test_products_of_integers_where_torch_has_none(shapes: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(_torch_out, "MOST_PRODUCTS", 7)
    x, y = (torch.randint(-(1 << 40), 1 << 40, shape) for shape in shapes)
    assert torch.equal(_torch_out.integer_product(torch, x, y), torch.matmul(x, y))
