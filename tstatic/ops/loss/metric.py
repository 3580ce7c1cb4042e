"""Accuracy, and the area under the ROC or precision-recall curve."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.errors import FeedError, ShapeError, UnsupportedError
from tstatic.ir import names
from tstatic.ir.attrs import one_of
from tstatic.ir.build import LayerNamer, check_variable, emit
from tstatic.ir.checks import INTEGERS, check_dtype, check_rank, same_shape
from tstatic.ir.declare import default_main_program, default_startup_program
from tstatic.ir.opdef import Attr, Case, Domain, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.shape_checks import check_fit
from tstatic.ir.types import Meta, dtype_of, float32
from tstatic.ops.loss import _loss_onnx as _onnx

Array = np.ndarray[Any, Any]


# ------------------------------------------------------------------------------------------------------------ accuracy
def _accuracy_infer(out: Meta | None, indices: Meta, label: Meta, one_d: bool) -> tuple[Meta, Meta, Meta]:
    for name, meta in (("Indices", indices), ("Label", label)):
        check_dtype(meta, INTEGERS, name, "accuracy", fix="convert class numbers with paddle.cast(x, 'int64')")
    check_rank(indices, 2, "Indices", "accuracy", layout="[batch, k]")
    rows = indices.shape[:1]
    check_fit(
        any(same_shape(label.shape, shape) for shape in (rows, (*rows, 1))), (indices, label), ("Indices", "Label"),
        "the predictions and labels of 'accuracy' do not fit together", "Indices [batch, k] and Label [batch, 1]",
        "reshape the labels to [batch, 1]", "accuracy",
    )  # fmt: skip
    shape = (1,) if one_d else ()
    count = dtype_of("int32")
    return Meta(shape, float32), Meta(shape, count), Meta(shape, count)


def _accuracy_ref(
    out: Array | None, indices: Array, label: Array, accuracy: Array | None, correct: Array | None, total: Array | None
) -> None:
    # `any`: equal indices of a row count once.
    hits = int((indices == label.reshape(-1, 1)).any(axis=1).sum())
    rows = indices.shape[0]
    # No sample at all gives NaN, as a mean of nothing does.
    for target, value in ((accuracy, hits / rows if rows else np.nan), (correct, hits), (total, rows)):
        if target is not None:
            target.fill(value)


def _accuracy_lower(torch: Any, out: Any, indices: Any, label: Any, *, one_d: bool) -> Any:
    hits = (indices == label.reshape(-1, 1)).any(1).sum()
    rows = torch.full((), indices.shape[0], dtype=torch.int64, device=indices.device)
    shape = (1,) if one_d else ()
    kinds = ((hits.double() / rows, torch.float32), (hits, torch.int32), (rows, torch.int32))
    return tuple(v.to(kind).reshape(shape) for v, kind in kinds)


register(OpDef(
    "accuracy", "Out?, Indices, Label -> Accuracy, Correct, Total", attrs={"one_d": False}, infer=_accuracy_infer,
    ref=_accuracy_ref, lower=_accuracy_lower, shape_only=("Out",),
    domain=Domain(
        cases=(
            Case(((6, 2), (6, 2), (6, 1))), Case(((6, 1), (6, 1), (6,)), {"one_d": True}),
            Case((None, (50, 3), (50, 1))), Case(((0, 2), (0, 2), (0, 1))), Case(((1, 1), (1, 1), (1, 1))),
        ),
        values={"Indices": ValueRange(0, 4, dtype="int64"), "Label": ValueRange(0, 4, dtype="int64")}, ulps=1,
    ), onnx=_onnx.accuracy,
))  # fmt: skip


# ----------------------------------------------------------------------------------------------------------------- auc
def _auc_infer(
    predict: Meta, label: Meta, pos: Meta, neg: Meta, num_thresholds: int, slide_steps: int, one_d: bool
) -> tuple[Meta, Meta, Meta]:
    if not predict.dtype.is_float or predict.rank != 2 or predict.shape[1] == 0:
        raise ShapeError(
            "'auc' takes the probabilities of each sample, that of the positive class last",
            expected="a float value of shape [batch, 2] or [batch, 1]",
            received=repr(predict),
            fix="apply softmax (two classes) or sigmoid (one) and reshape to rank 2",
            op="auc",
        )
    bins = num_thresholds + 1
    size = bins if slide_steps == 0 else (slide_steps + 1) * bins + 1
    for name, meta in (("StatPos", pos), ("StatNeg", neg)):
        if meta.dtype.name != "int64" or (meta.known and meta.numel != size):
            raise ShapeError(
                f"'{name}' of 'auc' has not the size that its attributes ask for",
                expected=f"{size} int64 values (num_thresholds={num_thresholds}, slide_steps={slide_steps})",
                received=repr(meta),
                fix=f"make '{name}' an int64 variable of that size, or change num_thresholds or slide_steps",
                op="auc",
            )
    return Meta((1,) if one_d else (), dtype_of("float64")), pos, neg


def area(pos: Array, neg: Array, curve: str) -> float:
    """Returns the area under a curve by the trapezoid rule, from counts of positive and negative samples per bin, low bins first.

    0 when one of the classes has no sample (ROC), or the positive one (PR).
    """
    # From the highest bin down: each point of the curve counts the samples at or above a threshold.
    p, n = np.cumsum(pos[::-1], dtype=np.float64), np.cumsum(neg[::-1], dtype=np.float64)
    p, n = np.concatenate(([0.0], p)), np.concatenate(([0.0], n))
    if curve == "ROC":
        # Without both classes there is no curve, and nothing to divide by.
        if p[-1] <= 0 or n[-1] <= 0:
            return 0.0
        return float(np.sum(np.diff(n) * (p[1:] + p[:-1])) / 2 / p[-1] / n[-1])
    if p[-1] <= 0:
        return 0.0
    # Before the first sample the precision counts as 1.
    seen = p + n
    precision = np.divide(p, seen, out=np.ones_like(p), where=seen > 0)
    return float(np.sum(np.diff(p) * (precision[1:] + precision[:-1])) / 2 / p[-1])


def _bins(predict: Array, num_thresholds: int) -> Array:
    # In float64 the product of a float32 and the number of bins is exact: none rounds up into the next bin.
    last = predict[:, -1].astype(np.float64)
    if last.size and not (last.min() >= 0 and last.max() <= 1):
        raise FeedError(
            "'auc' was given a prediction that is not a probability",
            expected="numbers from 0 to 1 in the last column",
            received=f"{last.min()} to {last.max()}",
            fix="apply softmax or sigmoid to the predictions first",
            op="auc",
        )
    return (last * num_thresholds).astype(np.int64)


def _auc_ref(
    predict: Array,
    label: Array,
    pos: Array,
    neg: Array,
    auc: Array | None,
    pos_out: Array | None,
    neg_out: Array | None,
    *,
    curve: str,
    num_thresholds: int,
    slide_steps: int,
) -> None:
    bins = num_thresholds + 1
    index = _bins(predict, num_thresholds)
    positive = label.reshape(-1) != 0
    tables = []
    for stat, out, chosen in ((pos, pos_out, positive), (neg, neg_out, ~positive)):
        # Counters are mostly updated in place; odd strides, or an output that nobody reads, take a copy.
        table = stat.reshape(-1).copy() if out is None or not out.flags.c_contiguous else out.reshape(-1)
        if out is not None and out.flags.c_contiguous:
            np.copyto(out, stat)
        counts = np.bincount(index[chosen], minlength=bins)
        if slide_steps == 0:
            table += counts
            tables.append(table)
        else:
            # slide_steps tables of single batches take turns; then comes their sum; the last value counts batches.
            turn = int(table[-1]) % slide_steps * bins
            sums = table[slide_steps * bins : (slide_steps + 1) * bins]
            sums += counts - table[turn : turn + bins]
            table[turn : turn + bins] = counts
            table[-1] += 1
            tables.append(sums)
        if out is not None and not out.flags.c_contiguous:
            out[...] = table.reshape(out.shape)
    if auc is not None:
        auc.fill(area(tables[0], tables[1], curve))


def _auc_lower(
    torch: Any, predict: Any, label: Any, pos: Any, neg: Any, *, curve: str, num_thresholds: int, slide_steps: int,
    one_d: bool,
) -> Any:  # fmt: skip
    bins = num_thresholds + 1
    index = (predict[:, -1].double() * num_thresholds).long()
    positive = (label.reshape(-1) != 0).long()
    tables, sums = [], []
    for stat, weight in ((pos, positive), (neg, 1 - positive)):
        # `scatter_add_`: several samples fall into one bin.
        counts = torch.zeros(bins, dtype=torch.int64, device=stat.device).scatter_add_(0, index, weight)
        table = stat.reshape(-1).clone()
        if slide_steps == 0:
            table += counts
            sums.append(table)
        else:
            turn = int(table[-1]) % slide_steps * bins
            total = table[slide_steps * bins : (slide_steps + 1) * bins]
            total += counts - table[turn : turn + bins]
            table[turn : turn + bins] = counts
            table[-1] += 1
            sums.append(total)
        tables.append(table.reshape(stat.shape))
    p, n = (torch.cumsum(s.flip(0), 0).double() for s in sums)
    p, n = (torch.cat([torch.zeros(1, dtype=torch.float64, device=p.device), t]) for t in (p, n))
    if curve == "ROC":
        whole = p[-1] * n[-1]
        value = torch.where(whole > 0, torch.trapezoid(p, n) / whole, 0.0)
    else:
        precision = torch.where(p + n > 0, p / (p + n), 1.0)
        value = torch.where(p[-1] > 0, torch.trapezoid(precision, p) / p[-1], 0.0)
    return value.reshape((1,) if one_d else ()), tables[0], tables[1]


register(OpDef(
    "auc", "Predict, Label, StatPos, StatNeg -> AUC, StatPosOut, StatNegOut",
    attrs={"curve": Attr("ROC", "str", one_of("ROC", "PR")), "num_thresholds": 4095, "slide_steps": 1, "one_d": False},
    infer=_auc_infer, ref=_auc_ref, lower=_auc_lower, state=(("StatPos", "StatPosOut"), ("StatNeg", "StatNegOut")),
    effects=True,
    domain=Domain(
        cases=(
            Case(((9, 2), (9, 1), (1, 8), (1, 8)), {"num_thresholds": 7, "slide_steps": 0}),
            Case(((9, 1), (9, 1), (1, 8), (1, 8)), {"num_thresholds": 7, "slide_steps": 0, "curve": "PR"}),
            Case(((30, 2), (30, 1), (25,), (25,)), {"num_thresholds": 7, "slide_steps": 2}),
            Case(((0, 2), (0, 1), (17,), (17,)), {"num_thresholds": 7, "one_d": True}),
        ),
        values={
            "Predict": ValueRange(0.0, 1.0), "Label": ValueRange(0, 1, dtype="int64"),
            "StatPos": ValueRange(0, 9, dtype="int64"), "StatNeg": ValueRange(0, 9, dtype="int64"),
        },
        floats=("float32", "float64"),
    ),
))  # fmt: skip


# ---------------------------------------------------------------------------------------------------- public functions
def _accuracy(
    input: Variable, label: Variable, k: int | Variable, correct: Variable | None, total: Variable | None, name: str | None,
    one_d: bool,
) -> Variable:  # fmt: skip
    check_variable(input, "input", "accuracy", ("float16", "bfloat16", "float32", "float64"))
    check_variable(label, "label", "accuracy", ("int64", "int32"))
    helper = LayerNamer("accuracy", name)
    counted = k if isinstance(k, Variable) else None
    values, indices = helper.emit(
        "top_k_v2", {"X": input, "K": counted}, {"k": 1 if counted is not None else k, "sorted": False}
    )
    ins = {"Out": values, "Indices": indices, "Label": label}
    given: dict[str, Variable] = {}
    late = []
    for slot, variable in (("Correct", correct), ("Total", total)):
        if variable is None:
            continue
        check_variable(variable, slot.lower(), "accuracy")
        if variable._dtype is None or variable.dtype.name == "int32":
            given[slot] = variable
        else:
            late.append((slot, variable))
    results = helper.emit("accuracy", ins, {"one_d": one_d}, outputs=given)
    made = dict(zip(("Accuracy", "Correct", "Total"), results, strict=True))
    for slot, variable in late:
        # Scripts hand in int64 counters too.
        attrs = {"in_dtype": "int32", "out_dtype": variable.dtype}
        emit("cast", {"X": made[slot]}, attrs, outputs={"Out": variable})
    accuracy_out: Variable = made["Accuracy"]
    accuracy_out.stop_gradient = True
    return accuracy_out


@export("static.accuracy", "metric.accuracy", op="accuracy")
def accuracy(
    input: Variable,
    label: Variable,
    k: int | Variable = 1,
    correct: Variable | None = None,
    total: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Returns the share of samples whose label is among the ``k`` largest predictions; float32 of shape [].

    Args:
        input: Predictions of shape [batch, classes].
        label: Class numbers of shape [batch, 1].
        k: How many predictions count: an int, or a Variable of one integer.
        correct: Gets the number of hits.
        total: Gets the number of samples.
        name: Name of the layer.

    Example:
        >>> p = paddle.to_tensor([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]])
        >>> label = paddle.to_tensor(np.array([[1], [0], [0]]))
        >>> right = static.accuracy(input=p, label=label)
        >>> static.Executor().run(fetch_list=[right])[0]
        array(0.6667, dtype=float32)
    """
    return _accuracy(input, label, k, correct, total, name, False)


@export("fluid.layers.accuracy", op="accuracy")
def fluid_accuracy(
    input: Variable, label: Variable, k: int = 1, correct: Variable | None = None, total: Variable | None = None
) -> Variable:
    """Returns the share of samples whose label is among the ``k`` largest predictions; float32 of shape [1].

    Args:
        input: Predictions ``[batch, classes]``, floats.
        label: Class numbers ``[batch, 1]``, int64 or int32.
        k: How many predictions count.
        correct, total: Variables that get the number of hits and that of samples; ``None`` to leave them out.

    Raises:
        ShapeError: If there are fewer than ``k`` classes, or the batches differ.
    """
    return _accuracy(input, label, k, correct, total, None, True)


def counter(name: str, shape: tuple[int, ...], dtype: str = "int64") -> Variable:
    """Makes a persistable variable that the startup program sets to 0."""
    var = default_main_program().global_block().create_var(
        name=names.generate(name), shape=shape, dtype=dtype, persistable=True, stop_gradient=True
    )  # fmt: skip
    block = default_startup_program().global_block()
    # The startup program sets it under the same name, so running that again starts the counts anew.
    startup_var = block.create_var(name=var.name, shape=shape, dtype=dtype, persistable=True, stop_gradient=True)
    block.append_op("fill_constant", {}, {"Out": startup_var}, {"shape": shape, "dtype": dtype, "value": 0})
    return var


@export("static.auc", op="auc")
def auc(
    input: Variable,
    label: Variable,
    curve: str = "ROC",
    num_thresholds: int = 4095,
    topk: int = 1,
    slide_steps: int = 1,
    ins_tag_weight: Any = None,
) -> tuple[Variable, Variable, list[Variable]]:
    """Returns the area under the curve over all batches since the startup program ran, and over the last ``slide_steps`` batches.

    The counters are variables of the program. A clone for tests has the same ones, as in Paddle: what it is run on counts into the
    area of the training. To count apart, clone the program before the call, and call ``auc`` again in the clone, under
    ``program_guard(test, startup)``; to begin anew, set the counters to zeros.

    Args:
        input: Probabilities of shape [batch, 2] (or [batch, 1]); the last column is that of the positive class.
        label: 0 or 1, shape [batch, 1].
        curve: ``"ROC"`` or ``"PR"`` (precision over recall), by the trapezoid rule.
        num_thresholds: Probabilities are counted in ``num_thresholds + 1`` bins.
        topk: 1.
        slide_steps: Batches in the second result; 0: all of them.
        ins_tag_weight: ``None``; weights per sample are not supported.

    Returns:
        The area over all batches, that over the last ones (float64 of shape []), and the four counters.

    Example:
        >>> p = paddle.to_tensor([[0.7, 0.3], [0.2, 0.8], [0.9, 0.1]])
        >>> label = paddle.to_tensor(np.array([[0], [1], [1]]))
        >>> value, batch_value, states = static.auc(input=p, label=label)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> float(exe.run(fetch_list=[value])[0].item())
        0.5
    """
    return _auc(input, label, curve, num_thresholds, topk, slide_steps, ins_tag_weight, False)


@export("fluid.layers.auc", op="auc")
def fluid_auc(
    input: Variable,
    label: Variable,
    curve: str = "ROC",
    num_thresholds: int = 4095,
    topk: int = 1,
    slide_steps: int = 1,
    ins_tag_weight: Variable | None = None,
) -> tuple[Variable, Variable, list[Variable]]:
    """Returns the area under the curve, see ``static.auc``; both areas have shape [1].

    Args:
        input: Probabilities ``[batch, 2]`` or ``[batch, 1]``, floats; the last column is that of the positive class.
        label: 0 or 1, ``[batch, 1]``, int64 or int32.
        curve, num_thresholds, topk, slide_steps, ins_tag_weight: As in ``static.auc``.

    Raises:
        UnsupportedError: If ``topk`` is not 1, or weights of instances are given.
    """
    return _auc(input, label, curve, num_thresholds, topk, slide_steps, ins_tag_weight, True)


def _auc(
    input: Variable, label: Variable, curve: str, num_thresholds: int, topk: int, slide_steps: int,
    ins_tag_weight: Any, one_d: bool,
) -> tuple[Variable, Variable, list[Variable]]:  # fmt: skip
    check_variable(input, "input", "auc", ("float32", "float64", "float16", "bfloat16"))
    check_variable(label, "label", "auc", ("int64", "int32"))
    if topk != 1 or ins_tag_weight is not None:
        raise UnsupportedError(
            "auc takes neither another topk than 1 nor weights of instances",
            expected="topk=1 and ins_tag_weight=None",
            received=f"topk={topk}, ins_tag_weight={ins_tag_weight!r}",
            fix="leave topk and ins_tag_weight out",
            op="auc",
        )
    bins = num_thresholds + 1
    # A table for each of the last batches, one for their sum, and a count of batches; see ``_auc_ref``.
    recent = ((1 + slide_steps) * bins + 1,) if slide_steps else (1, bins)
    batch = [counter("auc_batch_stat", recent) for _ in range(2)]
    whole = [counter("auc_stat", (1, bins)) for _ in range(2)]
    # The same op twice: without ``slide_steps`` it counts all batches.
    areas = []
    for (pos, neg), steps in ((batch, slide_steps), (whole, 0)):
        ins = {"Predict": input, "Label": label, "StatPos": pos, "StatNeg": neg}
        attrs = {"curve": curve, "num_thresholds": num_thresholds, "slide_steps": steps, "one_d": one_d}
        areas.append(emit("auc", ins, attrs, outputs={"StatPosOut": pos, "StatNegOut": neg})[0])
        areas[-1].stop_gradient = True
    return areas[1], areas[0], [*batch, *whole]
