"""Creates the backward ops of one block: one per forward op, in reverse order."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from tstatic.autodiff.paths import last_writers, path_to, requirements
from tstatic.errors import ProgramError, UnsupportedError
from tstatic.ir import names
from tstatic.ir.evaluate import infer_outputs
from tstatic.ir.names import NAME_SCOPE
from tstatic.ir.opdef import DERIVE, EMPTY, GRAD, GradContext, GradOp, OpDef, OpSpec, Slot, op_def
from tstatic.ir.operator import OpRole
from tstatic.ir.program import Block, Operator, Variable
from tstatic.ir.tensor_array import KIND
from tstatic.ir.traits import Recurrent
from tstatic.ir.types import Meta
from tstatic.where import Where, show


@dataclass
class PendingOp:
    """A backward op that is not appended yet, because the names of its outputs depend on later ones.

    Attributes:
        type: Op type.
        inputs, outputs: Slot -> names.
        attrs: Attributes, of which the op definition's own are kept.
        where: The user's line that built the forward op.
        role, role_var: As of ``Operator``.
        position: Position of the forward op, which keys its random numbers.
    """

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


def _row(op: Operator, slot: Slot) -> Sequence[str]:
    """Returns the forward inputs whose gradients an output slot of the backward op holds."""
    return op.inputs.get(slot.name.removesuffix(GRAD), ())


def reads_value(grad: OpDef, slot: Slot, wanted: Sequence[Slot]) -> bool:
    """Returns whether a backward op needs the values in an input slot to compute the wanted outputs."""
    if slot.name in grad.shape_only:
        return False
    # The gradient of a product by X reads Y alone: X may be overwritten where no other gradient is wanted.
    if slot.name in grad.linear_in:
        return any(s.name != f"{slot.name}{GRAD}" for s in wanted)
    if grad.pointwise is not None and grad.prepare is None:
        texts = [grad.pointwise[s.name] for s in wanted if s.name in grad.pointwise]
        return any(re.search(rf"\b{slot.param}\b", text) for text in texts)
    return True


def unstated_gradient(op: str, slot: str, name: str) -> UnsupportedError:
    """Returns the error for a gradient that the registration of a kernel does not state: its parameter would never be trained.

    Args:
        op: The kernel's op type.
        slot: The input slot whose gradient is needed.
        name: The variable in it.
    """
    return UnsupportedError(
        f"the kernel '{op}' states no gradient of its input '{slot}', and '{name}' needs one",
        expected=f"'{slot}{GRAD}' in grad of register_kernel('{op}', ...)",
        received="gradients of other inputs only",
        fix=f"state it, or say that there is none: grad={{..., '{slot}{GRAD}': None}}",
        op=op,
        var=name,
    )


def _fresh_fix(block: Block, name: str) -> str:
    """Returns advice about a value that is overwritten before a gradient reads it."""
    last = next((op for op in reversed(block.ops) if name in op.output_arg_names), None)
    if last is not None and last.role & OpRole.Optimize:
        return (
            "call static.append_backward for each loss before the first update, then optimizer.apply_gradients with the "
            "pairs, or minimize the sum of the losses once"
        )
    return f"write the new value to another variable, or read paddle.assign({name}) instead"


class Backward:
    """Differentiates the ops of one block.

    Args:
        block: The block whose ops are differentiated.
        target: The block that gets the backward ops.
        prefix: Prefix of every gradient's name (``grad/`` for the second call on a program, and so on).
        asked: Variables whose gradients the caller requested by name.
    """

    def __init__(self, block: Block, target: Block, prefix: str, asked: Set[str] = frozenset()) -> None:
        self.asked = asked
        self.block = block
        self.target = target
        self.prefix = prefix
        self.pending: list[PendingOp] = []
        # Of the op in hand, if its complex gradients leave conjugated: the ops that do so; they follow those that write them.
        self.conjugates: list[PendingOp] | None = None
        # Forward name -> its partial gradients: the op that computes each (None: the caller supplied it), and its name there.
        self.partial_grads: dict[str, list[tuple[PendingOp | None, str]]] = {}
        self.metas: dict[str, Meta] = {}
        # Gradient -> the row offsets of its variable, whose rows it has.
        self.lods: dict[str, tuple[str, ...]] = {}
        # Where the updates of an earlier minimize begin, if the backward ops can stand before them, and whether they must.
        self.updates: int | None = None
        self.early = False
        # Calls of Python functions, each with an input that needs a gradient and gets none from it.
        self.cut: list[tuple[Operator, str]] = []

    def grad_name(self, name: str) -> str:
        """Returns the name of the complete gradient of a forward variable."""
        return f"{self.prefix}{name}{GRAD}"

    def meta(self, name: str) -> Meta:
        found = self.metas.get(name)
        return found if found is not None else self.block._var_recursive(name).meta

    def is_array(self, name: str) -> bool:
        """Returns whether a forward variable is a tensor array, whose gradient is one, too."""
        var = self.block._find_var_recursive(name)
        return var is not None and var.type == KIND

    def describe(self, grad: str, name: str) -> None:
        """Records the metadata and the row offsets of a gradient of ``name``."""
        self.metas[grad] = self.meta(name)
        var = self.block._find_var_recursive(name)
        self.lods[grad] = self.lods.get(name, ()) if var is None else var.lod

    def add_partial(self, name: str, new_op: PendingOp | None, written: str) -> None:
        """Records that ``new_op`` writes a partial gradient of ``name`` to ``written``."""
        if self.conjugates is not None and self.meta(name).dtype.is_complex:
            self.describe(written, name)
            new_op = self.conjugate(written, name, None if new_op is None else new_op.where)
            self.conjugates.append(new_op)
            written = new_op.outputs["Out"][0]
        self.partial_grads.setdefault(name, []).append((new_op, written))
        self.describe(written, name)

    def accumulate(self, name: str, where: Where | None) -> str | None:
        """Sums the partial gradients of a forward variable; returns the gradient's name, or ``None`` if there are none."""
        # Popped: what ops before this one read under the name is another value, with a gradient of its own.
        partial_grads = self.partial_grads.pop(name, None)
        if not partial_grads:
            return None
        final = self.grad_name(name)
        if len(partial_grads) == 1:
            # Written under its final name at once, which saves an op that would only copy.
            new_op, written = partial_grads[0]
            if new_op is not None and written != final:
                new_op.rename_output(written, final)
                self.describe(final, name)
                written = final
            return written
        renamed = []
        for i, (new_op, written) in enumerate(partial_grads):
            # Paddle's spelling of partial gradients.
            new = f"{final}@RENAME@block{self.block.idx}@{i}"
            if new_op is None:
                # A gradient that the caller supplied keeps its name.
                new = written
            else:
                new_op.rename_output(written, new)
            self.describe(new, name)
            renamed.append(new)
        self.describe(final, name)
        total = "sum_arrays" if self.is_array(name) else "sum"
        self.pending.append(PendingOp(total, {"X": tuple(renamed)}, {"Out": (final,)}, {}, where))
        return final

    def conjugate(self, grad: str, name: str, where: Where | None) -> PendingOp:
        """Returns an op that conjugates a gradient of ``name``."""
        made = names.generate(f"{grad}@CONJ")
        self.describe(made, name)
        return PendingOp("conj", {"X": (grad,)}, {"Out": (made,)}, {}, where)

    def zeros_like(self, name: str, where: Where | None) -> str:
        """Returns a zero gradient for an output that no gradient reaches, which a backward op nevertheless reads."""
        new = names.generate(f"{name}{GRAD}@ZERO")
        self.metas[new] = self.meta(name)
        zeros = "array_zeros_like" if self.is_array(name) else "fill_zeros_like"
        self.pending.append(PendingOp(zeros, {"X": (name,)}, {"Out": (new,)}, {}, where))
        return new

    # ------------------------------------------------------------------------------------------------------ one op
    def op(self, op: Operator, requires: Callable[[str], bool], stale: Callable[[str], bool]) -> None:
        """Creates the backward ops of one forward op.

        Args:
            op: The forward op; the ops after it have been processed, so its output gradients are complete.
            requires: Returns whether a variable needs a gradient.
            stale: Returns whether a later op overwrites a variable.

        Raises:
            UnsupportedError: The op's gradient cannot be differentiated.
            ProgramError: A value that the gradient reads is overwritten.
        """
        grads: dict[str, str] = {}
        # All later readers are processed, as ops come last first: the sum over the partial gradients is complete.
        for name in dict.fromkeys(op.output_arg_names):
            final = self.accumulate(name, op.where)
            if final is not None:
                grads[name] = final
        if not grads:
            return
        definition = op.definition
        wanted = {n for n in op.input_arg_names if requires(n)}
        if not wanted or (definition.grad is None and not definition.of):
            return
        if definition.grad is None:
            rule = op_def(definition.of).grad
            instead = rule.instead if isinstance(rule, GradOp) else ""
            raise UnsupportedError(
                f"'{op.type}' cannot be differentiated again",
                expected="an operator whose gradient is differentiable",
                received=f"'{op.type}', the end of its chain of derivatives",
                fix=f"{instead or 'build the function from other operators'}, or cut the gradient with stop_gradient",
                op=op.type,
                var=", ".join(sorted(wanted)),
                where=show(op.where),
            )
        if definition.complex == "holomorphic" and any(self.meta(n).dtype.is_complex for n in (*grads, *wanted)):
            # A gradient is dL/dRe + i dL/dIm: the derivative's conjugate times what arrives, which is the conjugate of the
            # derivative times the conjugate of what arrives.
            for name in [n for n in grads if self.meta(n).dtype.is_complex]:
                self.pending.append(self.conjugate(grads[name], name, op.where))
                grads[name] = self.pending[-1].outputs["Out"][0]
            self.conjugates = []
        calls = any(spec.kind == "function" for spec in definition.attrs.values())
        counts = {n: len(self.partial_grads.get(n, ())) for n in wanted} if calls else {}
        if isinstance(definition.grad, GradOp):
            for slot in definition.grad.unstated:
                lacking = wanted.intersection(op.inputs.get(slot, ()))
                if lacking:
                    raise unstated_gradient(op.type, slot, min(lacking)).add_context(where=show(op.where))
        if isinstance(definition.grad, GradOp) or definition.grad is DERIVE:
            self.grad_op(op, op_def(f"{op.type}_grad"), grads, wanted, stale)
        else:
            assert callable(definition.grad)
            self.grad_from_rule(op, definition, definition.grad, grads, wanted, stale)
        # What only a shape is read of is an input whose gradient the user's function answers with None.
        answered = {n for slot in definition.shape_only for n in op.input(slot)}
        self.cut += [
            (op, n) for n in sorted(counts) if n not in answered and len(self.partial_grads.get(n, ())) == counts[n]
        ]
        if self.conjugates is not None:
            self.pending += self.conjugates
            self.conjugates = None

    def target_of(self, name: str, count: dict[str, int]) -> str:
        """Returns a new name for one partial gradient of ``name`` within one backward op."""
        count[name] = count.get(name, 0) + 1
        return f"{self.grad_name(name)}@PART@{len(self.pending)}@{count[name]}"

    def grad_op(
        self, op: Operator, grad: OpDef, grads: Mapping[str, str], wanted: set[str], stale: Callable[[str], bool]
    ) -> None:
        """Creates the backward op that the op definition states.

        Args:
            op: The forward op.
            grad: The definition of its backward op.
            grads: Output of the forward op -> its gradient.
            wanted: Inputs of the forward op that need a gradient.
            stale: Returns whether a later op overwrites a variable.
        """
        inputs: dict[str, tuple[str, ...]] = {}
        for slot in grad.inputs:
            # An input slot of the backward op is the forward op's slot of that name, else the gradient of one of its outputs.
            row: Sequence[str]
            if slot.name in op.inputs or slot.name in op.definition.input_slots:
                row = op.inputs.get(slot.name, ())
                if reads_value(grad, slot, [s for s in grad.outputs if wanted.intersection(_row(op, s))]):
                    self.check_fresh(op, row, slot.name, grad, stale)
            elif slot.name in op.outputs or slot.name in op.definition.output_slots:
                row = op.outputs.get(slot.name, ())
            else:
                source = slot.name.removesuffix(GRAD)
                made = op.outputs.get(source, ())
                # An optional gradient that does not arrive is left out; a required one becomes zeros.
                if slot.optional and not any(n in grads for n in made):
                    row = ()
                else:
                    row = tuple(grads[n] if n in grads else self.zeros_like(n, op.where) for n in made)
            if row:
                inputs[slot.name] = tuple(row)
        new_op = PendingOp(grad.type, inputs, {}, dict(op.attrs), op.where, position=op.position)
        count: dict[str, int] = {}
        for slot in grad.outputs:
            row = _row(op, slot)
            targets = tuple(self.target_of(name, count) if name in wanted else EMPTY for name in row)
            if wanted.intersection(row):
                new_op.outputs[slot.name] = targets
            for name, written in zip(row, targets, strict=True):
                if written != EMPTY:
                    self.add_partial(name, new_op, written)
        if not new_op.outputs:
            return
        if grad.objects or any(spec.kind == "block" for spec in grad.attrs.values()):
            self.own_blocks(op, new_op)
        self.pending.append(new_op)

    def own_blocks(self, op: Operator, new_op: PendingOp) -> None:
        """Differentiates the block of a control-flow op, and gives the gradient block to its backward op."""
        index = op.attrs["sub_block"]
        body = self.block.program.blocks[index]
        writes = {n for inner in body.ops for n in inner.output_arg_names}
        outs = [n for row in op.outputs.values() for n in row if n in writes]
        ins = [n for slot, row in new_op.outputs.items() for n, w in zip(op.inputs[slot.removesuffix(GRAD)], row, strict=True)
               if w != EMPTY]  # fmt: skip
        if (recurrent := op.definition.trait(Recurrent)) is not None:
            # A state hands its gradient to the step before even where nobody asks for that of its first value.
            before, after = (op.attrs[name] for name in (recurrent.before, recurrent.after))
            ins = list(dict.fromkeys((*ins, *before)))
            outs = list(dict.fromkeys((*outs, *after)))
        new_op.attrs["sub_block"] = differentiate_block(body, outs, ins, self.prefix)

    def grad_from_rule(
        self,
        op: Operator,
        definition: OpDef,
        rule: Callable[[GradContext], list[OpSpec]],
        grads: Mapping[str, str],
        wanted: set[str],
        stale: Callable[[str], bool],
    ) -> None:
        """Creates the ops with which a rule answers; arguments as of :meth:`grad_op`, ``definition`` is the forward op's."""
        count: dict[str, int] = {}
        # Sorted: sets have another order in each process, and names must be equal on all ranks.
        targets = {n: self.target_of(n, count) for n in sorted(wanted)}
        fresh_metas: dict[str, None] = {}

        def fresh(hint: str) -> str:
            name = names.generate(f"{self.prefix}{hint}{GRAD}@TMP")
            fresh_metas[name] = None
            return name

        context = GradContext(op.inputs, op.outputs, op.attrs, grads, targets, self.meta, fresh, asked=self.asked)
        owners = {written: name for name, written in targets.items()}
        for spec in rule(context):
            new_op = PendingOp(
                spec.type, {s: tuple(r) for s, r in spec.inputs.items() if r}, {}, dict(spec.attrs), op.where,
                position=op.position,
            )  # fmt: skip
            for row in new_op.inputs.values():
                self.check_fresh(op, [n for n in row if n in op.input_arg_names], "", definition, stale)
            # A variable in two slots of the forward op gets a partial gradient from each.
            for slot, made in spec.outputs.items():
                new_op.outputs[slot] = tuple(self.target_of(owners[n], count) if n in owners else n for n in made)
                for given, written in zip(made, new_op.outputs[slot], strict=True):
                    if given in owners:
                        self.add_partial(owners[given], new_op, written)
            self.pending.append(new_op)

    def check_fresh(
        self, op: Operator, row: Sequence[str], slot: str, grad: OpDef, stale: Callable[[str], bool]
    ) -> None:
        """Checks that no later op overwrites the values that a gradient reads.

        Args:
            op: The forward op.
            row: The variables that its gradient reads.
            slot: The slot of the gradient that reads them; of some, only the shape is read.
            grad: The definition of the gradient.
            stale: Returns whether a later op overwrites a variable.

        Raises:
            ProgramError: One of them is overwritten.
        """
        if slot in grad.shape_only:
            return
        for name in row:
            if stale(name):
                raise ProgramError(
                    f"the gradient of '{op.type}' needs '{name}', but a later operator overwrote it",
                    expected="a variable that keeps the value the operator read",
                    received=f"'{name}' written again after this operator",
                    fix=_fresh_fix(self.block, name),
                    op=op.type,
                    var=name,
                    where=show(op.where),
                )

    # -------------------------------------------------------------------------------------------------------- append
    def append(self, at: int | None = None) -> list[Operator]:
        """Adds the pending ops to the target block, and creates the gradient variables; returns the ops.

        Args:
            at: Position of the first of them; at the end by default.
        """
        block = self.target
        added: list[Operator] = []
        for new_op in self.pending:
            definition = op_def(new_op.type)
            # A backward op may have fewer attributes than its forward op, all of whose were copied.
            attrs = definition.complete({n: v for n, v in new_op.attrs.items() if n in definition.attrs})
            self.infer_outputs(definition, new_op, attrs)
            inputs = {s.name: new_op.inputs[s.name] for s in definition.inputs if new_op.inputs.get(s.name)}
            outputs = {s.name: new_op.outputs[s.name] for s in definition.outputs if new_op.outputs.get(s.name)}
            for row in outputs.values():
                for name in row:
                    if name != EMPTY and not block.has_var_recursive(name):
                        meta = self.metas[name]
                        var = block.vars[name] = Variable(block, name, meta.shape, meta.dtype, where=new_op.where)
                        if self.lods.get(name):
                            var.lod = self.lods[name]
                            var.lod_level = len(var.lod)
            op = Operator(
                block, new_op.type, inputs, outputs, attrs, role=new_op.role, role_var=tuple(new_op.role_var),
                where=new_op.where, position=new_op.position, namescope=NAME_SCOPE.get(block.program),
            )  # fmt: skip
            added.append(op)
            block._append(op)
            if at is not None:
                block.ops.insert(at, block.ops.pop())
                at += 1
        block.program._touch()
        return added

    def infer_outputs(self, definition: OpDef, new_op: PendingOp, attrs: Mapping[str, Any]) -> None:
        """Infers the metadata of temporaries that a rule made; a gradient has the metadata of its variable."""
        missing = [n for row in new_op.outputs.values() for n in row if n != EMPTY and n not in self.metas]
        missing = [n for n in missing if not self.target.has_var_recursive(n)]
        if not missing or definition.infer is None:
            return
        metas: list[Any] = []
        for slot in definition.inputs:
            row = new_op.inputs.get(slot.name, ())
            found = [self.metas[n] if n in self.metas else self.target._var_recursive(n).meta for n in row]
            metas.append(found if slot.many else (found[0] if found else None))
        for slot, meta in zip(definition.outputs, infer_outputs(definition, metas, attrs), strict=True):
            row = new_op.outputs.get(slot.name, ())
            for name, one in zip(row, meta if isinstance(meta, list) else [meta], strict=False):
                if one is not None:
                    self.metas.setdefault(name, one)


def run(
    work: Backward,
    ops: Sequence[Operator],
    path: Sequence[int],
    needed: set[str],
    carried: frozenset[str] = frozenset(),
) -> None:
    """Creates the backward ops of ``path``, last first; ``carried`` names may be overwritten by the ops that read them."""
    overwritten = stale_at(work, ops, carried)
    for i in reversed(path):
        work.op(ops[i], lambda n: n in needed, overwritten(i))


def stale_at(
    work: Backward, ops: Sequence[Operator], carried: frozenset[str] = frozenset()
) -> Callable[[int], Callable[[str], bool]]:
    """Returns a function: position of an op -> a function that says whether a later op overwrites a variable.

    Where only updates of an earlier ``minimize`` do so, it notes that the backward ops must stand before them.
    """
    last = last_writers(ops)
    before = last if work.updates is None else last_writers(ops[: work.updates])

    def at(i: int) -> Callable[[str], bool]:
        own = set(ops[i].output_arg_names)

        def stale(name: str) -> bool:
            if name in carried or name in own or last.get(name, -1) <= i:
                return False
            if before.get(name, -1) > i:
                return True
            work.early = True
            return False

        return stale

    return at


def differentiate_block(body: Block, outs: Sequence[str], ins: Sequence[str], prefix: str = "") -> int:
    """Adds the gradient block of a control-flow body to the program; returns its index.

    The block reads ``out@GRAD`` for each of ``outs`` and writes ``in@GRAD`` for those of ``ins`` that gradients reach; the
    runtime gives it the saved values of one execution of the body.
    """
    program = body.program
    block = Block(program, len(program.blocks), body.idx, body.idx)
    program.blocks.append(block)
    block.grad_prefix = prefix
    work = Backward(body, block, prefix)
    needed = requirements(body, body.ops, {n for n in ins if body._var_recursive(n).dtype.is_inexact}, set(), True)
    for name in outs:
        meta = body._var_recursive(name).meta
        if meta.dtype.is_inexact:
            seed = work.grad_name(name)
            block.vars[seed] = Variable(block, seed, meta.shape, meta.dtype)
            work.add_partial(name, None, seed)
    path = path_to(body.ops, outs)
    run(work, body.ops, path, needed, frozenset(outs))
    for name in ins:
        work.accumulate(name, None)
    work.append()
    program._touch()
    return block.idx
