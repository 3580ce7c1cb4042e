"""Writes a program's graphs as DOT files: before it is rewritten, with its fusions, and per device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tstatic.comm.passes.data_parallel import starts_loss_gradient
from tstatic.errors import ReportError, StrategyValueError
from tstatic.formats.report_files import write_report
from tstatic.ir.frozen import FrozenOp, FrozenProgram, SubBlock, freeze
from tstatic.ir.opdef import EMPTY
from tstatic.ir.program import Program
from tstatic.ir.types import Meta
from tstatic.plan.known_values import infer_program
from tstatic.static.strategy import BuildStrategy

SUFFIXES = ("_original_graph", "_fused_graph", "_multi_devices_graph")
"""The suffixes that Paddle appends to ``debug_graphviz_path``."""

_OP = 'style="filled", fillcolor="#dceafc"'
_FUSED = 'style="filled", fillcolor="#fde8d7"'


def text(name: str) -> str:
    """Escapes a text for a quoted DOT string: quotes, backslashes, entities and unprintable characters."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in name)
    # Backslashes before quotes, whose escapes have some.
    return shown.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"')


class _Writer:
    """Numbers nodes in the order in which the ops list them, and collects the lines."""

    def __init__(self, names: Mapping[str, str], metas: Mapping[str, Meta], scopes: Mapping[int, str]) -> None:
        self.names = names
        self.metas = metas
        self.scopes = scopes
        self.lines: list[str] = []
        self.count = 0

    def node(self, label: str, after: str, style: str) -> str:
        """Adds a node, whose label includes its number."""
        number = self.count
        self.count += 1
        extra = f", {style}" if style else ""
        self.lines.append(f'  n{number} [label="{text(label)}({number}){after}"{extra}];')
        return f"n{number}"

    def value(self, value: str, known: dict[str, str], metas: Mapping[str, Meta], names: Mapping[str, str]) -> str:
        """Returns the node of a value, and adds it if it is new."""
        if value not in known:
            meta = metas.get(value)
            shape = "?" if meta is None else str(list(meta.shape))
            known[value] = self.node(names.get(value, value), f"\\n{shape}", "")
        return known[value]

    def ops(
        self, ops: Sequence[FrozenOp], known: dict[str, str], metas: Mapping[str, Meta], names: Mapping[str, str]
    ) -> None:
        """Adds ops in order, each after the values that it reads."""
        for op in ops:
            # An op that reads a value twice has one edge from it.
            ins = [self.value(v, known, metas, names) for v in dict.fromkeys(op.reads()) if v != EMPTY]
            scope = self.scopes.get(op.position, "").strip("/")
            node = self.node(f"/{scope}/{op.type}" if scope else f"/{op.type}", "", _FUSED if op.body else _OP)
            self.lines.extend(f"  {i} -> {node};" for i in ins)
            for v in dict.fromkeys(op.writes()):
                self.lines.append(f"  {node} -> {self.value(v, known, metas, names)};")
            for sub_block in op.sub_blocks:
                self.sub_block(sub_block, node)

    def sub_block(self, sub_block: SubBlock, owner: str) -> None:
        """Adds the body of a control-flow op in a frame of its own; dashed edges lead to the inputs that its op gives it."""
        # Names of a body may repeat those outside of it: its nodes are known by themselves.
        inner: dict[str, str] = {}
        self.lines.append(f"  subgraph cluster_{self.count} {{")
        self.lines.append(f'  label="block {sub_block.block}";')
        given = {value: name for name, value in sub_block.inputs}
        self.ops(sub_block.ops, inner, sub_block.metas, given)
        self.lines.append("  }")
        self.lines.extend(f"  {owner} -> {inner[v]} [style=dashed];" for v in given if v in inner)


def graph(
    program: FrozenProgram,
    metas: Mapping[str, Meta] | None = None,
    scopes: Mapping[int, str] | None = None,
) -> str:
    """Returns the DOT text of a program.

    Ops are filled boxes labelled ``/op_type(number)``, values boxes labelled ``name(number)`` with their shape below.

    Args:
        program: The program before or after fusions.
        metas: Metadata by value; for other values, the program's own, with -1 for unknown sizes.
        scopes: Position of an op -> the name scope in which it was built, which precedes its type.
    """
    # Sizes of the run in the place of those at build time.
    known = {**program.metas, **(metas or {})}
    writer = _Writer(program.names, known, scopes or {})
    writer.ops(program.ops, {}, known, program.names)
    return "\n".join(["digraph G {", "  node [shape=box];", *writer.lines, "}", ""])


def write_graphs(
    program: Program,
    strategy: BuildStrategy,
    feeds: Sequence[str],
    fetches: Sequence[str],
    fused: FrozenProgram,
    metas: Mapping[str, Meta],
) -> None:
    """Writes the three files of ``debug_graphviz_path``; does nothing if it is empty.

    Args:
        program: The user's program.
        strategy: Gives the path; its other properties determine what was left out of the program.
        feeds, fetches: Names.
        fused: The program after all passes and fusions.
        metas: Metadata of all values of ``fused``, feeds and state among them.

    Raises:
        StrategyValueError: If a file cannot be written.
    """
    path = strategy.debug_graphviz_path
    if not path:
        return
    # By position, which frozen and fused ops keep.
    scopes = {op.position: op.namescope for b in program.blocks for op in b.ops}
    customized = strategy.gradient_scale_strategy is BuildStrategy.GradientScaleStrategy.Customized
    original = freeze(program, feeds, fetches, starts_loss_gradient if customized else None)
    before = graph(original, infer_program(original, metas), scopes)
    after = graph(fused, metas, scopes)
    # On one place there are no copies per device: the third graph equals the second.
    for suffix, found in zip(SUFFIXES, (before, after, after), strict=True):
        try:
            write_report(path + suffix, found, "the graph")
        except ReportError as error:
            raise StrategyValueError(
                f"BuildStrategy.debug_graphviz_path: can not open file {path + suffix!r} for printing the graph",
                expected="a path prefix in a folder that exists and can be written",
                received=f"{path!r}: {error.received}",
                fix="make the folder, or set debug_graphviz_path to another prefix",
            ) from error
