"""``debug_graphviz_path``: three DOT files that can be read back and show what was fused."""

from __future__ import annotations

import html
import re
from pathlib import Path

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.fusion_programs import CASES, build, run
from tstatic import errors, static
from tstatic.ir.frozen import freeze
from tstatic.static.explain import dot

F = paddle.nn.functional

_STRING = r'"((?:[^"\\]|\\.)*)"'
_NODE = re.compile(rf"  (n\d+) \[label={_STRING}(?:, style={_STRING}, fillcolor={_STRING})?\];", re.DOTALL)
_EDGE = re.compile(r"  (n\d+) -> (n\d+)(?: \[style=dashed\])?;")
_OTHER = re.compile(rf"(?:digraph G {{|  node \[shape=box\];|  subgraph cluster_\d+ {{|  label={_STRING};|  }}|}})")


def plain(label: str) -> list[str]:
    """The lines of a label, as graphviz shows them."""
    lines = [""]
    for part in re.findall(r"\\.|[^\\]", label, re.DOTALL):
        if part == "\\n":
            lines.append("")
        else:
            lines[-1] += part[-1]
    return [html.unescape(line) for line in lines]


class Graph:
    """A DOT file: number -> label lines, and edges."""

    def __init__(self, text: str) -> None:
        self.nodes: dict[str, list[str]] = {}
        self.filled: dict[str, str] = {}
        self.edges: list[tuple[str, str]] = []
        assert text.endswith("}\n")
        depth = 0
        for line in text.splitlines():
            node, edge = _NODE.fullmatch(line), _EDGE.fullmatch(line)
            if node:
                assert node[1] not in self.nodes, "numbers are unique"
                self.nodes[node[1]] = plain(node[2])
                self.filled[node[1]] = node[4] or ""
            elif edge:
                self.edges.append((edge[1], edge[2]))
            else:
                assert _OTHER.fullmatch(line), line
                depth += line.endswith("{")
                depth -= line.strip() == "}"
        assert depth == 0
        for a, b in self.edges:
            assert a in self.nodes
            assert b in self.nodes

    def ops(self) -> list[str]:
        return [re.sub(r"\(\d+\)$", "", self.nodes[n][0]) for n, fill in self.filled.items() if fill]

    def values(self) -> dict[str, str]:
        return {
            re.sub(r"\(\d+\)$", "", self.nodes[n][0]): self.nodes[n][1] for n, fill in self.filled.items() if not fill
        }


def graphs(path: Path) -> list[Graph]:
    return [Graph(Path(f"{path}{s}").read_text("utf-8")) for s in dot.SUFFIXES]


def test_three_files_show_the_program_before_and_after(tmp_path: Path) -> None:
    built = build(CASES[8])
    path = tmp_path / "graph"
    run(built, fuse_elewise_add_act_ops=True, debug_graphviz_path=str(path))
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(f"graph{s}" for s in dot.SUFFIXES)
    original, fused, devices = graphs(path)
    assert "/relu" in original.ops()
    assert "/fused_elemwise_add_activation" not in original.ops()
    assert [f"/{op.type}" for op in built.main.global_block().ops] == original.ops()
    assert "/fused_elemwise_add_activation" in fused.ops()
    assert "/fused_elemwise_add_activation_grad" in fused.ops()
    assert "/relu" not in fused.ops()
    assert (fused.nodes, fused.edges) == (devices.nodes, devices.edges)
    assert original.values()["x0"] == "[2, 3, 4, 5]"
    for number, lines in original.nodes.items():
        assert lines[0].endswith(f"({number[1:]})")


def test_edges_are_what_ops_read_and_write(tmp_path: Path) -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()), static.name_scope("outer"), static.name_scope("inner"):
        x = static.data("x", [None, 4], "float32")
        y = F.relu(x)
    text = dot.graph(freeze(main, ["x"], [y.name]), None, {0: "outer/inner/"})
    assert text == (
        "digraph G {\n  node [shape=box];\n"
        '  n0 [label="x(0)\\n[-1, 4]"];\n'
        '  n1 [label="/outer/inner/relu(1)", style="filled", fillcolor="#dceafc"];\n'
        "  n0 -> n1;\n"
        f'  n2 [label="{y.name}(2)\\n[-1, 4]"];\n'
        "  n1 -> n2;\n}\n"
    )
    strategy = static.BuildStrategy()
    strategy.debug_graphviz_path = str(tmp_path / "g")
    static.Executor("cpu").run(
        static.CompiledProgram(main, strategy), feed={"x": np.ones((2, 4), "float32")}, fetch_list=[y]
    )
    original = graphs(tmp_path / "g")[0]
    assert original.ops() == ["/outer/inner/relu"]
    assert original.values() == {"x": "[2, 4]", y.name: "[2, 4]"}


HOSTILE = ['a"b', "a\\", 'a\\"; n0 -> n99; "', "new\nline", "\x00\x1b", "&quot;", "]};{", "é漢", "\\N", 'x"];\n}']


@pytest.mark.parametrize("name", [*HOSTILE, "\ud800"])
def test_hostile_names_stay_text(name: str) -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data(name, [2, 4], "float32")
        y = F.relu(x)
    text = dot.graph(freeze(main, [name], [y.name]))
    text.encode("utf-8")
    found = Graph(text)
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
    assert found.values() == {shown: "[2, 4]", y.name: "[2, 4]"}
    assert found.edges == [("n0", "n1"), ("n1", "n2")]


def test_control_flow_shows_its_bodies(tmp_path: Path) -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("x", [3], "float32")
        s = x + 1.0
        picked = static.nn.cond(paddle.sum(x) > 0, lambda: paddle.exp(s), lambda: paddle.tanh(s))
    strategy = static.BuildStrategy()
    strategy.debug_graphviz_path = str(tmp_path / "g")
    compiled = static.CompiledProgram(main, strategy)
    static.Executor("cpu").run(compiled, feed={"x": np.ones(3, "float32")}, fetch_list=[picked])
    for found in graphs(tmp_path / "g"):
        assert {"/exp", "/tanh"} <= set(found.ops())


def test_a_program_on_several_places_is_drawn_as_its_first_replica(tmp_path: Path) -> None:
    strategy = static.BuildStrategy()
    strategy.debug_graphviz_path = str(tmp_path / "g")
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("x", [None, 4], "float32")
        y = F.relu(x)
    compiled = static.CompiledProgram(main).with_data_parallel(None, strategy, places=["cpu", "cpu"])
    static.Executor("cpu").run(compiled, feed={"x": np.ones((6, 4), "float32")}, fetch_list=[y])
    for found in graphs(tmp_path / "g"):
        assert found.ops() == ["/relu"]
        assert found.values() == {"x": "[3, 4]", y.name: "[3, 4]"}


@pytest.mark.parametrize("where", ["missing/g", "nul\0byte"])
def test_a_path_that_cannot_be_written_is_said(tmp_path: Path, where: str) -> None:
    built = build(CASES[0])
    with pytest.raises(errors.StrategyValueError, match="can not open file") as found:
        run(built, debug_graphviz_path=str(tmp_path / where))
    text = str(found.value)
    assert "_original_graph" in text
    assert "No such file" in text or "null" in text
    assert isinstance(found.value, RuntimeError), "as in Paddle"


def test_without_a_path_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(build(CASES[0]), fuse_elewise_add_act_ops=True)
    assert list(tmp_path.iterdir()) == []
