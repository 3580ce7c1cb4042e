"""A program as plain data: what its text and its file are made of (needs msgspec, so it is imported where they are read)."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from tstatic.ir.process import process_of
from tstatic.ir.program import Parameter, Program, Variable
from tstatic.ir.text import regularizer_of
from tstatic.ir.where import Where

MAX_BLOCKS = 100_000

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=65_536)]
Count = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
Index = Annotated[int, msgspec.Meta(ge=-1, lt=MAX_BLOCKS)]
Size = Annotated[int, msgspec.Meta(ge=-1, le=2**62)]
Real = float | str
"""A number; in a file ``"inf"``, ``"-inf"`` and ``"nan"`` are texts."""
Line = tuple[Count, Count]
"""Number of a file in ``ProgramDesc.files``, and a line in it."""


class _Desc(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Base: unknown fields are refused, fields at their default are left out."""


class ParameterDesc(_Desc):
    """What a parameter has beyond a variable; the initializer stays behind, its ops stand in the startup program."""

    trainable: bool = True
    optimize_attr: dict[str, Real] = msgspec.field(default_factory=lambda: {"learning_rate": 1.0})
    regularizer: tuple[str, Real] | None = None
    do_model_average: bool | None = None
    need_clip: bool = True
    is_distributed: bool = False


class VarDesc(_Desc):
    """A variable; ``shape`` or ``dtype`` is ``None`` where it is not known yet."""

    name: Name
    shape: Annotated[list[Size], msgspec.Meta(max_length=64)] | None
    dtype: str | None
    persistable: bool = False
    stop_gradient: bool = False
    is_data: bool = False
    need_check_feed: bool = False
    lod_level: Count = 0
    type: str = "dense_tensor"
    initialised: bool = False
    where: Line | None = None
    parameter: ParameterDesc | None = None


class OpDesc(_Desc):
    """An op; ``attrs`` holds Python values here, their packed form in a file."""

    type: Name
    inputs: dict[str, list[Name]]
    outputs: dict[str, list[Name]]
    position: Count
    attrs: dict[str, Any] = {}
    role: Count = 0
    role_var: list[str] = []
    namescope: str = ""
    device: str = ""
    where: Line | None = None


class BlockDesc(_Desc):
    """A block; ``built`` counts the ops ever made in it."""

    vars: list[VarDesc]
    ops: list[OpDesc]
    built: Count
    parent: Index = -1
    forward: Index = -1
    grad_prefix: str = ""


class ProgramDesc(_Desc):
    """A whole program. ``process`` is set when ops call functions that only this process has."""

    blocks: Annotated[list[BlockDesc], msgspec.Meta(min_length=1, max_length=MAX_BLOCKS)]
    files: list[str] = []
    random_seed: int = 0
    current_block: Count = 0
    is_test: bool = False
    loss: str | None = None
    learning_rate: str | None = None
    feeds: list[str] = []
    fetches: list[str] = []
    process: str = ""


# ------------------------------------------------------------------------------------------------------------ describe
def describe(program: Program) -> ProgramDesc:
    """Takes a program apart."""
    files: dict[str, int] = {}

    def line(where: Where | None) -> Line | None:
        return None if where is None else (files.setdefault(where[0], len(files)), where[1])

    blocks = [
        BlockDesc(
            parent=block.parent_idx,
            forward=block.forward_block_idx,
            built=block.built,
            grad_prefix=block.grad_prefix,
            vars=[_describe_variable(var, line(var.made_at)) for var in block.vars.values()],
            ops=[
                OpDesc(
                    type=op.type,
                    inputs={slot: list(row) for slot, row in op.inputs.items()},
                    outputs={slot: list(row) for slot, row in op.outputs.items()},
                    attrs=dict(op.attrs),
                    role=op.role,
                    role_var=list(op.role_var),
                    position=op.position,
                    namescope=op.namescope,
                    device=op.device,
                    where=line(op.where),
                )
                for op in block.ops
            ],
        )
        for block in program.blocks
    ]
    return ProgramDesc(
        blocks=blocks,
        files=list(files),
        random_seed=program._seed,
        current_block=program.current_block_idx,
        is_test=program._is_test,
        loss=program.loss_name,
        learning_rate=program.lr_var.name if program.lr_var is not None else None,
        feeds=list(program.feed_names),
        fetches=list(program.fetch_names),
        process=process_of(program),
    )


def _describe_variable(var: Variable, where: Line | None) -> VarDesc:
    parameter = None
    if isinstance(var, Parameter):
        parameter = ParameterDesc(
            trainable=var.trainable,
            optimize_attr=dict(var.optimize_attr),
            regularizer=regularizer_of(var),
            do_model_average=var.do_model_average,
            need_clip=var.need_clip,
            is_distributed=var.is_distributed,
        )
    return VarDesc(
        name=var.name,
        shape=None if var._shape is None else list(var._shape),
        dtype=None if var._dtype is None else var._dtype.name,
        persistable=var.persistable,
        stop_gradient=var.stop_gradient,
        is_data=var.is_data,
        need_check_feed=var.need_check_feed,
        lod_level=var.lod_level,
        type=var.type,
        initialised=var.initialised,
        where=where,
        parameter=parameter,
    )
