"""``paddle.distributed``'s collectives as a script spells them, and the groups of processes that they take.

Each appends an op of ``process_ops.py`` to the program, and is an identity on a single process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tstatic.comm.process_ops import ReduceOp
from tstatic.comm.processes import world
from tstatic.comm.rendezvous import launch
from tstatic.errors import ProgramError, UnsupportedError
from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import check_int, check_length, check_type
from tstatic.ir.declare import in_program_guard
from tstatic.ir.names import generate
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.no_effect import no_effect

_SYNC = "a run returns when its collectives are done"
# By the names of `ReduceOp`, which some scripts pass as texts; equal to its numbers.
_KINDS = {"SUM": 0, "MAX": 1, "MIN": 2, "PROD": 3, "AVG": 4}


# --------------------------------------------------------------------------------------------------------------- groups
@dataclass(frozen=True)
class Group:
    """Some of the processes; what ``new_group`` returns.

    Attributes:
        id: Number of the group; 0 has all processes.
        ranks: Its members, in rising order.
    """

    id: int
    ranks: tuple[int, ...]

    @property
    def nranks(self) -> int:
        """Number of members."""
        return len(self.ranks)

    world_size = nranks

    @property
    def rank(self) -> int:
        """Number of this process among the members; -1 if it is none."""
        return self.get_group_rank(launch.current().rank)

    @property
    def name(self) -> str:
        """Its name in logs."""
        return f"_default_pg{self.id}"

    def is_member(self) -> bool:
        """Returns whether this process is a member."""
        return self.rank >= 0

    def get_group_rank(self, rank: int) -> int:
        """Returns the number that a process has among the members; -1 if it is none."""
        return self.ranks.index(rank) if rank in self.ranks else -1


_groups: list[Group] = []


@export("distributed.new_group")
@no_effect(backend="gloo connects processes", timeout="FLAGS_step_timeout_s says how long a collective waits")
def new_group(ranks: Sequence[int] | None = None, backend: str | None = None, timeout: Any = None) -> Group:
    """Returns a group of processes, for the argument ``group`` of the collectives; all processes make the same call.

    Args:
        ranks: Numbers of the members; all processes by default.

    Raises:
        ProgramError: If there is no process of such a number, or one is named twice.

    Example:
        >>> from tstatic import distributed
        >>> group = distributed.new_group([0])
        >>> group.ranks, group.rank, group.nranks
        ((0,), 0, 1)
    """
    size = launch.current().size
    listed = list(range(size)) if ranks is None else sorted(
        check_int(r, "ranks", "distributed.new_group", 0, size - 1, error=ProgramError,
                  fix=f"name ranks from 0 to {size - 1}: there are {size} processes") for r in ranks
    )  # fmt: skip
    if not listed or len({*listed}) != len(listed):
        raise ProgramError(
            "distributed.new_group takes each rank once",
            expected="a list of different ranks",
            received=repr(ranks),
            fix="name each member once",
            op="distributed.new_group",
        )
    # Numbered from 1 in the order of the calls, which all processes make alike: 0 is that of all.
    made = Group(len(_groups) + 1, tuple(listed))
    _groups.append(made)
    return made


@export("distributed.get_group")
def get_group(id: int = 0) -> Group:
    """Returns the group of a number; 0 is that of all processes.

    Args:
        id: ``Group.id``.

    Raises:
        ProgramError: If no group has that number.
    """
    if id == 0:
        return Group(0, tuple(range(launch.current().size)))
    check_int(id, "id", "distributed.get_group", 0, len(_groups), error=ProgramError)
    return _groups[id - 1]


@dataclass(frozen=True)
class _Call:
    """A collective that is being built: its name, its members (none: all processes), and how many they are."""

    name: str
    ranks: tuple[int, ...]
    size: int
    member: bool

    def root(self, rank: Any, arg: str) -> int:
        """Returns the number of a process among the members."""
        own = launch.current().size
        number = check_int(rank, arg, self.name, 0, own - 1, error=ProgramError)
        if self.ranks and number not in self.ranks:
            raise ProgramError(
                f"'{arg}' of {self.name} is not a member of the group",
                expected=f"one of {list(self.ranks)}",
                received=number,
                fix="name a member by its number among all processes",
                op=self.name,
            )
        return self.ranks.index(number) if self.ranks else number

    def checked(self, tensor: Any, arg: str = "tensor") -> Variable:
        """Returns a Variable of the program that is being built."""
        var = check_variable(tensor, arg, self.name)
        _outside(var, self.name)
        return var

    def listed(self, tensors: Any, arg: str, count: int) -> list[Variable]:
        """Returns a list of Variables of the required length."""
        check_type(tensors, (list, tuple), arg, self.name, expected="a list of Variables")
        check_length(tensors, count, arg, self.name, why="one for each process of the group")
        return [self.checked(t, arg) for t in tensors]


def _outside(var: Variable, name: str) -> None:
    """Marks the program as one that exchanges values; raises UnsupportedError inside of control flow."""
    program = var.block.program
    block = program.current_block()
    if block.idx:
        raise UnsupportedError(
            f"{name} cannot be inside of control flow, because the processes may take different branches",
            expected="a call outside of cond and while_loop",
            received=f"a call in block {block.idx}",
            fix="exchange the values before or after it",
            op=name,
        )
    program.collectives = True
    program.distributed = program.distributed or True


def _begin(name: str, group: Any) -> _Call:
    name = f"distributed.{name}"
    if group is None or (isinstance(group, Group) and group.id == 0):
        return _Call(name, (), launch.current().size, True)
    check_type(group, Group, "group", name, expected="what distributed.new_group returned, or None")
    return _Call(name, group.ranks, group.nranks, group.is_member())


def _kind(op: Any, name: str) -> int:
    if isinstance(op, str) and op.upper() in _KINDS:
        return _KINDS[op.upper()]
    # From SUM to AVG.
    return check_int(op, "op", name, 0, 4, error=ProgramError, fix="pass a member of distributed.ReduceOp")


# ----------------------------------------------------------------------------------------------------------- collectives
@export("distributed.all_reduce")
@no_effect(sync_op=_SYNC)
def all_reduce(tensor: Variable, op: Any = ReduceOp.SUM, group: Group | None = None, sync_op: bool = True) -> None:
    """Appends an op that combines a variable over the processes, in place; on one process it stays as it is.

    Args:
        tensor: Any shape, the same on all processes.
        op: A member of ``ReduceOp``. Sums and means have a gradient.
        group: The processes; all by default.

    Raises:
        ProgramTypeError: If ``tensor`` is not a Variable.
        UnsupportedError: Inside of control flow.

    Example:
        >>> from tstatic import distributed
        >>> count = paddle.to_tensor([3.0])
        >>> distributed.all_reduce(count)
        >>> static.Executor().run(fetch_list=[count])[0]
        array([3.], dtype=float32)
    """
    call = _begin("all_reduce", group)
    var, kind = call.checked(tensor), _kind(op, call.name)
    if call.member:
        emit("all_reduce", {"X": [var]}, {"kind": kind, "ranks": call.ranks}, outputs={"Out": [var]})


@export("distributed.broadcast")
@no_effect(sync_op=_SYNC)
def broadcast(tensor: Variable, src: int, group: Group | None = None, sync_op: bool = True) -> None:
    """Appends an op that gives all processes the value of one, in place.

    Args:
        tensor: Any shape, the same on all processes.
        src: Number of the process that has the value.
        group: The processes; all by default.

    Raises:
        ProgramError: If ``src`` is not one of them.
    """
    call = _begin("broadcast", group)
    var, root = call.checked(tensor), call.root(src, "src")
    if call.member:
        emit("broadcast", {"X": [var]}, {"root": root, "ranks": call.ranks}, outputs={"Out": [var]})


@export("distributed.reduce")
@no_effect(sync_op=_SYNC)
def reduce(
    tensor: Variable, dst: int, op: Any = ReduceOp.SUM, group: Group | None = None, sync_op: bool = True
) -> None:
    """Appends an op that combines a variable over the processes on one of them; on the others it stays as it is.

    Args:
        tensor: Any shape, the same on all processes.
        dst: Number of the process that gets the result.
        op: A member of ``ReduceOp``.
        group: The processes; all by default.

    Raises:
        ProgramError: If ``dst`` is not one of them.
    """
    call = _begin("reduce", group)
    var, kind, root = call.checked(tensor), _kind(op, call.name), call.root(dst, "dst")
    if call.member:
        emit("reduce", {"X": [var]}, {"kind": kind, "root": root, "ranks": call.ranks}, outputs={"Out": [var]})


@export("distributed.all_gather")
@no_effect(sync_op=_SYNC)
def all_gather(tensor_list: list[Variable], tensor: Variable, group: Group | None = None, sync_op: bool = True) -> None:
    """Appends an op that gives all processes the values of all.

    Args:
        tensor_list: An empty list, which gets a Variable for each process; or one with as many, which are written.
        tensor: Any shape, the same on all processes.
        group: The processes; all by default.

    Raises:
        ProgramTypeError: If ``tensor_list`` is not a list.

    Example:
        >>> from tstatic import distributed
        >>> parts = []
        >>> distributed.all_gather(parts, paddle.to_tensor([1.0, 2.0]))
        >>> static.Executor().run(fetch_list=parts)
        [array([1., 2.], dtype=float32)]
    """
    call = _begin("all_gather", group)
    check_type(tensor_list, list, "tensor_list", call.name)
    var = call.checked(tensor)
    given = call.listed(tensor_list, "tensor_list", call.size) if tensor_list else None
    if call.member:
        attrs = {"count": call.size, "ranks": call.ranks}
        outputs = given if given is not None else [_like(var) for _ in range(call.size)]
        emit("all_gather", {"X": var}, attrs, outputs={"Out": outputs})
        # Only when the op is there: an error must leave the caller's list as it was.
        tensor_list[:] = outputs


def _like(var: Variable) -> Variable:
    block = var.block.program.current_block()
    return block.create_var(name=generate("gathered"), shape=var.shape, dtype=var.dtype, stop_gradient=True)


@export("distributed.gather")
@no_effect(sync_op=_SYNC)
def gather(
    tensor: Variable, gather_list: list[Variable] | None = None, dst: int = 0, group: Group | None = None,
    sync_op: bool = True,
) -> None:  # fmt: skip
    """Appends an op that gives one process the values of all.

    Args:
        tensor: Any shape, the same on all processes.
        gather_list: On process ``dst``: as ``tensor_list`` of :func:`all_gather`.
        dst: Number of the process that gets them.
        group: The processes; all by default.

    Raises:
        ProgramError: If ``dst`` is not one of the processes.
    """
    call = _begin("gather", group)
    # Checked on all processes, though one alone uses it: they must fail alike, or the others wait.
    call.root(dst, "dst")
    # The op is the same on all processes, which must run the same collectives.
    here = launch.current().rank == dst and gather_list is not None
    all_gather(gather_list if here and gather_list is not None else [], tensor, group)


@export("distributed.reduce_scatter")
@no_effect(sync_op=_SYNC)
def reduce_scatter(
    tensor: Variable, tensor_list: Sequence[Variable], op: Any = ReduceOp.SUM, group: Group | None = None,
    sync_op: bool = True,
) -> None:  # fmt: skip
    """Appends an op that combines lists over the processes, of which each process gets one entry.

    Args:
        tensor: Gets the entry of this process's number.
        tensor_list: A Variable for each process, of the shape of ``tensor``.
        op: A member of ``ReduceOp``.
        group: The processes; all by default.

    Raises:
        ShapeError: If the list has another length than there are processes.
    """
    call = _begin("reduce_scatter", group)
    var, kind = call.checked(tensor), _kind(op, call.name)
    parts = call.listed(tensor_list, "tensor_list", call.size)
    if call.member:
        emit("reduce_scatter", {"X": parts}, {"kind": kind, "ranks": call.ranks}, outputs={"Out": var})


@export("distributed.scatter")
@no_effect(sync_op=_SYNC)
def scatter(
    tensor: Variable, tensor_list: Sequence[Variable] | None = None, src: int = 0, group: Group | None = None,
    sync_op: bool = True,
) -> None:  # fmt: skip
    """Appends an op that gives each process one entry of a list that one process has.

    Args:
        tensor: Gets the entry of this process's number.
        tensor_list: On process ``src``: a Variable for each process, of the shape of ``tensor``; ignored on the others.
        src: Number of the process that has the list.
        group: The processes; all by default.

    Raises:
        ShapeError: If the list of ``src`` has another length than there are processes.
    """
    call = _begin("scatter", group)
    var, root = call.checked(tensor), call.root(src, "src")
    sends = launch.current().rank == src
    parts = call.listed(tensor_list, "tensor_list", call.size) if sends else [var] * call.size
    if call.member:
        emit("scatter_from", {"X": parts}, {"root": root, "ranks": call.ranks}, outputs={"Out": var})


@export("distributed.alltoall", "distributed.all_to_all")
@no_effect(sync_op=_SYNC)
def alltoall(
    in_tensor_list: Sequence[Variable],
    out_tensor_list: list[Variable],
    group: Group | None = None,
    sync_op: bool = True,
) -> None:
    """Appends an op that sends entry ``r`` of a list to process ``r``, for all processes.

    Args:
        in_tensor_list: A Variable for each process, all of one shape.
        out_tensor_list: An empty list, which gets what came from each process; or one with as many Variables.
        group: The processes; all by default.

    Raises:
        ShapeError: If a list has another length than there are processes.
    """
    call = _begin("alltoall", group)
    check_type(out_tensor_list, list, "out_tensor_list", call.name)
    parts = call.listed(in_tensor_list, "in_tensor_list", call.size)
    given = call.listed(out_tensor_list, "out_tensor_list", call.size) if out_tensor_list else None
    if call.member:
        outputs = given if given is not None else [_like(one) for one in parts]
        emit("alltoall", {"X": parts}, {"ranks": call.ranks}, outputs={"Out": outputs})
        # As in `all_gather`: when the op is there.
        out_tensor_list[:] = outputs


@export("distributed.send", "distributed.isend")
@no_effect(sync_op=_SYNC)
def send(tensor: Variable, dst: int = 0, group: Group | None = None, sync_op: bool = True) -> None:
    """Appends an op that sends a value to another process, whose ``recv`` gets it; the n-th one its n-th.

    Args:
        tensor: Any shape.
        dst: Number of the process that receives it.
        group: A group that both belong to.

    Raises:
        ProgramError: If ``dst`` is this process, or does not exist.
    """
    call = _begin("send", group)
    var = call.checked(tensor)
    emit("send_v2", {"X": var}, _pair(call, dst, "dst", True))


@export("distributed.recv", "distributed.irecv")
@no_effect(sync_op=_SYNC)
def recv(tensor: Variable, src: int = 0, group: Group | None = None, sync_op: bool = True) -> None:
    """Appends an op that gets a value from another process, which sends it by ``send``.

    Args:
        tensor: Is written; has the shape and dtype of what is sent.
        src: Number of the process that sends it.
        group: A group that both belong to.

    Raises:
        ProgramError: If ``src`` is this process, or does not exist.
    """
    call = _begin("recv", group)
    var = call.checked(tensor)
    emit("recv_v2", {"X": var}, _pair(call, src, "src", False), outputs={"Out": var})


def _pair(call: _Call, other: Any, arg: str, sends: bool) -> dict[str, Any]:
    """Returns the attributes of a transfer between this process and another one."""
    call.root(other, arg)
    own = launch.current().rank
    if own == other:
        raise ProgramError(
            f"{call.name} is between two processes",
            expected=f"'{arg}' of another process than {own}",
            received=other,
            fix="use paddle.assign within a process; start several with python -m tstatic.distributed.launch",
            op=call.name,
        )
    # In one order on both sides: the members of a connection are known by it.
    ranks = tuple(sorted((own, int(other))))
    return {"root": ranks.index(own if sends else other), "ranks": ranks}


@export("distributed.alltoall_single")
@no_effect(sync_op=_SYNC)
def alltoall_single(
    in_tensor: Variable, out_tensor: Variable, in_split_sizes: Sequence[int] | None = None,
    out_split_sizes: Sequence[int] | None = None, group: Group | None = None, sync_op: bool = True,
) -> None:  # fmt: skip
    """Appends an op that sends equal parts of a variable, cut along its first axis, to all processes.

    Args:
        in_tensor: Shape ``[processes * rows, ...]``; rows of part ``r`` go to process ``r``.
        out_tensor: Gets the parts that came from all processes, in their order.
        in_split_sizes: Rows of each part; equal ones only.
        out_split_sizes: Likewise.
        group: The processes; all by default.

    Raises:
        UnsupportedError: For parts of different sizes.
    """
    call = _begin("alltoall_single", group)
    var, out = call.checked(in_tensor, "in_tensor"), call.checked(out_tensor, "out_tensor")
    for sizes in (in_split_sizes, out_split_sizes):
        if sizes is not None and len({*sizes}) > 1:
            raise UnsupportedError(
                "alltoall_single sends parts of one size",
                expected="equal sizes, or None",
                received=list(sizes),
                fix="pad the parts to one size",
                op=call.name,
            )
    if var.shape[0] < 0 or var.shape[0] % call.size:
        raise ProgramError(
            f"the first axis of 'in_tensor' cannot be cut into {call.size} parts",
            expected=f"a multiple of {call.size}",
            received=var.shape[0],
            fix="declare a first size that all processes share",
            op=call.name,
        )
    if call.member:
        emit("alltoall_single", {"X": var}, {"ranks": call.ranks}, outputs={"Out": out})


@export("distributed.barrier")
def barrier(group: Group | None = None) -> None:
    """Waits for the other processes: inside of ``program_guard`` where the program runs, else at once.

    Inside of ``program_guard`` an op is appended, at which each run waits. Elsewhere, as between training and saving, the call
    itself returns when all processes have made it.

    Args:
        group: The processes; all by default.

    Raises:
        RankFailedError: If one failed, or did not come within ``FLAGS_step_timeout_s``; it says which.
        UnsupportedError: Inside of control flow.

    Example:
        >>> from tstatic import distributed
        >>> distributed.barrier()
        >>> main = static.Program()
        >>> with static.program_guard(main):
        ...     distributed.barrier()
        >>> [op.type for op in main.global_block().ops]
        ['fill_constant', 'barrier']
    """
    call = _begin("barrier", group)
    if not call.member:
        return
    if in_program_guard():
        token = call.checked(emit("fill_constant", {}, {"shape": [1], "dtype": "int32", "value": 0.0}))
        emit("barrier", {"X": token}, {"ranks": call.ranks}, outputs={"Out": token})
        return
    peers = world()
    if peers is not None and call.ranks:
        peers.among(call.ranks).all_gather(np.zeros(1, np.int32))
    elif peers is not None:
        peers.agree("barrier")


@export("distributed.wait")
@no_effect(tensor=_SYNC, group=_SYNC, use_calc_stream=_SYNC)
def wait(tensor: Any = None, group: Any = None, use_calc_stream: bool = True) -> None:
    """Does nothing: a run returns when its collectives are done."""


def broadcast_startup(startup: Any, names: Sequence[str]) -> None:
    """Appends an op to a startup program that gives all processes the values of process 0.

    Args:
        startup: The startup program.
        names: Its variables to send, in one collective.
    """
    block = startup.global_block()
    variables = [block.var(name) for name in names]
    if not variables:
        return
    startup.collectives = True
    startup.distributed = startup.distributed or True
    block.append_op("broadcast", {"X": variables}, {"Out": variables}, {"root": 0})


__all__ = ["Group", "ReduceOp", "broadcast_startup", "new_group"]
