"""What both sides say about networks: names and shapes of all parameters, and scores with known weights."""

from __future__ import annotations

import contextlib
import hashlib
import io
from typing import Any

import numpy as np

NETWORKS: dict[str, dict[str, Any]] = {
    "LeNet": {},
    "alexnet": {"num_classes": 10},
    "vgg11": {"num_classes": 10},
    "vgg13": {"num_classes": 10, "batch_norm": True},
    "vgg16": {"num_classes": 0},
    "vgg19": {"num_classes": 10, "with_pool": False},
    "resnet18": {"num_classes": 10},
    "resnet34": {"num_classes": 10},
    "resnet50": {"num_classes": 10},
    "resnet101": {"num_classes": 10},
    "resnet152": {"num_classes": 0, "with_pool": False},
    "resnext50_32x4d": {"num_classes": 10},
    "resnext50_64x4d": {"num_classes": 10},
    "resnext101_32x4d": {"num_classes": 10},
    "resnext101_64x4d": {"num_classes": 10},
    "resnext152_32x4d": {"num_classes": 10},
    "resnext152_64x4d": {"num_classes": 10},
    "wide_resnet50_2": {"num_classes": 10},
    "wide_resnet101_2": {"num_classes": 10},
    "mobilenet_v1": {"num_classes": 10},
    "mobilenet_v2": {"num_classes": 10},
    "squeezenet1_0": {"num_classes": 10},
    "squeezenet1_1": {"num_classes": 10},
    **{f"densenet{n}": {"num_classes": 10} for n in (121, 161, 169, 201)},
    "densenet264": {"num_classes": 0, "with_pool": False},
    "googlenet": {"num_classes": 10},
    "inception_v3": {"num_classes": 10},
    "mobilenet_v3_small": {"num_classes": 10},
    "mobilenet_v3_large": {"num_classes": 10, "scale": 0.75},
    **{f"shufflenet_v2_{n}": {"num_classes": 10} for n in ("x0_25", "x0_33", "x0_5", "x1_0", "x1_5", "x2_0", "swish")},
}
RUN: dict[str, tuple[dict[str, Any], int]] = {
    "LeNet": ({}, 28),
    "resnet18": ({"num_classes": 10}, 40),
    "resnet50": ({"num_classes": 10, "with_pool": True}, 33),
    "resnext50_32x4d": ({"num_classes": 0}, 33),
    "mobilenet_v1": ({"num_classes": 10, "scale": 0.5}, 40),
    "mobilenet_v2": ({"num_classes": 10, "scale": 0.75}, 40),
    "squeezenet1_0": ({"num_classes": 10}, 64),
    "squeezenet1_1": ({"num_classes": 10, "with_pool": False}, 48),
    "densenet121": ({"num_classes": 10}, 32),
    "googlenet": ({"num_classes": 10}, 192),
    "inception_v3": ({"num_classes": 10}, 75),
    "mobilenet_v3_small": ({"num_classes": 10}, 40),
    "mobilenet_v3_large": ({"num_classes": 0, "scale": 0.5}, 40),
    "shufflenet_v2_x0_5": ({"num_classes": 10}, 48),
    "shufflenet_v2_swish": ({"num_classes": 10}, 33),
}
"""Networks whose scores are compared: arguments, and the size of the images."""


def structure(paddle: Any, name: str) -> list[str]:
    """Returns a line per parameter: dotted name, name of the variable, shape."""
    static = paddle.static
    with static.program_guard(static.Program(), static.Program()), paddle.utils.unique_name.guard():
        net = getattr(paddle.vision.models, name)(**NETWORKS[name])
        return [f"{key} {p.name} {list(p.shape)}" for key, p in net.named_parameters()]


def digest(lines: list[str]) -> dict[str, Any]:
    """Returns the number of parameters and of their elements, and a hash of all lines."""
    shapes = [eval(line[line.index("[") :]) for line in lines]
    total = sum(int(np.prod(shape)) for shape in shapes)
    return {"count": len(lines), "total": total, "hash": hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]}


def weight(number: int, shape: list[int]) -> Any:
    """Returns known values of a weight, whose products keep their size."""
    count = int(np.prod(shape))
    wide = (2.0 / max(1, count // shape[-1] if len(shape) == 2 else count // shape[0])) ** 0.5
    # The generator whose numbers are the same in all versions of numpy.
    return (np.random.RandomState(number).standard_normal(shape) * wide).astype("float32")


def scores(paddle: Any, name: str) -> list[float]:
    """Returns what a network in evaluation says about two images."""
    static = paddle.static
    settings, size = RUN[name]
    main, startup, scope = static.Program(), static.Program(), static.Scope()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard(), static.scope_guard(scope):
        x = static.data("x", [None, 1 if name == "LeNet" else 3, size, size])
        net = getattr(paddle.vision.models, name)(**settings)
        net.eval()
        out = net(x)
        exe = static.Executor(paddle.CPUPlace())
        exe.run(startup)
        for number, parameter in enumerate(net.parameters()):
            if len(parameter.shape) > 1:
                value = weight(number, list(parameter.shape))
                scope.find_var(parameter.name).get_tensor().set(value, paddle.CPUPlace())
        images = np.cos(np.arange(2 * int(np.prod(x.shape[1:]))) * 0.37).reshape(2, *x.shape[1:]).astype("float32")
        outs = out if isinstance(out, list) else [out]
        # Paddle's BatchNorm of the 1.x class does not follow eval() in a program, but its clone for tests.
        found = exe.run(main.clone(for_test=True), feed={"x": images}, fetch_list=outs)
        flat = np.concatenate([v.ravel() for v in found])
        return [float(v) for v in flat[:: max(1, flat.size // 16)][:16]]


# -------------------------------------------------------------------------------------------------------- summary, flops
COUNTED: dict[str, tuple[dict[str, Any], list[int]]] = {
    "LeNet": ({}, [1, 1, 28, 28]),
    "resnet18": ({"num_classes": 10}, [1, 3, 32, 32]),
    "resnext50_32x4d": ({"num_classes": 10}, [1, 3, 32, 32]),
    "mobilenet_v2": ({"num_classes": 10}, [2, 3, 64, 64]),
    "squeezenet1_1": ({"num_classes": 10}, [1, 3, 64, 64]),
    "vgg11": ({"num_classes": 0}, [1, 3, 32, 32]),
}


def counts(paddle: Any, name: str) -> dict[str, Any]:
    """Returns what is printed about a network, and its numbers."""
    settings, size = COUNTED[name]
    with paddle.utils.unique_name.guard():
        net = getattr(paddle.vision.models, name)(**settings)
    with contextlib.redirect_stdout(io.StringIO()) as said:
        found = paddle.summary(net, tuple(size))
        operations = paddle.flops(net, size)
    lines = said.getvalue().splitlines()
    table = lines[: 1 + max(i for i, line in enumerate(lines) if line.startswith("---"))]
    return {
        "params": {n: int(v) for n, v in found.items()},
        "flops": int(operations),
        "text": table if len(table) < 40 else digest_of(table),
    }


def digest_of(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
