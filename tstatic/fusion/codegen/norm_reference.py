"""A batch norm and its gradient as lines of numpy in float64, for modules that run alone."""

from __future__ import annotations

import math

from tstatic.fusion.codegen.per_channel import LAST, uses_running_statistics
from tstatic.fusion.codegen.reference import Reference
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.opdef import OpDef


class _Norm:
    """What both directions read: texts of values per channel in a shape that broadcasts."""

    def __init__(self, reference: Reference, op: FrozenOp) -> None:
        self.reference = reference
        self.op = op
        x = op.input("X")
        assert isinstance(x, str)
        self.x = reference.of(x)
        shape = self.x.shape
        at = len(shape) - 1 if len(shape) == 2 or op.attrs["data_layout"] in LAST else 1
        # The axes that a channel's values lie along, and the shape of one value per channel.
        self.axes = tuple(i for i in range(len(shape)) if i != at)
        self.wide = tuple(n if i == at else 1 for i, n in enumerate(shape))
        self.epsilon = float(op.attrs["epsilon"])
        self.given = uses_running_statistics(op.attrs)

    def channel(self, slot: str, absent: str) -> str:
        """Returns a parameter or statistic; ``absent`` where the op has none."""
        value = self.op.input(slot)
        return f"{self.reference.of(value).text}.reshape({self.wide!r})" if isinstance(value, str) else absent

    def line(self, name: str, text: str) -> None:
        self.reference.lines.append(f"{name} = {text}")

    def put(self, slot: str, text: str) -> None:
        self.reference.put(self.op.output(slot), text)


def batch_norm(reference: Reference, op: FrozenOp) -> None:
    """``(x - mean) / sqrt(variance + epsilon) * scale + bias``, and the running statistics."""
    n = _Norm(reference, op)
    if n.given:
        n.line("mean", n.channel("Mean", "0.0"))
        n.line("variance", n.channel("Variance", "1.0"))
    else:
        n.line("mean", f"np.mean({n.x.text}, axis={n.axes!r}, keepdims=True)")
        n.line("variance", f"np.var({n.x.text}, axis={n.axes!r}, keepdims=True)")
    n.line("inverse", f"1 / np.sqrt(variance + {n.epsilon!r})")
    n.put("Y", f"({n.x.text} - mean) * inverse * {n.channel('Scale', '1.0')} + {n.channel('Bias', '0.0')}")
    n.put("SavedMean", "mean.reshape(-1)")
    n.put("SavedVariance", "inverse.reshape(-1)")
    tensor = op.input("MomentumTensor")
    momentum = reference.of(tensor).text if isinstance(tensor, str) else repr(float(op.attrs["momentum"]))
    n.line("keep", "1.0" if n.given else momentum)
    for slot, new in (("Mean", "mean"), ("Variance", "variance")):
        n.put(f"{slot}Out", f"({n.channel(slot, '0.0')} * keep + {new} * (1 - keep)).reshape(-1)")


def batch_norm_grad(reference: Reference, op: FrozenOp) -> None:
    """The gradients of input, scale and bias, from the statistics that the forward op saved."""
    n = _Norm(reference, op)
    dy = op.input("Y@GRAD")
    assert isinstance(dy, str)
    n.line("dy", reference.of(dy).text)
    n.line("inverse", n.channel("SavedVariance", "1.0"))
    n.line("normal", f"({n.x.text} - {n.channel('SavedMean', '0.0')}) * inverse")
    n.line("dscale", f"np.sum(dy * normal, axis={n.axes!r}, keepdims=True)")
    n.line("dbias", f"np.sum(dy, axis={n.axes!r}, keepdims=True)")
    count = math.prod(n.x.shape[axis] for axis in n.axes)
    taken = "" if n.given else f" - (dbias + normal * dscale) / {count}"
    n.put("X@GRAD", f"(dy{taken}) * inverse * {n.channel('Scale', '1.0')}")
    n.put("Scale@GRAD", "dscale.reshape(-1)")
    n.put("Bias@GRAD", "dbias.reshape(-1)")


def batch_norm_again(reference: Reference, op: FrozenOp) -> None:
    """``(x - mean) * inverse * scale + bias`` from the statistics that the forward op saved."""
    n = _Norm(reference, op)
    normal = f"({n.x.text} - {n.channel('SavedMean', '0.0')}) * {n.channel('SavedVariance', '1.0')}"
    n.put("Y", f"{normal} * {n.channel('Scale', '1.0')} + {n.channel('Bias', '0.0')}")


AGAIN = OpDef("batch_norm_again", "X, Scale?, Bias?, SavedMean, SavedVariance -> Y")
"""A batch norm's result in its gradient; it stands in no program."""


def write_norm(reference: Reference, op: FrozenOp) -> None:
    """Writes a batch norm, its gradient, or its result computed again."""
    if op.definition is AGAIN:
        batch_norm_again(reference, op)
    elif op.definition.of:
        batch_norm_grad(reference, op)
    else:
        batch_norm(reference, op)
