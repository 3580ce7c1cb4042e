"""What a torch form gives for NaN, infinities and numbers near the ends of the range, against the reference of its op."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.special_values import differing, largest, special_values
from tests.ops.oracles import flat
from tests.ops.sampler import (
    Array,
    Sample,
    backward_sample,
    fill,
    map_arrays,
    op_types,
    root,
    run,
    run_torch,
    sites,
    test_seed,
)
from tstatic import static
from tstatic.errors import NumericsError, TstaticError
from tstatic.ir.opdef import GRAD, OpDef, ValueRange, op_def, with_
from tstatic.ir.types import DType, dtype_of

torch = pytest.importorskip("torch")

PAGE = Path(__file__).parents[2] / "docs" / "differences.md"
TURNS = 8 if os.environ.get("TSTATIC_SOAK") else 1
"""Samples of each of a domain's first shapes; with TSTATIC_SOAK=1 more, of all shapes, in both widths."""
SITES = None if os.environ.get("TSTATIC_SOAK") else 6
STALE = 40
"""Turns in which a row of the page is looked for."""
KINDS = ("infinite", "huge")
ON_DEVICE = [t for t in op_types(1) if not op_def(t).dynamic and op_def(t).torch_run != "host"]


def listed() -> tuple[dict[str, set[str]], set[str]]:
    """The table of ops: by kind of values those whose results differ for them, and those that differ on some machines only."""
    found, varying = {kind: set[str]() for kind in KINDS}, set[str]()
    for line in PAGE.read_text().splitlines():
        match = re.match(r"^\| (infinite, huge|infinite|huge) \| (`.+) \| (.+) \|$", line)
        if match:
            ops = set(re.findall(r"`(\w+)`", match[2]))
            for kind in match[1].split(", "):
                found[kind] |= ops
            if "on some machines" in match[3].lower():
                varying |= ops
    return found, varying


LISTED, VARYING = listed()


def values_of(kind: str, dtype: DType, positive: bool) -> Array:
    """``infinite``: nothing that overflows or underflows in a sum of products; ``huge``: also numbers that do; ``top``: largest."""
    if kind == "top":
        found = largest(dtype) * np.array([1, 0.7, 0.3, -1, -0.7, -0.3])
        return np.asarray(np.abs(found) if positive else found).astype(dtype.np)
    found = special_values(dtype, alone=kind == "huge")
    if kind == "infinite":
        size = np.abs(found.astype(np.float64))
        found = found[(size != largest(dtype)) & ~((size > 0) & (size < 1e-3))]
    return np.asarray(np.abs(found) if positive else found)


def mixed(array: Array, kind: str, positive: bool, rng: np.random.Generator, ordered: bool = False) -> Array:
    """Rows without special values, with some, and of nothing else; ``ordered`` ones ascend."""
    if not dtype_of(array.dtype).is_float:
        return array
    values = values_of(kind, dtype_of(array.dtype), positive)
    share = rng.choice([0.0, 0.3, 1.0], (*array.shape[:-1], 1) if array.ndim else ())
    chosen = values[rng.integers(0, len(values), array.shape)]
    found = np.asarray(np.where(rng.random(array.shape) < share, chosen, array), array.dtype)
    return np.sort(found, axis=-1) if ordered else found


def drawn(definition: OpDef, kind: str, turns: int = TURNS, count: int | None = SITES) -> Iterator[Sample]:
    """Samples of the op's own shapes, the first ``count`` of them; of a backward op also special gradients that arrive."""
    forward = root(definition)
    domain = forward.domain
    assert domain is not None
    widths = [t for t in ("float32", "float64") if t in domain.floats]
    places = list(enumerate(sites(forward, domain)[:count]))
    # Of several gradients, each arrives alone, too.
    turns += sum(slot.name.endswith(GRAD) for slot in definition.inputs) > 1
    for turn in range(turns if widths else 0):
        for site, (shapes, attrs) in places:
            rng = test_seed("special forms", forward.type, kind, site, turn)
            dtype = widths[turn % len(widths)]
            ins: list[Any] = []
            given = fill(forward, domain, shapes, attrs, dtype, "contiguous", rng)
            for slot, value in zip(forward.inputs, given, strict=True):
                own = domain.values.get(slot.name, ValueRange())
                usual = own.dtype != "float" or own.offsets
                # What a domain says is never negative (second moments, variances, probabilities) is not.
                positive = isinstance(own.low, int | float) and own.low >= 0
                ins.append(
                    value
                    if usual
                    else map_arrays(lambda a, p=positive, r=rng, o=own.ordered: mixed(a, kind, p, r, o), value)
                )
            sample = Sample(tuple(ins), attrs, dtype)
            if definition is forward:
                yield sample
                continue
            back = backward_sample(definition, forward, sample, rng, turn + site)
            arriving = [
                map_arrays(lambda a, r=rng: mixed(a, kind, False, r), v) if s.name.endswith(GRAD) else v
                for s, v in zip(definition.inputs, back.ins, strict=True)
            ]
            yield replace(back, ins=tuple(arriving))


def difference(definition: OpDef, sample: Sample) -> str | None:
    """What differs in a special value between reference and form; ``None`` where the reference refuses the values."""
    try:
        wanted = run(definition, sample)
    except TstaticError:
        return None
    with torch.no_grad():
        try:
            got = run_torch(definition, sample)
        except RuntimeError as error:
            return f"torch raises {error!r}"
    for slot, ours, theirs in zip(definition.outputs, wanted, got, strict=True):
        if ours is None or theirs is None:
            continue
        for a, b in zip(flat(ours), flat(theirs), strict=True):
            if dtype_of(a.dtype).is_complex:
                continue
            # Finite numbers are compared elsewhere; what cancels has the sign of its last rounding.
            bad = differing(b, a, None, zeros=False)
            if bad.any():
                return f"{slot.name}: {a[bad][:3]} by the reference, {b[bad][:3]} by torch"
    return ""


def differences(definition: OpDef, kind: str) -> list[str]:
    try:
        found = [(difference(definition, sample), sample) for sample in drawn(definition, kind)]
    except NumericsError:  # the forward op refuses the values
        return []
    return [f"{definition.type}, {kind}: {text} for {sample}" for text, sample in found if text]


@pytest.mark.parametrize("type", ON_DEVICE)
def test_torch_forms_give_what_references_give(type: str) -> None:
    """Forward and backward ops; where a library on the device cannot, docs/differences.md says why."""
    for kind in KINDS:
        if type not in LISTED[kind]:
            assert differences(op_def(type), kind) == []


def differs(definition: OpDef, kind: str) -> bool:
    """Whether one of many samples differs; sums that overflow in one order and not in another need numbers of that size."""
    kinds = (kind, "top") if kind == "huge" else (kind,)
    for pair in itertools.zip_longest(*(drawn(definition, one, STALE, None) for one in kinds)):
        if any(sample is not None and difference(definition, sample) for sample in pair):
            return True
    return False


@pytest.mark.filterwarnings("ignore::scipy.linalg.LinAlgWarning")  # scipy says that a matrix is singular
@pytest.mark.parametrize("type", sorted(LISTED["infinite"] | LISTED["huge"]))
def test_the_table_is_true(type: str) -> None:
    """A row that holds on every machine, and of whose operators one does not differ any more, must go."""
    left = [kind for kind in KINDS if type in LISTED[kind] and type not in VARYING and not differs(op_def(type), kind)]
    assert not left, f"docs/differences.md lists {type} for {left}, but nothing differs there any more"


def test_a_row_that_is_no_longer_true_is_seen() -> None:
    assert not differs(op_def("tanh"), "infinite")
    assert not differs(op_def("abs_grad"), "huge")
    assert differs(with_(op_def("tanh"), lower=lambda torch, x, *, out=None: torch.tanh(x).nan_to_num()), "infinite")


def test_the_table_names_what_exists() -> None:
    every = LISTED["infinite"] | LISTED["huge"]
    assert every
    assert every <= set(ON_DEVICE)


def test_a_planted_fault_is_seen() -> None:
    """A form that hides NaN, one that shrinks an infinity, and one whose gradient is lost."""
    wrong = {
        "tanh": lambda torch, x, *, out=None: torch.nan_to_num(torch.tanh(x)),
        "relu": lambda torch, x, *, out=None: torch.relu(x).clamp(max=1e30),
        "tanh_grad": lambda torch, y, dy, *, out=None: dy * torch.where(y.abs() < 1, 1 - y * y, 0),
    }
    for type, lower in wrong.items():
        assert differences(op_def(type), "infinite") == []
        assert differences(with_(op_def(type), lower=lower), "infinite"), type


# ------------------------------------------------------------------------------------------------- what Paddle computes
LOGITS = np.array([np.inf, -np.inf, np.nan, 1e38], "f4")
ENTROPIES = {
    0.0: [np.nan, np.nan, np.nan, 1e38],
    0.3: [np.nan, np.inf, np.nan, 7e37],
    1.0: [np.nan, np.inf, np.nan, 0.0],
}
"""Label -> losses of these logits in Paddle 2.6.2."""


@pytest.mark.parametrize("form", [run, run_torch])
def test_entropy_of_infinite_logits_is_that_of_paddle(form: Any) -> None:
    definition = op_def("sigmoid_cross_entropy_with_logits")
    for label, wanted in ENTROPIES.items():
        sample = Sample((LOGITS, np.full(4, label, "f4"), None), {}, "float32")
        np.testing.assert_allclose(form(definition, sample)[0], np.array(wanted, "f4"), rtol=1e-6)


@pytest.mark.parametrize("form", [run, run_torch])
@pytest.mark.parametrize("pos_weight", [0.5, 1.0, 2.0])
def test_entropy_of_infinite_logits_with_a_weight_is_that_of_paddle(form: Any, pos_weight: float) -> None:
    """Of plus infinity it is NaN, of minus infinity infinite if the label is above 0; it was infinite and NaN."""
    definition = op_def("sigmoid_cross_entropy_with_logits")
    for label, wanted in {0.0: np.nan, 0.3: np.inf, 1.0: np.inf}.items():
        weight = np.full(3, 1 + (pos_weight - 1) * label, "f4")
        sample = Sample((LOGITS[:3], np.full(3, label, "f4"), weight), {}, "float32")
        np.testing.assert_array_equal(form(definition, sample)[0], np.array([np.nan, wanted, np.nan], "f4"))


@pytest.mark.parametrize("form", [run, run_torch])
@pytest.mark.parametrize("size", [1e38, 1e30, 3e19])
def test_layer_norm_of_a_variance_that_overflows_is_that_of_paddle(form: Any, size: float) -> None:
    """Rows and their gradients are 0 in Paddle 2.6.2, and the gradient of the scale with them."""
    x, slope, shift = np.array([[size, 2, -size, 1]], "f4"), np.array([1, 2, 3, 4], "f4"), np.array([5, 6, 7, 8], "f4")
    definition, attrs = op_def("layer_norm"), {"begin_norm_axis": 1}
    y, mean, variance = form(definition, Sample((x, slope, shift), attrs, "float32"))
    np.testing.assert_array_equal(y, shift[None])
    arriving = np.array([[1, 2, 3, 4]], "f4")
    sample = Sample((x, slope, shift, mean, variance, arriving), attrs, "float32")
    dx, dslope, dshift = form(op_def("layer_norm_grad"), sample)
    np.testing.assert_array_equal(dx, np.zeros((1, 4), "f4"))
    np.testing.assert_array_equal(dslope, np.zeros(4, "f4"))
    np.testing.assert_array_equal(dshift, arriving[0])


@pytest.mark.parametrize("form", [run, run_torch])
@pytest.mark.parametrize("type", ["group_norm", "instance_norm"])
@pytest.mark.parametrize("size", [1e38, 1e30, 3e19])
def test_group_norms_of_a_variance_that_overflows_are_those_of_paddle(form: Any, type: str, size: float) -> None:
    """Planes and their gradients are 0 in Paddle 2.6.2; they were NaN in torch on the CPU."""
    x, slope, shift = np.array([[[[size, 2], [-size, 1]]]], "f4"), np.array([2], "f4"), np.array([5], "f4")
    y, mean, spread = form(op_def(type), Sample((x, slope, shift), {}, "float32"))
    np.testing.assert_array_equal(y, np.full((1, 1, 2, 2), 5, "f4"))
    arriving = np.array([[[[1, 2], [3, 4]]]], "f4")
    dx, *_ = form(op_def(f"{type}_grad"), Sample((x, slope, shift, mean, spread, arriving), {}, "float32"))
    np.testing.assert_array_equal(dx, np.zeros((1, 1, 2, 2), "f4"))


@pytest.mark.parametrize("form", [run, run_torch])
@pytest.mark.parametrize(("type", "attrs"), [("p_norm", {"axis": 0}), ("frobenius_norm", {"dim": (0,)})])
def test_norm_of_one_huge_number_is_that_of_paddle(form: Any, type: str, attrs: dict[str, Any]) -> None:
    """Its square overflows in Paddle 2.6.2, with gradient 0; torch returns the absolute value of a single number."""
    x, arriving = np.array([1e30], "f4"), np.array(1, "f4")
    (out,) = form(op_def(type), Sample((x,), attrs, "float32"))
    assert np.isposinf(out).all()
    (dx,) = form(op_def(f"{type}_grad"), Sample((x, out, arriving), attrs, "float32"))
    np.testing.assert_array_equal(dx, np.zeros(1, "f4"))


@pytest.mark.parametrize("form", [run, run_torch])
def test_most_frequent_value_beside_nan_is_that_of_paddle(form: Any) -> None:
    """NaN equals nothing in Paddle 2.6.2, so that three of them are three values."""
    nan = np.nan
    rows = np.array([[1, nan, nan, 2], [nan, 3, 3, nan], [nan, nan, nan, 1], [1, 2, 3, nan]], "f4")
    values, places = form(op_def("mode"), Sample((rows,), {}, "float32"))
    assert (values.tolist(), places.tolist()) == ([1, 3, 1, 1], [0, 2, 3, 0])


@pytest.mark.parametrize("form", [run, run_torch])
@pytest.mark.parametrize(("right", "wanted"), [(False, [2, 2, 2, 0, 1]), (True, [4, 2, 2, 0, 2])])
def test_search_among_nan_puts_it_behind_all_numbers(form: Any, right: bool, wanted: list[int]) -> None:
    """torch found no number before a NaN of the sequence."""
    sequence, values = np.array([1, 2, np.nan, np.nan], "f4"), np.array([np.nan, np.inf, 9, -np.inf, 2], "f4")
    (found,) = form(op_def("searchsorted"), Sample((sequence, values), {"right": right}, "float32"))
    assert found.tolist() == wanted


# --------------------------------------------------------------------------------------------------------- what must end
@pytest.mark.numpy_device("torch's libraries give NaN or raise, and a torch form does not look at values")
def test_decompositions_of_infinities_are_refused() -> None:
    """LAPACK's singular values of this matrix were computed for ever."""
    x = static.data("x", [3, 3])
    fetched = {"svd": paddle.linalg.svd(x)[1], "eigh": paddle.linalg.eigh(x)[0], "pinv": paddle.linalg.pinv(x)}
    matrix = np.array([[1.661, 0.099, 0.358], [-0.163, 2.509, 0.033], [np.inf, 0.147, 4.184]], "f4")
    for value in fetched.values():
        with pytest.raises(NumericsError, match="NaN or an infinity"):
            static.Executor().run(feed={"x": matrix}, fetch_list=[value])


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_places_far_outside_of_an_image_do_not_end_the_process(special: float, padding: str) -> None:
    """The gradients of torch on the CPU read and write memory elsewhere for them."""
    definition = op_def("grid_sampler_grad")
    rng = np.random.default_rng(0)
    image, arriving = rng.standard_normal((2, 3, 3, 5), "f4"), rng.standard_normal((2, 3, 4, 4), "f4")
    grid = np.full((2, 4, 4, 2), special, "f4")
    attrs = {"padding_mode": padding, "mode": "bilinear", "align_corners": True}
    found = run_torch(definition, Sample((image, grid, arriving), attrs, "float32"))
    assert [a.shape for a in found] == [image.shape, grid.shape]
