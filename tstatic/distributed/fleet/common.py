"""``fleet.meta_optimizers.common``: roles of ops, and parameters that begin alike on all processes."""

from __future__ import annotations

from typing import Any

from tstatic.comm.process_collectives import broadcast_startup
from tstatic.ir.declare import default_startup_program
from tstatic.ir.export import door
from tstatic.ir.operator import OpRole
from tstatic.ir.program import Operator, Program
from tstatic.no_effect import no_effect

OP_ROLE_KEY = "op_role"
OP_ROLE_VAR_KEY = "op_role_var"


@door("distributed.fleet.meta_optimizers.common.is_update_op")
def is_update_op(op: Operator) -> bool:
    """Returns whether an op updates a parameter."""
    return {"Param", "Grad", "LearningRate"} <= {*op.inputs}


@door("distributed.fleet.meta_optimizers.common.is_loss_grad_op")
def is_loss_grad_op(op: Operator) -> bool:
    """Returns whether an op starts the gradient of the loss."""
    return bool(op.role & OpRole.Backward and op.role & OpRole.Loss)


@door("distributed.fleet.meta_optimizers.common.is_backward_op")
def is_backward_op(op: Operator) -> bool:
    """Returns whether an op belongs to the backward part."""
    return bool(op.role & OpRole.Backward)


@door("distributed.fleet.meta_optimizers.common.is_optimizer_op")
def is_optimizer_op(op: Operator) -> bool:
    """Returns whether an op belongs to the update."""
    return bool(op.role & OpRole.Optimize)


@no_effect(
    nrings="gloo connects all processes at once", wait_port="the processes wait for each other when they connect"
)
class CollectiveHelper:
    """Makes the parameters of all processes begin with the values of the first one; ``minimize`` of fleet calls it.

    Args:
        role_maker: Says how many processes there are.

    Example:
        >>> from tstatic.distributed import fleet
        >>> from tstatic.distributed.fleet.meta_optimizers.common import CollectiveHelper
        >>> _ = static.nn.fc(static.data("x", [None, 2]), 1)
        >>> CollectiveHelper(fleet.PaddleCloudRoleMaker()).update_startup_program()
        >>> [op.type for op in static.default_startup_program().global_block().ops][-1]
        'fill_constant'
    """

    def __init__(self, role_maker: Any, nrings: int = 1, wait_port: bool = True) -> None:
        self.role_maker = role_maker

    def update_startup_program(self, startup_program: Program | None = None) -> None:
        """Appends the op that sends the parameters of process 0 to all; on one process there is nothing to send.

        Args:
            startup_program: The default startup program if ``None``.
        """
        startup = startup_program if startup_program is not None else default_startup_program()
        if self.role_maker._worker_num() > 1:
            broadcast_startup(startup, [v.name for v in startup.list_vars() if v.persistable])


__all__ = [
    "OP_ROLE_KEY",
    "OP_ROLE_VAR_KEY",
    "CollectiveHelper",
    "OpRole",
    "is_backward_op",
    "is_loss_grad_op",
    "is_optimizer_op",
    "is_update_op",
]
