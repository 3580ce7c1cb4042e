"""Runs described calls under Paddle or tstatic: ``python -m tests.parity.runner paddle calls.json answers.jsonl``.

Only numpy and the module under test are imported, so that the file runs in Paddle's environments (numpy 1, Python 3.11; Python 3.7
for `tests.parity.fluid_paddle`, which is Paddle 1.8.5).
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.parity import laws, programs, trainings

GOLDEN = 0.6180339887498949
LARGE = 384
"""Arrays of more elements are recorded as projections."""
SINGLE = ("float16", "float32", "complex64")
COMPLEX = {"complex64": "float32", "complex128": "float64"}
"""Data type -> that of each part."""


# ----------------------------------------------------------------------------------------------------------------- values
def ramp(shape: list[int], dtype: str, low: float, high: float, seed: int, avoid: list[float] | str = ()) -> Any:  # type: ignore[assignment]
    """Distinct values that fill ``[low, high]`` evenly in a mixed order; the same under every numpy.

    ``avoid`` names points that floats keep a distance of 0.01 from; ``"int"`` avoids all integers. Both parts of complex numbers
    are such values.
    """
    count = int(np.prod(shape))  # math.prod is younger than Python 3.7
    spread = (np.arange(1, count + 1, dtype=np.float64) * GOLDEN + seed * 0.37) % 1.0
    if dtype == "bool":
        return (spread < 0.5).reshape(shape)
    if "int" in dtype:
        return np.floor(low + spread * (high - low + 1)).astype(dtype).reshape(shape)
    if "complex" in dtype:
        parts = (ramp(shape, dtype.replace("complex64", "float32").replace("complex128", "float64"), low, high, n, avoid)
                 for n in (seed, seed + 1))  # fmt: skip
        return (next(parts) + 1j * next(parts)).astype(dtype)
    found = low + spread * (high - low)
    points = np.round(found)[:, None] if avoid == "int" else np.tile(np.asarray(avoid, np.float64), (count, 1))
    close = np.abs(found[:, None] - points) < 0.01
    found = np.where(close.any(1), found + np.where(found < (low + high) / 2, 0.023, -0.023), found)
    return found.astype(dtype).reshape(shape)


def fed_value(feed: dict[str, Any]) -> Any:
    """The array that a described input is fed with."""
    if "values" in feed:
        return np.asarray(feed["values"], dtype=feed["dtype"])
    found = ramp(feed["shape"], feed["dtype"], feed["low"], feed["high"], feed["seed"], feed.get("avoid", []))
    if feed.get("rows"):
        found = (np.abs(found) / np.abs(found).sum(-1, keepdims=True)).astype(feed["dtype"])
    return found


# ------------------------------------------------------------------------------------------------------------------ calls
class Builder:
    """Turns the plain data of one call into arguments, declaring fed variables on the way."""

    def __init__(self, paddle: Any, unknown: bool) -> None:
        self.paddle, self.unknown = paddle, unknown
        self.feed: dict[str, Any] = {}
        self.fed: list[Any] = []

    def value(self, data: Any) -> Any:
        """The argument that the plain data describes."""
        if isinstance(data, list):
            return [self.value(item) for item in data]
        if not isinstance(data, dict):
            return data
        ((kind, content),) = data.items()
        return getattr(self, f"_{kind}")(content)

    def _feed(self, content: dict[str, Any]) -> Any:
        array, name = fed_value(content), f"x{len(self.feed)}"
        shape = list(array.shape)
        lengths = content.get("lod", [])
        if lengths or (self.unknown and shape and not content.get("fixed")):
            shape[0] = -1
        more = {"lod_level": len(lengths)} if lengths else {}
        variable = self.paddle.static.data(name, shape, content["dtype"], **more)
        if ("float" in content["dtype"] or "complex" in content["dtype"]) and not content.get("stop"):
            variable.stop_gradient = False
        if lengths:
            module = getattr(self.paddle, "fluid", None) or self.paddle.base
            self.feed[name] = module.create_lod_tensor(array, lengths, self.paddle.CPUPlace())
        else:
            self.feed[name] = array
        self.fed.append(variable)
        return variable

    def _assigned(self, content: dict[str, Any]) -> Any:
        """A Variable whose value the program states."""
        array = np.asarray(content["values"], dtype=content["dtype"])
        if array.size == 1:
            return self.paddle.full(list(array.shape), array.ravel()[0].item(), content["dtype"])
        return self.paddle.assign(array)

    def _tuple(self, content: list[Any]) -> Any:
        return tuple(self.value(item) for item in content)

    def _slice(self, content: list[Any]) -> Any:
        return slice(*(self.value(item) for item in content))

    def _ellipsis(self, content: Any) -> Any:
        return ...

    def _number(self, content: str) -> Any:
        return float(content)

    def _array(self, content: dict[str, Any]) -> Any:
        return np.asarray(content["values"], dtype=content["dtype"])

    def _dict(self, content: dict[str, Any]) -> Any:
        return {name: self.value(item) for name, item in content.items()}

    def _function(self, content: str) -> Any:
        return getattr(programs, content)

    def _parameter(self, content: dict[str, Any]) -> Any:
        return self.paddle.create_parameter(**content)

    def _make(self, content: dict[str, Any]) -> Any:
        made = find(self.paddle, content["path"])
        return made(*self.value(content.get("args", [])), **self._dict(content.get("kwargs", {})))


def find(paddle: Any, path: str) -> Any:
    """The public name at a dotted path below ``paddle``."""
    found = paddle
    for part in path.split("."):
        found = getattr(found, part)
    return found


def build(paddle: Any, call: dict[str, Any], unknown: bool) -> tuple[Any, Builder]:
    """Builds a call in the default program; returns its result and what it is fed with."""
    builder = Builder(paddle, unknown)
    path, args, kwargs = call["path"], call.get("args", []), call.get("kwargs", {})
    if path.startswith("programs."):
        return getattr(programs, path.partition(".")[2])(paddle, *builder.value(args)), builder
    target: Callable[..., Any]
    if "init" in call:
        target = find(paddle, path)(*builder.value(call["init"]), **builder._dict(call.get("init_kwargs", {})))
        if "method" in call:
            target = getattr(target, call["method"])
            if not callable(target):
                return target, builder
    elif path.startswith("Variable."):
        owner = builder.value(args[0])
        target, args = getattr(owner, path.partition(".")[2]), args[1:]
    else:
        target = find(paddle, path)
    result = target(*builder.value(args), **builder._dict(kwargs))
    if result is NotImplemented:
        raise TypeError(f"unsupported operand types for {path}")
    return result, builder


def flat(paddle: Any, result: Any) -> list[Any]:
    """The variables and plain values of a result, in order."""
    if isinstance(result, dict):
        return [v for key in sorted(result) for v in flat(paddle, result[key])]
    if isinstance(result, (list, tuple)):  # not list | tuple: Python 3.7
        return [v for item in result for v in flat(paddle, item)]
    return [result]


# ---------------------------------------------------------------------------------------------------------------- answers
def dtype_name(dtype: Any) -> str:
    """The name of a declared dtype, without its module."""
    return str(getattr(dtype, "name", None) or dtype).rpartition(".")[2].lower().replace("fp", "float")


def packed(array: Any, how: str = "values") -> list[Any]:
    """An array as plain data: dtype, shape and its values, or projections of them that see positions if they are many."""
    array = np.asarray(array)
    head = [str(array.dtype), list(array.shape)]
    if array.dtype.kind == "c":
        # Real and imaginary parts take turns.
        array = np.ascontiguousarray(array).ravel().view(array.real.dtype)
    if how == "shape":
        return [*head, []]
    if how == "moments":
        values = array.astype(np.float64)
        return [*head, [float(values.mean()), float(values.std())], "moments"]
    if array.size <= LARGE:
        if array.dtype == np.float16 or array.dtype.kind != "f":
            return [*head, array.ravel().tolist()]
        digits = 9 if array.dtype == np.float32 else 17
        return [*head, [float(f"%.{digits}g" % v) for v in array.ravel().tolist()]]
    values = array.astype(np.float64).ravel()
    odd = ~np.isfinite(values)
    index = np.arange(values.size)
    waves = [np.cos(index * GOLDEN * (k + 1)) for k in range(16)]
    kept = np.where(odd, 0.0, values)
    sums = [float(kept @ wave / math.sqrt(values.size)) for wave in waves]
    return [*head, [*sums, float(np.abs(kept).max()), float(odd @ waves[0]), *kept[:8].tolist()], "projected"]


@contextlib.contextmanager
def fresh(paddle: Any) -> Iterator[tuple[Any, Any]]:
    """Empty programs, names and scope."""
    static = paddle.static
    main, startup = static.Program(), static.Program()
    with static.scope_guard(static.Scope()), static.program_guard(main, startup), paddle.utils.unique_name.guard():
        yield main, startup


def start(paddle: Any, exe: Any, main: Any, startup: Any) -> list[list[Any]]:
    """Runs the startup program, gives parameters known values; returns facts of the parameters."""
    facts = []
    parameters = list(main.all_parameters())
    if startup.global_block().ops:
        exe.run(startup)
    scope = paddle.static.global_scope()
    for number, parameter in enumerate(parameters):
        tensor = scope.find_var(parameter.name).get_tensor()
        value = np.array(tensor)
        constant = float(value.ravel()[0]) if value.size and (value == value.ravel()[0]).all() else None
        facts.append(
            [parameter.name, list(parameter.shape), dtype_name(parameter.dtype), bool(parameter.trainable), constant]
        )
        low, high = (0.5, 1.5) if value.ndim < 2 else (-0.6, 1.0)
        tensor.set(ramp(list(value.shape), str(value.dtype), low, high, number), paddle.CPUPlace())
    return facts


def raised(stage: str, error: BaseException) -> dict[str, Any]:
    """The answer of a call that raised."""
    classes = [c.__name__ for c in type(error).__mro__[:-2]]
    return {"raised": stage, "classes": classes, "text": str(error).strip()[-300:]}


class SizesMissing(Exception):
    """A result is declared with an unknown size, so the weights for its gradient need a first run."""


def run_call(
    paddle: Any, call: dict[str, Any], unknown: bool = False, known: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Answers one call.

    Args:
        paddle: The module under test.
        call: Plain data.
        unknown: Whether the first size of what is fed is declared unknown.
        known: The answer for fixed sizes, whose shapes the weights for gradients are taken from.
    """
    grads = (call.get("compare", "values") == "values" or "given" in call) and not call.get("forward_only")
    try:
        answer = _attempt(paddle, call, unknown, known, grads)
    except SizesMissing:
        known = _attempt(paddle, call, unknown, None, False)
        answer = known if known.get("raised") else _attempt(paddle, call, unknown, known, grads)
    if answer.get("raised") in ("gradients", "gradients run"):
        forward = _attempt(paddle, call, unknown, known, False)
        if not known and not forward.get("raised"):
            # The weights may have had a size that is declared wrongly.
            again = _attempt(paddle, call, unknown, forward, grads)
            if not again.get("raised"):
                return again
        return {**forward, "gradient_raised": answer["raised"], "classes": answer["classes"], "text": answer["text"]}
    return answer


def _attempt(
    paddle: Any, call: dict[str, Any], unknown: bool, known: dict[str, Any] | None, grads: bool
) -> dict[str, Any]:
    with fresh(paddle) as (main, startup):
        try:
            result, builder = build(paddle, call, unknown)
        except Exception as error:
            return raised("build", error)
        variables = [v for v in flat(paddle, result) if isinstance(v, paddle.static.Variable)]
        plain = [v for v in flat(paddle, result) if not isinstance(v, paddle.static.Variable)]
        answer: dict[str, Any] = {
            "declared": [[list(v.shape), dtype_name(v.dtype), bool(v.stop_gradient)] for v in variables],
        }
        if plain:
            answer["plain"] = [p if p is None or isinstance(p, (bool, int, float, str)) else repr(p) for p in plain]
        feed, fetch, number = dict(builder.feed), list(variables), 0
        wanted: list[Any] = []
        if grads:
            try:
                wanted = _gradients(paddle, call, main, builder, variables, known, feed)
            except SizesMissing:
                raise
            except Exception as error:
                return raised("gradients", error)
            number = len([g for g in wanted if g is not None])
            fetch += [g for g in wanted if g is not None]
        if call.get("build_only"):
            return answer
        exe = paddle.static.Executor(paddle.CPUPlace())
        try:
            facts = start(paddle, exe, main, startup)
            if facts:
                answer["parameters"] = facts
            held = exe.run(main, feed=feed, fetch_list=fetch, return_numpy=False)
            values = [np.array(v) for v in held]
        except Exception as error:
            return raised("gradients run" if number else "run", error)
        how = call.get("compare", "values")
        lods = [v.lod() for v in held[: len(variables)]]
        if any(lods):
            answer["lods"] = lods
        answer["outs"] = [packed(v, how) for v in values[: len(variables)]]
        if wanted:
            rest = iter(values[len(variables) :])
            gradients = [None if g is None else next(rest) for g in wanted]
            if "given" in call:
                fed = [feed[v.name] for v in builder.fed]
                answer["given"] = laws.follows(call["given"], fed, values[0], feed["weight0"], gradients)
            else:
                answer["grads"] = [None if g is None else packed(g) for g in gradients]
        state = _state(paddle, main)
        if state and how == "values":
            answer["state"] = state
        return answer


def _gradients(
    paddle: Any,
    call: dict[str, Any],
    main: Any,
    builder: Builder,
    variables: list[Any],
    known: dict[str, Any] | None,
    feed: Any,
) -> list[Any]:
    """Gradients of weighed sums of the float results (of the first `weighed` ones of a call) by what is fed and by parameters."""
    inputs = [v for v in builder.fed if not v.stop_gradient]
    inputs += [p for p in main.all_parameters() if p.trainable and not p.stop_gradient]
    shapes = [o[1] for o in known["outs"]] if known and "outs" in known else [list(v.shape) for v in variables]
    targets = []
    for number, variable in enumerate(variables[: call.get("weighed")]):
        dtype = dtype_name(variable.dtype)
        if not ("float" in dtype or "complex" in dtype) or variable.stop_gradient or number >= len(shapes):
            continue
        shape = list(shapes[number])
        if any(size < 0 for size in shape):
            raise SizesMissing
        name = f"weight{number}"
        if "complex" in dtype:
            # Both parts are weighed.
            dtype, shape, variable = COMPLEX[dtype], [*shape, 2], paddle.as_real(variable)
        weight = paddle.static.data(name, shape, dtype)
        feed[name] = ramp(shape, dtype, 0.5, 1.5, 5)
        targets.append(paddle.sum(variable * weight))
    if not targets or not inputs:
        return []
    found = paddle.static.gradients(targets, inputs)
    return list(found)


def _state(paddle: Any, main: Any) -> list[Any]:
    """Persistable values that the run may have changed, in the order of their creation."""
    scope = paddle.static.global_scope()
    found = []
    for v in main.list_vars():
        if not v.persistable or getattr(v, "trainable", False) or v.name in ("feed", "fetch"):
            continue
        held = scope.find_var(v.name)
        if held is not None and held.get_tensor()._is_initialized():
            found.append(packed(np.array(held.get_tensor())))
    return found


def answer(paddle: Any, call: dict[str, Any]) -> dict[str, Any]:
    """Answers a call of any kind, for fixed and for unknown first sizes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _answer(paddle, call)


def _answer(paddle: Any, call: dict[str, Any]) -> dict[str, Any]:
    paddle.seed(2026)
    if call["path"] in ("training", "network", "schedule"):
        return {"fixed": getattr(trainings, call["path"])(paddle, call, sys.modules[__name__])}
    fixed = run_call(paddle, call)
    found = {"fixed": fixed}
    if has_sizes(call):
        unknown = run_call(paddle, call, True, fixed)
        found["unknown"] = {k: v for k, v in unknown.items() if fixed.get(k) != v}
        found["unknown"].update({k: None for k in fixed if k not in unknown})
    return found


def has_sizes(call: Any) -> bool:
    """Whether a call is fed with something whose first size can be declared unknown."""
    if isinstance(call, dict):
        if "feed" in call and not call["feed"].get("fixed"):
            feed = call["feed"]
            return bool(np.ndim(feed["values"])) if "values" in feed else bool(feed["shape"])
        return any(has_sizes(v) for v in call.values())
    return isinstance(call, list) and any(has_sizes(v) for v in call)


def main(module: str, calls_path: str, answers_path: str, first: int) -> None:
    """Answers all calls from a number on; a line is written before and after each, so that a crash can be told."""
    paddle = importlib.import_module(module)
    paddle.enable_static()
    with open(calls_path) as file:
        calls = json.load(file)
    with open(answers_path, "a") as file:
        for number, call in enumerate(calls[first:], first):
            found = answer(paddle, call)
            file.write(json.dumps([number, found], separators=(",", ":")) + "\n")
            file.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
