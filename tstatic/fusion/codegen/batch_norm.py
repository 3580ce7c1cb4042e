"""Batch norm with ops per element after it, or its gradient with such ops before it, as one module of a few kernels.

All formulas are the op definition's (``OpDef.channels``). If results per element depend on functions of a channel, a first
launch sums strips, a second puts the strips together and computes what has one value per channel, a third computes the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from tstatic.fusion.codegen.channel_sums import MERGE, TILE, ChannelSums, Moments, PlainSums, partial
from tstatic.fusion.codegen.define import channels_of
from tstatic.fusion.codegen.emit import header, helpers, module, named
from tstatic.fusion.codegen.kernel import Kernel, KernelArgument, KernelLocal, Launch, Launches
from tstatic.fusion.codegen.lines import LANGUAGE, Expression, Lines, Typed, Writer
from tstatic.fusion.codegen.loop_nest import CodegenUnsupported, LoopNest, build
from tstatic.fusion.codegen.per_channel import Function, channel_extent, merging, tiling
from tstatic.fusion.codegen.script import standalone_main
from tstatic.ir.channels import ChannelTerms
from tstatic.ir.expr import variables
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


_ONCE = "inside & (tl.program_id(1) == 0)"
"""The mask of what only the programs of the first strip write."""


def batch_norm_kernel(body: Sequence[FrozenOp], metas: Mapping[str, Meta], needed: Sequence[str]) -> Kernel:
    """Returns the kernel of a batch norm and of ops per element that follow it, or of such ops and a batch norm's gradient.

    Args:
        body: ``batch_norm`` first, or ``batch_norm_grad`` last.
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
        self.head = body[0].definition.channels is None
        self.norm = norm = body[-1 if self.head else 0]
        self.needed = set(needed)
        others = list(body[:-1] if self.head else body[1:])
        seen = self.needed | {v for op in others for v in op.reads()}
        outputs = {s.name: e for s, e in zip(norm.definition.outputs, norm.outputs, strict=True)}
        found = channels_of(norm, metas, [slot for slot, e in outputs.items() if e in seen])
        if found is None:
            raise CodegenUnsupported("EMPTY", "there are no elements", norm)
        self.channels, self.terms = found
        self.recomputed: dict[str, str] = {}
        # Without sums x is not read at all, and reading the result is as cheap.
        if others[0].attrs.get(RECOMPUTES) and self.terms.sums:
            metas = self._recompute(others, metas)
        self.metas = metas
        slots = norm.definition.input_slots
        self.inputs = {s.param: _one(norm.input(n)) for n, s in slots.items() if norm.input(n) is not None}
        self.numbers = {slots[n].param for n in self.channels.numbers}
        self.x = self.inputs["x"]
        self.compute: DType = metas[self.x].dtype.compute
        self.real = LANGUAGE[self.compute.name]
        self.extent = channel_extent(self.channels.shape, self.channels.axis)
        self.made = [v for op in others for v in op.writes()]
        self.arriving = {n: value for n, value in self.inputs.items() if value in self.made}
        self.group: LoopNest = build(others, metas, self.made)
        for operand in (*self.group.inputs, *self.group.outputs):
            if metas[operand.value].shape != self.channels.shape:
                raise CodegenUnsupported(
                    "SHAPE_MISMATCH", f"'{operand.value}' has another shape than the input of {norm.type}", norm
                )
        own = {name: _one(outputs[slot]) for slot, name in self.terms.outputs.items()}
        self.results = {n: v for n, v in own.items() if n in self.terms.data}
        self.statistics = {n: v for n, v in own.items() if n not in self.terms.data and v in self.needed}
        kept = {s.param for s in norm.definition.outputs} | self.terms.sums.keys()
        kept &= self.terms.late - self.terms.data
        self.handed = [n for n in self.terms.needs(self.results, kept) if n in kept]
        self.used: set[str] = set()
        self.functions: list[tuple[Function, tuple[str, ...], tuple[str, ...]]] = []

    def _recompute(self, others: list[FrozenOp], metas: Mapping[str, Meta]) -> Mapping[str, Meta]:
        """Puts the norm's result and the activation itself before the activation's gradient; returns all metadata."""
        first, inputs = others[0], tuple(self.norm.input(s.name) for s in RECOMPUTED.inputs)
        value = _one(first.input("Out"))
        metas = {**metas, _INNER: metas[value]}
        norm = FrozenOp(RECOMPUTED, inputs, (_INNER,), self.norm.attrs)
        act = FrozenOp(op_def(first.definition.of), (_INNER,), (value,), first.attrs)
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
        sums: list[ChannelSums] = []
        launched: list[Function] = []
        late = not self.terms.late.isdisjoint(self.results)
        if self.terms.sums:
            sums = self.strips(with_results=not late)
            launched = [self.functions[0][0], self.merge(sums)]
        main = self.apply(second=bool(sums)) if late or not sums else None
        tile = self.tile_size() if self.head else 0
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
                partials |= {partial(n): (channels, compute) for one in sums for n in one.per_channel}
                own = [value for _, value, _ in map(self.memory, self.handed)]
                partials |= {value: (channels, compute) for value in own if isinstance(value, KernelLocal)}
            if main is not None:
                mapped = tiling(self.extent, target, sums=False)
                launches.append(main.launch(mapped.grid, (mapped.strip,), mapped.constants))
            return Launches(tuple(launches), partials)

        return self.finish(plan)

    def tile_size(self) -> int:
        """Returns elements per tile of the sums: what a thread holds without spilling, under both compilers and on all chips."""
        read = {o.value for o in self.group.inputs} - {_INNER}
        streams = len(read | {self.x}) + sum(v in self.needed for v in self.made)
        if self.extent.inner == 1:
            return 2048 if streams <= 4 else 1024
        # Offsets take registers, too; with five streams 16 bytes of each.
        if streams > 4:
            return 2048 // int(self.metas[self.x].dtype.itemsize)
        return 1024 if streams == 4 or self.recomputed else 2048

    # -------------------------------------------------------------------------------------------------------- functions
    def strips(self, with_results: bool) -> list[ChannelSums]:
        """Adds the function that sums each strip; returns how the functions of a channel are computed.

        Args:
            with_results: Results with all elements do not depend on sums, and are written here.
        """
        sums = self.terms.sums
        plain = {n: node.args[0] for n, node in sums.items() if node.op == "csum"}
        moments = {node.op: n for n, node in sums.items() if node.op != "csum"}
        results = self.results if with_results else {}
        f = self.function("statistics" if moments else "sums", ("strip",), TILE)
        f.add(*self.extent.columns, *self.extent.rows_from("tl.program_id(1)"))
        lines, names, done = self.tile(f, {*results, *(v for node in sums.values() for v in variables(node))})
        found: list[ChannelSums] = []
        if moments:
            found.append(Moments(self.extent, self.compute, self.x, self.metas[self.x].dtype, moments))
        if plain:
            writer, environment = _Terms(), self.wide(names)
            texts = {n: Expression(writer, environment, self.norm.type).value(node).text for n, node in plain.items()}
            found.append(PlainSums(self.extent, self.compute, texts))
        for one in found:
            one.begin(f)
        lines += [line for one in found for line in one.tile()]
        f.add(*self.extent.tiles([*lines, *self.stores(f, results, names, done)]))
        f.add(f"index = tl.program_id(1) * {self.extent.channels} + columns")
        for one in found:
            one.end(f)
        return found

    def merge(self, sums: Sequence[ChannelSums]) -> Function:
        """Returns the function that puts the strips together; it writes everything with one value per channel."""
        f = self.function("merge", ("strip", "strips"), MERGE)
        f.add(
            *self.extent.columns,
            "which = tl.arange(0, STRIPS)[:, None]",
            "mask = (which < strips) & inside[None, :]",
            f"index = which * {self.extent.channels} + columns[None, :]",
        )
        for one in sums:
            one.merge(f)
        self.values(f, [*self.statistics, *self.handed], self.terms.sums, "inside")
        return f

    def apply(self, second: bool) -> Function:
        """Returns the function that writes the results with all elements.

        Args:
            second: Strips were summed before. Then programs go backwards: what was read last may still be in the cache.
        """
        f = self.function("kernel", ("strip",), TILE)
        which = "(tl.num_programs(1) - 1 - tl.program_id(1))" if second else "tl.program_id(1)"
        f.add(*self.extent.columns, *self.extent.rows_from(which))
        stored = self.stored() if second and self.head else None
        wanted, mask = (self.results, "") if second else ({**self.results, **self.statistics}, _ONCE)
        lines, names, done = self.tile(f, wanted, self.handed, stored, mask)
        f.add(*self.extent.tiles([*lines, *self.stores(f, self.results, names, {} if second and self.head else done)]))
        return f

    # ------------------------------------------------------------------------------------------------------------ lines
    def values(
        self, f: Function, wanted: Iterable[str], known: Collection[str] = (), mask: str = ""
    ) -> dict[str, Typed]:
        """Adds lines for what has one value per channel and is needed by terms; returns its names.

        Each line stands just before the first that reads it, and what is stored is stored at once: registers are few.

        Args:
            f: The function.
            wanted: Terms.
            known: Terms whose lines are there.
            mask: Where results, and what is handed on, are stored; nowhere if empty.
        """
        names: dict[str, Typed] = {}
        needed = [n for n in self.terms.needs(wanted, known) if n not in self.terms.data]
        for name in needed:
            if name not in self.terms.nodes:
                continue
            if name in known:
                names[name] = Typed(f"{name}_here", self.compute)
            else:
                self.load(f, sorted(variables(self.terms.nodes[name])), names)
                f.add(*self.term(name, names))
            places = [self.memory(name)] if name in self.handed else []
            if name in self.statistics:
                places.append((name, self.statistics[name], self.metas[self.statistics[name]].dtype))
            if mask:
                f.add(*(f.write(*place, names[name].text, mask=mask) for place in dict.fromkeys(places)))
        self.load(f, needed, names)
        return names

    def load(self, f: Function, wanted: Iterable[str], names: dict[str, Typed]) -> None:
        """Adds loads of those inputs with one value per channel among some names that have none yet."""
        for name in wanted:
            if name in self.inputs and name not in names:
                value = self.inputs[name]
                dtype = self.metas[value].dtype
                text = f.read(name, value, dtype)
                if name in self.numbers:
                    text = f"tl.load({f.pointer(name, value, dtype)}).to({self.real})"
                f.add(f"{name}_here = {text}")
                names[name] = Typed(f"{name}_here", self.compute)

    def term(self, name: str, names: dict[str, Typed]) -> list[str]:
        """Returns the line of a term over names, and adds its own; one that only renames another has no line."""
        node = self.terms.nodes[name]
        if node.op == "var":
            names[name] = names[node.value]
            return []
        writer = _Terms()
        environment = self.wide(names) if name in self.terms.data else names
        names[name] = writer.add(f"{name}_here", node, environment, self.norm.type)
        self.used |= writer.used
        return writer.lines

    def wide(self, names: Mapping[str, Typed]) -> dict[str, Typed]:
        """Returns names for use among data: what has one value per channel is broadcast."""
        return {n: t if n in self.terms.data else replace(t, text=f"{t.text}[None, :]") for n, t in names.items()}

    def tile(
        self,
        f: Function,
        wanted: Collection[str],
        known: Collection[str] = (),
        stored: str | None = None,
        mask: str = "",
    ) -> tuple[list[str], dict[str, Typed], dict[str, Typed]]:
        """Adds lines for what terms need of values per channel.

        Args:
            f: The function.
            wanted: Terms.
            known: Terms with one value per channel that lie in memory.
            stored: What the other ops make of all elements, where an earlier launch wrote it.
            mask: Where results with one value per channel are stored; nowhere if empty.

        Returns:
            The lines of a tile, the names of terms and inputs, the names of what the other ops make.
        """
        others = stored is None and (self.head or not self.results.keys().isdisjoint(wanted))
        wanted = {*wanted, *(self.recomputed if others else ())}
        f.add(*(f"{name}_here = {f.read(*self.memory(name))}" for name in known))
        names = self.values(f, wanted, known, mask)
        arriving = {} if stored is None else dict.fromkeys(self.arriving, stored)
        loaded = {n: v for n, v in self.inputs.items() if n not in self.arriving} | arriving
        lines: list[str] = []
        later: list[str] = []
        for name in self.terms.needs(wanted, known):
            if name not in self.terms.data:
                continue
            if name in loaded:
                text = f.read(name, loaded[name], self.metas[loaded[name]].dtype, "offsets", "mask")
                lines.append(f"{name}_here = {text}")
                names[name] = Typed(f"{name}_here", self.compute)
            elif name in self.terms.nodes and variables(self.terms.nodes[name]) <= names.keys():
                lines += self.term(name, names)
            elif name in self.terms.nodes:
                later.append(name)
        done: dict[str, Typed] = {}
        if others:
            shown = {**self.results, **self.recomputed}
            there = {self.x: names["x"]} if "x" in names else {}
            written = self.elements(f, there | {v: self.rounds(n, v) for n, v in shown.items() if n in names})
            lines += written.lines
            done = written.done
            names |= {n: done[value] for n, value in self.arriving.items()}
        for name in later:
            lines += self.term(name, names)
        return lines, names, done

    def rounds(self, name: str, value: str) -> Typed:
        """Returns a term, which memory would hold in its value's type."""
        dtype = self.metas[value].dtype
        return Typed(f"{name}_here", self.compute, dtype if dtype.is_low else None)

    def elements(self, f: Function, known: Mapping[str, Typed]) -> Lines:
        """Returns the other ops, over values that are there already and others, which are loaded."""
        loaded: dict[int, Typed] = {}
        loads: list[str] = []
        for i, operand in enumerate(self.group.inputs):
            if operand.value not in known:
                loads.append(f"a{i} = {f.read(f'x{i}', operand.value, operand.dtype, 'offsets', 'mask')}")
            loaded[i] = known.get(operand.value, Typed(f"a{i}", self.compute))
        written = Lines(self.group, loaded)
        written.lines.extend(loads)
        written.write()
        self.used |= written.used
        return written

    def stored(self) -> str | None:
        """Returns the value in which the function that sums strips writes what the norm's gradient reads, if it does."""
        known = {value: self.rounds(name, value) for name, value in self.recomputed.items()}
        done = self.elements(Function("unused", self.compute, set()), known).done
        (read,) = (done[v].text for v in self.arriving.values())
        return next((v for v in self.made if v in self.needed and done[v].text == read), None)

    def stores(
        self, f: Function, results: Mapping[str, str], names: Mapping[str, Typed], done: Mapping[str, Typed]
    ) -> list[str]:
        """Returns stores of what is needed of the other ops' values and of the norm's."""
        made = [(f"y{i}", v, done[v]) for i, v in enumerate(self.made) if v in done]
        own = [(n, v, names[n]) for n, v in results.items()]
        return [
            f.write(name, value, self.metas[value].dtype, typed.text, "offsets", "mask")
            for name, value, typed in (*made, *own)
            if value in self.needed
        ]

    def memory(self, name: str) -> tuple[str, str, DType]:
        """Returns pointer, value and type of what is handed on: the norm's own result, or memory of the module.

        A result whose type is not that of computation has lost digits.
        """
        value = self.statistics.get(name)
        if value is not None and self.metas[value].dtype is self.compute:
            return name, value, self.compute
        return f"merged_{name}", partial(f"merged_{name}"), self.compute

    # ----------------------------------------------------------------------------------------------------------- module
    def function(self, name: str, integers: tuple[str, ...], constants: tuple[str, ...]) -> Function:
        """Adds a function to the module and returns it."""
        made = Function(name, self.compute, self.used)
        self.functions.append((made, integers, constants))
        return made

    def finish(self, plan: Callable[[Target], Launches]) -> Kernel:
        functions = "\n\n\n".join(f.finished(i, c) for f, i, c in self.functions)
        name = named(module("", helpers(self.used), functions), self.norm.type)
        text = module(header(self.body, name), helpers(self.used), functions)
        main = self.functions[-1]
        read = {
            p.operand: None
            for f, _, _ in self.functions
            for p in f.pointers.values()
            if p.operand not in self.needed and not isinstance(p.operand, KernelLocal)
        }
        written = [v for op in self.body for v in op.writes() if v in self.needed]
        return Kernel(
            name, text, self.norm.type, main[0].parameters(main[1], main[2]),
            tuple(self.buffer(v) for v in read), tuple(self.buffer(v) for v in written), plan,
            standalone_main(self.told, self.metas),
        )  # fmt: skip

    def buffer(self, value: str) -> KernelArgument:
        meta = self.metas[value]
        return KernelArgument(value, meta.dtype, meta.numel)
