"""Makes the calls that are compared, from the registry of public names, ops' domains, signatures, and the samples."""

from __future__ import annotations

import copy
import inspect
import json
import zlib
from collections.abc import Iterator
from typing import Any

import tstatic
from tests.api import surface
from tests.parity import attribute_samples, fluid_samples, names, namespace_samples, reasons, samples, trainings
from tstatic.ir.export import PUBLIC_API
from tstatic.ir.opdef import OPS, Domain, ValueRange
from tstatic.nn.layer.functional_layer import FunctionalLayer

Call = dict[str, Any]

VARIED: dict[str, list[Any]] = {
    "axis": [0, -1, 7],
    "dim": [1],
    "keepdim": [True],
    "reduction": ["none", "sum", "mean", "nothing"],
    "descending": [True],
    "largest": [False],
    "exclusive": [False],
    "ceil_mode": [True],
    "return_mask": [True],
    "data_format": ["NHWC", "nothing"],
    "align_corners": [True],
    "align_mode": [1],
    "approximate": [True],
    "epsilon": [0.1],
    "eps": [0.1],
    "alpha": [0.7],
    "beta": [1.5],
    "threshold": [0.3],
    "negative_slope": [0.2],
    "slope": [0.3],
    "scale_a": [0.5],
    "padding": [1],
    "stride": [2],
    "dilation": [2],
    "soft_label": [True],
    "ignore_index": [1],
    "label_smoothing": [0.1],
    "delta": [0.5],
    "margin": [0.3],
    "gamma": [1.0],
    "dtype": ["float64", "int32"],
    "offset": [1, -1],
    "unbiased": [False],
    "p": [1, {"number": "inf"}],
    "as_tuple": [True],
    "overwrite": [False],
    "transpose_x": [True],
    "transpose_y": [True],
    "equal_nan": [True],
    "rtol": [0.5],
    "atol": [1.0],
    "diagonal": [1],
    "numeric_stable_mode": [False],
    "log": [True],
    "exclude": [True],
    "bias_after_scale": [False],
    "value": [2.0],
    "min": [-0.5],
    "max": [0.5],
    "epsilon_": [0.1],
    "act": ["relu"],
    "k": [2],
    "name": ["named"],
}
"""Other values of arguments, by the argument's name: each is tried alone with a function's first sample."""

NOT_CALLED = {*reasons.NO_CALL, *reasons.ELSEWHERE, "create_global_var", "create_parameter", "cholesky", "eigvalsh"}
"""Functions without samples of their own; the last four are called as those of `static` and `linalg`."""


IN_TENSOR = {n for n in names.load()[names.METHODS] if n.endswith("_")} - {*names.load()[""]} | {"fill_constant"}
"""Names that Paddle has in `paddle.tensor` alone."""


def functions() -> dict[str, Any]:
    """Public functions, layers and methods that are compared by calls, by the path that Paddle has them at."""
    found: dict[str, Any] = {}
    for prefix, module in (
        ("", tstatic),
        ("nn.functional.", tstatic.nn.functional),
        ("nn.", tstatic.nn),
        ("linalg.", tstatic.linalg),
    ):
        for name in surface.names(module):
            value = getattr(module, name)
            if not prefix and not (inspect.isroutine(value) and f"tensor.{name}" in PUBLIC_API):
                continue
            if prefix == "nn." and not (inspect.isclass(value) and issubclass(value, tstatic.nn.Layer)):
                continue
            found[prefix + name] = value
    found.pop("nn.Layer")
    return found


def _values(values: ValueRange, seed: int) -> dict[str, Any]:
    high = values.high if not isinstance(values.high, str) else 2.0
    made: dict[str, Any] = {"low": float(values.low), "high": float(high), "seed": seed}
    if values.avoid:
        made["avoid"] = values.avoid if isinstance(values.avoid, str) else list(values.avoid)
    return made


def from_domain(path: str, function: Any) -> list[dict[str, Any]]:
    """Calls of a function of one or two tensors of any shape: its first parameters are the op's first slots."""
    name = ("tensor." + path) if "." not in path else path
    definition = OPS.get(PUBLIC_API[name].op) if name in PUBLIC_API else None
    if definition is None or definition.domain is None or definition.domain.family == "cases":
        return []
    domain: Domain = definition.domain
    parameters = [p for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]
    needed = [p for p in parameters if p.default is p.empty]
    count = 1 if domain.family == "unary" else 2
    if len(needed) != count:
        return []
    slots = [s.name for s in definition.inputs[:count]]
    sites = [((2, 3),), ((),)] if count == 1 else [((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 1), (1, 3)), ((2, 3), ())]
    calls = []
    for dtype in ("float32", *domain.others):
        for shapes in sites if dtype == "float32" else sites[:1]:
            feeds = []
            for k, (slot, shape) in enumerate(zip(slots, shapes, strict=True)):
                values = _values(domain.values.get(slot, ValueRange()), k)
                if "int" in dtype:
                    values = {
                        "low": max(int(values["low"]), 0 if dtype == "uint8" else -9),
                        "high": max(int(values["high"]), 4),
                        "seed": k,
                    }
                    if domain.values.get(slot, ValueRange()).avoid:
                        values["low"] = 1
                fixed = (
                    {"fixed": 1} if len(shape) < len(shapes[0]) or (count == 2 and shapes[0] == (2, 1) and k) else {}
                )
                feeds.append({"feed": {"shape": list(shape), "dtype": dtype, **values, **fixed}})
            calls.append({"args": feeds, "kwargs": {}})
    if dtype_special := SPECIAL.get(count):
        calls.append({"args": copy.deepcopy(dtype_special), "kwargs": {}})
    return calls


_ODD = [float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 1e30, -1e30]
SPECIAL = {
    1: [samples.v(_ODD)],
    2: [samples.v([_ODD[:6]] * 6), samples.v([[n] * 6 for n in _ODD[:6]])],
}


def seeded(data: Any, count: list[int]) -> Any:
    """Numbers the feeds of a call, so that no two have the same values."""
    if isinstance(data, dict):
        if "feed" in data:
            feed = dict(data["feed"])
            if "values" not in feed:
                feed.setdefault("seed", count[0])
            count[0] += 1
            return {"feed": feed}
        return {k: seeded(v, count) for k, v in data.items()}
    return [seeded(v, count) for v in data] if isinstance(data, list) else data


def _retyped(data: Any, dtype: str, left: list[int]) -> Any:
    """The same call with its first float feed in another dtype; all float feeds for another float."""
    if isinstance(data, dict):
        if "feed" in data and data["feed"]["dtype"] == "float32" and left[0] > 0:
            left[0] -= 1
            return {"feed": {**data["feed"], "dtype": dtype, **({"rows": False} if "int" in dtype else {})}}
        return {k: _retyped(v, dtype, left) for k, v in data.items()}
    return [_retyped(v, dtype, left) for v in data] if isinstance(data, list) else data


def variations(path: str, function: Any, first: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Other arguments, one at a time, other dtypes, and an argument of a wrong type."""
    is_layer = "init" in first
    signature = inspect.signature(function)
    given = "init" if is_layer else "args"
    options = "init_kwargs" if is_layer else "kwargs"
    names = list(signature.parameters)
    bound = set(names[: len(first[given])]) | set(first[options])
    for name, parameter in signature.parameters.items():
        if name in bound or parameter.default is parameter.empty:
            continue
        for value in VARIED.get(name, []) if name != "name" else []:
            if value == parameter.default and type(value) is type(parameter.default):
                continue
            yield {**first, options: {**first[options], name: value}}
    text = json.dumps(first)
    if '"float32"' in text and '"feed"' in text:
        yield _retyped(first, "float64", [99])
        if not is_layer:
            yield _retyped(first, "int64", [99])
            yield _retyped(first, "int32", [1])
    if first["args"] and not is_layer:
        yield {**first, "args": ["text", *first["args"][1:]]}


def _text(data: Any) -> str:
    """How a call is named: as a reader would write it."""
    if isinstance(data, dict) and len(data) == 1:
        ((kind, content),) = data.items()
        if kind == "feed":
            short = content["dtype"].replace("float", "f").replace("int", "i")
            if "values" in content:
                values = json.dumps(content["values"], separators=(",", ":"))
                return f"{short}{values if len(values) < 30 else '[' + str(zlib.crc32(values.encode()) % 10000) + ' special]'}"
            return f"{short}{json.dumps(content['shape'], separators=(',', ':'))}"
        if kind == "make":
            inner = [_text(a) for a in content["args"]] + [f"{k}={_text(v)}" for k, v in content["kwargs"].items()]
            return f"{content['path']}({', '.join(inner)})"
        if kind == "array":
            return f"array({json.dumps(content['values'])})"
        if kind == "tuple":
            return f"({', '.join(_text(a) for a in content)})"
        if kind == "slice":
            return ":".join("" if a is None else _text(a) for a in content)
        return "..." if kind == "ellipsis" else str(content)
    if isinstance(data, list):
        return f"[{', '.join(_text(a) for a in data)}]"
    return repr(data)


def name_of(call: Call) -> str:
    """The readable name of a call."""
    args = [_text(a) for a in call["args"]] + [f"{k}={_text(v)}" for k, v in call.get("kwargs", {}).items()]
    made = ""
    if "init" in call:
        init = [_text(a) for a in call["init"]] + [f"{k}={_text(v)}" for k, v in call["init_kwargs"].items()]
        made = f"({', '.join(init)})" + (f".{call['method']}" if "method" in call else "")
    return f"{call['path']}{made}({', '.join(args)})".replace("|", "or")


RANDOM = (
    "rand",
    "randn",
    "standard_normal",
    "normal",
    "uniform",
    "randint",
    "randperm",
    "bernoulli",
    "multinomial",
    "empty",
    "nn.functional.dropout",
    "nn.functional.dropout2d",
    "nn.functional.dropout3d",
    "nn.functional.alpha_dropout",
    "nn.functional.gumbel_softmax",
    "nn.functional.rrelu",
    "nn.AlphaDropout",
    "nn.RReLU",
    "nn.Dropout",
    "nn.Dropout2D",
    "nn.Dropout3D",
    "empty_like",
    "poisson",
    "randint_like",
    "exponential_",
)


def _compare(path: str, call: dict[str, Any]) -> dict[str, Any]:
    """How a call's values are compared: random ones by mean and deviation, those of empty memory not at all."""
    if path == "static.data":
        return {"build_only": 1}
    if path in (
        "programs.append_backward_pairs",
        "programs.gradient_of_gradient",
        "programs.two_losses",
        "programs.no_grad_set",
    ):
        return {"forward_only": 1}
    if path not in RANDOM:
        return {}
    if path.startswith(("empty", "multinomial")):
        return {"compare": "shape"}
    text = json.dumps(call)
    exact = '"training": false' in text or "0.0]" in text
    return {} if exact else {"compare": "moments", **_law(path, call)}


LAWS: dict[str, list[Any]] = {
    **{
        key: ["kept"]
        for key in ("dropout", "dropout2d", "dropout3d", "Dropout", "Dropout2D", "Dropout3D", "rrelu", "RReLU")
    },
    "alpha_dropout": ["alpha", 0.5],
    "AlphaDropout": ["alpha", 0.3],
    "gumbel_softmax": ["softmax", 1.0],
    "normal": ["normal"],
}
"""Functions of a tensor that draw -> the law that their gradients follow (`laws.py`)."""


def _law(path: str, call: dict[str, Any]) -> dict[str, Any]:
    """The law of the gradients of a call that draws for at least thousands of elements, with nothing said that changes it."""
    law = LAWS.get(path.rpartition(".")[2])
    wide = bool(call["args"]) and all(
        "feed" in a and len(a["feed"].get("shape", [])) > 1 for a in call["args"] if isinstance(a, dict)
    )
    plain = not call["kwargs"] and not call.get("init_kwargs")
    if (
        law is None
        or not wide
        or not plain
        or not isinstance(call["args"][0], dict)
        or call["args"][0]["feed"]["shape"][0] < 40
    ):
        return {}
    if law[0] == "softmax" and len(call["args"]) > 1:
        return {"given": [law[0], call["args"][1]]}
    return {"given": law}


INITIALIZERS: dict[str, list[Any]] = {
    "Constant": [2.0],
    "Assign": [[1.5, 2.5]],
    "Dirac": [],
    "Bilinear": [],
    "Normal": [1.0, 2.0],
    "Uniform": [-1.0, 3.0],
    "TruncatedNormal": [0.0, 2.0],
    "XavierNormal": [],
    "XavierUniform": [],
    "KaimingNormal": [],
    "KaimingUniform": [],
    "Orthogonal": [],
}
_SHAPES = {"Assign": [2], "Dirac": [4, 3, 3], "Bilinear": [3, 3, 4, 4]}


def initializers() -> Iterator[Call]:
    """A parameter of each initializer, as the startup program leaves it."""
    for name, args in INITIALIZERS.items():
        shape = _SHAPES.get(name, [60, 50])
        how = {} if name in ("Constant", "Assign", "Dirac", "Bilinear") else {"compare": "moments"}
        made = samples.make(f"nn.initializer.{name}", *args)
        yield {"path": "programs.initial", "args": [shape, made], "kwargs": {}, **how}
    for name in ("Normal", "XavierUniform"):
        yield {
            "path": "programs.initial",
            "args": [[4, 3, 5, 5], samples.make(f"nn.initializer.{name}")],
            "kwargs": {},
            "compare": "moments",
        }


def sampled() -> dict[str, list[dict[str, Any]]]:
    """The legal calls of every function: from the domain, then the samples beside its name."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path, function in functions().items():
        if path in NOT_CALLED:
            continue
        own = from_domain(path, function) if path not in RANDOM or path == "empty_like" else []
        table = samples.LAYERS if path.startswith("nn.") and "functional" not in path else samples.FUNCTIONAL
        table = samples.TENSOR if "." not in path else samples.LINALG if path.startswith("linalg.") else table
        own = [*copy.deepcopy(table.get(path.rpartition(".")[2], [])), *own]
        if not own:
            own = inherited(path, function)
        found[path] = own
    for path, own in namespace_samples.SAMPLES.items():
        found[path] = copy.deepcopy(own)
    for table_, prefix in ((samples.STATIC, ""), (samples.METHODS, "Variable."), (samples.PROGRAMS, "programs.")):
        for name, own in table_.items():
            found[prefix + name] = copy.deepcopy(own)
    for path, own in attribute_samples.SAMPLES.items():
        found[path] = [*found.get(path, []), *copy.deepcopy(own)]
    return found


def described(path: str) -> list[dict[str, Any]]:
    """The calls that are written down for a public path below ``paddle``, of whichever kind it is."""
    kind, _, name = path.rpartition(".")
    own = {"": samples.TENSOR, "nn": samples.LAYERS, "nn.functional": samples.FUNCTIONAL, "linalg": samples.LINALG}.get(
        kind, {}
    )
    rest = (namespace_samples.SAMPLES, samples.STATIC, attribute_samples.SAMPLES, fluid_samples.SAMPLES)
    return [*own.get(name, []), *(call for table in rest for call in table.get(path, []))]


def inherited(path: str, function: Any) -> list[dict[str, Any]]:
    """Calls of what has none of its own: a layer of an activation takes one tensor; `tanh_` is called as `tanh` is."""
    name = path.rpartition(".")[2]
    if name.endswith("_"):
        plain = path[:-1]
        own = samples.TENSOR.get(plain) or samples.FUNCTIONAL.get(plain.rpartition(".")[2])
        return copy.deepcopy(own or [])[:3]
    one = inspect.isclass(function) and ("forward" not in vars(function) or issubclass(function, FunctionalLayer))
    if one and name not in samples.LAYERS:
        needed = [
            p
            for p in inspect.signature(function).parameters.values()
            if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD
        ]
        if not needed:
            return [samples.layer()(samples.f(2, 3))]
    return []


def calls() -> list[Call]:
    """All calls, each with an identifier that says what it is."""
    found: list[Call] = []
    public = functions()
    for name, own in sampled().items():
        path = "tensor." + name if name in IN_TENSOR else name
        extra: list[dict[str, Any]] = []
        if name in public and name.endswith("_") and public[name] is public.get(name[:-1]):
            # One function under two names: one call shows that Paddle's second name gives the same.
            own = own[:1]
        elif name in public and own and name not in RANDOM:
            extra = list(variations(name, public[name], own[0]))
        for call in [*own, *extra]:
            made = seeded({"path": path, **call}, [0])
            found.append({**made, **_compare(name, call)})
    found += initializers()
    for call in found:
        call["id"] = name_of(call)
        if call["id"] in ERROR_CLASSES:
            call["error_class"] = ERROR_CLASSES[call["id"]]
    unique: dict[str, Call] = {}
    for call in [*found, *trainings.grid(), *trainings.schedules(), *trainings.networks()]:
        unique.setdefault(call["id"], call)
    return list(unique.values())


def without_samples() -> list[str]:
    """Public functions that nothing says how to call."""
    own = sampled()
    return sorted(p for p in functions() if not own.get(p) and p not in NOT_CALLED)


ERROR_CLASSES = {
    "programs.loss_of_several(f32[3,2])": "AssertionError",
    "programs.no_grad_set_of_text(f32[3,2])": "TypeError",
    "programs.guard_of_a_second_cpu(f32[3,2])": "ValueError",
    "static.data('y', ['a'])": "TypeError",
    "static.create_parameter(['a'], 'float32')": "TypeError",
    "static.create_global_var(['a'], 1.0, 'float32')": "TypeError",
    "clip(bool[2,3], 0, 1)": "TypeError",
}
"""Errors whose built-in class programs rely on."""


def fluid_calls() -> list[Call]:
    """The calls of what `paddle.fluid` alone has, which Paddle 1.8.5 answers."""
    found = []
    for path, own in fluid_samples.SAMPLES.items():
        for sample in own:
            call = seeded({"path": path, **copy.deepcopy(sample)}, [0])
            how = fluid_samples.HOW.get(path.rpartition(".")[2], {})
            found.append({**call, **how, "id": name_of(call)})
    return found


def same_in_fluid() -> list[Call]:
    """The samples of functions that `fluid.layers` has under the same arguments, called by that name."""
    own = sampled()
    found = []
    for name, entry in PUBLIC_API.items():
        if not name.startswith("fluid.layers."):
            continue
        same = [p for p, f in functions().items() if f is entry.function]
        for sample in own.get(same[0], [])[:3] if same else []:
            call = seeded({"path": name, **sample}, [0])
            found.append({**call, **_compare(same[0], sample), "id": name_of(call)})
    return found
