"""The last part of a generated module: run alone, it makes inputs, launches the kernel, and checks and times it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from tstatic.fusion.codegen.group import Group, Operand
from tstatic.fusion.codegen.kernel import Calls, Launch, Parameter
from tstatic.fusion.codegen.lines import number, safe
from tstatic.ir.expr import FUNCTIONS, Node, parse, substitute
from tstatic.ir.types import DType, float64

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
}  # fmt: skip
_PLAIN = {"isnan": "np.isnan", "isinf": "np.isinf", "erf": "erf"}
"""Functions that are no ufuncs here, and what the script calls for them."""
_LOGIC = ("both", "either", "invert", "differ")
_LONG = 60
_EXACT_INTEGER = 1 << 53

_BEFORE = '''
    # Run alone, this part makes inputs, launches the kernel and compares it with numpy in float64. It needs torch, and a GPU or
    # TRITON_INTERPRET=1.
    import os

    import numpy as np
    import torch

    def rounded(value, dtype):
        """What a 16-bit type holds of a value."""
        return torch.from_numpy(np.array(value, np.float64)).to(dtype).double().numpy()

    def erf(value):
        """The error function, which numpy does not have."""
        return torch.erf(torch.from_numpy(np.array(value, np.float64))).numpy()

    def whole(value, dtype):
        """A value as an integer type holds it, for further computation."""
        return np.asarray(value).astype(dtype).astype(np.int64)
'''

_AFTER = '''
    def made(shape, dtype, rng):
        """Random numbers away from zero."""
        sign = rng.choice((-1.0, 1.0), shape)
        if dtype == torch.bool:
            return torch.from_numpy(sign > 0)
        if dtype.is_floating_point:
            return torch.from_numpy(rng.uniform(0.05, 2.0, shape) * sign).to(dtype)
        least = 1.0 if dtype == torch.uint8 else sign
        return torch.from_numpy(rng.integers(1, 9, shape) * least).to(dtype)

    def plain(tensor):
        """A tensor as numpy computes with it here."""
        tensor = tensor.cpu()
        return (tensor.double() if tensor.dtype.is_floating_point else tensor).numpy()

    def compare(got, wanted, size, dtype):
        """Error per element, relative to its size above 1 (for a sum, that of its terms); places that agree count as 0."""
        if not dtype.is_floating_point:
            return (plain(got) != wanted).astype(np.float64)
        got, wanted = plain(got), np.array(wanted, np.float64)
        kept = plain(torch.from_numpy(wanted).to(dtype))
        same = (got == kept) | (np.isnan(got) & np.isnan(kept))
        error = np.abs(got - wanted) / np.maximum(1.0, np.abs(wanted) if size is None else size)
        return np.where(same, 0.0, np.where(np.isfinite(error), error, np.inf))

    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if not interpreted and not torch.cuda.is_available():
        raise SystemExit("there is no GPU here: set TRITON_INTERPRET=1")
    device = "cpu" if interpreted else "cuda"
    rng = np.random.default_rng(0)
    given = {name: made(shape, dtype, rng) for name, (shape, dtype) in INPUTS.items()}
    memory = {name: tensor.to(device) for name, tensor in given.items()}
    for name, (shape, dtype) in {**OUTPUTS, **PARTIALS}.items():
        # What is not written stays visible.
        memory[name] = torch.full(shape, float("nan") if dtype.is_floating_point else 77, dtype=dtype, device=device)
    with np.errstate(all="ignore"):
        launch(memory, interpreted)
        expected = reference(**{name: plain(tensor) for name, tensor in given.items()})
    failed = False
    for name, (wanted, size) in expected.items():
        shape, dtype = OUTPUTS[name]
        with np.errstate(all="ignore"):
            error = compare(memory[name], np.broadcast_to(wanted, shape), size, dtype)
        allowed = ALLOWED.get(str(dtype), 0.0)
        outside = int((error > allowed).sum())
        # Where the expressions jump, a value that is rounded otherwise may lie on the other side; NaN is never forgiven.
        failed |= outside > (max(1, error.size // 1000) if JUMPS else 0) or bool(np.isinf(error).any())
        print(f"{name}: largest error {error.max():.3g}, allowed {allowed:.3g}, {outside} of {error.size} outside")
    if not interpreted:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        for _ in range(10):
            launch(memory, False)
        start.record()
        for _ in range(100):
            launch(memory, False)
        end.record()
        torch.cuda.synchronize()
        seconds = start.elapsed_time(end) / 100 / 1000
        print(f"time: {seconds * 1e6:.2f} us, {BYTES / seconds / 1e9:.1f} GB/s")
    print("failed" if failed else "passed")
    raise SystemExit(int(failed))
'''


@dataclass(frozen=True, slots=True)
class _Value:
    """A text that stands for a numpy value; ``low``: the 16-bit type that holds it in the program."""

    text: str
    is_bool: bool
    low: DType | None = None


class _NoNameError(Exception):
    """A function that plain numpy text cannot call."""


class _Reference:
    """Writes a group's expressions as numpy; the names are w1, w2, ..."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.lines: list[str] = []
        self.done: dict[str, _Value] = {}
        self.jumps = False
        self.count = 0
        self.environment: dict[str, _Value] = {}
        self.known: dict[Node, _Value] = {}
        self.uses: Counter[Node] = Counter()

    def write(self) -> None:
        """Writes all ops."""
        for index, (op, definition) in enumerate(self.group.ops):
            self.environment, self.known, self.uses = {}, {}, Counter()
            for name in definition.inputs:
                source = self.group.reads[index, name]
                if isinstance(source, str):
                    self.environment[name] = self.done[source]
                else:
                    operand = self.group.inputs[source]
                    self.environment[name] = _Value(operand.name, operand.dtype.name == "bool")
            self.lines.append(f"# {safe(op.type)}")
            for position, node in definition.nodes.items():
                self._use(node)
                entry = op.outputs[position]
                assert isinstance(entry, str)
                dtype = self.group.metas[entry].dtype
                found = self.name(self._stored(self.value(node), dtype))
                self.done[entry] = _Value(found.text, found.is_bool, dtype if dtype.is_low else None)

    def _use(self, node: Node) -> None:
        stack = [node]
        while stack:
            current = stack.pop()
            self.uses[current] += 1
            if self.uses[current] == 1:
                stack.extend(current.args)

    def name(self, value: _Value) -> _Value:
        """Gives a value a name of its own."""
        self.count += 1
        self.lines.append(f"w{self.count} = {value.text}")
        return _Value(f"w{self.count}", value.is_bool)

    def _stored(self, value: _Value, dtype: DType) -> _Value:
        """The value as a type of the program holds it; floats keep all their bits."""
        if dtype.name == "bool":
            return value if value.is_bool else _Value(f"{value.text} != 0", True)
        if dtype.is_float:
            return _number(value)
        self.jumps = True
        return _Value(f"whole({value.text}, np.{dtype.name})", False)

    def value(self, node: Node) -> _Value:
        """The text of an expression."""
        if node.op == "const":
            return _Value(_constant(node.value), isinstance(node.value, bool))
        if node.op == "var":
            return self.environment[node.value]
        found = self.known.get(node)
        if found is None:
            found = self._apply(node)
            if self.uses[node] > 1 or len(found.text) > _LONG:
                found = self.name(found)
            self.known[node] = found
        return found

    def _apply(self, node: Node) -> _Value:
        function = FUNCTIONS[node.op]
        if function.expand and node.op != "where":
            body = substitute(parse(function.expand), dict(zip("abc", node.args, strict=False)))
            self._use(body)
            return self.value(body)
        values = [self.value(a) for a in node.args]
        if function.exact:
            self.jumps = True
            # Kernels compute 16-bit values in float32 and round them where a jump would show it.
            values = [v if v.low is None else _Value(f"rounded({v.text}, torch.{v.low.name})", False) for v in values]
        if node.op == "where":
            condition, yes, no = values
            both = yes.is_bool and no.is_bool
            yes, no = (yes, no) if both else (_number(yes), _number(no))
            return _Value(f"np.where({_truth(condition)}, {yes.text}, {no.text})", both)
        logic = node.op in _LOGIC
        texts = [_truth(v) if logic else _number(v).text for v in values]
        is_bool = function.kind == "bool"
        if node.op == "neg":
            return _Value(f"(-{texts[0]})", False)
        if node.op == "reciprocal":
            return _Value(f"(1 / {texts[0]})", False)
        if node.op in _INFIX and not all(a.op == "const" for a in node.args):
            return _Value(f"({texts[0]} {_INFIX[node.op]} {texts[1]})", is_bool)
        name = _PLAIN.get(node.op)
        if name is None:
            if not isinstance(function.numpy, np.ufunc):
                raise _NoNameError
            name = f"np.{function.numpy.__name__}"
        return _Value(f"{name}({', '.join(texts)})", is_bool)


def _constant(value: bool | int | float) -> str:
    """A literal that numpy takes among 64-bit numbers."""
    if isinstance(value, bool):
        return repr(bool(value))
    if isinstance(value, int) and abs(value) <= _EXACT_INTEGER:
        return repr(int(value)) if value >= 0 else f"({int(value)!r})"
    return number(float(value), float64)


def _number(value: _Value) -> _Value:
    """A truth value as 1 or 0."""
    return _Value(f"({value.text} * 1.0)", False) if value.is_bool else value


def _truth(value: _Value) -> str:
    return value.text if value.is_bool else f"({value.text} != 0)"


def _shape(group: Group, operand: Operand) -> tuple[int, ...]:
    return tuple(n if has else 1 for n, has in zip(group.space, operand.dims, strict=True))


def _results(group: Group, reference: _Reference) -> list[str]:
    """The lines that give back the outputs; a sum with the size of its terms."""
    lines = []
    entries = []
    for operand in group.outputs:
        value = reference.done[operand.value]
        if operand.full:
            entries.append(f'"{operand.name}": ({value.text}, None)')
            continue
        axes = tuple(d for d, has in enumerate(operand.dims) if not has)
        lines.append(f"terms = np.broadcast_to({value.text}, {group.space!r})")
        lines.append(f"{operand.name} = np.sum(terms, axis={axes!r}, keepdims=True)")
        lines.append(f"size_{operand.name} = np.sum(np.abs(terms), axis={axes!r}, keepdims=True)")
        entries.append(f'"{operand.name}": ({operand.name}, size_{operand.name})')
    return [*lines, f"return {{{', '.join(entries)}}}"]


def _call(launch: Launch, parameters: tuple[Parameter, ...], group: Group, options: str) -> str:
    """One launch over the tensors of ``memory``, which are called as the kernel calls them."""
    if launch.function == "kernel":
        names = [p.name for p in parameters if p.kind != "constant"]
    else:
        # The second step of a sum: its partial results come first, then the output.
        output = next(o.name for o in group.summed if o.value == launch.arguments[1])
        names = [f"p_{output}", output, "", ""]
    texts = [
        f'memory["{name}"]' if isinstance(given, str) else repr(given)
        for name, given in zip(names, launch.arguments, strict=True)
    ]
    constants = [f"{n}={int(v)}" for n, v in launch.constants.items()]
    return f"{launch.function}[{launch.grid!r}]({', '.join([*texts, *constants])}{options})"


def _table(name: str, rows: Mapping[str, tuple[object, DType]]) -> str:
    entries = ", ".join(f'"{n}": ({shape!r}, torch.{dtype.name})' for n, (shape, dtype) in rows.items())
    return f"{name} = {{{entries}}}"


def script(group: Group, parameters: tuple[Parameter, ...], plan: Callable[[bool], Calls]) -> str:
    """The text: a block under ``if __name__ == "__main__":`` with inputs, launches, a reference and a check.

    Nothing of it runs when the module is imported, and all its names and numbers come from counters and sizes. A comment
    stands there instead where a function of the group has no form in numpy.

    Args:
        group: What the kernel computes.
        parameters: Of its main function.
        plan: Its launches.
    """
    reference = _Reference(group)
    try:
        reference.write()
    except _NoNameError:
        return "# It does not run alone: one of its functions has no plain form in numpy."
    calls, few = plan(False), plan(True)
    partials: dict[str, tuple[object, DType]] = {}
    for operand in group.summed:
        key = f"partial:{operand.name}"
        count = max(calls.partials[key][0], few.partials[key][0])
        partials[f"p_{operand.name}"] = ((count,), operand.dtype.compute)
    moved = sum(math.prod(_shape(group, o)) * o.dtype.itemsize for o in (*group.inputs, *group.outputs))
    lines = [
        f"def reference({', '.join(o.name for o in group.inputs)}):",
        '    """The same in float64: per output its values, and for a sum the size of its terms."""',
        *(f"    {line}" for line in reference.lines),
        *(f"    {line}" for line in _results(group, reference)),
        "",
        "def launch(memory, few):",
        '    """Launches the kernel; ``few`` takes few large programs: each costs a millisecond in the interpreter."""',
        "    if few:",
        *(f"        {_call(one, parameters, group, '')}" for one in few.launches),
        "    else:",
        *(f"        {_call(one, parameters, group, f', num_warps={one.num_warps}')}" for one in calls.launches),
        "",
        _table("INPUTS", {o.name: (_shape(group, o), o.dtype) for o in group.inputs}),
        _table("OUTPUTS", {o.name: (_shape(group, o), o.dtype) for o in group.outputs}),
        _table("PARTIALS", partials),
        'ALLOWED = {"torch.float64": 1e-09, "torch.float32": 1e-05, "torch.float16": 0.002, "torch.bfloat16": 0.016}',
        f"JUMPS = {reference.jumps!r}",
        f"BYTES = {moved}",
    ]
    body = "\n".join(f"    {line}" if line else "" for line in lines)
    return f'if __name__ == "__main__":{_BEFORE}\n{body}\n{_AFTER.rstrip()}'
