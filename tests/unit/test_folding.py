"""Programs as groups that open: scopes, repeated layers, lines; rows by our own order or Graphviz'."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

import tstatic as paddle
from tstatic import static
from tstatic.viz.folding import MOST, Group, edges_of, fold
from tstatic.viz.graphviz import Graph, rows_by_dot


def layers(count: int, train: bool = False) -> Any:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        h = static.data("x", [None, 4])
        for _ in range(count):
            h = static.nn.layer_norm(paddle.tanh(static.nn.fc(h, 4)) + h)
        if train:
            paddle.optimizer.SGD(0.1).minimize(paddle.mean(h))
    return main.global_block()


def named(root: Group, kind: str) -> list[str]:
    return [g.title for g in root.groups() if g.kind == kind]


def check(root: Group, count: int) -> None:
    """Every op stands once, every item in one row, nothing is too long, and rows follow the links."""
    assert sorted(root.ops()) == list(range(count))
    for group in root.groups():
        assert sorted(i for row in group.rows for i in row) == list(range(len(group.items)))
        assert group.items
        if group.kind not in ("root", "repeat"):
            assert len(group.items) <= MOST
        row = {i: at for at, r in enumerate(group.rows) for i in r}
        if group is not root:
            assert all(row[i] < row[j] for i, j in group.links if i < j)


@pytest.mark.parametrize("count", [1, 2, 30])
@pytest.mark.parametrize("train", [False, True])
def test_repeated_layers_are_found_and_nothing_is_lost(count: int, train: bool) -> None:
    block = layers(count, train)
    root = fold(block, 60)
    check(root, len(block.ops))
    assert [g.title for g in root.groups() if g.kind == "phase"] == ["forward", "backward", "update"][
        : 3 if train else 1
    ]
    if count > 1:
        assert any(t.startswith(f"{count} × mul, elementwise_add, tanh") for t in named(root, "repeat"))
        assert f"{count} of {count}" in named(root, "layer")


def test_links_are_those_of_the_program() -> None:
    block = layers(12, train=True)
    root = fold(block, 60)
    assert sum(len(g.links) for g in root.groups()) <= len(edges_of(block))
    path = {op: g for g in root.groups() for op in g.items if isinstance(op, int)}
    for a, b in edges_of(block):
        if path[a] is path[b]:
            assert (path[a].items.index(a), path[a].items.index(b)) in path[a].links


def test_name_scopes_fold_and_marks_do_not() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        h = static.data("x", [None, 4])
        with static.name_scope("encoder"):
            with static.name_scope("attention"):
                h = paddle.tanh(h) * 2.0
            h = paddle.exp(h)
        with static.no_fuse():
            h = paddle.sin(h)
    root = fold(main.global_block(), 60)
    assert named(root, "scope") == ["encoder", "attention"]
    check(root, 4)


def test_long_lists_are_folded_by_line_and_number() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        h = static.data("x", [None, 4])
        functions = [paddle.tanh, paddle.exp, paddle.sin, paddle.cos, paddle.abs]
        order = [(7 * i * i + 3 * i) % 5 for i in range(200)]
        for k in order:
            h = functions[k](h) if k % 2 else functions[k](paddle.sqrt(h))
    block = main.global_block()
    root = fold(block, 60)
    check(root, len(block.ops))
    assert sum(len(g.items) for g in root.groups() if g.open) <= 60 + 8


@pytest.mark.parametrize("most", [1, 60, 5000])
def test_as_many_boxes_are_open_as_may_be(most: int) -> None:
    block = layers(60, train=True)
    root = fold(block, most)
    seen = sum(len(g.items) - (g is not root) for g in root.groups() if g.open) - 1
    assert seen <= max(most, 12)
    if most == 5000:
        assert all(g.open for g in root.groups())


FAKE = """#!{python}
import re, sys
for number, one in enumerate(sys.stdin.read().split("digraph g")[1:]):
    nodes = list(dict.fromkeys(int(n) for n in re.findall(r"n(\\d+)", one)))
    print("graph 1 5 5")
    for n in nodes:
        print(f"node n{{n}} {{-n}} {{5 - n // 3}} 1.4 0.5 \\"\\" solid box black lightgrey")
    print("stop")
"""


def fake(folder: Path, text: str) -> None:
    path = folder / "dot"
    path.write_text(text, encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IEXEC)


def test_graphviz_orders_rows_where_it_is_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    graphs = [Graph([[0, 1, 2], [3, 4]], [(0, 3), (1, 4)]), Graph([[0], [1]], [(0, 1)])]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert rows_by_dot(graphs) is None, "there is none"
    fake(tmp_path, FAKE.format(python=sys.executable))
    assert rows_by_dot(graphs) == [[[2, 1, 0], [4, 3]], [[1, 0]]]
    block = layers(30, train=True)
    monkeypatch.setattr("tstatic.viz.folding.BY_DOT", len(block.ops))
    below = fold(block, 60)
    monkeypatch.setattr("tstatic.viz.folding.BY_DOT", len(block.ops) - 1)
    above = fold(block, 60)
    assert [g.rows for g in above.groups()] != [g.rows for g in below.groups()]
    for text in ("exit 1", "echo node n0 1", "echo graph; echo stop"):
        fake(tmp_path, f"#!/bin/sh\n{text}\n")
        assert rows_by_dot(graphs) is None, "what it says is not what was asked"
    assert os.environ["PATH"] == str(tmp_path)
