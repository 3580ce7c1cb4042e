"""Every converter gives what torch gives where tensors hold NaN and infinities, and matrices of sizes 0, 1 and odd."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.special_values import differing
from tests.torch_import.test_operators import OTHERWISE, results_of
from tests.torch_import.test_special_values import converted
from tstatic import static
from tstatic.errors import TstaticError
from tstatic.interop import from_torch as _converters  # noqa: F401 - it registers them
from tstatic.interop.conversion import FAMILIES

torch = pytest.importorskip("torch")
cases = pytest.importorskip("tests.torch_import.cases")
F = torch.nn.functional

SPECIAL = (np.nan, np.inf, -np.inf)
DIFFERENT = {
    "images: convolutions.2": "padding times an infinite weight is NaN, and torch leaves padding out",
    "images: transposed.0": "as above",
    "images: transposed.3": "as above",
    **dict.fromkeys(
        (f"products: attention.{n}" for n in range(4)), "rows whose scores are NaN or all minus infinity are 0 in torch"
    ),
    "norms: batch.2": "torch multiplies the mean by the scale on its own, and 0 by infinity is NaN",
    "activations: smooth": "gelu of infinity is infinity; torch multiplies an overflow by 0",
}
"""Family and case -> why results differ: docs/from_torch.md says it."""


def _floats(special: float | None, seed: int) -> dict[str, Any]:
    """The families' float tensors; a share of their elements is special, in some of them none."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    found = {name: make() for name, make in cases.VALUES.items()}
    if special is not None:
        for name, tensor in found.items():
            # torch refuses chances that are none.
            if name != "chance" and rng.random() < 0.7:
                tensor[torch.from_numpy(rng.random(tensor.shape) < 0.15)] = special
    return found


def _wrong(got: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> str:
    if (got.dtype, got.shape) != (wanted.dtype, wanted.shape):
        return f"{got.dtype}{got.shape}, not {wanted.dtype}{wanted.shape}"
    if wanted.dtype.kind != "f":
        bad = got != wanted
    else:
        with np.errstate(all="ignore"):
            near = np.isclose(got, wanted, rtol=1e-4, atol=2e-5, equal_nan=True)
        bad = differing(got, wanted, None, zeros=False) | ~near
    return f"{got[bad][:3]}, not {wanted[bad][:3]}" if bad.any() else ""


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(cases.FAMILIES))
def test_each_converter_with_special_values(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All converters of the family are called: what it gains without a case fails here."""
    called, own = set[str](), FAMILIES[family]
    for name, convert in list(own.items()):
        monkeypatch.setitem(own, name, lambda *a, _n=name, _c=convert, **k: (called.add(_n), _c(*a, **k))[1])
    module = cases.Family(cases.FAMILIES[family])
    torch.manual_seed(0)
    whole = {name: make() for name, make in cases.WHOLE.items()}
    wrong = set[str]()
    with static.scope_guard(static.Scope()):
        net = paddle.from_torch(module, (whole,), dynamic_shapes=None)
        feed = {n: whole[n.removeprefix("whole_")].numpy() for n in net.feed_names}
        for seed, special in enumerate(SPECIAL):
            floats = _floats(special, seed)
            with torch.no_grad():
                for name, tensor in floats.items():
                    module.get_parameter(name).copy_(tensor)
                theirs = results_of(module(whole))
            for name, variable in net.variables.items():
                static.global_scope().find_var(variable.name).get_tensor().set(floats[name].numpy(), paddle.CPUPlace())
            ours = static.Executor().run(net.program, feed=feed, fetch_list=net.fetch_vars)
            for name, got, wanted in zip(net.output_names, ours, theirs, strict=True):
                text = _wrong(got, wanted.detach().numpy())
                if text and f"{family}: {name}" not in DIFFERENT:
                    wrong.add(f"{family}: {name} with {special}: {text}")
    assert sorted(wrong) == []
    assert own.keys() - called == OTHERWISE & own.keys()


# ------------------------------------------------------------------------------------------------------------ odd sizes
One = Callable[[Any], Any]


def _some(channels: int) -> int:
    """Returns a number of channels or rows; none ends the process in some of torch's kernels."""
    if not channels:
        raise ValueError("none")
    return channels


ROWS: dict[str, One] = {
    "view": lambda x: x.reshape(-1, x.shape[0]) if x.numel() else x.reshape(x.shape[::-1]),
    "flatten": lambda x: x.flatten(),
    "squeeze": lambda x: x.squeeze(),
    "squeeze 0": lambda x: x.squeeze(0),
    "unsqueeze": lambda x: x.unsqueeze(-1),
    "transpose": lambda x: x.transpose(0, 1),
    "t": lambda x: x.t(),
    "permute": lambda x: x.permute(1, 0),
    "expand": lambda x: x.unsqueeze(0).expand(3, *x.shape),
    "expand to none": lambda x: x.unsqueeze(0).expand(0, *x.shape),
    "repeat": lambda x: x.repeat(2, 1),
    "repeat more axes": lambda x: x.repeat(2, 1, 2),
    "repeat none": lambda x: x.repeat(0, 1),
    "tile": lambda x: x.tile(3),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 0),
    "repeat_interleave flat": lambda x: x.repeat_interleave(2),
    "flip": lambda x: x.flip(0),
    "flip both": lambda x: x.flip((-1, 0)),
    "roll": lambda x: x.roll(1, 0),
    "roll far": lambda x: x.roll(-7, 1),
    "roll flat": lambda x: x.roll(2),
    "diagonal": lambda x: x.diagonal(),
    "diagonal off": lambda x: x.diagonal(1),
    "diagonal below": lambda x: x.diagonal(-1),
    "cat": lambda x: torch.cat([x, x], 0),
    "cat last": lambda x: torch.cat([x, x[:, :0]], -1),
    "cat nothing": lambda x: torch.cat([torch.zeros(0), x]),
    "cat types": lambda x: torch.cat([x, torch.ones_like(x, dtype=torch.int64)]),
    "stack": lambda x: torch.stack([x, x], -1),
    "stack types": lambda x: torch.cat([x.int(), x.bool()]),
    "split": lambda x: x.split(2, 1),
    "split last": lambda x: x.split(3, -1),
    "chunk": lambda x: x.chunk(2, 0),
    "chunk more": lambda x: x.chunk(9, 1),
    "unbind": lambda x: list(x.unbind(0)) or x,
    "pad": lambda x: F.pad(x, (1, 2), value=np.inf),
    "pad cut": lambda x: F.pad(x, (-1, 1, 0, 2)),
    "pad all": lambda x: F.pad(x, (0, 0, 1, 0), value=-0.5),
    "pad whole": lambda x: F.pad(x.long(), (1, 0), value=3),
    "pad truth": lambda x: F.pad(x > 0, (1, 1), value=True),
    "slice": lambda x: x[1:],
    "slice back": lambda x: x[:, :-1],
    "slice far": lambda x: x[5:99],
    "slice step": lambda x: x[::2, 1::3],
    "slice none": lambda x: x[2:1],
    "slice negative": lambda x: x[-3:-1],
    "select": lambda x: x[0],
    "select last": lambda x: x[:, -1],
    "select before": lambda x: x.select(0, -1),
    "narrow": lambda x: x.narrow(1, 0, 1),
    "narrow none": lambda x: x.narrow(0, 0, 0),
    "narrow end": lambda x: x.narrow(1, -1, 1),
    "index": lambda x: x[torch.tensor([0, -1, 0])],
    "index two": lambda x: x[torch.tensor([0, -1]), torch.tensor([-1, 0])],
    "index last": lambda x: x[:, torch.tensor([[0], [-1]])],
    "index broadcast": lambda x: x[torch.tensor([[0], [-1]]), torch.tensor([0, 0, -1])],
    "index none": lambda x: x[torch.zeros(0).long()],
    "index_select": lambda x: x.index_select(1, torch.tensor([0, 0])),
    "gather": lambda x: x.gather(1, torch.zeros(1, 2).long()),
    "gather none": lambda x: x.gather(0, torch.zeros(0, 1).long()),
    "scatter": lambda x: x.scatter(1, torch.zeros(1, 1).long(), 2.0),
    "scatter_add": lambda x: x.scatter_add(0, torch.zeros(2, 1).long(), torch.ones(2, 1)),
    "scatter source": lambda x: x.scatter(0, torch.zeros(1, 1).long(), torch.full((1, 1), np.nan)),
    "select_scatter": lambda x: x.select_scatter(torch.zeros(x.shape[1]), 0, -1),
    "slice_scatter": lambda x: x.slice_scatter(x[:1] * 2, 0, 0, 1),
    "slice_scatter end": lambda x: x.slice_scatter(x[-1:] * 2, 0, -1),
    "slice_scatter last": lambda x: x.slice_scatter(x[:, :1], -1, 0, 1),
    "where": lambda x: torch.where(x > 0, x, np.nan),
    "where types": lambda x: torch.where(x > 0, x, torch.ones(1, dtype=torch.int64)),
    "masked_fill": lambda x: x.masked_fill(x > 0, -np.inf),
    "one_hot": lambda x: F.one_hot((x > 0).long(), 3),
    "sort": lambda x: x.sort(0, descending=True),
    "topk": lambda x: x.topk(1, 1),
    "topk none": lambda x: x.topk(0, 1),
    "cumsum": lambda x: x.cumsum(0),
    "cumsum whole": lambda x: x.int().cumsum(1),
    "tril": lambda x: x.tril(-1),
    "triu": lambda x: x.triu(1),
    "full_like": lambda x: torch.full_like(x, np.nan),
    "full_like whole": lambda x: torch.full_like(x, 2.7, dtype=torch.int32),
    "zeros": lambda x: x.new_zeros(0, 2),
    "copy": lambda x: x.clone().copy_(x[:1]),
    "fill": lambda x: x.clone().fill_(np.inf),
    "to int": lambda x: x.to(torch.int32),
    "to int8": lambda x: (x * 3).to(torch.int8),
    "to bool": lambda x: x.to(torch.bool),
    "to half": lambda x: (x * 1e5).half().float(),
    "to uint8": lambda x: x.abs().to(torch.uint8),
    "bool to float": lambda x: (x > 0).double(),
    "matmul": lambda x: x @ x.t(),
    "mm": lambda x: torch.mm(x.t(), x),
    "mv": lambda x: torch.mv(x, x.sum(0)),
    "dot": lambda x: torch.dot(x[:, 0], x[:, 0]),
    "bmm": lambda x: torch.bmm(x[None], x.t()[None]),
    "outer": lambda x: torch.outer(x[:, 0], x.sum(0)),
    "addmm": lambda x: torch.addmm(x[:1, :1], x, x.t(), beta=0.5, alpha=-2),
    "addmm 0": lambda x: torch.addmm(x[:1, :1] * np.nan, x, x.t(), beta=0),
    "baddbmm": lambda x: torch.baddbmm(x[None, :1, :1], x[None], x.t()[None], beta=2),
    "addmm whole": lambda x: torch.addmm(x.long()[:1, :1], x.long(), x.long().t(), alpha=2),
    "baddbmm 0": lambda x: torch.baddbmm(x[None, :1, :1] * np.nan, x[None], x.t()[None], beta=0),
    "matmul whole": lambda x: x.long() @ x.long().t(),
    "einsum": lambda x: torch.einsum("ab,cb->ac", x, x),
    "einsum trace": lambda x: torch.einsum("ab->b", x),
    "linear": lambda x: F.linear(x, x, x.sum(1)),
    "linear plain": lambda x: F.linear(x[0], x),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    "causal": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True),
    "embedding": lambda x: F.embedding(torch.tensor([[0, 0]]), x),
    "embedding none": lambda x: F.embedding(torch.zeros(0, 2).long(), x),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "layer_norm all": lambda x: F.layer_norm(x, x.shape),
    "rms_norm": lambda x: F.rms_norm(x, x.shape[1:]),
    "group_norm": lambda x: F.group_norm(x, x.shape[1]),
    "instance_norm": lambda x: F.instance_norm(x[None]),
    "batch_norm": lambda x: F.batch_norm(x[: _some(len(x))], None, None, training=True),
    "batch_norm frozen": lambda x: F.batch_norm(x[: _some(len(x))], torch.zeros(x.shape[1]), torch.ones(x.shape[1])),
    "weight_norm": lambda x: torch._weight_norm(x[: _some(x.numel())], x[:, :1], 0),
    "cross_entropy": lambda x: F.cross_entropy(x, torch.zeros(x.shape[0]).long()),
    "cross_entropy ignored": lambda x: F.cross_entropy(x, torch.full((x.shape[0],), -100)),
    "cross_entropy sum": lambda x: F.cross_entropy(x, torch.zeros(x.shape[0]).long(), reduction="sum"),
    "nll": lambda x: F.nll_loss(x, torch.zeros(x.shape[0]).long()),
    "cross_entropy each": lambda x: F.cross_entropy(x, torch.full((x.shape[0],), -100), reduction="none"),
    "mse": lambda x: F.mse_loss(x, x * 2),
    "l1": lambda x: F.l1_loss(x, x * 2),
    "smooth_l1": lambda x: F.smooth_l1_loss(x, x * 2, beta=0.3),
    "bce logits": lambda x: F.binary_cross_entropy_with_logits(x, (x > 0).float()),
    "bce": lambda x: F.binary_cross_entropy(x.sigmoid(), (x > 0).float()),
    "glu": lambda x: F.glu(torch.cat([x, x], 1), 1),
    "prelu": lambda x: F.prelu(x, torch.tensor([0.3])),
    "dropout": lambda x: F.dropout(x, 0.5, False),
    "softmax": lambda x: x.softmax(0),
    "pool": lambda x: F.max_pool1d(x[None], 1),
    "avg_pool": lambda x: F.avg_pool1d(x[None], 2, 1, 1),
    "avg_pool ceil": lambda x: F.avg_pool1d(x[None], 2, 2, ceil_mode=True),
    "max_pool ceil": lambda x: F.max_pool1d(x[None], 2, 2, 1, ceil_mode=True),
    "adaptive": lambda x: F.adaptive_avg_pool1d(x[None], 3),
    "adaptive 1": lambda x: F.adaptive_avg_pool1d(x[None], 1),
    "conv": lambda x: F.conv1d(x[None], torch.ones(2, _some(x.shape[0]), 1)),
    "conv same": lambda x: F.conv1d(x[None], torch.ones(1, _some(x.shape[0]), 4), padding="same"),
    "conv wide": lambda x: F.conv1d(x[None], torch.ones(1, _some(x.shape[0]), 3), padding=2, stride=3, dilation=2),
    "transposed": lambda x: F.conv_transpose1d(
        x[None], torch.ones(_some(x.shape[0]), 2, 3), stride=2, output_padding=1
    ),
    "nearest": lambda x: F.interpolate(x[None], size=5),
    "nearest down": lambda x: F.interpolate(x[None], size=2),
    "nearest 1.3": lambda x: F.interpolate(x[None], scale_factor=1.3),
    "linear resize": lambda x: F.interpolate(x[None], size=4, mode="linear"),
    "linear corners": lambda x: F.interpolate(x[None], size=4, mode="linear", align_corners=True),
    "linear 0.7": lambda x: F.interpolate(x[None], scale_factor=1.7, mode="linear"),
    "bilinear": lambda x: F.interpolate(x[None, None], size=(3, 4), mode="bilinear"),
    "bicubic": lambda x: F.interpolate(x[None, None], size=(3, 4), mode="bicubic"),
    "bilinear 1": lambda x: F.interpolate(x[None, None], size=(1, 1), mode="bilinear", align_corners=True),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x.repeat(4, 1)[None, :, None, :], 2),
    "reflect": lambda x: F.pad(x[None], (1, 0), mode="reflect"),
    "replicate": lambda x: F.pad(x[None], (2, 3), mode="replicate"),
    "circular": lambda x: F.pad(x[None], (1, 1), mode="circular"),
}
"""Functions of a matrix; torch refuses some of them for some sizes."""
SIZES = [(1, 1), (7, 3), (3, 0), *([(1, 5), (5, 1), (0, 3)] if "TSTATIC_SOAK" in os.environ else [])]
REFUSED: Mapping[str, tuple[tuple[int, int], ...]] = {
    "topk none": tuple(SIZES),
    **dict.fromkeys(("gather none", "select_scatter", "attention", "causal", "adaptive 1"), ((3, 0),)),
}
"""Sizes of which ``from_torch`` refuses what torch computes; docs/from_torch.md says it."""


def _of_torch(case: One, x: Any) -> Any:
    """torch's results; ``None`` where it refuses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return [t.numpy() for t in results_of(case(torch.from_numpy(x.copy())))]
        except (RuntimeError, IndexError, ValueError, ZeroDivisionError):
            return None


def _ours(names: Sequence[str], x: Any) -> dict[str, list[Any]]:
    """Results of the cases of one converted module."""
    lengths = {name: len(_of_torch(ROWS[name], x)) for name in names}
    found = iter(converted(lambda a, b: [results_of(ROWS[name](a)) for name in names], x, x))
    return {name: [next(found) for _ in range(count)] for name, count in lengths.items()}


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_odd_sizes(size: tuple[int, int]) -> None:
    x = np.random.default_rng(5).standard_normal(size).astype("float32")
    wanted = {name: found for name, case in ROWS.items() if (found := _of_torch(case, x)) is not None}
    names = [name for name in wanted if size not in REFUSED.get(name, ())]
    wrong = []
    try:
        got = _ours(names, x)
    except Exception:
        # Which of them it is.
        got = {}
        for name in names:
            try:
                got |= _ours([name], x)
            except Exception as error:
                wrong.append(f"{name}: {type(error).__name__} {str(error).splitlines()[0]}")
    for name, found in got.items():
        texts = [_wrong(a, b) for a, b in zip(found, wanted[name], strict=True)]
        wrong += [f"{name}: {text}" for text in texts if text]
    assert wrong == []
    assert len(got) > (70 if 0 in size else 100)


def test_what_is_refused_says_why() -> None:
    for name, sizes in REFUSED.items():
        for size in sizes:
            with pytest.raises(TstaticError):
                _ours([name], np.ones(size, "float32"))
