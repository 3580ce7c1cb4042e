"""The gradient of an attention: the weights are made again, block by block, from the logarithm that each row has saved.

Each gradient is added up by one program in a fixed order. One launch makes all three where one kernel of both kinds of programs
keeps within the registers: the first programs have a block of keys each, the others one of queries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tstatic.fusion.attention.library import LibraryWay
from tstatic.fusion.attention.loops import over_keys, over_queries, own_rows
from tstatic.fusion.attention.module import LOG2E, AttentionModule
from tstatic.fusion.attention.parts import Attention, Gradient, one
from tstatic.fusion.attention.sums import SUM_ROWS, strips_of
from tstatic.fusion.attention.tiles import APART, KEYS_AND_VALUES, QUERIES, Blocks, apart_first, joined_first, padded
from tstatic.fusion.codegen.kernel import (
    Kernel,
    KernelLocal,
    KernelParameter,
    Launch,
    Launches,
    argument_types,
    operands,
    power_of_two,
)
from tstatic.fusion.codegen.loops import sums
from tstatic.fusion.codegen.loops.lines import LANGUAGE, nested
from tstatic.fusion.codegen.matrix.layouts import Layout, contiguous
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.types import DType, Meta
from tstatic.target import Target

# A function of its own: variables of the others are called as the prelude's function.
SUM_PRODUCTS = """@triton.jit
def sum_products(a, b):
    return tl.sum(wide(a) * wide(b), 1)"""
"""What makes the sums of rows in the loops."""

OWN_BLOCKS: Mapping[str, str] = {"ROWS": "QUERY_ROWS", "COLUMNS": "QUERY_COLUMNS"}
"""What a launch for all gradients calls the constants of the blocks of queries."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A launch: its function, its blocks, and those of queries where the function has other ones for them."""

    name: str
    blocks: Blocks
    queries: Blocks | None = None


@dataclass(frozen=True, slots=True)
class _Way:
    """The launches of one way to make gradients."""

    name: str
    parts: tuple[_Part, ...]


DELTA = KernelLocal("partial:delta")
"""Per row: the sum of the output times its gradient, which the gradient of softmax subtracts."""


def attention_grad_kernel(
    found: Attention,
    gradient: Gradient,
    metas: Mapping[str, Meta],
    needed: Sequence[str],
    lse: str,
    out: str | Layout,
    layouts: Mapping[str, Layout] | None = None,
    body: Sequence[FrozenOp] = (),
    biases: Mapping[str, str] | None = None,
) -> Kernel:
    """Returns the kernel of an attention's gradient.

    Args:
        found: The ops that make the weights again.
        gradient: The ops of the gradient.
        metas: Metadata of all values.
        needed: Gradients that are written.
        lse: What the forward kernel saved of each row.
        out: The attention's result, or where it lies.
        layouts: Where operands and gradients lie, if not in memory of their own.
        body: All ops that it computes, with those that move operands and gradients; without it those above.
        biases: Value that gradients lie in -> the sum over its rows, which is written too (``summed_together`` says of which).

    Raises:
        CodegenUnsupported: If an op between the products is not one per element.
    """
    place = out if isinstance(out, Layout) else contiguous(out, metas[out].shape)
    return _Gradients(found, gradient.mixed, gradient, metas, lse, place, layouts, biases).backward(needed, body)


class _Gradients(AttentionModule):
    """The functions of the gradient."""

    def constants(self) -> tuple[KernelParameter, ...]:
        names = ("MADE", *(["STRIPS"] if self.biases else []))
        return (*super().constants(), *(KernelParameter(name, "constant") for name in names))

    def _delta(self) -> tuple[str, tuple[KernelParameter, ...]]:
        s, t, g = self.sizes, self.size_texts, self.gradient
        assert g is not None
        parameters = (
            self.placed("out", self.out),
            self.placed("given", one(g.mixed.input("Out@GRAD"))),
            self.pointer("delta", DELTA),
            KernelParameter("ROWS", "constant"),
            KernelParameter("WIDTH", "constant"),
        )
        count = self.named("ALL_QUERIES", s.batches * s.rows, "queries of all batches")
        self.used.add("wide")

        def place(name: str) -> str:
            layout = self.places[name]
            if layout.is_plain:
                return f"{name} + rows[:, None]{self.wide_offsets} * {t.width} + inner[None, :]"
            first, step = self.offset(name, f"(rows{self.wide_offsets} // {t.rows})"), self.row_step(name)
            return f"{name} + ({first} + rows{self.wide_offsets} % {t.rows} * {step})[:, None] + inner[None, :]"

        mask = f"(rows < {count})[:, None] & (inner < {t.width})[None, :]"
        body = [
            "rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)",
            "inner = tl.arange(0, WIDTH)",
            f"a = wide(tl.load({place('out')}, mask={mask}, other=0))",
            f"b = wide(tl.load({place('given')}, mask={mask}, other=0))",
            f"tl.store(delta + rows, tl.sum(a * b, 1), mask=rows < {count})",
        ]
        return self.function("row_sums", parameters, body)

    def _weights_again(self, seen: str, turned: bool = False) -> list[str]:
        """Lines that make a block of weights again; ``seen`` is its mask, and empty where all scores count."""
        # Beyond the edges are zeros in the place of what would be loaded. Results there are not stored, so that only sums
        # over them need masks: those over queries, or those over keys.
        masked = [f"p = tl.where({seen}, p, 0.0)"] if seen else []
        each = "[None, :]" if turned else "[:, None]"
        power = f"exp_less(s, {self.factor}, saved{each})" if self.powers else f"tl.exp(s - saved{each} - rest{each})"
        return [*self.scored(turned), f"p = {power}", *masked]

    def _scores_gradient(self, seen: str, turned: bool = False) -> list[str]:
        """Lines that make the gradient of a block of raw scores, ``ds``."""
        own: list[str] = []
        first, axis = ("first_column", 0) if turned else ("start", 1)
        if self.wide_softmax and self.diagonal is not None and seen:
            # Of rows that see nothing behind the first keys: the result was rounded, these weights and gradients are not.
            known = f"({first} == 0) & (rows < COLUMNS - {self.last_seen})"
            own = [f"sums = tl.where({known}, tl.sum(p * d, {axis}), sums)"]
        return [
            f"d = {self.product_text('given_here', 'value', turned)}",
            f"d = {self.call('weights_grad', 'd', turned=turned)}",
            *own,
            self.scores_gradient(first_row=bool(seen), turned=turned),
            f"ds = {self.call('scores_grad', 'raw', 'ds', turned=turned)}",
            *([f"ds = tl.where({seen}, ds, 0.0)"] if seen else []),
        ]

    def _row_loads(self, *, whole: bool = False) -> list[str]:
        """Lines that load what belongs to a block of queries; ``whole``: all of them are there."""
        t, kind = self.size_texts, LANGUAGE[self.compute.name]
        to_powers = f" * tl.full((1,), {LOG2E!r}, tl.float64)" if self.powers else ""
        # Rounding what was saved counts less than rounding results to 16 bits.
        saved = [f"saved = exact.to({kind})"] if self.powers else self.restored()
        return [
            f"query = {self.load('q', 'batch', 'rows', t.rows, 'dims', t.depth, whole=whole)}",
            f"given_here = {self.load('given', 'batch', 'rows', t.rows, 'wide', t.width, whole=whole)}",
            f"exact = tl.load(lse + batch * {t.rows} + rows, mask=rows < {t.rows}, other=0){to_powers}",
            *saved,
            "if MADE:",
            f"    result = {self.load('out', 'batch', 'rows', t.rows, 'wide', t.width, whole=whole)}",
            "    sums = sum_products(result, given_here)",
            "else:",
            f"    sums = tl.load(delta + batch * {t.rows} + rows, mask=rows < {t.rows}, other=0)",
        ]

    def _backward_pointers(self) -> list[KernelParameter]:
        g = self.gradient
        assert g is not None
        assert self.lse is not None
        given = one(g.mixed.input("Out@GRAD"))
        pairs = (("q", self.q), ("k", self.k), ("v", self.v), ("given", given))
        return [
            *(self.placed(n, v) for n, v in pairs), self.placed("out", self.out),
            self.pointer("lse", self.lse), self.pointer("delta", DELTA),
        ]  # fmt: skip

    def _gradient_pointers(self, name: str, gradient: str) -> list[KernelParameter]:
        """Returns the pointers to a gradient and, where its rows are summed, to the partial sums."""
        found = [self.placed(name, gradient)]
        bias = self.biases.get(self.places[name].value)
        return found if bias is None else [*found, self.pointer(f"{name}_sums", sums.partial(self.sum_of(bias)))]

    def _gradient(
        self, name: str, batch: str, at: str, count: str, inner: str, length: str, text: str, value: str,
        own: tuple[str, str],
    ) -> list[str]:  # fmt: skip
        """Returns the lines that write a block of a gradient, and its sums over rows.

        Args:
            name: The pointer.
            batch, at, count, inner, length: As in ``_store``.
            text: The block.
            value: The gradient.
            own: The number of the program's block, and how many there are.
        """
        dtype = self.metas[value].dtype
        bias = self.biases.get(self.places[name].value)
        if bias is None:
            return [self.store(name, batch, at, count, inner, length, text, dtype)]
        strips = strips_of(self.places[name], self.metas[bias].numel)
        assert strips is not None, "summed_together has said so"
        self.used.add("wide")
        # What a sum alone would read: what is stored.
        return [
            f"block = {self.block(name, text, dtype)}",
            f"tl.store({self.place(name, batch, at, inner)}, block, mask={self.inside(at, count, inner, length)})",
            strips.call(
                self.named,
                name,
                batch,
                f"{name}_sums + {inner}",
                "block",
                f"{at} < {count}",
                f"{inner} < {length}",
                *own,
            ),
        ]

    def _joined(self, parts: Mapping[str, tuple[KernelParameter, ...]]) -> tuple[str, tuple[KernelParameter, ...]]:
        """One launch for all gradients: the first programs have blocks of keys, the others blocks of queries."""
        both = [parts["keys_and_values"], parts["queries"]]
        # By name: what both kinds of programs read is one parameter.
        shared = {p.name: p for own in both for p in own if p.kind != "constant"}
        more = tuple(KernelParameter(name, "constant") for name in OWN_BLOCKS.values())
        keys, queries = (
            ", ".join(OWN_BLOCKS.get(p.name, p.name) if i else p.name for p in own) for i, own in enumerate(both)
        )
        body = [
            f"if tl.program_id(0) < ({self.size_texts.columns} + COLUMNS - 1) // COLUMNS:",
            f"    keys_and_values({keys})",
            "else:",
            f"    queries({queries})",
        ]
        return self.function("gradients", (*shared.values(), *self.constants(), *more), body)

    def _grad_keys(self, name: str, dk: str | None, dv: str | None) -> tuple[str, tuple[KernelParameter, ...]]:
        """The gradients of keys and values: a program has a block of keys, and goes over all queries that read them."""
        s, t, kind = self.sizes, self.size_texts, LANGUAGE[self.compute.name]
        pointers = self._backward_pointers()
        for n, v in (("dk", dk), ("dv", dv)):
            if v is not None:
                pointers += self._gradient_pointers(n, v)
        parameters = (*pointers, *self.tail, *self.constants())

        def loop(seen: str) -> list[str]:
            lines = ["rows = start + tl.arange(0, ROWS)", *self._row_loads(whole=not seen)]
            # A row of a block for each key: weights go from registers into the products that add up over queries.
            lines += self._weights_again(seen, turned=True)
            if dv is not None:
                lines += [
                    f"u = {self.call('weights', 'p', turned=True)}",
                    f"for_values = {self.dot}({self.low('u')}, given_here, for_values)",
                ]
            if dk is not None:
                lines += self._scores_gradient(seen, turned=True)
                lines.append(f"for_keys = {self.dot}({self.low('ds')}, query, for_keys)")
            return lines

        # Heads that share keys: one program adds up the gradients of all of them.
        shared = s.batches // s.key_batches
        inside = over_queries(t.rows, self.last_seen, loop)
        if shared > 1:
            heads = self.named("HEADS", shared, "heads that share keys and values")
            inside = nested(f"for head in range(0, {heads}):", [f"batch = {s.batch_of_head(self.named)}", *inside])
        body = [
            f"keys = tl.program_id(1){self.wide_offsets}",
            "first_column = tl.program_id(0) * COLUMNS",
            *self.columns("first_column"),
            *self.head(),
            f"key = {self.load('k', 'keys', 'columns', t.columns, 'dims', t.depth)}",
            f"value = {self.load('v', 'keys', 'columns', t.columns, 'wide', t.width)}",
            f"for_keys = tl.zeros((COLUMNS, DEPTH), {kind})",
            f"for_values = tl.zeros((COLUMNS, WIDTH), {kind})",
            *(["batch = keys"] if shared == 1 else []),
            *inside,
        ]
        own = "tl.program_id(0)", f"({t.columns} + COLUMNS - 1) // COLUMNS"
        if dk is not None:
            body += self._gradient("dk", "keys", "columns", t.columns, "dims", t.depth, "for_keys", dk, own)
        if dv is not None:
            body += self._gradient("dv", "keys", "columns", t.columns, "wide", t.width, "for_values", dv, own)
        return self.function(name, parameters, body)

    def _grad_queries(self, dq: str) -> tuple[str, tuple[KernelParameter, ...]]:
        """The gradient of queries: a program has a block of them, and goes over all keys; the last program has the first."""
        s, t, kind = self.sizes, self.size_texts, LANGUAGE[self.compute.name]
        own = "tl.num_programs(0) - 1 - tl.program_id(0)", f"({t.rows} + ROWS - 1) // ROWS"
        parameters = (*self._backward_pointers(), *self._gradient_pointers("dq", dq), *self.tail, *self.constants())

        def loop(seen: str) -> list[str]:
            return [
                *self.columns("start"),
                f"key = {self.load('k', 'keys', 'columns', t.columns, 'dims', t.depth, whole=not seen)}",
                f"value = {self.load('v', 'keys', 'columns', t.columns, 'wide', t.width, whole=not seen)}",
                *self._weights_again(seen),
                *self._scores_gradient(seen),
                f"for_queries = {self.dot}({self.low('ds')}, key, for_queries)",
            ]

        body = [
            f"batch = tl.program_id(1){self.wide_offsets}",
            f"keys = {s.key_batch(self.named)}",
            *own_rows(last_first=True),
            *self.head(),
            *self._row_loads(),
            f"for_queries = tl.zeros((ROWS, DEPTH), {kind})",
            *over_keys(t.columns, self.last_seen, loop),
            *self._gradient("dq", "batch", "rows", t.rows, "dims", t.depth, "for_queries", dq, own),
        ]
        return self.function("queries", parameters, body)

    def backward(self, needed: Sequence[str], body: Sequence[FrozenOp] = ()) -> Kernel:
        g = self.gradient
        assert g is not None
        dq, dk, dv = (
            e if isinstance(e, str) and (self.layouts[e].value if e in self.layouts else e) in needed else None
            for e in (g.product.output("X@GRAD"), g.product.output("Y@GRAD"), g.mixed.output("Y@GRAD"))
        )
        s = self.sizes
        delta, delta_parameters = self._delta()
        texts, parts = [delta, SUM_PRODUCTS], dict[str, tuple[KernelParameter, ...]]()
        both = dk is not None and dv is not None
        for name, a, b in (("keys_and_values", dk, dv), ("keys", dk, None), ("values", None, dv)):
            if (a, b) != (None, None) and both >= (name == "keys_and_values"):
                text, parts[name] = self._grad_keys(name, a, b)
                texts.append(text)
        if dq is not None:
            text, parts["queries"] = self._grad_queries(dq)
            texts.append(text)
        # Where heads share keys, there are fewer batches of blocks of keys than of queries.
        if both and dq is not None and s.key_batches == s.batches:
            text, parts["gradients"] = self._joined(parts)
            texts.append(text)
        if self.biases:
            texts = [SUM_ROWS, sums.text(len(self.biases)), *texts]
            self.used.add("to_bf16")
            self.all_parameters += [KernelParameter("", "pointer", "", bias) for bias in self.biases.values()]

        library = LibraryWay(self, [name for name, v in (("dq", dq), ("dk", dk), ("dv", dv)) if v is not None])
        texts += library.texts()

        def key_ways(target: Target) -> list[_Way]:
            """Returns the ways to make the gradients of keys and values."""
            single = [n for n in ("keys", "values") if n in parts]
            apart = [
                _Way(f"apart {one.name}", tuple(_Part(n, one) for n in single)) for one in self.blocks(APART, target)
            ]
            together = [
                _Way(f"keys and values {one.name}", (_Part("keys_and_values", one),))
                for one in self.blocks(KEYS_AND_VALUES, target)
                if both
            ]
            return apart + together if alone_first(target) else together + apart

        def alone_first(target: Target) -> bool:
            return apart_first(target, max(s.depth, s.width), self.dtype, self.variant)

        def separate(target: Target) -> list[_Way]:
            """Returns the ways with a launch for keys and one for queries."""
            groups = [key_ways(target)] if {"keys", "values"} & parts.keys() else []
            if dq is not None:
                found = self.blocks(QUERIES, target)
                groups.append([_Way(f"queries {one.name}", (_Part("queries", one),)) for one in found])
            # One group changes at a time: their times add up.
            first = [group[0] for group in groups]
            chosen = [first, *([*first[:i], o, *first[i + 1 :]] for i, g in enumerate(groups) for o in g[1:])]
            return [_Way(" + ".join(o.name for o in one), tuple(p for o in one for p in o.parts)) for one in chosen]

        def joined(target: Target) -> list[_Way]:
            """Returns the ways with one launch for all: both kinds of programs have as many warps."""
            if "gradients" not in parts:
                return []
            keys, queries = self.blocks(KEYS_AND_VALUES, target), self.blocks(QUERIES, target)
            pairs = [(k, next((q for q in queries if q.num_warps == k.num_warps), None)) for k in keys]
            return [
                _Way(f"one launch {k.name}, queries {q.rows}x{q.columns}", (_Part("gradients", k, q),))
                for k, q in pairs
                if q is not None
            ]

        def ways(target: Target) -> list[Launches]:
            one, two = joined(target), separate(target)
            first = bool(one) and joined_first(target, max(s.depth, s.width), self.dtype, self.variant)
            found = one + two if first else two + one
            # What makes the sums of rows in the loops reads the result once more for each block of keys; products of more than
            # 16 bits take so long that a launch is what it costs without.
            made = not self.dtype.is_low
            generated = [
                *(self._planned(way, parts, delta_parameters, target, made=made) for way in found),
                self._planned(found[0], parts, delta_parameters, target, made=not made),
            ]
            return library.among(generated, target)

        body = body or [*self.found.ops, *g.ops]
        return self.finished("attention_grad", texts, next(iter(parts.values())), body, ways)

    def _planned(
        self,
        way: _Way,
        parts: Mapping[str, tuple[KernelParameter, ...]],
        delta_parameters: tuple[KernelParameter, ...],
        target: Target,
        *,
        made: bool,
    ) -> Launches:
        """Returns the launches of a way; ``made``: the sums of rows of the result times its gradient are made in the loops."""
        s = self.sizes
        given = next(p for p in delta_parameters if p.name == "given")
        # Functions take both pointers, and read one of them.
        unread = "delta" if made else "out"
        blocks = {id(p): self._programs(p) for p in way.parts}
        # Gradients in smaller blocks have more strips: all leave as many, the others with zeros.
        strips = max((n for own in blocks.values() for n in own), default=1)
        launches: list[Launch] = []
        partials: dict[KernelLocal, tuple[int, DType]] = {}
        if not made:
            count = s.batches * s.rows
            tall = power_of_two(-(-count // 2), 1, 1024) if target.large_programs else max(1, 4096 // padded(s.width))
            rows = math.ceil(count / tall)
            constants = {"ROWS": tall, "WIDTH": padded(s.width)}
            types = argument_types(delta_parameters)
            launches.append(Launch("row_sums", (rows,), operands(delta_parameters), constants, types=types))
            partials[DELTA] = count, self.compute
        for part in way.parts:
            # A pointer that nothing reads: to what is there in any case.
            own = tuple(
                replace(p, operand=given.operand, type=given.type) if p.name == unread else p for p in parts[part.name]
            )
            more = {"MADE": int(made), **({"STRIPS": strips} if self.biases else {})}
            if part.queries is not None:
                more |= {OWN_BLOCKS["ROWS"]: part.queries.rows, OWN_BLOCKS["COLUMNS"]: part.queries.columns}
            # A launch with programs for queries has a row of them for each batch; keys may be shared by several.
            batches = s.batches if part.name in ("queries", "gradients") else s.key_batches
            launches.append(self.launch(part.name, own, part.blocks, sum(blocks[id(part)]), batches, more))
        if self.biases:
            summed = [self.sum_of(bias) for bias in self.biases.values()]
            kept = self.metas[summed[0].value].numel
            batches = self.metas[next(iter(self.biases))].numel // (kept * s.rows)
            added = sums.finished(launches[-1], summed, batches * strips, kept, target)
            # The first of them is the launch itself, which leaves the partial sums.
            launches += [one for one in added.launches[1:] if isinstance(one, Launch)]
            partials |= added.partials
        name = way.name if made != self.dtype.is_low else f"{way.name}, {'no ' * made}sums of rows before"
        return Launches(tuple(launches), partials, name=name)

    def _programs(self, part: _Part) -> tuple[int, ...]:
        """Returns how many blocks of keys, or of queries, or of both a launch has."""
        keys = math.ceil(self.sizes.columns / part.blocks.columns)
        if part.queries is not None:
            return keys, math.ceil(self.sizes.rows / part.queries.rows)
        return (math.ceil(self.sizes.rows / part.blocks.rows),) if part.name == "queries" else (keys,)
