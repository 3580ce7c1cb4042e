"""Many optimizer updates of one rule as one launch: programs look up which tensor, and which part of it, is theirs.

* ``segmenting``  many tensors as blocks of one launch
* ``square_sum``  the sum of squares of many tensors, for clipping
* ``strip_sums``  partial sums of many kernels, added by one launch
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tstatic.fusion.codegen.kernel import (
    STOPPED,
    Kernel,
    KernelArgument,
    KernelLocal,
    KernelParameter,
    Launch,
    Launches,
    Table,
    operands,
    power_of_two,
)
from tstatic.fusion.codegen.loops.lines import LANGUAGE, TYPES, Typed, Writer, nested
from tstatic.fusion.codegen.loops.loop_nest import CodegenUnsupported
from tstatic.fusion.codegen.text.emit import as_kernel, function, stored
from tstatic.fusion.codegen.text.script import Parts, bounds, entry, script
from tstatic.fusion.codegen.update.segmenting import (
    ADDRESSES,
    BLOCKS,
    FIND,
    HELPER,
    STEP,
    TABLES,
    segments,
    table,
    table_sizes,
)
from tstatic.ir.expr import Node
from tstatic.ir.formula import to_python
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.types import DType, Meta, float64
from tstatic.target import Target

BLOCK = 1024
"""Elements per program; flat buffers are padded to it."""
MIXED_BLOCK = 512
"""Where types of several sizes meet: from 1,024 on Triton converts layouts through shared memory."""

NUMBERS = KernelLocal("partial:numbers")

_RATE = Node("var", value="learningrate")


@dataclass(frozen=True, slots=True)
class _Stream:
    """One tensor of every member.

    ``slot`` is the op definition's, ``name`` its name in the text.
    """

    slot: str
    name: str
    dtype: DType


class _Update:
    """The text of one group: its updates, and the products with one factor that make their gradients."""

    def __init__(self, body: Sequence[FrozenOp], metas: Mapping[str, Meta]) -> None:
        self.body = [op for op in body if op.definition.update]
        self.metas = metas
        self.first = self.body[0]
        products = [op for op in body if not op.definition.update]
        self.raw = {str(op.output("Out")): str(op.input("X")) for op in products}
        self.factor = products[0].input("Y") if products else None
        assert all(op.type == "elementwise_mul" and op.input("Y") == self.factor for op in products)
        definition = self.first.definition
        formula = definition.formula
        if formula is None or not formula.single_pass:
            raise CodegenUnsupported("NO_KERNEL_FORM", "the update takes several passes over its tensors", self.first)
        slots = [*zip((s.name for s in definition.inputs), self.first.inputs, strict=True)]
        slots += zip((s.name for s in definition.outputs), self.first.outputs, strict=True)
        self.slots = [n for n, entry in slots if entry is not None]
        self.inputs = {s.name for s in definition.inputs}
        self.used: set[str] = set()
        self.sizes = table_sizes()
        self.master = self.given("MasterParam")
        self.skip = self.given("SkipUpdate")
        self.compute = self.dtype("MasterParam" if self.master else "Param").compute
        # Which slots and attributes are given is equal for all members:
        # the fusion groups updates by them, so the first speaks for all.
        numbers = [n for n in formula.numbers if self.given(n)]
        if "LearningRate" not in numbers:
            raise CodegenUnsupported("NO_KERNEL_FORM", "the update has no learning rate", self.first)
        if any(n in formula.replaces or self.dtype(n).is_low for n in numbers):
            raise CodegenUnsupported(
                "NO_KERNEL_FORM", "a number that is a constant elsewhere lies in memory", self.first
            )
        self.formula = formula.bind_attributes(self.first.attrs, self.slots)
        self.numbers = self.formula.numbers
        # With nothing but the learning rate, which all tensors share, no launch over the tensors is needed.
        self.prepared = bool(self.formula.moved) or any(node != _RATE for node in self.numbers.values())
        # What is left are moments and the like: read and written, one element per element of the parameter.
        left_out = (*numbers, "SkipUpdate", "Grad", "Param", "MasterParam")
        self.state = [s for s in self.slots if s in self.inputs and s not in left_out]
        self.reads = self._reads()
        self.writes = [
            _Stream("ParamOut", "param", self.dtype("Param")),
            *(self._stream(s) for s in self.slots if s.removesuffix("Out") in self.state and s not in self.inputs),
            *([_Stream("MasterParamOut", "param", self.dtype("MasterParam"))] if self.master else []),
        ]
        self.powers = [self._stream(n) for n in numbers if n != "LearningRate"]
        self.moved = [self._stream(n) for n in self.formula.moved]
        self.row = tuple(s.slot for s in (*self.reads, *self.writes, *self.powers, *self.moved))

    def _stream(self, slot: str) -> _Stream:
        return _Stream(slot, slot.removesuffix("Out").lower(), self.dtype(slot))

    def given(self, slot: str) -> bool:
        return slot in self.slots

    def value(self, op: FrozenOp, slot: str) -> str:
        entry = op.input(slot) if slot in self.inputs else op.output(slot)
        if not isinstance(entry, str):
            raise CodegenUnsupported("NO_KERNEL_FORM", f"'{slot}' is not written", op)
        # The product is never stored: the kernel reads its operand and multiplies (`scaled`).
        return self.raw[entry] if slot == "Grad" and self.raw else entry

    def dtype(self, slot: str) -> DType:
        return self.metas[self.value(self.first, slot)].dtype

    def _reads(self) -> list[_Stream]:
        streams = [_Stream("Grad", "grad", self.dtype("Grad")), *map(self._stream, self.state)]
        if self.master:
            # Formulas speak of `param`: that is the master where there is one, and the parameter itself is `rounded`.
            streams.append(_Stream("MasterParam", "param", self.dtype("MasterParam")))
        if not self.master or self.skip:
            # Beside a master the parameter itself is only needed where a skipped step must leave it.
            streams.append(_Stream("Param", "rounded" if self.master else "param", self.dtype("Param")))
        return streams

    def place(self, slot: str) -> str:
        """Returns the name of where an address stands in a tensor's row."""
        return self.sizes(
            f"{slot.upper()}_AT", self.row.index(slot), f"where the address of {slot} stands in a tensor's row"
        )

    def named_row(self) -> str:
        """Returns the name of the number of addresses of a tensor."""
        return self.sizes("ADDRESSES", len(self.row), "addresses of each tensor: its row")

    def named_numbers(self) -> str:
        """Returns the name of how many numbers the update of a tensor has."""
        return self.sizes("NUMBERS", len(self.numbers), "numbers of each tensor's update")

    def named_number(self, name: str) -> str:
        """Returns the name of where one of them stands."""
        return self.sizes(f"{name.upper()}_AT", list(self.numbers).index(name), f"where {name} stands among them")

    def parameters(self) -> tuple[KernelParameter, ...]:
        found = [*TABLES]
        if self.prepared:
            found.append(KernelParameter("numbers", "pointer", TYPES[self.compute.name], NUMBERS))
        else:
            rate = self.value(self.first, "LearningRate")
            found.append(KernelParameter("learning_rate", "pointer", TYPES[self.dtype("LearningRate").name], rate))
        if isinstance(self.factor, str):
            found.append(KernelParameter("factor", "pointer", TYPES[self.metas[self.factor].dtype.name], self.factor))
        if self.skip:
            found.append(KernelParameter("skip", "pointer", "i1", self.value(self.first, "SkipUpdate")))
        return (*found, KernelParameter("stopped", "pointer", "i1", STOPPED), KernelParameter("BLOCK", "constant"))

    def kernel(self) -> str:
        """Returns the launch over all elements."""
        kind, each = LANGUAGE[self.compute.name], self.named_row()
        body = [
            *FIND,
            f"row = addresses + tl.load(block) * {each}",
            "start = tl.multiple_of(tl.load(block + FIRST), PADDED_TO)",
            "offsets = tl.arange(0, BLOCK)",
            "own = offsets < tl.load(block + OWN).to(tl.int32)",
            "touched = tl.where(tl.load(stopped) != 0, 0, tl.load(block + TOUCHED).to(tl.int32))",
            # The bound is a multiple of 16 and the compiler knows it: accesses stay 16 bytes wide at a tensor's end.
            "mask = offsets < tl.multiple_of(touched, PADDED_TO)",
        ]
        if self.prepared:
            body.append(f"numbers += tl.load(block) * {self.named_numbers()}")
            body += [f"{name} = tl.load(numbers + {self.named_number(name)})" for name in self.numbers]
        else:
            body += [f"{name} = tl.load(learning_rate).to({kind})" for name in self.numbers]
        if self.skip:
            body.append("skipped = tl.load(skip) != 0")
        for s in self.reads:
            body.append(f"at_{s.name} = {self.pointer(s)} + start")
            body.append(f"old_{s.name} = tl.load(at_{s.name} + offsets, mask=mask, other=0)")
            if s.name != "rounded":
                body.append(f"{s.name} = old_{s.name}" + ("" if s.dtype is self.compute else f".to({kind})"))
        if self.factor is not None:
            body += self.scaled()
        names = {name: Typed(name, self.compute) for name in (*(s.name for s in self.reads), *self.numbers)}
        # Fused updates give the bits of single ones on the CPU: divisions and roots are rounded as IEEE 754 says.
        writer = Writer(rounds_once=True)
        for term, node in self.formula.elements.items():
            names[term.lower()] = writer.add(term.lower(), node, names, self.first.type)
        self.used |= writer.used
        body += writer.lines
        for s in self.writes:
            # What is beyond the tensor's own elements is padding, and stays zero.
            text = f"tl.where(own, {s.name}out, 0.0)"
            new = stored(Typed(text, self.compute), s.dtype, self.used)
            if self.skip:
                old = "old_rounded" if s.slot == "ParamOut" and self.master else f"old_{s.name}"
                new = f"tl.where(skipped, {old}, {new})"
            body.append(f"at_{s.name} = {self.pointer(s)} + start")
            body.append(f"tl.store(at_{s.name} + offsets, {new}, mask=mask)")
        return function("kernel", self.parameters(), body, self.sizes)

    def scaled(self) -> list[str]:
        """Returns the product of gradient and factor, rounded as the gradient's type holds it."""
        product = f"grad * tl.load(factor).to({LANGUAGE[self.compute.name]})"
        dtype = self.dtype("Grad")
        if dtype.is_low:
            helper = "round_bf16" if dtype.name == "bfloat16" else "round_fp16"
            self.used.add(helper)
            product = f"{helper}({product})"
        return [f"grad = {product}"]

    def pointer(self, stream: _Stream) -> str:
        """Returns the text of where a stream's tensor begins; memory of plans and scopes is aligned to 16 bytes and more."""
        address = f"tl.load(row + {self.place(stream.slot)})"
        return f"tl.multiple_of({address}.to(tl.pointer_type({LANGUAGE[stream.dtype.name]})), ALIGNED)"

    def pointers(self, stream: _Stream, slot: str) -> str:
        """Returns the text of where a slot of several tensors lies."""
        kind = LANGUAGE[stream.dtype.name]
        return f"tl.load(row + {self.place(slot)}, mask=mask, other=0).to(tl.pointer_type({kind}))"

    def prepare(self) -> str:
        """Returns the launch over tensors: numbers that are one per tensor, in 64 bits as the references have them.

        They may move on, so programs of the other launch could not read them without a race.
        """
        parameters = [KernelParameter("addresses", "pointer"), KernelParameter("learning_rate", "pointer")]
        parameters += [KernelParameter("skip", "pointer")] if self.skip else []
        parameters += [
            KernelParameter("stopped", "pointer"),
            KernelParameter("numbers", "pointer"),
            KernelParameter("count", "integer"),
            KernelParameter("TENSORS", "constant"),
        ]
        body = [
            "tensor = tl.program_id(0) * TENSORS + tl.arange(0, TENSORS)",
            "mask = tensor < count",
            f"row = addresses + tensor * {self.named_row()}",
            f"numbers += tensor * {self.named_numbers()}",
            "learningrate = tl.load(learning_rate).to(tl.float64)",
        ]
        names = {"learningrate": Typed("learningrate", float64)}
        if self.moved:
            body.append("moves = mask & (tl.load(stopped) == 0)")
        own: dict[str, Typed] = {}
        for s in self.powers:
            body.append(f"at = {self.pointers(s, s.slot)}")
            body.append(f"old_{s.name} = tl.load(at, mask=mask, other=0)")
            body.append(f"{s.name} = old_{s.name}.to(tl.float64)")
            # Powers move on in their own type, as the reference multiplies
            # them; numbers made of them are computed in 64 bits.
            own[s.name] = Typed(f"old_{s.name}", s.dtype)
            names[s.name] = Typed(s.name, float64)
        writer = Writer()
        for name, node in self.numbers.items():
            writer.add(name, node, names, self.first.type)
            kept = f"{name}.to({LANGUAGE[self.compute.name]})"
            writer.lines.append(f"tl.store(numbers + {self.named_number(name)}, {kept}, mask=mask)")
        for s in self.moved:
            writer.add(f"new_{s.name}", self.formula.moved[s.slot], own, self.first.type)
            new = f"tl.where(tl.load(skip) != 0, old_{s.name}, new_{s.name})" if self.skip else f"new_{s.name}"
            writer.lines += [f"at = {self.pointers(s, s.slot)}", f"tl.store(at, {new}, mask=moves)"]
        self.used |= writer.used
        return function("prepare", tuple(parameters), [*body, *writer.lines], self.sizes)

    def prepare_types(self) -> tuple[str, ...]:
        """Returns Triton's types of the arguments of ``prepare``."""
        rate = TYPES[self.dtype("LearningRate").name]
        return ("*i64", f"*{rate}", *(["*i1"] if self.skip else []), "*i1", f"*{TYPES[self.compute.name]}", "i32")

    # ------------------------------------------------------------------------------------------------------- run alone
    def addresses_text(self) -> str:
        """Returns the tensors of the table of addresses."""
        return f'[memory[f"{{slot}}{{i}}"] for i in range(len(SIZES)) for slot in {self.row!r}]'

    def parts(self, sizes: Sequence[int]) -> Parts:
        """Returns what the module says of itself to run alone: a tensor is called by its slot and its number."""
        keys = {self.value(self.first, "LearningRate"): "LearningRate"}
        if self.skip:
            keys[self.value(self.first, "SkipUpdate")] = "SkipUpdate"
        if isinstance(self.factor, str):
            keys[self.factor] = "factor"
        inputs = [
            entry(k, self.metas[v].shape, self.metas[v].dtype, bounds(self.body, v, self.metas))
            for v, k in keys.items()
        ]
        inputs += [self._tensors(s, bounds(self.body, self.value(self.first, s.slot), self.metas)) for s in self.reads]
        inputs += [self._tensors(s, (0.1, 0.9), one=True) for s in self.powers]
        outputs = [self._tensors(s) for s in self.writes]
        outputs += [self._tensors(s, one=True) for s in self.moved]
        return Parts(inputs, outputs, keys, "**given", self._reference(), [HELPER], sizes)

    def _tensors(self, s: _Stream, limits: tuple[float, float] | None = None, one: bool = False) -> str:
        """Returns a row per tensor of a slot."""
        more = "" if limits is None else f", {limits[0]!r}, {limits[1]!r}"
        shape = "(1,)" if one else "(n,)"
        return f'**{{f"{s.slot}{{i}}": ({shape}, torch.{s.dtype.name}{more}) for i, n in enumerate(SIZES)}},'

    def _reference(self) -> list[str]:
        streams = (*self.reads, *self.powers)
        # ``rounded`` is a function here.
        names = {s.slot: "rounded_param" if s.name == "rounded" else s.name for s in streams}
        lines = [f'{name} = given[f"{slot}{{i}}"]' for slot, name in names.items()]
        if self.factor is not None:
            low = self.dtype("Grad")
            product = 'grad * given["factor"].reshape(())'
            lines.append(f"grad = rounded({product}, torch.{low.name})" if low.is_low else f"grad = {product}")
        lines += [f"{n.lower()} = {to_python(node, str, arrays=True)}" for n, node in self.formula.terms.items()]
        for s in (*self.writes, *self.moved):
            new = f"{s.name}out"
            if self.skip:
                old = "rounded_param" if s.slot == "ParamOut" and self.master else s.name
                new = f'np.where(given["SkipUpdate"].reshape(()), {old}, {new})'
            lines.append(f'results[f"{s.slot}{{i}}"] = {new}')
        start = ["results = {}", 'learningrate = given["LearningRate"].reshape(())', "for i in range(len(SIZES)):"]
        return [*start[:-1], *nested(start[-1], lines), "return results"]


def update_kernel(body: Sequence[FrozenOp], metas: Mapping[str, Meta], needed: Sequence[str]) -> Kernel:
    """Returns the kernel of updates of one op type with equal attributes, types and shared inputs.

    Args:
        body: The updates; before them, products (``elementwise_mul``) of all their gradients with one number.
        metas: Metadata of all their values.
        needed: Values that are written; all results of updates must be.

    Raises:
        CodegenUnsupported: If a result is not wanted, or a number that is an attribute elsewhere lies in memory.
    """
    update = _Update(body, metas)
    addressed = tuple(update.value(op, slot) for op in update.body for slot in update.row)
    wanted = set(needed)
    for op in update.body:
        if not all(v in wanted for v in op.writes()):
            raise CodegenUnsupported("NO_KERNEL_FORM", "a result is not wanted", op)
    functions = update.kernel()
    if update.prepared:
        functions = f"{update.prepare()}\n\n\n{functions}"
    sizes = [metas[update.value(op, "Param")].numel for op in update.body]
    parameters = update.parameters()
    widths = {s.dtype.itemsize for s in (*update.reads, *update.writes)}
    usual = BLOCK if len(widths) == 1 else MIXED_BLOCK

    def plan(target: Target) -> Launches:
        block = target.block("BLOCK", power_of_two(max(sizes), 16, 1 << 16) if target.large_programs else usual)
        # The interpreter also meets memory that ends with its last element.
        step = 1 if target.large_programs else STEP
        rows = segments(sizes, block, step)
        launches: list[Launch] = []
        partials: dict[KernelLocal, tuple[int, DType]] = {}
        if update.prepared:
            partials[NUMBERS] = len(update.numbers) * len(sizes), update.compute
            # On a GPU a tensor for each thread of four warps.
            tensors = power_of_two(len(sizes), 16, 1 << 12 if target.large_programs else 128)
            skip = (update.value(update.first, "SkipUpdate"),) if update.skip else ()
            given = (ADDRESSES, update.value(update.first, "LearningRate"), *skip, STOPPED, NUMBERS, len(sizes))
            grid = (-(-len(sizes) // tensors),)
            # Without contraction, in both launches: a fused multiply-add rounds once where the reference rounds twice.
            launches.append(Launch("prepare", grid, given, {"TENSORS": tensors}, 4, update.prepare_types(), False))
        # All tensors may be empty, and a launch of no programs is an error; `prepare` still moves their numbers on.
        if len(rows):
            launches.append(Launch("kernel", (len(rows),), operands(parameters), {"BLOCK": block}, contract=False))
        addresses = Table(addressed, text=update.addresses_text())
        return Launches(tuple(launches), partials, {ADDRESSES: addresses, BLOCKS: table(rows, block, step)})

    memory = _buffers(update, update.reads), _buffers(update, update.writes)
    return as_kernel(
        "update",
        body,
        metas,
        functions,
        update.used,
        parameters,
        memory,
        plan,
        lambda made: script(made, update.parts(sizes)),
    )


def _buffers(update: _Update, streams: Sequence[_Stream]) -> tuple[KernelArgument, ...]:
    return tuple(
        KernelArgument(v, s.dtype, math.prod(update.metas[v].shape))
        for op in update.body
        for s in streams
        for v in (update.value(op, s.slot),)
    )
