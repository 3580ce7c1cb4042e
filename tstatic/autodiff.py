"""Gradients as ops of the program: ``append_backward`` and ``gradients``.

One backward op per forward op, in reverse program order; contributions to one variable are named
``x@GRAD@RENAME@block0@i`` and added by a ``sum`` op.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tstatic.errors import ProgramError, ProgramTypeError, ShapeError, UnsupportedError
from tstatic.ir import edit, names
from tstatic.ir.build import check_variable
from tstatic.ir.opdef import DERIVE, EMPTY, GRAD, Card, GradContext, GradOp, OpSpec, card_of, spelled
from tstatic.ir.program import Block, Operator, OpRole, Parameter, Program, Variable
from tstatic.ir.types import Meta
from tstatic.ir.where import Where, show, user_line

Pair = tuple[Variable, Variable | None]


def _names(items: Any, argument: str) -> set[str]:
    """Names of Variables or texts.

    Raises:
        ProgramTypeError: For anything else.
    """
    if items is None:
        return set()
    if isinstance(items, Variable | str):
        items = [items]
    if not isinstance(items, list | tuple | set | frozenset):
        raise ProgramTypeError(
            f"'{argument}' must be a list, tuple or set of variables",
            expected="a list, tuple or set of Variable or str",
            received=f"{items!r} of type {type(items).__name__}",
            fix=f"pass {argument}=[variable, ...]",
            where=show(user_line()),
        )
    found = set()
    for item in items:
        if isinstance(item, Variable):
            found.add(item.name)
        elif isinstance(item, str):
            found.add(item.removesuffix(GRAD))
        else:
            raise ProgramTypeError(
                f"'{argument}' holds something that is no variable",
                expected="Variable or str",
                received=f"{item!r} of type {type(item).__name__}",
                fix="pass variables or their names",
                where=show(user_line()),
            )
    return found


@dataclass
class _Draft:
    """A backward op that is not appended yet."""

    type: str
    inputs: dict[str, tuple[str, ...]]
    outputs: dict[str, tuple[str, ...]]
    attrs: dict[str, Any]
    where: Where | None
    role: int = OpRole.Backward
    role_var: list[str] = field(default_factory=list)
    position: int = 0

    def rename_output(self, old: str, new: str) -> None:
        self.outputs = {s: tuple(new if n == old else n for n in row) for s, row in self.outputs.items()}


class _Backward:
    """Differentiates the ops of one block.

    Args:
        block: The block whose ops are differentiated.
        target: The block that gets the backward ops.
        prefix: Stands before every gradient's name (``grad/`` for the second call on a program, and so on).
    """

    def __init__(self, block: Block, target: Block, prefix: str) -> None:
        self.block = block
        self.target = target
        self.prefix = prefix
        self.drafts: list[_Draft] = []
        # Forward name -> its contributions as (draft, name in that draft).
        self.parts: dict[str, list[tuple[_Draft | None, str]]] = {}
        self.metas: dict[str, Meta] = {}

    def grad_name(self, name: str) -> str:
        return f"{self.prefix}{name}{GRAD}"

    def meta(self, name: str) -> Meta:
        found = self.metas.get(name)
        return found if found is not None else self.block._var_recursive(name).meta

    def contribute(self, name: str, draft: _Draft | None, written: str) -> None:
        self.parts.setdefault(name, []).append((draft, written))
        self.metas[written] = self.meta(name)

    def settle(self, name: str, where: Where | None) -> str | None:
        """Adds up what has arrived for a forward variable; returns the gradient's name, or ``None``."""
        parts = self.parts.pop(name, None)
        if not parts:
            return None
        final = self.grad_name(name)
        if len(parts) == 1:
            draft, written = parts[0]
            if draft is not None and written != final:
                draft.rename_output(written, final)
                self.metas[final] = self.metas[written]
                written = final
            return written
        renamed = []
        for i, (draft, written) in enumerate(parts):
            new = f"{final}@RENAME@block{self.block.idx}@{i}"
            if draft is None:
                # A seed that was given from outside keeps its name.
                new = written
            else:
                draft.rename_output(written, new)
            self.metas[new] = self.meta(name)
            renamed.append(new)
        self.metas[final] = self.meta(name)
        self.drafts.append(_Draft("sum", {"X": tuple(renamed)}, {"Out": (final,)}, {}, where))
        return final

    def zeros_like(self, name: str, where: Where | None) -> str:
        new = names.generate(f"{name}{GRAD}@ZERO")
        self.metas[new] = self.meta(name)
        self.drafts.append(_Draft("fill_zeros_like", {"X": (name,)}, {"Out": (new,)}, {}, where))
        return new

    # ------------------------------------------------------------------------------------------------------ one op
    def op(self, op: Operator, requires: Callable[[str], bool], stale: Callable[[str], bool]) -> None:
        """Appends the backward ops of one forward op (drafts)."""
        grads: dict[str, str] = {}
        for name in dict.fromkeys(op.output_arg_names):
            final = self.settle(name, op.where)
            if final is not None:
                grads[name] = final
        if not grads:
            return
        card = op.card
        wanted = {n for n in op.input_arg_names if requires(n)}
        if not wanted or card.grad is None:
            return
        if isinstance(card.grad, GradOp) or card.grad is DERIVE:
            self.grad_op(op, card_of(f"{op.type}_grad"), grads, wanted, stale)
        else:
            assert callable(card.grad)
            self.emitted(op, card, card.grad, grads, wanted, stale)

    def target_of(self, name: str, count: dict[str, int]) -> str:
        """A fresh name for one contribution to ``name`` within one backward op."""
        count[name] = count.get(name, 0) + 1
        return f"{self.grad_name(name)}@PART@{len(self.drafts)}@{count[name]}"

    def grad_op(
        self, op: Operator, grad: Card, grads: Mapping[str, str], wanted: set[str], stale: Callable[[str], bool]
    ) -> None:
        inputs: dict[str, tuple[str, ...]] = {}
        for slot in grad.inputs:
            # A slot of the backward op is the forward op's slot of that name, else the gradient of one of its outputs.
            if slot.name in op.inputs or slot.name in op.card.input_slots:
                row = op.inputs.get(slot.name, ())
                self.check_fresh(op, row, slot.name, grad, stale)
            elif slot.name in op.outputs or slot.name in op.card.output_slots:
                row = op.outputs.get(slot.name, ())
            else:
                source = slot.name.removesuffix(GRAD)
                made = op.outputs.get(source, ())
                if slot.optional and not any(n in grads for n in made):
                    row = ()
                else:
                    row = tuple(grads[n] if n in grads else self.zeros_like(n, op.where) for n in made)
            if row:
                inputs[slot.name] = tuple(row)
        draft = _Draft(grad.type, inputs, {}, dict(op.attrs), op.where, position=op.position)
        outputs: dict[str, tuple[str, ...]] = {}
        count: dict[str, int] = {}
        any_wanted = False
        for slot in grad.outputs:
            row = op.inputs.get(slot.name.removesuffix(GRAD), ())
            targets = []
            for name in row:
                if name in wanted:
                    written = self.target_of(name, count)
                    targets.append(written)
                    any_wanted = True
                else:
                    targets.append(EMPTY)
            if any(t != EMPTY for t in targets):
                outputs[slot.name] = tuple(targets)
        if not any_wanted:
            return
        draft.outputs = outputs
        for slot in grad.outputs:
            for name, written in zip(
                op.inputs.get(slot.name.removesuffix(GRAD), ()), outputs.get(slot.name, ()), strict=False
            ):
                if written != EMPTY:
                    self.contribute(name, draft, written)
        if grad.objects or any(spec.kind == "block" for spec in grad.attrs.values()):
            self.own_blocks(op, draft)
        self.drafts.append(draft)

    def own_blocks(self, op: Operator, draft: _Draft) -> None:
        """Gives the backward op of a block-owning op the differentiated block."""
        index = op.attrs["sub_block"]
        body = self.block.program.blocks[index]
        writes = {n for inner in body.ops for n in inner.output_arg_names}
        outs = [n for row in op.outputs.values() for n in row if n in writes]
        ins = [n for slot, row in draft.outputs.items() for n, w in zip(op.inputs[slot.removesuffix(GRAD)], row, strict=True)
               if w != EMPTY]  # fmt: skip
        draft.attrs["sub_block"] = differentiate_block(body, outs, ins, self.prefix)

    def emitted(
        self,
        op: Operator,
        card: Card,
        rule: Callable[[GradContext], list[OpSpec]],
        grads: Mapping[str, str],
        wanted: set[str],
        stale: Callable[[str], bool],
    ) -> None:
        count: dict[str, int] = {}
        targets = {n: self.target_of(n, count) for n in sorted(wanted)}
        fresh_metas: dict[str, None] = {}

        def fresh(hint: str) -> str:
            name = names.generate(f"{self.prefix}{hint}{GRAD}@TMP")
            fresh_metas[name] = None
            return name

        context = GradContext(op.inputs, op.outputs, op.attrs, grads, targets, self.meta, fresh)
        made: set[str] = set()
        drafts = []
        for spec in rule(context):
            draft = _Draft(
                spec.type, {s: tuple(r) for s, r in spec.inputs.items() if r}, {s: tuple(r) for s, r in spec.outputs.items()},
                dict(spec.attrs), op.where, position=op.position,
            )  # fmt: skip
            for row in draft.inputs.values():
                self.check_fresh(op, [n for n in row if n in op.input_arg_names], "", card, stale)
            drafts.append(draft)
            made.update(n for row in draft.outputs.values() for n in row)
        self.drafts.extend(drafts)
        for name, written in targets.items():
            if written in made:
                writer = next(d for d in drafts if any(written in row for row in d.outputs.values()))
                self.contribute(name, writer, written)

    def check_fresh(
        self, op: Operator, row: Sequence[str], slot: str, grad: Card, stale: Callable[[str], bool]
    ) -> None:
        if slot in grad.shape_only:
            return
        for name in row:
            if stale(name):
                raise ProgramError(
                    f"the gradient of '{op.type}' needs '{name}', but a later operator overwrote it",
                    expected="a variable that keeps the value the operator read",
                    received=f"'{name}' written again after this operator",
                    fix=f"write the new value to another variable, or read paddle.assign({name}) instead",
                    op=op.type,
                    var=name,
                    where=show(op.where),
                )

    # -------------------------------------------------------------------------------------------------------- append
    def append(self) -> None:
        """Puts the drafts into the target block and makes the gradient variables."""
        block = self.target
        for draft in self.drafts:
            card = card_of(draft.type)
            attrs = card.complete({n: v for n, v in draft.attrs.items() if n in card.attrs})
            self.infer_outputs(card, draft, attrs)
            inputs = {s.name: draft.inputs[s.name] for s in card.inputs if draft.inputs.get(s.name)}
            outputs = {s.name: draft.outputs[s.name] for s in card.outputs if draft.outputs.get(s.name)}
            for row in outputs.values():
                for name in row:
                    if name != EMPTY and not block.has_var_recursive(name):
                        meta = self.metas[name]
                        block.vars[name] = Variable(block, name, meta.shape, meta.dtype, where=draft.where)
            op = Operator(
                block, draft.type, inputs, outputs, attrs, role=draft.role, role_var=tuple(draft.role_var),
                where=draft.where, position=draft.position, namescope=block.program._namescope,
            )  # fmt: skip
            block.built += 1
            block.ops.append(op)
        block.program._touch()

    def infer_outputs(self, card: Card, draft: _Draft, attrs: Mapping[str, Any]) -> None:
        """Finds the metadata of temporaries that a rule made; gradients of variables have the variable's own."""
        missing = [n for row in draft.outputs.values() for n in row if n != EMPTY and n not in self.metas]
        missing = [n for n in missing if not self.target.has_var_recursive(n)]
        if not missing or card.infer is None:
            return
        metas: list[Any] = []
        for slot in card.inputs:
            row = draft.inputs.get(slot.name, ())
            found = [self.metas[n] if n in self.metas else self.target._var_recursive(n).meta for n in row]
            metas.append(found if slot.many else (found[0] if found else None))
        result = card.infer(*metas, **card.pick(card.infer, attrs))
        if isinstance(result, Meta) or (len(card.outputs) == 1 and not isinstance(result, tuple)):
            result = (result,)
        for slot, meta in zip(card.outputs, result, strict=True):
            row = draft.outputs.get(slot.name, ())
            for name, one in zip(row, meta if isinstance(meta, list) else [meta], strict=False):
                if one is not None:
                    self.metas.setdefault(name, one)


def _requirements(block: Block, ops: Sequence[Operator], roots: set[str], no_grad: set[str], all_leaves: bool) -> set[str]:
    """Names that a gradient has to reach: those that depend on a root and are not cut by ``stop_gradient``."""
    needed = set(roots)
    produced: set[str] = set()
    cache: dict[str, Variable | None] = {}

    def var(name: str) -> Variable | None:
        if name not in cache:
            cache[name] = block._find_var_recursive(name)
        return cache[name]

    def open_(name: str) -> bool:
        v = var(name)
        return v is not None and not v.stop_gradient and v.dtype.is_float and name not in no_grad

    for op in ops:
        if all_leaves:
            for name in op.input_arg_names:
                if name not in produced and name not in needed and open_(name):
                    needed.add(name)
        source = not op.inputs and all_leaves
        depends = any(n in needed for n in op.input_arg_names)
        for name in op.output_arg_names:
            produced.add(name)
            if (depends or source) and open_(name):
                needed.add(name)
    return needed


def _path(ops: Sequence[Operator], targets: Iterable[str]) -> list[int]:
    """Positions of the ops that the targets depend on, in program order."""
    wanted = set(targets)
    found = []
    for i in range(len(ops) - 1, -1, -1):
        op = ops[i]
        if any(n in wanted for n in op.output_arg_names):
            found.append(i)
            wanted.update(op.input_arg_names)
    return found[::-1]


def _stale_after(ops: Sequence[Operator]) -> dict[str, int]:
    """Name -> position of the last op that writes it, for names written more than once or read before written."""
    last: dict[str, int] = {}
    for i, op in enumerate(ops):
        for name in op.output_arg_names:
            last[name] = i
    return last


def _run(
    work: _Backward, ops: Sequence[Operator], path: Sequence[int], needed: set[str], carried: frozenset[str] = frozenset()
) -> None:
    last = _stale_after(ops)
    for i in reversed(path):
        op = ops[i]
        own = set(op.output_arg_names)
        work.op(
            op,
            lambda n: n in needed,
            lambda n, i=i, own=own: n not in carried and last.get(n, -1) > i and n not in own,  # type: ignore[misc]
        )


def differentiate_block(body: Block, outs: Sequence[str], ins: Sequence[str], prefix: str = "") -> int:
    """Makes the gradient block of a control-flow body; returns its index.

    The new block reads ``out@GRAD`` for each of ``outs`` and writes ``in@GRAD`` for those of ``ins`` that are reached; the
    runtime feeds it the saved values of one execution of the body.
    """
    program = body.program
    block = Block(program, len(program.blocks), body.idx, body.idx)
    program.blocks.append(block)
    work = _Backward(body, block, prefix)
    needed = _requirements(body, body.ops, {n for n in ins if body._var_recursive(n).dtype.is_float}, set(), True)
    for name in outs:
        meta = body._var_recursive(name).meta
        if meta.dtype.is_float:
            seed = work.grad_name(name)
            block.vars[seed] = Variable(block, seed, meta.shape, meta.dtype)
            work.contribute(name, None, seed)
    path = _path(body.ops, outs)
    _run(work, body.ops, path, needed, frozenset(outs))
    for name in ins:
        work.settle(name, None)
    work.append()
    program._touch()
    return block.idx


def _same_shape(a: Variable, b: Variable) -> bool:
    return len(a.shape) == len(b.shape) and all(x == y or -1 in (x, y) for x, y in zip(a.shape, b.shape, strict=True))


def _next_prefix(program: Program) -> str:
    order = program.__dict__.setdefault("_grad_order", 0)
    program.__dict__["_grad_order"] = order + 1
    return "grad/" * order


@spelled("static.append_backward", "fluid.append_backward", "fluid.backward.append_backward")
def append_backward(
    loss: Variable,
    parameter_list: Any = None,
    no_grad_set: Any = None,
    callbacks: Any = None,
    checkpoints: Any = None,
    distop_context: Any = None,
) -> list[Pair]:
    """Appends the backward ops of ``loss``.

    Args:
        loss: What to differentiate; its gradient starts as ones.
        parameter_list: Variables or names to get gradients for; all trainable parameters by default.
        no_grad_set: Variables or names that no gradient flows to or through.
        callbacks: Called with ``(block, context)`` after each appended backward op, as Paddle does.
        checkpoints: Variables that are kept; what lies between them is computed again in the backward pass.

    Returns:
        ``(parameter, gradient)`` pairs in program order.

    Raises:
        ProgramTypeError: If ``loss`` or a list entry is no variable.
    """
    check_variable(loss, "loss", "append_backward")
    program = loss.block.program
    block = loss.block
    if block.idx != 0:
        raise UnsupportedError(
            "append_backward needs a loss of the global block",
            expected="a loss made outside of control flow",
            received=f"'{loss.name}' of block {block.idx}",
            fix="return the value from static.nn.cond or while_loop and differentiate that",
            var=loss.name,
            where=show(user_line()),
        )
    if not loss.dtype.is_float:
        raise ProgramError(
            "only a float variable can be differentiated",
            expected="a float loss",
            received=f"{loss.dtype.name}",
            fix="cast the loss to float32",
            var=loss.name,
            where=show(user_line()),
        )
    no_grad = _names(no_grad_set, "no_grad_set")
    chosen = _names(parameter_list, "parameter_list") if parameter_list is not None else None
    ops = list(block.ops)
    path = _path(ops, [loss.name])
    forward = [ops[i] for i in path]
    needed = _requirements(block, forward, set(), no_grad, True)
    if chosen is not None:
        needed |= {n for n in chosen if n not in no_grad}
    prefix = _next_prefix(program)
    if prefix == "" and program.loss_name is None:
        program.loss_name = loss.name
    for i in reversed(path):
        if loss.name in ops[i].output_arg_names:
            ops[i].role |= OpRole.Loss
            break
    work = _Backward(block, block, prefix)
    if loss.name in needed:
        seed = work.grad_name(loss.name)
        work.metas[seed] = loss.meta
        if -1 in loss.shape:
            draft = _Draft("fill_any_like", {"X": (loss.name,)}, {"Out": (seed,)}, {"value": 1.0}, user_line())
        else:
            attrs = {"shape": loss.shape, "value": 1.0, "dtype": loss.dtype}
            draft = _Draft("fill_constant", {}, {"Out": (seed,)}, attrs, user_line())
        draft.role = OpRole.Backward | OpRole.Loss
        work.drafts.append(draft)
        work.contribute(loss.name, None, seed)
        if checkpoints:
            from tstatic.passes import recompute

            recompute.run(work, ops, path, needed, _names(checkpoints, "checkpoints"), _run)
        else:
            _run(work, ops, path, needed)
    # Leaves have no op that settles them.
    leaves = list(work.parts)
    for name in leaves:
        work.settle(name, None)
    parameters = [p for p in program.all_parameters() if (p.trainable if chosen is None else p.name in chosen)]
    if chosen is not None:
        known = {p.name for p in parameters}
        parameters += [block._var_recursive(n) for n in sorted(chosen - known)]  # type: ignore[misc]
    _mark_parameters(work, parameters)
    work.append()
    if callbacks:
        for op in block.ops[len(ops) :]:
            for callback in callbacks:
                callback(block=block, context={"op": op})
    pairs: list[Pair] = []
    for p in parameters:
        grad = block._find_var_recursive(work.grad_name(p.name))
        if grad is not None and p.name in needed and p.name not in no_grad:
            pairs.append((p, grad))
    return pairs


def _mark_parameters(work: _Backward, parameters: Sequence[Variable]) -> None:
    """Puts ``op_role_var`` on the op that finishes a parameter's gradient (what data parallelism reads)."""
    finals = {work.grad_name(p.name): p.name for p in parameters if isinstance(p, Parameter)}
    last: dict[str, _Draft] = {}
    for draft in work.drafts:
        for row in draft.outputs.values():
            for name in row:
                if name in finals:
                    last[name] = draft
    for grad, draft in last.items():
        draft.role_var += [finals[grad], grad]


@spelled("static.gradients", "fluid.gradients", "fluid.backward.gradients", "tensor.grad")
def gradients(
    targets: Any, inputs: Any, target_gradients: Any = None, no_grad_set: Any = None
) -> list[Variable | None]:
    """Appends ops that compute the gradients of the sum of ``targets`` with respect to ``inputs``.

    Args:
        targets: A Variable or a list of them.
        inputs: A Variable or a list of them.
        target_gradients: One gradient per target (``None``: ones).
        no_grad_set: Variables or names that no gradient flows to or through.

    Returns:
        One entry per input: its gradient, or ``None`` when the targets do not depend on it.

    Raises:
        ProgramTypeError: If something is no Variable.
        ShapeError: If counts or shapes of targets and their gradients differ.
    """
    outs = [check_variable(t, "targets", "gradients") for t in _listed(targets)]
    ins = [check_variable(i, "inputs", "gradients") for i in _listed(inputs)]
    seeds = _listed(target_gradients) if target_gradients is not None else [None] * len(outs)
    if len(seeds) != len(outs):
        raise ShapeError(
            "Should have the same number of target_gradients as targets",
            expected=f"{len(outs)} target gradients",
            received=len(seeds),
            fix="pass one gradient (or None) per target",
            where=show(user_line()),
        )
    for target, seed in zip(outs, seeds, strict=True):
        if seed is None:
            continue
        check_variable(seed, "target_gradients", "gradients")
        if not _same_shape(target, seed):
            raise ShapeError(
                f"The shapes of target and grad are different: target: {target.shape} grad: {seed.shape}",
                expected=list(target.shape),
                received=list(seed.shape),
                fix="give the gradient the target's shape",
                var=seed.name,
                where=show(user_line()),
            )
    no_grad = _names(no_grad_set, "no_grad_set")
    block = outs[0].block
    program = block.program
    ops = list(block.ops)
    path = _path(ops, [t.name for t in outs])
    roots = {v.name for v in ins if v.name not in no_grad}
    needed = _requirements(block, [ops[i] for i in path], roots, no_grad, False)
    work = _Backward(block, block, _next_prefix(program))
    for target, seed in zip(outs, seeds, strict=True):
        if target.name not in needed:
            continue
        if seed is not None:
            work.contribute(target.name, None, seed.name)
            continue
        written = names.generate(f"{work.grad_name(target.name)}@SEED")
        draft = _Draft("fill_any_like", {"X": (target.name,)}, {"Out": (written,)}, {"value": 1.0}, user_line())
        work.drafts.append(draft)
        work.contribute(target.name, draft, written)
    # An input that an op of the path writes is settled by that op, and its gradient is what we want: keep the name.
    finals: dict[str, str] = {}
    settle = work.settle

    def remember(name: str, where: Where | None) -> str | None:
        final = settle(name, where)
        if final is not None and name in roots:
            finals[name] = final
        return final

    work.settle = remember  # type: ignore[method-assign]
    _run(work, ops, path, needed)
    for name in list(work.parts):
        work.settle(name, None)
    work.append()
    results: list[Variable | None] = []
    for v in ins:
        final = finals.get(v.name)
        results.append(block._find_var_recursive(final) if final is not None else None)
    return results


def _listed(items: Any) -> list[Any]:
    return list(items) if isinstance(items, list | tuple) else [items]


__all__ = ["append_backward", "differentiate_block", "edit", "gradients"]
