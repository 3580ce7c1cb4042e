"""Reads files of sizes: ops with shapes, and small programs, in TOML or JSON.

An op::

    [[op]]
    op = "layer_norm"
    shapes = { X = [2048, 1024], Scale = [1024], Bias = [1024] }
    attrs = { begin_norm_axis = 1 }
    dtypes = ["float32", "bfloat16"]  # by default float32
    directions = ["fwd"]  # by default all three
    devices = ["cuda"]  # by default all

A program, whose steps name slots, inputs or earlier results, and attributes; its last result is fetched::

    [[program]]
    name = "linear_gelu"
    fusion = "gemm_epilogue"  # optional: the peer tstatic turns this fusion on, and no other
    inputs = { x = [512, 1024], w = [1024, 4096], b = { shape = [4096], parameter = true } }
    steps = ["h = matmul_v2(X=x, Y=w)", "s = elementwise_add(X=h, Y=b)", "y = gelu(X=s)"]
    optimizer = "AdamW"  # optional: a training step; clip = 1.0 bounds the norm of its gradients
"""

from __future__ import annotations

import ast
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tstatic import optimizer
from tstatic.errors import ProgramError, TstaticError, near
from tstatic.fusion import FUSIONS
from tstatic.ir.evaluate import infer_outputs
from tstatic.ir.opdef import OpDef, ValueRange, op_def
from tstatic.ir.types import Meta, dtype_of
from tstatic.regular import read_bytes
from tstatic.tools.benchlib.rows import BOTH, DIRECTIONS, FORWARD, OpSizes, Row, rows_of_op
from tstatic.tools.testing.parts import Input, Step
from tstatic.tools.testing.recipe import Recipe

SHIPPED = Path(__file__).with_name("shapes.toml")
DEVICES = ("cpu", "cuda")
_OP_KEYS = {"op", "shapes", "attrs", "dtypes", "directions", "devices"}
_PROGRAM_KEYS = {"name", "fusion", "inputs", "steps", "dtypes", "directions", "devices", "optimizer", "clip"}
_INPUT_KEYS = {"shape", "dtype", "low", "high", "parameter"}


class Sizes:
    """The entries of a file.

    Args:
        path: The file.

    Raises:
        ProgramError: If it is not such a file; the message has the entry's number.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        found = _read(path)
        unknown = set(found) - {"op", "program"}
        if unknown:
            raise self._wrong(
                f"there is no table '{sorted(unknown)[0]}'", "[[op]] and [[program]]", "", ["op", "program"]
            )
        self.ops = [
            self._entry("op", i, one, _OP_KEYS, ("op", "shapes")) for i, one in enumerate(found.get("op", ()), 1)
        ]
        self.programs = [
            self._entry("program", i, one, _PROGRAM_KEYS, ("name", "inputs", "steps"))
            for i, one in enumerate(found.get("program", ()), 1)
        ]

    def subjects(self) -> list[str]:
        """Returns the op types and names of programs, each once."""
        return list(dict.fromkeys([*(e["op"] for e in self.ops), *(e["name"] for e in self.programs)]))

    def fusions(self) -> set[str]:
        """Returns the fusions that a program is an example of."""
        return {e["fusion"] for e in self.programs if "fusion" in e}

    def rows(self, subject: str, device: str, dtypes: Sequence[str], directions: Sequence[str]) -> Iterator[Row]:
        """Yields the rows of an op or program.

        Args:
            subject: One of :meth:`subjects`.
            device: Entries for other devices are left out.
            dtypes, directions: In the place of those of the entries, unless empty.

        Raises:
            ProgramError: If an entry cannot be built; names it.
        """
        for entry in self.ops + self.programs:
            if subject != entry.get("op", entry.get("name")) or device not in entry.get("devices", DEVICES):
                continue
            try:
                for dtype in dtypes or entry.get("dtypes", ["float32"]):
                    yield from self._rows(entry, dtype, directions)
            except TstaticError as error:
                raise ProgramError(
                    f"'{subject}' of {self.path} cannot be built",
                    received=str(error),
                    fix=f"correct that entry of {self.path} as 'received' says",
                ) from error

    def _rows(self, entry: Mapping[str, Any], dtype: str, directions: Sequence[str]) -> Iterator[Row]:
        stated = entry.get("directions", DIRECTIONS)
        chosen = [d for d in directions or stated if d in stated]
        if "op" in entry:
            definition = op_def(entry["op"])
            shapes = [entry["shapes"].get(slot.name) for slot in definition.inputs]
            for key, known in (("shapes", definition.input_slots), ("attrs", definition.attrs)):
                unknown = sorted(set(entry.get(key, ())) - set(known))
                if unknown:
                    raise self._wrong(
                        f"{key} of '{definition.type}' has '{unknown[0]}'", ", ".join(known), unknown[0], list(known)
                    )  # fmt: skip
            attrs = {n: tuple(v) if isinstance(v, list) else v for n, v in entry.get("attrs", {}).items()}
            yield from rows_of_op(definition, OpSizes(tuple(shapes), attrs), dtype, chosen)
            return
        yield from _program_rows(entry, dtype, chosen)

    def _entry(self, kind: str, number: int, entry: Any, known: set[str], needed: Sequence[str]) -> Mapping[str, Any]:
        where = f"entry {number} of [[{kind}]]"
        for key in entry:
            if key not in known:
                raise self._wrong(f"{where} has the key '{key}'", ", ".join(sorted(known)), key, sorted(known))
        for key in needed:
            if key not in entry:
                raise self._wrong(f"{where} lacks the key '{key}'", ", ".join(needed), ", ".join(entry), [])
        rules = [n for n in dir(optimizer) if isinstance(getattr(optimizer, n), type)] if "optimizer" in entry else []
        fusions = [fusion.name for fusion in FUSIONS]
        checks = (("directions", DIRECTIONS), ("devices", DEVICES), ("fusion", fusions), ("optimizer", rules))
        for key, allowed in checks:
            for value in [entry[key]] if isinstance(entry.get(key), str) else entry.get(key, ()):
                if value not in allowed:
                    raise self._wrong(f"{where}: {key} is '{value}'", ", ".join(sorted(allowed)), value, list(allowed))
        if kind == "op":
            op_def(entry["op"])  # names near ones
        made: Mapping[str, Any] = entry
        return made

    def _wrong(self, what: str, expected: str, received: str, names: Sequence[str]) -> ProgramError:
        return ProgramError(
            f"{self.path}: {what}", expected=expected, received=received or None,
            fix=near(received, names) or "docs/benchmarks.md has the format",
        )  # fmt: skip


def _read(path: Path) -> dict[str, Any]:
    try:
        data = read_bytes(path)
        found = json.loads(data) if path.suffix == ".json" else tomllib.loads(data.decode("utf-8"))
    except FileNotFoundError:
        raise ProgramError(f"there is no file of sizes '{path}'", fix="give a TOML or JSON file") from None
    except (ValueError, OSError) as error:  # both parsers, and bytes that are not text
        raise ProgramError(
            f"'{path}' cannot be read as sizes: {error}", fix="docs/benchmarks.md has the format"
        ) from error
    if not isinstance(found, dict) or not all(
        isinstance(rows, list) and all(isinstance(one, dict) for one in rows) for rows in found.values()
    ):
        raise ProgramError(
            f"'{path}' holds something else than sizes",
            expected="tables [[op]] and [[program]]",
            fix="see docs/benchmarks.md",
        )
    return found


# -------------------------------------------------------------------------------------------------------------- programs
def _program_rows(entry: Mapping[str, Any], dtype: str, directions: Sequence[str]) -> Iterator[Row]:
    inputs = [
        _input(n, one, dtype, i, bool(entry.get("optimizer"))) for i, (n, one) in enumerate(entry["inputs"].items())
    ]
    metas: dict[str, Meta] = {one.name: Meta(one.shape, dtype_of(one.dtype)) for one in inputs}
    steps: list[Step] = []
    for text in entry["steps"]:
        steps.append(_step(text, len(steps), metas))
    last = steps[-1]
    shown = [slot.name for slot in op_def(last.type).outputs if not slot.intermediate]
    results = tuple(n for slot, names in last.outputs for n in names if slot in shown)
    fusion = next((f for f in FUSIONS if f.name == entry.get("fusion")), None)
    label = ", ".join(f"{one.name} {list(one.shape)}" for one in inputs)
    trained = entry.get("optimizer", "")
    recipe = Recipe(tuple(inputs), tuple(steps), results, optimizer=trained, clip=float(entry.get("clip", 0.0)))
    wanted = tuple(one.name for one in inputs if dtype_of(one.dtype).is_float)
    for direction in directions:
        if trained and direction != BOTH:
            continue
        gradients = () if trained or direction == FORWARD else wanted
        yield Row(
            entry["name"], label, dtype, direction,
            Recipe(recipe.inputs, recipe.steps, recipe.fetches, gradients, trained, clip=recipe.clip),
            fusion=fusion.name if fusion else "", switch=fusion.switch if fusion else "",
        )  # fmt: skip


def _input(name: str, given: Any, dtype: str, number: int, trained: bool) -> Input:
    stated = given if isinstance(given, dict) else {"shape": given}
    unknown = sorted(set(stated) - _INPUT_KEYS)
    if unknown or "shape" not in stated:
        raise ProgramError(
            f"input '{name}' " + (f"has the key '{unknown[0]}'" if unknown else "has no shape"),
            expected=", ".join(sorted(_INPUT_KEYS)),
            received=", ".join(stated),
        )
    kind = stated.get("dtype", dtype)
    values = ValueRange(stated.get("low", -1.0 if dtype_of(kind).is_float else 0), stated.get("high", 1.0), dtype=kind)
    parameter = bool(stated.get("parameter", False))
    if parameter and not trained:
        parameter = False  # without an optimizer a parameter is an input like the others
    return Input(name, tuple(stated["shape"]), "float32" if parameter else kind, values, number + 1, parameter)


def _step(text: str, number: int, metas: dict[str, Meta]) -> Step:
    """Reads ``y = gelu(X=x, approximate=True)``; adds the metadata of its results.

    Raises:
        ProgramError: If it is something else.
    """

    def wrong(why: str, names: Sequence[str] = ()) -> ProgramError:
        return ProgramError(
            f"step {text!r}: {why}", expected='"result = op_type(Slot=name, Slots=[name, name], attribute=value)"',
            received=repr(text), fix=near(why.split("'")[1] if "'" in why else "", names),
        )  # fmt: skip

    try:
        (line,) = ast.parse(text).body
    except (SyntaxError, ValueError):
        raise wrong("it cannot be read") from None
    if not (
        isinstance(line, ast.Assign) and isinstance(line.value, ast.Call) and isinstance(line.value.func, ast.Name)
    ):
        raise wrong("it is not a call whose results have names")
    if line.value.args:
        raise wrong("inputs need the names of their slots")
    targets = line.targets[0].elts if isinstance(line.targets[0], ast.Tuple) else line.targets
    names = [one.id for one in targets if isinstance(one, ast.Name)]
    definition = op_def(line.value.func.id)
    ins: dict[str, tuple[str, ...]] = {}
    attrs: dict[str, Any] = {}
    for keyword in line.value.keywords:
        if keyword.arg is None:
            raise wrong("inputs and attributes need names")
        slot = definition.input_slots.get(keyword.arg)
        if slot is None:
            if keyword.arg not in definition.attrs:
                raise wrong(f"'{keyword.arg}' is neither a slot nor an attribute of '{definition.type}'",
                            [*definition.input_slots, *definition.attrs])  # fmt: skip
            try:
                value = ast.literal_eval(keyword.value)
            except ValueError:
                raise wrong(f"the value of '{keyword.arg}' is not a number, a text or a list of them") from None
            attrs[keyword.arg] = tuple(value) if isinstance(value, list) else value
            continue
        nodes = keyword.value.elts if isinstance(keyword.value, ast.List | ast.Tuple) else [keyword.value]
        read = [node.id if isinstance(node, ast.Name) else "" for node in nodes]
        for one in read:
            if one not in metas:
                raise wrong(f"'{one}' is neither an input nor an earlier result", list(metas))
        ins[slot.name] = tuple(read)
    return _typed(definition, ins, attrs, names, number, metas, wrong)


def _typed(
    definition: OpDef, ins: Mapping[str, tuple[str, ...]], attrs: Mapping[str, Any], names: Sequence[str], number: int,
    metas: dict[str, Meta], wrong: Any,
) -> Step:  # fmt: skip
    """Returns the step, with names for results that have none."""
    given = [
        None if s.name not in ins else [metas[n] for n in ins[s.name]] if s.many else metas[ins[s.name][0]]
        for s in definition.inputs
    ]
    made = infer_outputs(definition, given, definition.complete(attrs))
    visible = [slot.name for slot in definition.outputs if not slot.intermediate]
    if len(names) > len(visible):
        raise wrong(f"'{definition.type}' has {len(visible)} results")
    chosen = dict(zip(visible, names, strict=False))
    outs: dict[str, tuple[str, ...]] = {}
    for slot, meta in zip(definition.outputs, made, strict=True):
        if meta is None:
            continue
        every = list(meta) if isinstance(meta, list | tuple) else [meta]
        base = chosen.get(slot.name, f"{slot.name}.{number}")
        outs[slot.name] = tuple(base if len(every) == 1 else f"{base}.{i}" for i in range(len(every)))
        metas.update(zip(outs[slot.name], every, strict=True))
    return Step.of(definition.type, ins, outs, attrs)
