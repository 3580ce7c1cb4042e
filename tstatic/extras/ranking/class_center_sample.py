"""The classes of a batch and a random choice of others: Partial FC's sample of class centers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import INDICES, check_dtype, check_index, check_int, check_rank
from tstatic.ir.dynamic import Dynamic
from tstatic.ir.opdef import Attr, Case, Domain, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.no_effect import no_effect
from tstatic.ops.base.shapes import Array
from tstatic.tuned import draw
from tstatic.tuned.philox import philox_key

WHOLE = "every process holds all classes"


def _infer(label: Meta, num_classes: int, num_samples: int) -> tuple[Meta, Meta]:
    check_dtype(label, INDICES, "Label", fix="convert the labels with paddle.cast(label, 'int64')")
    check_rank(label, 1, "Label", layout="[batch]")
    check_int(num_samples, "num_samples", "class_center_sample", 1, num_classes)
    return label, label.with_shape((UNKNOWN,))


def _ref(
    label: Array, remapped: Any, sampled: Any, *, num_classes: int, num_samples: int, seed: int, rng: Any
) -> list[Array]:
    check_index(label, num_classes, "Label", fix=f"check the labels, or the number of classes ({num_classes})")
    # Classes of the batch come first and rise, so a label's new number is its place among them.
    own, place = np.unique(label, return_inverse=True)
    # The others in a random order: each class draws a number, and those of the batch come last.
    order = np.empty(num_classes, np.float64)
    draw.fill_uniform(order, 0.0, 1.0, philox_key(rng, seed), rng.start)
    # Above every number in [0, 1), so a stable sort puts them behind all others.
    order[own] = 2
    others = np.argsort(order, kind="stable")[: max(0, num_samples - len(own))]
    return [place.reshape(label.shape).astype(label.dtype), np.concatenate([own, others]).astype(label.dtype)]


def _lower(torch: Any, label: Any, *, num_classes: int, num_samples: int, seed: int, rng: Any) -> Any:
    own, place = torch.unique(label, return_inverse=True)
    key = philox_key(rng, seed)
    order = draw.torch_uniform(torch, num_classes, np.dtype(np.float64), 0.0, 1.0, key, rng.start, label.device)
    order[own.long()] = 2
    others = torch.argsort(order, stable=True)[: max(0, num_samples - len(own))]
    return place.to(label.dtype), torch.cat([own, others.to(label.dtype)])


register(OpDef(
    "class_center_sample", "Label -> RemappedLabel, SampledLocalClassCenter",
    attrs={
        "num_classes": Attr(kind="int"), "num_samples": Attr(kind="int"), "seed": 0,
        "fix_seed": Attr.idle(False, "a seed other than 0 is fixed"), "ring_id": Attr.idle(0, WHOLE),
        "rank": Attr.idle(0, WHOLE), "nranks": Attr.idle(1, WHOLE),
    },
    infer=_infer, ref=_ref, lower=_lower, random=True, effects=True, dynamic=Dynamic("the classes of the batch"),
    domain=Domain(
        cases=(
            Case(((5,),), {"num_classes": 9, "num_samples": 7}), Case(((6,),), {"num_classes": 20, "num_samples": 1}),
            Case(((4,),), {"num_classes": 4, "num_samples": 4}), Case(((1,),), {"num_classes": 30, "num_samples": 20}),
        ),
        values={"Label": ValueRange(0, "num_classes", dtype="int64")}, check_grad="a drawn class has no gradient",
    ),
))  # fmt: skip


@no_effect(group=WHOLE)
@export("nn.functional.class_center_sample", op="class_center_sample")
def class_center_sample(
    label: Variable, num_classes: int, num_samples: int, group: Any = None
) -> tuple[Variable, Variable]:
    """Returns the labels as numbers among a sample of classes, and that sample: the classes of the batch and random others.

    A layer with very many classes then computes the scores of the sample only (Partial FC, An et al., 2020).

    Args:
        label: Class numbers ``[batch]``, int32 or int64.
        num_classes: How many classes there are.
        num_samples: How many the sample has; more, if there are more in the batch.
        group: Has no effect.

    Returns:
        ``[batch]``, the place of each label in the sample, and ``[samples]``, the classes of the sample: first those of the
        batch, in order. Both have the dtype of ``label``.

    Raises:
        ShapeError, DTypeError, ProgramError: If the arguments do not fit.
        IndexRangeError: At run time, if a label is not a class.

    Example:
        >>> label = paddle.to_tensor([11, 5, 1, 5])
        >>> mapped, sampled = paddle.nn.functional.class_center_sample(label, num_classes=20, num_samples=3)
        >>> [a.tolist() for a in static.Executor().run(fetch_list=[mapped, sampled])]
        [[2, 1, 0, 1], [1, 5, 11]]
    """
    function = "class_center_sample"
    check_variable(label, "label", function, INDICES)
    classes = check_int(num_classes, "num_classes", function, 1)
    samples = check_int(num_samples, "num_samples", function, 1, classes)
    remapped, sampled = emit(function, {"Label": label}, {"num_classes": classes, "num_samples": samples})
    return remapped, sampled
