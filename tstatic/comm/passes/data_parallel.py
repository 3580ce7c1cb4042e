"""Makes programs data parallel by passes: scaled losses, collectives, buckets, and updates divided among replicas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tstatic.comm import collectives  # noqa: F401 - they register the collectives
from tstatic.comm.passes import sync_batch_norm  # noqa: F401 - they register the collectives
from tstatic.comm.passes.buckets import Gradient, cut, limit, parts
from tstatic.comm.passes.distribution import Distribution, Report
from tstatic.comm.passes.low_gradients import send_low
from tstatic.comm.passes.row_sums import GATHER_ROWS
from tstatic.comm.passes.run_sums import Between, Holds, between, hoisted, hold_of, run_sums
from tstatic.errors import UnsupportedError
from tstatic.ir.frozen import FrozenOp, FrozenProgram
from tstatic.ir.opdef import op_def
from tstatic.ir.operator import OpRole
from tstatic.ir.program import Operator
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.ops.update._slots import ROWS
from tstatic.where import show

REDUCED = "@REDUCED"
"""Suffix of the name of a gradient that is summed over the replicas."""
SHARED = "@SHARED"
"""Suffix of the name of a value that its owner sent to all replicas."""


def distribute(program: FrozenProgram, how: Distribution) -> tuple[list[FrozenProgram], Report]:
    """Makes the programs of the replicas.

    Args:
        program: The program of one replica, for a part of the batch.
        how: The distribution.

    Returns:
        One program per replica (one object if they are equal), and a report.
    """
    report = Report(how, collectives=_own_collectives(program, how))
    if how.collect and how.world > 1:
        _check_updates(program)
    if how.sync_batch_norm and how.world > 1:
        # Also without `collect`: statistics are those of the whole batch, whoever sums the gradients.
        program, report.norms = _synchronised(program)
    if not how.collect or how.world == 1:
        return [program] * how.replicas, report
    # Loss scaling skips a step whose gradients are not finite: that is not an error.
    watch = 0 if any(op.type == "update_loss_scaling" for op in program.ops) else how.watch
    # Before `_gradients`, which leaves out what is summed as rows.
    program, report.tables = _gathered(program, watch)
    sums = run_sums(program, list(_gradients(program, frozenset())), how)
    report.merged, report.parts, report.each_run = sums.count, sums.parts, sums.reason
    program = hoisted(program, sums.late)
    gradients = list(_gradients(program, sums.late))
    report.gradients = len(gradients) + report.tables
    if not gradients:
        report.reductions = report.tables
        return [program] * how.replicas, report
    program, gradients = send_low(program, gradients, how)
    report.low = sum(program.metas[g.value].dtype.is_low for g in gradients)
    owners: dict[str, int] = {}
    if how.share_updates and how.replicas > 1:
        report.owners = _owners(gradients, program.metas, how.replicas)
        owners = {g.value: report.owners[g.param] for g in gradients}
    buckets = [
        (
            bucket,
            {"block": how.block, "watch": watch, "limit": limit(bucket, program.metas, how), **_queued(how, number)},
        )
        for number, bucket in enumerate(cut(gradients, program.metas, how))
    ]
    sizes = [sum(program.metas[g.value].nbytes for g in bucket) for bucket, _ in buckets]
    report.nbytes = sum(sizes)
    report.reductions = report.tables + sum(
        len(parts(nbytes, attrs["limit"])) for nbytes, (_, attrs) in zip(sizes, buckets, strict=True)
    )
    program = _collected(program, buckets, owners)
    if not owners:
        return [program] * how.replicas, report
    # Only the sum is the owner's alone; the gradient itself exists on every replica.
    owned = {f"{value}{REDUCED}": owner for value, owner in owners.items()}
    left_out = between(program, {f"{g.value}{REDUCED}": frozenset([g.hold]) for g in gradients if g.hold is not None})
    # After the sums, before the sends: what an owner computes follows from what only it has.
    program, placed = _placed(program, owned, report, left_out)
    program = _sent(program, placed, how, report, left_out)
    return [_mine(program, placed, replica) for replica in range(how.replicas)], report


def _queued(how: Distribution, number: int) -> dict[str, Any]:
    """Returns where collective number ``number`` of a program is queued."""
    ring = 0 if how.same_stream else number % how.rings  # one stream is one ring
    return {"ring": ring, "same_stream": how.same_stream, "waits": how.waits}


def _own_collectives(program: FrozenProgram, how: Distribution) -> int:
    """Returns the number of collectives of all processes that the user's program has.

    Raises:
        UnsupportedError: If it has any, and this process has several places.
    """
    own = [op for op in program.ops if op.definition.collective]
    if own and how.replicas > 1:
        raise UnsupportedError(
            f"'{own[0].type}' exchanges values between processes, and this program runs on {how.replicas} places of one",
            expected="one place in each process",
            received=f"{how.replicas} places",
            fix="run the plain program in as many processes: python -m tstatic.distributed.launch --nproc_per_node "
            f"{how.replicas} train.py",
            op=own[0].type,
            where=show(own[0].where),
        )
    return sum(not op.attrs.get("ranks") for op in own)


# ---------------------------------------------------------------------------------------------------------------- parts
def _check_updates(program: FrozenProgram) -> None:
    """Raises UnsupportedError for an update in control flow: branches may differ by replica, and its gradients get no sum."""
    for op in program.ops:
        sub_blocks = list(op.sub_blocks)
        while sub_blocks:
            for inner in sub_blocks.pop().ops:
                sub_blocks += inner.sub_blocks
                if inner.role & OpRole.Optimize:
                    raise UnsupportedError(
                        "minimize inside a branch cannot run on several places: its gradients are not summed over them",
                        expected="an update outside of control flow",
                        received=f"'{inner.type}' inside '{op.type}'",
                        fix="minimize what static.nn.cond returns, or run on one place",
                        op=inner.type,
                        where=show(inner.where),
                    )


def starts_loss_gradient(op: FrozenOp | Operator) -> bool:
    """Returns whether the op fills the gradient of the loss."""
    return op.role == OpRole.Backward | OpRole.Loss


def scaled(program: FrozenProgram, scale: float) -> FrozenProgram:
    """Multiplies the constant that the backward part starts with; must run before constants are folded."""
    ops = tuple(
        replace(op, attrs={**op.attrs, "value": float(op.attrs["value"]) * scale})
        if starts_loss_gradient(op) and "value" in op.attrs
        else op
        for op in program.ops
    )
    return program.edit(ops=ops)


def _synchronised(program: FrozenProgram) -> tuple[FrozenProgram, int]:
    """Replaces batch norms in training by synchronised ones, forward and backward; returns how many."""
    count = 0
    ops = []
    for op in program.ops:
        training = not (op.attrs.get("is_test") or op.attrs.get("use_global_stats"))
        if op.type in ("batch_norm", "batch_norm_grad") and training:
            count += op.type == "batch_norm"
            ops.append(replace(op, definition=op_def(f"sync_{op.type}")))
        else:
            ops.append(op)
    return (program.edit(ops=tuple(ops)), count) if count else (program, 0)


def _gradients(program: FrozenProgram, late: Holds) -> Iterator[Gradient]:
    """Yields the gradients that optimizers use, in the order in which the backward part completes them.

    Args:
        program: The program of one replica.
        late: The truth values of sums over runs that are exchanged when they are complete, in the place of each run's gradient.
    """
    start = next((i for i, op in enumerate(program.ops) if starts_loss_gradient(op)), -1)
    found: dict[str, tuple[str, int]] = {}
    for i, op in enumerate(program.ops):
        if i <= start or not op.role & OpRole.Backward or _rows_made(op) is not None:
            continue
        hold = hold_of(op)
        if hold is not None and hold not in late:
            continue
        made = {program.names.get(v, v): v for v in op.writes()}
        for param, grad in zip(op.role_var[::2], op.role_var[1::2], strict=True):
            if grad in made:
                # Popped first, so that a gradient that is completed anew
                # (an accumulated one) moves to the end of the order.
                found.pop(param, None)
                found[param] = made[grad], i
    readers: dict[str, int] = {}
    for i, op in enumerate(program.ops):
        for v in op.reads():
            readers.setdefault(v, i)
    for param, (value, at) in found.items():
        yield Gradient(param, value, at, readers.get(value, len(program.ops)), hold_of(program.ops[at]))


def _rows_made(op: FrozenOp) -> tuple[str, str] | None:
    """Returns the rows of a table and their values, if an op makes its gradient so."""
    if not any(slot.name == ROWS for slot in op.definition.outputs):
        return None
    rows, values = op.outputs
    assert isinstance(rows, str)
    assert isinstance(values, str)
    return rows, values


def _gathered(program: FrozenProgram, watch: int) -> tuple[FrozenProgram, int]:
    """Inserts a sum after each op that makes a gradient as rows; later readers read its results. Returns also how many."""
    metas, names = dict(program.metas), dict(program.names)
    renamed: dict[str, str] = {}
    ops: list[FrozenOp] = []
    count = 0
    for op in program.ops:
        late = {v: renamed[v] for v in op.reads() if v in renamed}
        ops.append(op.with_inputs(late) if late else op)
        made = _rows_made(op)
        if made is None:
            continue
        count += 1
        definition = op_def(GATHER_ROWS)
        table = op.input(op.definition.shape_only[0])
        results = tuple(f"{v}{REDUCED}" for v in made)
        for v, r in zip(made, results, strict=True):
            # As many rows as all replicas looked up, which a run finds out.
            renamed[v], names[r], metas[r] = r, names.get(v, v), metas[v].with_shape((UNKNOWN, *metas[v].shape[1:]))
        ops.append(
            FrozenOp(
                definition, (*made, table), results, definition.complete({"watch": watch}), op.role, (), op.where, op.position,
                scope=op.scope,
            )
        )  # fmt: skip
    return (program.edit(ops=tuple(ops), metas=metas, names=names), count) if count else (program, 0)


def _owners(gradients: Sequence[Gradient], metas: Mapping[str, Meta], replicas: int) -> dict[str, int]:
    """Assigns each parameter to the replica that has the fewest elements so far."""
    # Greedy and in a fixed order, so that all processes choose the same owners without an exchange.
    load = [0] * replicas
    owners = {}
    for g in gradients:
        owner = min(range(replicas), key=lambda r: (load[r], r))
        # At least 1: empty parameters are dealt out, too, instead of all going to one replica.
        load[owner] += max(1, metas[g.value].numel)
        owners[g.param] = owner
    return owners


def _collected(
    program: FrozenProgram, buckets: Sequence[tuple[Sequence[Gradient], Mapping[str, Any]]], owners: Mapping[str, int]
) -> FrozenProgram:
    """Inserts a collective after the op that completes the last gradient of each bucket; later readers read its results."""
    after: dict[int, list[FrozenOp]] = {}
    renamed: dict[str, tuple[str, int]] = {}
    metas, names = dict(program.metas), dict(program.names)
    for bucket, settings in buckets:
        values = tuple(g.value for g in bucket)
        results = tuple(f"{v}{REDUCED}" for v in values)
        at = max(g.made for g in bucket)
        attrs = dict(settings)
        if owners:
            attrs["roots"] = tuple(owners[v] for v in values)
        after.setdefault(at, []).append(
            _op(
                "c_reduce_sum" if owners else "c_allreduce_sum",
                values,
                results,
                attrs,
                program.ops[at],
                bucket[0].hold,
            )
        )
        for v, r in zip(values, results, strict=True):
            renamed[v] = r, at
            metas[r], names[r] = metas[v], names.get(v, v)
    ops: list[FrozenOp] = []
    for i, op in enumerate(program.ops):
        # Ops up to the collective still read the replica's own gradient.
        late = {v: renamed[v][0] for v in op.reads() if v in renamed and renamed[v][1] < i}
        ops.append(op.with_inputs(late) if late else op)
        ops.extend(after.get(i, ()))
    fetches = tuple((name, renamed[v][0] if v in renamed else v) for name, v in program.fetches)
    writes = {var: renamed[v][0] if v in renamed else v for var, v in program.writes.items()}
    return program.edit(ops=tuple(ops), metas=metas, names=names, fetches=fetches, writes=writes)


def _op(
    kind: str, values: tuple[str, ...], results: tuple[str, ...], attrs: Mapping[str, Any], near: FrozenOp,
    skip: str | None = None,
) -> FrozenOp:  # fmt: skip
    definition = op_def(kind)
    inputs = (values, skip)[: len(definition.inputs)]
    return FrozenOp(
        definition,
        inputs,
        (results,),
        definition.complete(attrs),
        near.role,
        (),
        near.where,
        near.position,
        scope=near.scope,
    )


# ------------------------------------------------------------------------------------------------------ shared updates
Placed = Mapping[str, int]
"""Value -> the only replica that has it; other values are on all replicas."""


def _broadcast(
    values: Iterable[str],
    placed: Placed,
    near: FrozenOp,
    metas: dict[str, Meta],
    names: dict[str, str],
    how: Distribution,
    skip: str | None = None,
) -> tuple[FrozenOp, dict[str, str]]:
    """Returns the op that sends values from their owners to all replicas, and value -> result; records the results.

    Runs in which the value ``skip`` is true leave it out.
    """
    results = {v: f"{v}{SHARED}" for v in values}
    for v, result in results.items():
        metas[result], names[result] = metas[v], names.get(v, v)
    roots = tuple(placed[v] for v in results)
    attrs = {"roots": roots, **_queued(how, 0)}
    return _op("c_broadcast", tuple(results), tuple(results.values()), attrs, near, skip), results


def _placed(
    program: FrozenProgram, owned: Mapping[str, int], report: Report, left_out: Between
) -> tuple[FrozenProgram, dict[str, int]]:
    """Finds the ops that only an owner runs, and sends values of several owners that one op reads to all replicas.

    An op runs where its owned inputs are. If it reads inputs of several owners (the norm of all gradients), each is sent to
    all, and the op runs on every replica: values, and the order of additions, are those of a run without owners.
    """
    placed: dict[str, int] = dict(owned)
    metas, names = dict(program.metas), dict(program.names)
    known: dict[str, str] = {}
    ops: list[FrozenOp] = []
    for op in program.ops:
        # Collectives run on all replicas, whoever owns what they read.
        if op.definition.collective:
            ops.append(op)
            continue
        mine = {v: placed[v] for v in op.reads() if v in placed and v not in known}
        places = set(mine.values())
        # Values sent to all replicas do not count: the owner of the other inputs has them, too.
        if len(places) > 1 or (places and (op.sub_blocks or op.definition.effects or op.definition.random)):
            # Once for all later readers (`known`): each collective is a wait for the slowest replica.
            # Where all depend on sums that are not complete, nothing depends on them.
            runs = Holds.intersection(*(left_out.loose.get(v, Holds()) for v in mine))
            broadcast, results = _broadcast(mine, placed, op, metas, names, report.how, min(runs, default=None))
            ops.append(broadcast)
            known.update(results)
            report.shared += len(mine)
            report.gatherings += 1
            places = set()
        if not places:
            ops.append(op.with_inputs(known) if known else op)
            continue
        (place,) = places
        placed.update(dict.fromkeys(op.writes(), place))
        ops.append(op)
    final = set(program.writes.values())
    asked = [
        v for v in dict.fromkeys(v for _, v in program.fetches)
        if v in placed and v not in owned and v not in known and v not in final
    ]  # fmt: skip
    if asked:
        # Each replica fetches its own copy of a summed gradient; values computed from it exist only on the owner, so send them.
        broadcast, results = _broadcast(asked, placed, ops[-1], metas, names, report.how)
        ops.append(broadcast)
        known.update(results)
    fetches = tuple((name, known.get(v, v)) for name, v in program.fetches)
    return program.edit(ops=tuple(ops), metas=metas, names=names, fetches=fetches), placed


def _sent(
    program: FrozenProgram, placed: Placed, how: Distribution, report: Report, left_out: Between
) -> FrozenProgram:
    """Sends the values that owners wrote and all replicas read: parameters; moments stay with their owner."""
    everywhere: set[str] = set()
    for op in program.ops:
        if not any(v in placed for v in (*op.reads(), *op.writes())) or op.definition.collective:
            everywhere.update(op.reads())
    fetched = {v for _, v in program.fetches}
    sent: list[tuple[str, str]] = []
    for var, value in program.writes.items():
        if value in placed and (program.reads.get(var) in everywhere or value in fetched):
            sent.append((var, value))
    if not sent:
        return program
    metas, names, writes = dict(program.metas), dict(program.names), dict(program.writes)
    ops = list(program.ops)
    renamed: dict[str, str] = {}
    # After all updates: the values to send are the new ones.
    last = ops[-1]
    # Apart: what a run that completes no sum leaves as it was is not sent in it.
    skips = {var: min(left_out.kept_in(var, value), default=None) for var, value in sent}
    kinds = [[one for one in sent if skips[one[0]] == skip] for skip in dict.fromkeys(skips.values())]
    for group in kinds if how.fuse_broadcasts else [[one] for one in sent]:
        broadcast, results = _broadcast([v for _, v in group], placed, last, metas, names, how, skips[group[0][0]])
        ops.append(broadcast)
        renamed.update(results)
        writes.update((var, results[v]) for var, v in group)
        report.broadcasts += 1
    report.parameters = len(sent)
    fetches = tuple((name, renamed.get(v, v)) for name, v in program.fetches)
    return program.edit(ops=tuple(ops), metas=metas, names=names, writes=writes, fetches=fetches)


def _mine(program: FrozenProgram, placed: Placed, replica: int) -> FrozenProgram:
    """Returns the program of one replica, without the ops of other owners.

    If a collective reads the result of such an op, it gets the value that the result replaces: the variable's old one. For
    a result that does not replace a value, a fill op provides memory.
    """
    variable = {value: var for var, value in program.writes.items()}
    ops: list[FrozenOp] = []
    absent: set[str] = set()
    for op in program.ops:
        if not op.definition.collective:
            places = {placed[v] for v in op.writes() if v in placed}
            if places and replica not in places:
                # Noted for the collectives below, in which this replica takes part without the value.
                absent.update(op.writes())
                continue
            ops.append(op)
            continue
        stand_in: dict[str, str] = {}
        for v in op.reads():
            if v not in absent:
                continue
            var = variable.get(f"{v}{SHARED}")
            if var is not None and var in program.reads:
                stand_in[v] = program.reads[var]
            else:
                stand_in[v] = f"{v}@HERE"
                ops.append(_room(v, stand_in[v], program.metas[v], op))
        ops.append(op.with_inputs(stand_in) if stand_in else op)
    made = {v for op in ops for v in op.writes()}
    writes = {var: v for var, v in program.writes.items() if v in made}
    reads = _read(program, ops, writes, made)
    metas = {**program.metas, **{f"{v}@HERE": program.metas[v] for v in absent if v in program.metas}}
    return program.edit(ops=tuple(ops), writes=writes, reads=reads, metas=metas)


def _room(value: str, name: str, meta: Meta, near: FrozenOp) -> FrozenOp:
    definition = op_def("fill_constant")
    attrs = definition.complete({"shape": list(meta.shape), "dtype": meta.dtype, "value": 0.0})
    inputs = tuple(() if s.many else None for s in definition.inputs)
    return FrozenOp(definition, inputs, (name,), attrs, near.role, (), near.where, near.position)


def _read(program: FrozenProgram, ops: Iterable[FrozenOp], writes: Mapping[str, str], made: set[str]) -> dict[str, str]:
    """Returns the variables that the replica still reads."""
    used = {v for op in ops for v in op.reads()} | {v for _, v in program.fetches} | set(writes.values())
    return {var: value for var, value in program.reads.items() if value in used and value not in made}
