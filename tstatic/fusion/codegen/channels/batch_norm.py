"""Batch norm with ops per element after it, or its gradient with such ops before it, as one module of a few kernels.

All formulas are the op definition's (``OpDef.channels``). If results per element depend on functions of a channel, a first
launch sums strips, a second puts the strips together and computes what has one value per channel, a third computes the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from tstatic.fusion.codegen.channels.channel_sums import MERGE, TILE, Moments, PlainSums, partial
from tstatic.fusion.codegen.channels.per_channel import Function, channel_extent, merging, tiling
from tstatic.fusion.codegen.define import channels_of
from tstatic.fusion.codegen.kernel import Kernel, KernelArgument, KernelLocal, Launch, Launches
from tstatic.fusion.codegen.loops.lines import LANGUAGE, Expression, Lines, Typed, Writer
from tstatic.fusion.codegen.loops.loop_nest import CodegenUnsupported, LoopNest, build
from tstatic.fusion.codegen.numerics import strict_numerics, uncontracted
from tstatic.fusion.codegen.text.emit import TREE_SUM, helpers, in_fixed_order, module, named
from tstatic.fusion.codegen.text.script import standalone_main
from tstatic.ir.channels import ChannelTerms
from tstatic.ir.expr import Node, variables
from tstatic.ir.frozen import Entry, FrozenOp
from tstatic.ir.opdef import op_def
from tstatic.ir.types import DType, Meta
from tstatic.ops.norm.batch_norm import RECOMPUTED
from tstatic.target import Target

RECOMPUTES = "recomputes"
"""Mark among the attributes of an activation's gradient: its ``Out`` is the activation's of this norm's result.

Both passes over the data need the result's sign (relu) or value (sigmoid, tanh) and read ``x`` anyway, so they compute it again
from ``x`` instead of reading it: 5 streams instead of 7. A mask of one bit an element, written by the forward pass, would cost
2 % of its bytes in 16-bit types and as much here. The bits are those of the forward kernel, which uses the same statistics and
operations; a comparison rounds to 16 bits first, so a result that underflowed to 0 in memory counts as 0 here.
"""

_INNER = KernelLocal("partial:normalised")
"""What the norm's result is called in its gradient; no value of a program is called so."""


def batch_norm_kernel(body: Sequence[FrozenOp], metas: Mapping[str, Meta], needed: Sequence[str]) -> Kernel:
    """Returns the kernel of a batch norm and of ops per element that follow it, or of such ops and a batch norm's gradient.

    Args:
        body: ``batch_norm`` first, or ``batch_norm_grad`` last; either may be alone.
        metas: Metadata of all values; every size is known.
        needed: Values that are written to memory.

    Raises:
        CodegenUnsupported: If the ops beside the batch norm do not work element by element on its shape.
    """
    return _Module(body, metas, needed).kernel()


def _one(entry: Entry) -> str:
    """Returns the value of a slot that must hold one."""
    assert isinstance(entry, str), "a slot that must hold one value"
    return entry


class _Terms(Writer):
    """Writes each term as one line: what several terms share has a name in the formula."""

    def name(self, value: Typed, low: DType | None = None) -> Typed:
        return value


class _Module:
    """The functions of a module; in their text, what a formula calls ``a`` is ``a_here``.

    Attributes:
        norm: The op on channels.
        head: The other ops come before it and make what it reads; otherwise they read what it makes.
        terms: What it computes, and what its forward op did where that is recomputed.
        results: Of its results those with all elements: term -> value.
        statistics: Of its results those with one value per channel that are needed: term -> value.
        handed: What the launch that puts sums together hands to the next one: results with one value per channel, and sums.
        inputs: Name in the formula -> value.
        arriving: Of these those that the other ops make.
    """

    def __init__(self, body: Sequence[FrozenOp], metas: Mapping[str, Meta], needed: Sequence[str]) -> None:
        self.body, self.told = body, list(body)
        # Read now: when the kernel is planned the flag may be another.
        self.strict = strict_numerics()
        self.head = body[0].definition.channels is None
        self.norm = norm = body[-1 if self.head else 0]
        self.needed = set(needed)
        others = list(body[:-1] if self.head else body[1:])
        # An output that nobody reads or keeps costs no term.
        seen = self.needed | {v for op in others for v in op.reads()}
        outputs = {s.name: e for s, e in zip(norm.definition.outputs, norm.outputs, strict=True)}
        found = channels_of(norm, metas, [slot for slot, e in outputs.items() if e in seen])
        if found is None:
            raise CodegenUnsupported("EMPTY", "there are no elements", norm)
        self.channels, self.terms = found
        self.recomputed: dict[str, str] = {}
        # Without sums x is not read at all, and reading the result is as cheap. Under strict numerics the result in memory, which
        # the operators alone would read, is read.
        if others and others[0].attrs.get(RECOMPUTES) and self.terms.sums and not self.strict:
            metas = self._recompute(others, metas)
        self.metas = metas
        slots = norm.definition.input_slots
        self.inputs = {s.param: _one(norm.input(n)) for n, s in slots.items() if norm.input(n) is not None}
        self.numbers = {slots[n].param for n in self.channels.numbers}
        self.x = self.inputs["x"]
        self.compute: DType = metas[self.x].dtype.compute
        self.extent = channel_extent(self.channels.shape, self.channels.axis)
        self.made = [v for op in others for v in op.writes()]
        self.arriving = {n: value for n, value in self.inputs.items() if value in self.made}
        self.group: LoopNest | None = build(others, metas, self.made) if others else None
        for operand in () if self.group is None else (*self.group.inputs, *self.group.outputs):
            if metas[operand.value].shape != self.channels.shape:
                raise CodegenUnsupported(
                    "SHAPE_MISMATCH", f"'{operand.value}' has another shape than the input of {norm.type}", norm
                )
        own = {name: _one(outputs[slot]) for slot, name in self.terms.outputs.items()}
        self.results = {n: v for n, v in own.items() if n in self.terms.data}
        self.statistics = {n: v for n, v in own.items() if n not in self.terms.data and v in self.needed}
        kept = {s.param for s in norm.definition.outputs} | self.terms.sums.keys()
        # Sums exist only after the merge. What does not depend on them each program computes from the inputs by itself.
        kept &= self.terms.late - self.terms.data
        self.handed = [n for n in self.terms.needs(self.results, kept) if n in kept]
        self.used: set[str] = set()

    def _recompute(self, others: list[FrozenOp], metas: Mapping[str, Meta]) -> Mapping[str, Meta]:
        """Puts the norm's result and the activation itself before the activation's gradient; returns all metadata."""
        first, inputs = others[0], tuple(self.norm.input(s.name) for s in RECOMPUTED.inputs)
        value = _one(first.input("Out"))
        metas = {**metas, _INNER: metas[value]}
        norm = FrozenOp(RECOMPUTED, inputs, (_INNER,), self.norm.attrs)
        act = FrozenOp(op_def(first.definition.of), (_INNER,), (value,), first.attrs)
        # The activation's gradient goes on as it was: it reads the
        # value that its forward op now makes in the same kernel.
        others.insert(0, act)
        self.told[:0] = [norm, act]
        found = channels_of(norm, metas, ["Y"])
        assert found is not None, "the gradient has elements"
        terms, own = found[1], self.terms
        self.recomputed = {terms.outputs["Y"]: _INNER}
        self.terms = ChannelTerms({**terms.nodes, **own.nodes}, own.outputs, terms.data | own.data, own.late)
        return metas

    # --------------------------------------------------------------------------------------------------------- launches
    def kernel(self) -> Kernel:
        """Returns the module: one launch, or those that sum and, if results with all elements wait for sums, one more."""
        # Results that need sums cannot be written by the launch that makes the sums.
        late = not self.terms.late.isdisjoint(self.results)
        sums: list[Moments | PlainSums] = []
        launched: list[_Function] = []
        if self.terms.sums:
            strips, sums = self.strips({} if late else self.results)
            launched = [strips, self.merge(sums)]
        main = self.apply(second=bool(sums)) if late or not sums else None
        functions = [*launched, *([] if main is None else [main])]
        # Only a gradient reads enough streams to spill at the usual size of a tile.
        tile = self.tile_size() if self.norm.definition.of else 0
        channels, compute = self.extent.channels, self.compute

        def plan(target: Target) -> Launches:
            launches: list[Launch] = []
            partials: dict[KernelLocal, tuple[int, DType]] = {}
            if launched:
                tiles = tiling(self.extent, target, sums=True, tile=tile)
                grid, constants = merging(self.extent, tiles, target)
                integers = (tiles.strip, tiles.strips)
                launches += [
                    launched[0].launch(tiles.grid, integers[:1], tiles.constants),
                    launched[1].launch(grid, integers, constants),
                ]
                partials |= {partial(n): (tiles.strips * channels, compute) for one in sums for n in one.per_strip}
                handed = [value for _, value, _ in map(self.memory, self.handed) if isinstance(value, KernelLocal)]
                handed += [partial(n) for one in sums for n in one.per_channel]
                partials |= dict.fromkeys(handed, (channels, compute))
            if main is not None:
                mapped = tiling(self.extent, target, sums=False)
                launches.append(main.launch(mapped.grid, (mapped.strip,), mapped.constants))
            calls = Launches(tuple(launches), partials)
            return uncontracted(calls) if self.strict else calls

        return self.finish(functions, plan)

    def tile_size(self) -> int:
        """Returns elements per tile of the sums: what a thread holds without spilling, under both compilers and on all chips."""
        if self.strict:
            # Whatever stands before the gradient, it is summed by the tiles that hold most.
            return 1024 if self.extent.inner == 1 else 512
        read = ({o.value for o in self.group.inputs} if self.group is not None else set()) - {_INNER}
        streams = len(read | {self.x}) + sum(v in self.needed for v in self.made)
        if self.extent.inner == 1:
            return 2048 if streams <= 4 else 1024
        # Offsets take registers, too; with five streams 16 bytes of each.
        if streams > 4:
            return 2048 // int(self.metas[self.x].dtype.itemsize)
        return 1024 if streams == 4 or self.recomputed else 2048

    def strips(self, results: Collection[str]) -> tuple[_Function, list[Moments | PlainSums]]:
        """Returns the function that sums each strip, and how the functions of a channel are computed.

        Args:
            results: Results with all elements that it writes: those that do not depend on sums.
        """
        sums = self.terms.sums
        plain = {n: node.args[0] for n, node in sums.items() if node.op == "csum"}
        moments = {node.op: n for n, node in sums.items() if node.op != "csum"}
        f = _Function(self, "statistics" if moments else "sums")
        f.add(*self.extent.columns(f.sizes), *self.extent.rows_from("tl.program_id(1)"))
        f.tile({*results, *(v for node in sums.values() for v in variables(node))})
        f.store(results)
        found: list[Moments | PlainSums] = []
        if moments:
            found.append(Moments(self.extent, self.x, self.metas[self.x].dtype, moments))
        if plain:
            found.append(PlainSums({n: f.text(node) for n, node in plain.items()}))
        for one in found:
            one.begin(f)
        # Stores come last: before the sums they would take a quarter more registers.
        f.add(*self.extent.tiles(f.sizes, [*f.in_tile, *(line for one in found for line in one.tile()), *f.stores]))
        f.add(f"index = tl.program_id(1) * {self.extent.named(f.sizes)[1]} + columns")
        for one in found:
            one.end(f)
        return f, found

    def merge(self, sums: Sequence[Moments | PlainSums]) -> _Function:
        """Returns the function that puts the strips together; it writes everything with one value per channel."""
        f = _Function(self, "merge", ("strip", "strips"), MERGE)
        f.add(
            *self.extent.columns(f.sizes),
            "which = tl.arange(0, STRIPS)[:, None]",
            "mask = (which < strips) & inside[None, :]",
            f"index = which * {self.extent.named(f.sizes)[1]} + columns[None, :]",
        )
        for one in sums:
            one.merge(f)
        f.values([*self.statistics, *self.handed], self.terms.sums, "inside")
        return f

    def apply(self, second: bool) -> _Function:
        """Returns the function that writes the results with all elements.

        Args:
            second: Strips were summed before. Then programs go backwards: what was read last may still be in the cache.
        """
        f = _Function(self, "kernel")
        which = "(tl.num_programs(1) - 1 - tl.program_id(1))" if second else "tl.program_id(1)"
        f.add(*self.extent.columns(f.sizes), *self.extent.rows_from(which))
        f.add(*(f"{name}_here = {f.read(*self.memory(name))}" for name in self.handed))
        if second:
            f.tile(self.results, self.handed, again=self.head)
        else:
            # Every strip computes the statistics that it needs; one alone
            # stores them, so that no two programs write an address.
            f.tile({**self.results, **self.statistics}, mask="inside & (tl.program_id(1) == 0)")
        f.store(self.results)
        f.add(*self.extent.tiles(f.sizes, [*f.in_tile, *f.stores]))
        return f

    def rounds(self, name: str, value: str) -> Typed:
        """Returns a term, which memory would hold in its value's type."""
        dtype = self.metas[value].dtype
        return Typed(f"{name}_here", self.compute, dtype if dtype.is_low else None)

    def stored(self) -> str | None:
        """Returns the value in which the function that sums strips writes what the norm's gradient reads, if it does."""
        done = _Function(self, "unused").elements({v: self.rounds(n, v) for n, v in self.recomputed.items()}).done
        (read,) = (done[v].text for v in self.arriving.values())
        # Equal text is the same value: reading what the first launch stored gives the bits that it summed.
        return next((v for v in self.made if v in self.needed and done[v].text == read), None)

    def memory(self, name: str) -> tuple[str, str, DType]:
        """Returns pointer, value and type of what is handed on: the norm's own result, or memory of the module.

        A result whose type is not that of computation has lost digits.
        """
        value = self.statistics.get(name)
        if value is not None and self.metas[value].dtype is self.compute:
            return name, value, self.compute
        return f"merged_{name}", partial(f"merged_{name}"), self.compute

    def finish(self, functions: Sequence[_Function], plan: Callable[[Target], Launches]) -> Kernel:
        texts = in_fixed_order("\n\n\n".join(f.finished(f.integers, f.constants) for f in functions))
        if f"{TREE_SUM}(" in texts:
            self.used.add(TREE_SUM)
        text = module(helpers(self.used), texts)
        operands = [p.operand for f in functions for p in f.pointers.values()]
        # One argument per value, however many functions of the module read it.
        read = dict.fromkeys(v for v in operands if v not in self.needed and not isinstance(v, KernelLocal))
        written = [v for op in self.body for v in op.writes() if v in self.needed]
        main = functions[-1]
        return Kernel(
            named(text, self.norm.type), text, self.norm.type, main.parameters(main.integers, main.constants),
            tuple(map(self.buffer, read)), tuple(map(self.buffer, written)), plan,
            standalone_main(self.told, self.metas), ops=tuple(self.body), metas=self.metas,
        )  # fmt: skip

    def buffer(self, value: str) -> KernelArgument:
        meta = self.metas[value]
        return KernelArgument(value, meta.dtype, meta.numel)


class _Function(Function):
    """A function of the module.

    Attributes:
        names: Inputs and terms -> their names in the text.
        in_tile, stores: Lines for each tile.
    """

    def __init__(
        self,
        module: _Module,
        name: str,
        integers: tuple[str, ...] = ("strip",),
        constants: tuple[str, ...] = TILE,
    ) -> None:
        super().__init__(name, module.compute, module.used)
        self.module, self.terms = module, module.terms
        self.integers, self.constants = integers, constants
        self.names: dict[str, Typed] = {}
        self.in_tile: list[str] = []
        self.stores: list[str] = []

    def here(self, name: str) -> None:
        """Names an input or a term whose line is there."""
        self.names[name] = Typed(f"{name}_here", self.compute)

    def values(self, wanted: Iterable[str], known: Collection[str] = (), mask: str = "") -> None:
        """Adds lines for what has one value per channel and is needed by terms.

        Each line stands just before the first that reads it, and what is stored is stored at once: registers are few.

        Args:
            wanted: Terms.
            known: Terms whose lines are there.
            mask: Where results, and what is handed on, are stored; nowhere if empty.
        """
        m = self.module
        needed = [n for n in self.terms.needs(wanted, known) if n not in self.terms.data]
        for name in (n for n in needed if n in self.terms.nodes):
            if name in known:
                self.here(name)
            else:
                self.load(sorted(variables(self.terms.nodes[name])))
                self.add(*self.term(name))
            if mask:
                # What is handed on and what is kept may be one memory: it is stored once.
                places = [m.memory(name)] if name in m.handed else []
                if name in m.statistics:
                    places.append((name, m.statistics[name], m.metas[m.statistics[name]].dtype))
                self.add(*(self.write(*p, self.names[name].text, mask=mask) for p in dict.fromkeys(places)))
        self.load(needed)

    def load(self, wanted: Iterable[str]) -> None:
        """Adds loads of those inputs with one value per channel among some names that have none yet."""
        for name in wanted:
            if name in self.module.inputs and name not in self.names:
                value = self.module.inputs[name]
                dtype = self.module.metas[value].dtype
                text = self.read(name, value, dtype)
                if name in self.module.numbers:
                    # One element for all channels: a scalar load, broadcast by whatever reads it.
                    text = f"tl.load({self.pointer(name, value, dtype)}).to({LANGUAGE[self.compute.name]})"
                self.add(f"{name}_here = {text}")
                self.here(name)

    def text(self, node: Node) -> str:
        """Returns an expression for each element."""
        return Expression(_Terms(), self.wide(), self.module.norm.type).value(node).text

    def term(self, name: str) -> list[str]:
        """Returns the line of a term and names it; one that only renames another has no line."""
        node = self.terms.nodes[name]
        if node.op == "var":
            self.names[name] = self.names[node.value]
            return []
        writer = _Terms()
        environment = self.wide() if name in self.terms.data else self.names
        self.names[name] = writer.add(f"{name}_here", node, environment, self.module.norm.type)
        self.used |= writer.used
        return writer.lines

    def wide(self) -> dict[str, Typed]:
        """Returns the names for use among data: what has one value per channel is broadcast."""
        data = self.terms.data
        return {n: t if n in data else replace(t, text=f"{t.text}[None, :]") for n, t in self.names.items()}

    def tile(self, wanted: Collection[str], known: Collection[str] = (), again: bool = False, mask: str = "") -> None:
        """Adds lines for what terms need, for each tile and before.

        Args:
            wanted: Terms.
            known: Terms with one value per channel whose lines are there.
            again: An earlier launch computed the ops before the norm, and may have stored what they make.
            mask: Where results with one value per channel are stored; nowhere if empty.
        """
        m = self.module
        stored = m.stored() if again else None
        others = stored is None and m.group is not None and (m.head or not m.results.keys().isdisjoint(wanted))
        wanted = {*wanted, *(m.recomputed if others else ())}
        self.values(wanted, known, mask)
        loaded = {n: v for n, v in m.inputs.items() if n not in m.arriving}
        loaded |= {} if stored is None else dict.fromkeys(m.arriving, stored)
        # Terms that read what the other ops make: their lines come after those of these ops.
        later: list[str] = []
        for name in self.terms.needs(wanted, known):
            if name not in self.terms.data:
                continue
            if name in loaded:
                text = self.read(name, loaded[name], m.metas[loaded[name]].dtype, "offsets", "mask")
                self.in_tile.append(f"{name}_here = {text}")
                self.here(name)
            elif name in self.terms.nodes and variables(self.terms.nodes[name]) <= self.names.keys():
                self.in_tile += self.term(name)
            elif name in self.terms.nodes:
                later.append(name)
        if others:
            self.others(first=not again)
        for name in later:
            self.in_tile += self.term(name)

    def others(self, first: bool) -> None:
        """Adds the other ops to a tile; ``first``: with stores of what is needed of them."""
        m = self.module
        known = {m.x: self.names["x"]} if "x" in self.names else {}
        known |= {v: self.result(n, v) for n, v in {**m.results, **m.recomputed}.items() if n in self.names}
        written = self.elements(known)
        self.in_tile += written.lines
        for name, value in m.arriving.items():
            # The norm alone would read it from memory.
            self.names[name] = self.rounded(f"{name}_here", written.done[value]) if m.strict else written.done[value]
        if first:
            self.stores += [self.element(f"y{i}", v, written.done[v]) for i, v in enumerate(m.made) if v in m.needed]

    def result(self, name: str, value: str) -> Typed:
        """Returns a result for the ops that follow; where memory holds it, they go on with what is stored, as gradients will."""
        typed = self.module.rounds(name, value)
        # Memory holds the rounded value, and later ops of the unfused program read that one.
        if typed.low is not None and (value in self.module.needed or self.module.strict):
            self.names[name] = self.rounded(f"{name}_here", typed)
            return self.names[name]
        return typed

    def rounded(self, name: str, value: Typed) -> Typed:
        """Returns a name of a value as memory holds it, after a line for each tile if that is another one."""
        if value.low is None:
            return value
        writer = Writer()
        self.in_tile.append(f"{name} = {writer.rounded(value).text}")
        self.used |= writer.used
        return Typed(name, value.dtype)

    def elements(self, known: Mapping[str, Typed]) -> Lines:
        """Returns the other ops, over values that are there already and others, which are loaded."""
        group = self.module.group
        assert group is not None, "there are other ops"
        loaded: dict[int, Typed] = {}
        loads: list[str] = []
        for i, operand in enumerate(group.inputs):
            if operand.value not in known:
                loads.append(f"a{i} = {self.read(f'x{i}', operand.value, operand.dtype, 'offsets', 'mask')}")
            loaded[i] = known.get(operand.value, Typed(f"a{i}", self.compute))
        written = Lines(group, loaded)
        written.lines.extend(loads)
        written.write()
        self.used |= written.used
        return written

    def element(self, name: str, value: str, typed: Typed) -> str:
        """Returns the store of a value with all elements."""
        return self.write(name, value, self.module.metas[value].dtype, typed.text, "offsets", "mask")

    def store(self, results: Collection[str]) -> None:
        """Adds stores of those of the norm's results with all elements that are needed."""
        m = self.module
        self.stores += [
            self.element(n, v, self.names[n]) for n, v in m.results.items() if n in results and v in m.needed
        ]
