"""Mean average precision of detections, as variables of the program."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.extras.detection.detection_map import VERSIONS
from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import check_choice, check_int, check_number, check_type
from tstatic.ir.names import generate
from tstatic.ir.opdef import export
from tstatic.ir.program import Program, Variable
from tstatic.nn.param import create_global_var
from tstatic.no_effect import no_effect
from tstatic.ops.elementwise.scale import cast
from tstatic.ops.shape.joining import concat
from tstatic.runtime.scope import global_scope

CLASS = "fluid.metrics.DetectionMAP"


@export("fluid.metrics.DetectionMAP", "fluid.evaluator.DetectionMAP")
@no_effect(background_label="true boxes are objects: classes without any do not count")
class DetectionMAP:
    """Mean average precision of detected boxes: of each batch, and of all since :meth:`reset`.

    The mean over classes of the area under precision over recall (Everingham et al., 2010). A box is right if it overlaps a
    true one of its class by more than the threshold, and none of a higher score does.

    Args:
        input: Boxes found, ``[boxes, 6]`` with lod_level 1: class, score, left, top, right, bottom, from 0 to 1; what
            ``fluid.layers.multiclass_nms`` returns.
        gt_label: Classes of the true boxes, ``[boxes, 1]`` with lod_level 1.
        gt_box: Their sides, ``[boxes, 4]`` with lod_level 1.
        gt_difficult: Whether they are difficult, ``[boxes, 1]``.
        class_num: Number of classes, that of the background counted.
        background_label: The class of the background.
        overlap_threshold: Of intersection over union.
        evaluate_difficult: Whether difficult boxes count.
        ap_version: ``"integral"`` or ``"11point"``.

    Raises:
        ProgramTypeError, ProgramError: If an argument is of another type or value.

    Example:
        >>> found = static.data("found", [None, 6], lod_level=1)
        >>> label, box = (static.data(n, [None, k], lod_level=1) for n, k in (("label", 1), ("box", 4)))
        >>> mean, so_far = fluid.metrics.DetectionMAP(found, label, box, class_num=2).get_map_var()
        >>> rows = ("found", [[1, 0.9, 0, 0, 0.5, 0.5]]), ("label", [[1]]), ("box", [[0, 0, 0.5, 0.4]])
        >>> feed = {name: fluid.create_lod_tensor(np.float32(row), [[1]], fluid.CPUPlace()) for name, row in rows}
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(feed=feed, fetch_list=[mean, so_far])
        [array([1.], dtype=float32), array([1.], dtype=float32)]
    """

    def __init__(
        self,
        input: Variable,
        gt_label: Variable,
        gt_box: Variable,
        gt_difficult: Variable | None = None,
        class_num: int | None = None,
        background_label: int = 0,
        overlap_threshold: float = 0.5,
        evaluate_difficult: bool = True,
        ap_version: str = "integral",
    ) -> None:
        for arg, var in (("input", input), ("gt_label", gt_label), ("gt_box", gt_box)):
            check_variable(var, arg, CLASS)
        attrs = {
            "class_num": check_int(class_num, "class_num", CLASS, 1),
            "overlap_threshold": float(check_number(overlap_threshold, "overlap_threshold", CLASS, least=0, most=1)),
            "evaluate_difficult": check_type(evaluate_difficult, bool, "evaluate_difficult", CLASS),
            "ap_type": check_choice(ap_version, VERSIONS, "ap_version", CLASS),
        }
        parts = [gt_label, *([] if gt_difficult is None else [check_variable(gt_difficult, "gt_difficult", CLASS)])]
        truth = concat([*(cast(part, gt_box.dtype) for part in parts), gt_box], axis=1)
        boxes = {"DetectRes": input, "Label": truth}
        self._now, *_ = emit("detection_map", boxes, attrs)
        # The number of boxes so far is known only when the program runs: the scope holds them, empty at first.
        self._started = create_global_var([1], 0, "int32", persistable=True, name=generate("detection_map_started"))
        counts = create_global_var(
            [attrs["class_num"]], 0, "int32", persistable=True, name=generate("detection_map_counts")
        )
        hits = create_global_var([1, 3], 0.0, "float32", persistable=True, name=generate("detection_map_boxes"))
        state = {"HasState": self._started, "PosCount": counts, "Hits": hits}
        self._so_far, *_ = emit(
            "detection_map", {**boxes, **state}, attrs, outputs={"AccumPosCount": counts, "AccumHits": hits}
        )
        emit("fill_constant", {}, {"shape": (1,), "dtype": "int32", "value": 1.0}, outputs={"Out": self._started})

    def get_map_var(self) -> tuple[Variable, Variable]:
        """Returns the mean average precision of the batch, and of all batches since :meth:`reset`: ``[1]`` of float32."""
        return self._now, self._so_far

    @no_effect(executor="the scope that is current is written", reset_program="no program is run for it")
    def reset(self, executor: Any = None, reset_program: Program | None = None) -> None:
        """Forgets the batches so far; call it after the startup program."""
        global_scope().var(self._started.name).get_tensor().set(np.zeros(1, np.int32))


__all__ = ["DetectionMAP"]
