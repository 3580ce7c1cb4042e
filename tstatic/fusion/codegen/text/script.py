"""The last part of a generated module: run alone, it makes inputs, launches the kernel, and checks and times it."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from tstatic.fusion.codegen.kernel import (
    RNG,
    STOPPED,
    Kernel,
    KernelArgument,
    Launch,
    Launches,
    LibraryProduct,
    Matrices,
    Table,
)
from tstatic.fusion.codegen.loops.lines import nested
from tstatic.fusion.codegen.text.reference import RUN, NoNameError, Reference, Rule
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.opdef import OPS, OpDef, ValueRange
from tstatic.ir.types import DType, Meta, Shape, float64
from tstatic.target import DEFAULT_TARGET, TINY

_BEFORE = '''
# Run alone, this part makes inputs, launches the functions and compares the results with numpy in float64. It needs torch, and a
# GPU or TRITON_INTERPRET=1.
import os
import sys
from types import SimpleNamespace

# Whatever the functions are called, what follows may have variables of these names.
kernels = SimpleNamespace(**globals())
CHIPS = [name for name in sys.argv[1:] if not name.startswith("-")]
USAGE = (
    "usage: python FILE (on a machine with a GPU), or TRITON_INTERPRET=1 python FILE [interpreter] [sm_80] [sm_90] [sm_100]",
    "Makes inputs, launches the functions and compares the results with numpy in float64. The exit code is 0 if all agree.",
    "The interpreter runs what chips launch, too, and torch makes the products of their library: each row of functions once,",
    "or, with names, all that is launched there.",
)
if {"-h", "--help"} & set(sys.argv[1:]):
    print(*USAGE, sep=chr(10))
    raise SystemExit

import numpy as np
import torch

interpreted = os.environ.get("TRITON_INTERPRET") == "1"
if not interpreted and not torch.cuda.is_available():
    raise SystemExit("there is no GPU here: set TRITON_INTERPRET=1")
device = "cpu" if interpreted else "cuda"

def rounded(value, dtype):
    """What a 16-bit type holds of a value."""
    return torch.from_numpy(np.array(value, np.float64)).to(dtype).double().numpy()

def erf(value):
    """The error function, which numpy does not have."""
    return torch.erf(torch.from_numpy(np.array(value, np.float64))).numpy()

def whole(value, dtype):
    """A value as an integer type holds it, for further computation."""
    return np.asarray(value).astype(dtype).astype(np.int64)

def blank(shape, dtype):
    """Memory in which what is not written stays visible; it reaches to a multiple of 16 elements."""
    count = int(np.prod(shape))
    fill = float("nan") if dtype.is_floating_point else 77
    return torch.full((-(-count // 16) * 16,), fill, dtype=dtype, device=device)[:count].view(shape)

ROUNDING = []

def near(value, step):
    """A value on the way; while that is to be seen, as far off as rounding may make it."""
    return value if not ROUNDING else value * (1 + step * ROUNDING[0].choice((-1.0, 1.0), np.shape(value)))

def table(entries):
    """64-bit numbers; of tensors, where they lie."""
    numbers = [e.data_ptr() if torch.is_tensor(e) else e for e in entries]
    return torch.tensor(numbers, dtype=torch.int64, device=device)
'''

_AFTER = '''
def made(rng, signs, shape, dtype, low=None, high=None):
    """Random numbers between bounds; without bounds of some signs, and away from zero."""
    sign = rng.choice(signs, shape)
    if dtype == torch.bool:
        return torch.from_numpy(np.asarray(sign > 0))
    if low is not None and dtype.is_floating_point:
        return torch.from_numpy(np.asarray(rng.uniform(low, high, shape))).to(dtype)
    if low is not None:
        return torch.from_numpy(np.asarray(rng.integers(int(low), int(high), shape))).to(dtype)
    if dtype.is_floating_point:
        return torch.from_numpy(np.asarray(rng.uniform(0.05, 2.0, shape) * sign)).to(dtype)
    least = 1.0 if dtype == torch.uint8 else sign
    return torch.from_numpy(np.asarray(rng.integers(1, 9, shape) * least)).to(dtype)

def plain(tensor):
    """A tensor as numpy computes with it here."""
    tensor = tensor.cpu()
    return (tensor.double() if tensor.dtype.is_floating_point else tensor).numpy()

def compare(got, wanted, dtype):
    """Error per element, 0 where a place holds what its type holds of the wanted value."""
    if not dtype.is_floating_point:
        return (plain(got) != wanted).astype(np.float64)
    got, wanted = plain(got), np.array(wanted, np.float64)
    kept = plain(torch.from_numpy(wanted).to(dtype))
    same = (got == kept) | (np.isnan(got) & np.isnan(kept))
    error = np.abs(got - wanted)
    return np.where(same, 0.0, np.where(np.isfinite(error), error, np.inf))

def moves(values, results):
    """How far the results move when inputs, and what lies between products, move by some units in the last place of their types."""
    found = {name: np.zeros(np.shape(value)) for name, value in results.items()}
    for _ in range(4):
        nearby = {
            name: value * (1 + STEP * rng.choice((-1.0, 1.0), value.shape)) if value.dtype.kind == "f" else value
            for name, value in values.items()
        }
        ROUNDING.append(rng)
        moved = reference(**nearby)
        ROUNDING.clear()
        for name, value in moved.items():
            difference = np.abs(np.asarray(value, np.float64) - np.asarray(results[name], np.float64))
            found[name] = np.fmax(found[name], np.where(np.isfinite(difference), difference, 0.0))
    return found

# Of both signs; all positive if that gives NaN, as the root of a negative variance does.
for signs in ((-1.0, 1.0), (1.0,)):
    rng = np.random.default_rng(0)
    given = {name: made(rng, signs, *entry) for name, entry in INPUTS.items()}
    with np.errstate(all="ignore"):
        for name, value in fitting(**{name: plain(tensor) for name, tensor in given.items()}).items():
            given[name] = torch.from_numpy(value).to(given[name].dtype)
        values = {name: plain(tensor) for name, tensor in given.items()}
        expected = reference(**values)
    empty = [name for name, value in expected.items() if np.size(value) and not np.isfinite(value).any()]
    if not empty:
        break

def ready(share):
    """Memory with the inputs, and nothing else yet."""
    memory = {name: blank(tensor.shape, tensor.dtype).copy_(tensor) for name, tensor in given.items()}
    memory.update({name: blank(*entry) for name, entry in OUTPUTS.items()})
    share(memory)
    return memory

if interpreted:
    unknown = set(CHIPS) - set(WAYS)
    if unknown:
        raise SystemExit(f"{min(unknown)} is none of {', '.join(WAYS)}; {USAGE[0]}")
    chosen = [way for name in CHIPS for way in WAYS[name]] if CHIPS else SHORT
else:
    chosen = WAYS.get("sm_{}{}".format(*torch.cuda.get_device_capability()), WAYS[LIKE])
with np.errstate(all="ignore"):
    allowed = None
    worst, failed = (0.0, "none"), [f"{name}: nothing of it is a number, so that nothing can be compared" for name in empty]
    for share, launch in dict.fromkeys(chosen):
        memory = ready(share)
        launch(memory)
        for name, (shape, dtype) in OUTPUTS.items():
            wanted = np.asarray(expected[name])
            error = compare(memory[name], wanted, dtype)
            least = ALLOWED.get(str(dtype), 0.0) * np.maximum(1.0, np.abs(np.nan_to_num(wanted, posinf=0, neginf=0)))
            outside = error > least
            if outside.any() and dtype.is_floating_point:
                allowed = moves(values, expected) if allowed is None else allowed
                outside = error > least + 8 * allowed[name]
            count = int(outside.sum())
            # Where the expressions jump, a value that is rounded otherwise may lie on the other side; NaN is never forgiven.
            if count > (max(1, error.size // 1000) if JUMPS else 0) or np.isinf(error).any():
                off = f"{count} of {error.size} elements are off, by up to {error.max():.3g}"
                failed.append(f"{name}: {off} ({launch.__doc__})")
            worst = max(worst, (float(error.max(initial=0.0)), name))
for line in failed[:8]:
    print(line)
said = f"{'failed' if failed else 'passed'}: {len(OUTPUTS)} outputs, largest error {worst[0]:.3g} in {worst[1]}"
if not interpreted:
    share, launch = chosen[0]
    memory = ready(share)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for _ in range(10):
        launch(memory)
    start.record()
    for _ in range(100):
        launch(memory)
    end.record()
    torch.cuda.synchronize()
    seconds = start.elapsed_time(end) / 100 / 1000
    said += f"; {seconds * 1e6:.2f} us, {BYTES / seconds / 1e9:.1f} GB/s"
print(said)
raise SystemExit(int(bool(failed)))
'''

# Relative beyond 1, absolute below: two units in the last place of
# the 16-bit types, 84 of float32, where sums have another order.
_ALLOWED = {"torch.float64": 1e-09, "torch.float32": 1e-05, "torch.float16": 0.002, "torch.bfloat16": 0.016}


@dataclass(frozen=True, slots=True)
class Parts:
    """What a module's last part says of its kernel; all texts are made of counters, sizes and checked numbers.

    Attributes:
        inputs, outputs: Entries of the tables: a name, a shape and a type each, and for an input bounds.
        keys: Value -> its name in memory, for values that launches or tables name.
        signature: Parameters of the reference.
        reference: Lines of its body.
        helpers: Functions that it calls, or that make tables.
        sizes: Numbers of elements that texts of tables are made of.
        jumps: Whether a value that is rounded otherwise can give another result.
        narrow: Whether an output of float64 holds what the kernel computes in float32.
        fitting: Lines of a function that makes inputs which others decide.
    """

    inputs: Sequence[str]
    outputs: Sequence[str]
    keys: Mapping[str, str]
    signature: str
    reference: Sequence[str]
    helpers: Sequence[str] = ()
    sizes: Sequence[int] = ()
    jumps: bool = False
    narrow: bool = False
    fitting: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Fitting:
    """Inputs that cannot be chosen, as they hold what other ops make of the others: an attention's result and sums of powers.

    Attributes:
        value: The input that holds ``result``.
        ops: What makes ``result`` and ``scores``.
        result: The value that it holds,
        strides: at these distances in its memory.
        saved: The input that holds the logarithm of the sum of powers of each row of
        scores: this value.
        metas: Metadata of all values, ``result`` included.
    """

    value: str
    ops: Sequence[FrozenOp]
    result: str
    strides: Sequence[int]
    saved: str
    scores: str
    metas: Mapping[str, Meta]


def standalone_main(
    body: Sequence[FrozenOp], metas: Mapping[str, Meta], rule: Rule | None = None, fitting: Fitting | None = None
) -> Callable[[Kernel], str]:
    """Returns the last part of a module whose values have names and references one by one.

    Args:
        body: The ops that the kernel computes.
        metas: Metadata of all their values.
        rule: Writes ops in numpy that state no expressions.
        fitting: Inputs that are made of the others.
    """

    def text(kernel: Kernel) -> str:
        keys = _keys(kernel)
        written = {b.value for one in (kernel, *kernel.parts) for b in one.outputs}
        unrounded = {v for one in (kernel, *kernel.parts) for v in one.unrounded}
        reference = Reference(metas, keys, rule, written, unrounded)
        try:
            reference.write(body)
        # The kernel itself is good: only its check cannot be written in numpy.
        except NoNameError as error:
            return f"# It does not run alone: {error} has no plain form in numpy."
        results = ", ".join(f'"{keys[b.value]}": {reference.of(b.value).text}' for b in _once(kernel.outputs))
        read = [b.value for b in _once(kernel.inputs)]
        return script(
            kernel,
            Parts(
                [entry(keys[v], metas[v].shape, metas[v].dtype, bounds(body, v, metas)) for v in read],
                [entry(keys[b.value], metas[b.value].shape, b.dtype) for b in _once(kernel.outputs)],
                keys,
                ", ".join(keys[v] for v in read),
                [*_inside(reference), *reference.lines, f"return {{{results}}}"],
                jumps=reference.jumps,
                narrow=any(_widens(op, metas) for op in body if not written.isdisjoint(op.writes())),
                fitting=_fitted(fitting, keys, rule, unrounded)
                if fitting is not None and fitting.value in keys
                else (),
            ),
        )

    return text


def _widens(op: FrozenOp, metas: Mapping[str, Meta]) -> bool:
    """Returns whether an op makes float64 of a narrower float type."""
    made, given = ({metas[v].dtype for v in values} for values in (op.writes(), op.reads()))
    return op.type == "cast" and made == {float64} and all(t.is_float and t is not float64 for t in given)


def _fitted(fitting: Fitting, keys: Mapping[str, str], rule: Rule | None, unrounded: Collection[str]) -> list[str]:
    """Returns the lines that make inputs of the others."""
    given = {v: k for v, k in keys.items() if v not in (fitting.value, fitting.saved)}
    reference = Reference(fitting.metas, given, rule, (), unrounded)
    reference.write(fitting.ops)
    shape = fitting.metas[fitting.value].shape
    strides = tuple(8 * step for step in fitting.strides)
    result, scores = (reference.of(value).text for value in (fitting.result, fitting.scores))
    return [
        *_inside(reference),
        *reference.lines,
        f"held = np.zeros({shape!r})",
        f"made = {result}",
        f"np.lib.stride_tricks.as_strided(held, made.shape, {strides!r})[...] = made",
        f"sums = np.logaddexp.reduce({scores}, axis=-1, keepdims=True)",
        f'return {{"{keys[fitting.value]}": held, "{keys[fitting.saved]}": sums}}',
    ]


def _inside(reference: Reference) -> list[str]:
    """Returns the functions that lines call, for the body of one: the user's may be called as others of the script are."""
    return [line for helper in reference.helpers.values() for line in (*helper.splitlines(), "")]


def _once(buffers: Sequence[KernelArgument]) -> list[KernelArgument]:
    """Removes repetitions: a value that is read at two places has one memory."""
    return list({b.value: b for b in buffers}.values())


def _keys(kernel: Kernel) -> dict[str, str]:
    # Counters, not the user's names, which must not become part of a text that is run.
    keys = {b.value: f"x{i}" for i, b in enumerate(_once(kernel.inputs))}
    return keys | {b.value: f"y{i}" for i, b in enumerate(_once(kernel.outputs))}


def entry(name: str, shape: Shape, dtype: DType, limits: tuple[float, float] | None = None) -> str:
    """Returns a row of a table of buffers."""
    more = "" if limits is None else f", {limits[0]!r}, {limits[1]!r}"
    return f'"{name}": ({shape!r}, torch.{dtype.name}{more}),'


def bounds(body: Sequence[FrozenOp], value: str, metas: Mapping[str, Meta]) -> tuple[float, float] | None:
    """Returns where the elements of an input may lie, as the definition of the first op that reads it says; ``None``: anywhere."""
    for op in body:
        for slot, held in zip(op.definition.inputs, op.inputs, strict=True):
            if value in ((held,) if isinstance(held, str) else held or ()):
                return _bounds(op, _values(op.definition, slot.name), metas)
    return None


def _values(definition: OpDef, slot: str) -> ValueRange | None:
    """Returns an op's domain; a backward op has that of its forward op."""
    domain = definition.domain or (OPS[definition.of].domain if definition.of in OPS else None)
    return None if domain is None else domain.values.get(slot)


def _bounds(op: FrozenOp, values: ValueRange | None, metas: Mapping[str, Meta]) -> tuple[float, float] | None:
    if values is None:
        return None
    # Class numbers and indices have no fixed bound: theirs is a size of another input.
    if not isinstance(values.high, str):
        return float(values.low), float(values.high)
    # The size of an axis of another input.
    slot, _, axis = values.high.partition(".")
    held = op.input(slot) if slot in {s.name for s in op.definition.inputs} else None
    return (float(values.low), float(metas[held].shape[int(axis)])) if isinstance(held, str) else None


# ------------------------------------------------------------------------------------------------------------- the text
def script(kernel: Kernel, parts: Parts) -> str:
    """Returns the text: a block under ``if __name__ == "__main__":`` with inputs, launches, a reference and a check.

    Nothing of it runs when the module is imported.
    """
    low = any(b.dtype.is_float and b.dtype.name != "float64" for b in (*kernel.inputs, *kernel.outputs))
    draws = any(calls.draws for _, ways in kernel.everywhere for calls in ways)
    lines = [
        *([f"SIZES = {wrapped(parts.sizes)}"] if parts.sizes else []),
        *(["# Seed, and run count and place, of the random numbers.", f"RNG = {RUN!r}"] if draws else []),
        *(line for helper in parts.helpers for line in (*helper.splitlines(), "")),
        *nested(f"def reference({parts.signature}):", ['"""The same in float64."""', *parts.reference]),
        "",
        *nested(
            f"def fitting({parts.signature}):",
            ['"""Inputs that hold what follows from the others."""', *(parts.fitting or ["return {}"])],
        ),
        "",
        *_ways(kernel, parts),
        *_table("INPUTS", parts.inputs),
        *_table("OUTPUTS", parts.outputs),
        "ALLOWED = "
        + json.dumps({**_ALLOWED, "torch.float64": _ALLOWED["torch.float32" if parts.narrow else "torch.float64"]}),
        # Some eight units in the last place of float32 (1.2e-7), 45 of float64 (2.2e-16); one of TF32.
        f"STEP = {1e-3 if 'dot_tf32(' in kernel.code else 1e-6 if low else 1e-14}",
        f"JUMPS = {parts.jumps!r}",
        f"BYTES = {sum(kernel.moved)}",
    ]
    inside = "\n".join((_BEFORE, *lines, _AFTER.rstrip()))
    return 'if __name__ == "__main__":' + textwrap.indent(inside, "    ")


def wrapped(numbers: Sequence[int]) -> str:
    """Returns a list of numbers as text, on as many lines as it takes."""
    text = textwrap.fill(", ".join(map(str, numbers)), 100, initial_indent="    ", subsequent_indent="    ")
    return f"[\n{text}\n]" if len(text) > 100 else f"[{text.strip()}]"


def _table(name: str, rows: Sequence[str]) -> list[str]:
    return [*nested(f"{name} = {{", rows), "}"] if rows else [f"{name} = {{}}"]


def _ways(kernel: Kernel, parts: Parts) -> list[str]:
    """Returns the functions that make what launches share, and that launch, for each way; and which of them run where."""
    texts: dict[str, str] = {}
    lines: list[str] = []
    table: dict[str, list[str]] = {}
    once: dict[tuple[str, ...], str] = {}
    for architecture, ways in kernel.everywhere:
        row = table.setdefault(architecture, [])
        for calls in ways:
            text = _launching(calls, parts)
            if text not in texts:
                texts[text] = f"share_{len(texts)}, launch_{len(texts)}"
                lines += [*text.replace("NUMBER", str(len(texts) - 1)).splitlines(), ""]
            row.append(f"({texts[text]})")
    # The chip that is planned for by default, before others.
    for architecture, ways in sorted(kernel.everywhere, key=lambda one: _ORDER.get(one[0], 2)):
        for name, calls in zip(table[architecture], ways, strict=True):
            once.setdefault(calls.functions, name)
    rows = [f'"{name}": [{", ".join(row)}],' for name, row in table.items()]
    return [
        *lines,
        *nested("WAYS = {", rows),
        "}",
        "# Each row of functions once: where it is launched in another way, it is with other sizes of blocks and grids.",
        f"SHORT = [{', '.join(once.values())}]",
        f'LIKE = "{DEFAULT_TARGET.architecture}"',
    ]


# The interpreter's small chip, then the one that is planned for by default; others behind, in their order.
_ORDER = {TINY.architecture: 0, DEFAULT_TARGET.architecture: 1}


def _launching(calls: Launches, parts: Parts) -> str:
    """Returns the functions that make what launches share, and that launch, named NUMBER."""
    keys = dict(parts.keys)
    keys.update((name, f"p{i}") for i, name in enumerate(calls.partials))
    keys.update((name, f"t{i}") for i, name in enumerate(calls.tables))
    made = [
        f'memory["{keys[n]}"] = blank(({count},), torch.{dtype.name})' for n, (count, dtype) in calls.partials.items()
    ]
    made += [f'memory["{keys[name]}"] = table({_content(one, keys)})' for name, one in calls.tables.items()]
    if calls.draws:
        keys[RNG] = "rng"
        made.append('memory["rng"] = table(RNG)')
    if calls.asks:
        keys[STOPPED] = "stopped"
        made.append('memory["stopped"] = table([0]).bool()')
    told = ", ".join(calls.functions)
    lines = [
        *nested("def share_NUMBER(memory):", ['"""Makes the buffers that the launches share."""', *made]),
        "",
        *nested("def launch_NUMBER(memory):", [f'"""{told}"""', *(_call(one, keys) for one in calls.launches)]),
    ]
    return "\n".join(lines)


def _content(one: Table, keys: Mapping[str, str]) -> str:
    if one.text:
        return one.text
    if one.numbers is not None:
        return repr([int(n) for n in one.numbers])
    named = [f'memory["{keys[v]}"]' for v in one.values]
    return f"[{', '.join(named)}]"


def _matrices(memory: str, at: Matrices) -> str:
    if at.lie_together:
        return f"{memory}.view({at.shape})"
    return f"{memory}.as_strided({at.shape}, {at.strides}, {at.offset})"


def _call(launch: Launch | LibraryProduct, keys: Mapping[str, str]) -> str:
    if isinstance(launch, LibraryProduct):
        a, b, out = (_matrices(f'memory["{keys[v]}"]', at) for v, at in launch.matrices)
        a, b = f"{a}{'.mT' if launch.trans_a else ''}", f"{b}{'.mT' if launch.trans_b else ''}"
        if launch.addend:
            return f'torch.addmm(memory["{keys[launch.addend]}"].view({launch.addend_shape}), {a}, {b}, out={out})'
        return f"torch.matmul({a}, {b}, out={out})"
    given = [f'memory["{keys[a]}"]' if isinstance(a, str) else repr(a) for a in launch.arguments]
    named = {n: int(v) for n, v in launch.constants.items()} | launch.options
    return (
        f"kernels.{launch.function}[{launch.grid!r}]({', '.join([*given, *(f'{n}={v!r}' for n, v in named.items())])})"
    )


__all__ = ["Fitting", "Parts", "bounds", "entry", "script", "standalone_main", "wrapped"]
