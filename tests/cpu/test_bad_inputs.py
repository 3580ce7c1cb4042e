"""Bad feeds, fetches and program-building calls: the right class, every part of the message, and nothing changed after."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.cpu.nets import state
from tstatic import static
from tstatic.errors import FeedError, TstaticError
from tstatic.ir.opdef import OPS, REQUIRED, OpDef
from tstatic.nn import functional as F

HERE = re.compile(r"test_bad_inputs\.py:\d+")


def check_message(error: TstaticError, place: bool = True) -> None:
    """All parts of the rubric: class, op and variable, expected and received, the user's line, a fix."""
    text = str(error)
    assert type(error).__module__ == "tstatic.errors"
    assert len(error.what) >= 20, text
    assert error.op or error.var, text
    assert error.expected is not None, text
    assert error.received is not None, text
    assert error.fix, text
    assert "expected:" in text
    assert "received:" in text
    assert "fix:" in text
    if place:
        assert HERE.search(error.where or ""), f"no line of this file in: {text}"
    assert len(text.splitlines()) <= 25


def show(value: Any) -> str:
    """A label that is the same in every process."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))[:30]


@dataclass(frozen=True)
class Bad:
    """One bad call on the standing program."""

    name: str
    call: Callable[[Any], Any]
    error: type[Exception] = TstaticError


class Fixture:
    """A program with inputs of several kinds, trained once, and an executor."""

    def __init__(self) -> None:
        self.scope = static.Scope()
        self.main, self.startup = static.Program(), static.Program()
        with static.program_guard(self.main, self.startup):
            self.x = static.data("x", [None, 4])
            self.ids = static.data("ids", [None], "int64")
            self.flag = static.data("flag", [1], "bool")
            self.fixed = static.data("fixed", [3, 4])
            w = static.create_parameter([4, 2], "float32", name="w")
            h = paddle.matmul(self.x, w)
            table = static.create_parameter([5, 2], "float32", name="table")
            self.rows = paddle.gather(table, self.ids)
            self.loss = paddle.mean(paddle.add(paddle.square(h), paddle.sum(self.rows)))
            self.fixed_out = paddle.sum(self.fixed)
            self.flag_out = paddle.logical_not(self.flag)
            paddle.optimizer.Momentum(0.1).minimize(self.loss)
        self.exe = static.Executor("cpu")
        self.exe.run(self.startup, scope=self.scope)
        self.good = {
            "x": np.ones((6, 4), "float32"), "ids": np.arange(3), "flag": np.array([True]), "fixed": np.ones((3, 4), "float32"),
        }  # fmt: skip
        self.fetch = [self.loss, self.fixed_out, self.flag_out]

    def run(self, **changes: Any) -> Any:
        return self.exe.run(self.main, feed={**self.good, **changes}, fetch_list=self.fetch, scope=self.scope)


@pytest.fixture(scope="module")
def net() -> Iterator[Fixture]:
    found = Fixture()
    found.run()
    return found


def _without(net: Fixture, name: str) -> Any:
    feed = {k: v for k, v in net.good.items() if k != name}
    return net.exe.run(net.main, feed=feed, fetch_list=net.fetch, scope=net.scope)


def _renamed(net: Fixture, name: str) -> Any:
    feed = {(k + "s" if k == name else k): v for k, v in net.good.items()}
    return net.exe.run(net.main, feed=feed, fetch_list=net.fetch, scope=net.scope)


class _Unprintable(Exception):
    def __str__(self) -> str:
        raise self


def raising(method: str, base: type = object, error: type[Exception] = ZeroDivisionError) -> Any:
    """An object one of whose methods raises."""

    def body(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise error("not today")

    return type(f"Raises_{method.strip('_')}", (base,), {method: body})()


def hostile() -> Iterator[Bad]:
    """Objects of the user's own whose methods raise: the error names what was given, and keeps the cause."""
    objects = {
        method: raising(method) for method in ("__array__", "__repr__", "__iter__", "__getattr__")
    } | {
        "a list without __iter__": raising("__iter__", list),
        "an array of KeyError": raising("__array__", error=KeyError),
        "an array of OSError": raising("__array__", error=OSError),
        "an error without text": raising("__array__", error=_Unprintable),
    }  # fmt: skip
    for label, value in objects.items():
        yield Bad(f"fed {label}", lambda n, v=value: n.run(x=v), TypeError)
        yield Bad(f"fed a list of {label}", lambda n, v=value: n.run(x=[v]), TypeError)
        yield Bad(f"set {label}", lambda n, v=value: n.scope.find_var("w").get_tensor().set(v))
    unnamed = raising("__repr__")
    for method in ("__iter__", "__getitem__"):
        bad = raising(method, dict)
        bad.update(x=1)
        yield Bad(f"a feed without {method}", lambda n, f=bad: n.exe.run(n.main, feed=f, scope=n.scope), TypeError)
    yield Bad("a key without repr", lambda n: n.exe.run(n.main, feed={unnamed: 1}, scope=n.scope), TypeError)
    yield Bad("a fetch without repr", lambda n: n.exe.run(n.main, n.good, [unnamed], scope=n.scope), TypeError)
    yield Bad("a program without repr", lambda n: n.exe.run(unnamed), TypeError)
    yield Bad("a scope without repr", lambda n: n.exe.run(n.main, n.good, scope=unnamed), TypeError)
    for argument in ("feed_var_name", "fetch_var_name"):
        for name in ([], [1], {}, 1, None):
            yield Bad(
                f"{argument}={name}", lambda n, a=argument, v=name: n.exe.run(n.main, n.good, scope=n.scope, **{a: v}), TypeError
            )  # fmt: skip


def feeds() -> Iterator[Bad]:
    inputs = {"x": ((6, 4), "float32"), "ids": ((3,), "int64"), "flag": ((1,), "bool"), "fixed": ((3, 4), "float32")}
    dtypes = ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool"]
    for name, (shape, dtype) in inputs.items():
        yield Bad(f"missing {name}", lambda n, name=name: _without(n, name), ValueError)
        yield Bad(f"misspelt {name}", lambda n, name=name: _renamed(n, name), ValueError)
        for other in dtypes:
            if other != dtype:
                value = np.ones(shape, other)
                yield Bad(f"{name} as {other}", lambda n, name=name, v=value: n.run(**{name: v}), TypeError)
        for strange in (np.complex64, "datetime64[s]", "S3", "U3", object):
            value = np.zeros(shape, strange)
            yield Bad(f"{name} as {show(strange)}", lambda n, name=name, v=value: n.run(**{name: v}), TypeError)
        for rank in (0, len(shape) + 1, len(shape) + 2):
            value = np.ones((2,) * rank, dtype)
            if rank != len(shape):
                yield Bad(f"{name} of rank {rank}", lambda n, name=name, v=value: n.run(**{name: v}), ValueError)
        for label, value in {
            "None": None, "a set": {1}, "a dict": {"a": 1}, "a text": "hello", "bytes": b"abc", "a function": len,
            "an object": object(), "a generator": (i for i in range(3)), "a range list of texts": ["a", "b"],
            "a ragged list": [[1.0, 2.0], [3.0]], "a complex": 1j,
            "complex numbers": np.full(shape, 1j).tolist() or [1j], "masked": np.ma.masked_array(np.ones(shape, dtype), True),
            "a list of masked": [np.ma.masked_array(np.ones(shape[1:], dtype), True)] * shape[0],
            "a list with a masked number": [1.0, np.ma.masked], "dates": [np.datetime64("2020")] * 3,
            "records": np.zeros(shape, [("a", dtype)]), "a list of records": [np.zeros((), [("a", dtype)])] * 3,
        }.items():  # fmt: skip
            yield Bad(f"{name} fed {label}", lambda n, name=name, v=value: n.run(**{name: v}))
        yield Bad(f"{name} fed a Variable", lambda n, name=name: n.run(**{name: n.x}), TypeError)
    for shape in ((6, 3), (6, 5), (4, 6), (0, 5), (6, 4, 1), (3,), (1, 1)):
        yield Bad(f"x of shape {shape}", lambda n, s=shape: n.run(x=np.ones(s, "float32")), ValueError)
    for shape in ((2, 4), (4, 4), (3, 3), (0, 4), (3, 0), (12,)):
        yield Bad(f"fixed of shape {shape}", lambda n, s=shape: n.run(fixed=np.ones(s, "float32")), ValueError)
    for index in (5, 6, -6, 10**6, -(10**6), 2**62, -(2**62)):
        yield Bad(f"index {index}", lambda n, i=index: n.run(ids=np.array([0, i, 1])), IndexError)
    yield Bad("number list for bools", lambda n: n.run(flag=[2]), TypeError)
    yield Bad("float list for ints", lambda n: n.run(ids=[0.5, 1.5]), TypeError)
    for feed in ([], [{}, {}], (1, 2), "x", 5, 3.5, {1: 2}, {None: 1}, [1], np.ones(3), {"x"}, object()):
        yield Bad(
            f"feed={show(feed)}", lambda n, f=feed: n.exe.run(n.main, feed=f, fetch_list=n.fetch, scope=n.scope),
            ValueError if not isinstance(feed, dict | list | tuple) else TypeError,
        )  # fmt: skip


def fetches() -> Iterator[Bad]:
    for item in (1, 2.5, True, b"x", object(), len, {"x"}, np.ones(2), [1], [["x", 1]], ("x", None, 3), 1j):
        yield Bad(
            f"fetch {show(item)}",
            lambda n, i=item: n.exe.run(n.main, feed=n.good, fetch_list=[i], scope=n.scope),
            TypeError,
        )
    for whole in ({"x": 1}, {"x"}, 5, 2.5, object()):
        yield Bad(
            f"fetch_list={show(whole)}",
            lambda n, w=whole: n.exe.run(n.main, feed=n.good, fetch_list=w, scope=n.scope),
            TypeError,
        )
    for name in ("nosuch", "", "X", "w_0", "loss", "x@GRAD@GRAD", "table_", "a b", "ids\n", "été"):
        yield Bad(
            f"fetch name {name!r}",
            lambda n, w=name: n.exe.run(n.main, feed=n.good, fetch_list=[w], scope=n.scope),
            ValueError,
        )
    for program in (1, "main", None.__class__, [], {}, object()):
        yield Bad(f"program {show(program)}", lambda n, p=program: n.exe.run(p, feed=n.good), TypeError)
    for scope in (1, "scope", {}, object()):
        yield Bad(f"scope {show(scope)}", lambda n, s=scope: n.exe.run(n.main, feed=n.good, scope=s), TypeError)


RUNS = [*feeds(), *hostile(), *fetches()]


@pytest.mark.parametrize("bad", RUNS, ids=lambda b: b.name)
def test_a_bad_run_is_refused_with_all_parts_and_changes_nothing(net: Fixture, bad: Bad) -> None:
    scope = net.scope
    before, runs, version = state(scope, net.main), dict(scope.runs), net.main.version
    with pytest.raises(bad.error) as caught:
        bad.call(net)
    assert isinstance(caught.value, TstaticError), repr(caught.value)
    check_message(caught.value)
    after = state(scope, net.main)
    assert all(np.array_equal(before[n], after[n]) for n in before)
    assert scope.runs == runs
    assert net.main.version == version
    assert len(net.run()) == 3


# ------------------------------------------------------------------------------------------------------ program building
BUILDABLE = sorted(t for t, c in OPS.items() if not c.of and c.infer is not None and not c.objects)


def _inputs(definition: OpDef) -> dict[str, Any]:
    """A Variable for every required slot."""
    made: dict[str, Any] = {}
    for slot in definition.inputs:
        if not slot.optional:
            var = static.data(f"in_{slot.name}", [2, 3])
            made[slot.name] = [var] if slot.many else var
    return made


def _attrs(definition: OpDef) -> dict[str, Any]:
    sample = {"bool": True, "int": 1, "float": 1.0, "number": 1, "str": "a", "ints": [1], "floats": [1.0], "strs": ["a"],
              "bools": [True], "dtype": "float32", "block": 0, "function": 0, "any": 1}  # fmt: skip
    return {n: sample[a.kind] for n, a in definition.attrs.items() if a.default is REQUIRED}


def _append(type: str, inputs: Any, attrs: Any, outputs: Any = None) -> Any:
    block = static.default_main_program().global_block()
    definition = OPS[type]
    if outputs is None:
        outputs = {}
        for slot in definition.outputs:
            if not slot.optional:
                var = block.create_var(name=f"out_{slot.name}")
                outputs[slot.name] = [var] if slot.many else var
    return block.append_op(type, inputs=inputs, outputs=outputs, attrs=attrs)


def _building(type: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    definition = OPS[type]
    for slot in definition.inputs:
        if not slot.optional and not slot.many:
            yield (
                f"{slot.name} missing",
                lambda s=slot: _append(
                    type, {k: v for k, v in _inputs(definition).items() if k != s.name}, _attrs(definition)
                ),
            )
            yield (
                f"{slot.name} a number",
                lambda s=slot: _append(type, {**_inputs(definition), s.name: 3}, _attrs(definition)),
            )
            yield (
                f"{slot.name} an unknown name",
                lambda s=slot: _append(type, {**_inputs(definition), s.name: "nobody"}, _attrs(definition)),
            )
            yield (
                f"{slot.name} twice",
                lambda s=slot: _append(
                    type, {**_inputs(definition), s.name: [_inputs(definition)[s.name]] * 2}, _attrs(definition)
                ),
            )
    yield (
        "unknown slot",
        lambda: _append(type, {**_inputs(definition), "Nope": static.data("q", [1])}, _attrs(definition)),
    )
    yield "unknown attribute", lambda: _append(type, _inputs(definition), {**_attrs(definition), "no_such_attr": 1})
    yield (
        "unknown output",
        lambda: _append(type, _inputs(definition), _attrs(definition), {"Nope": static.data("q", [1])}),
    )
    wrong = {"bool": "yes", "int": 1.5, "function": 1.5, "float": "a", "number": "a", "str": 5, "ints": 3,
             "floats": "ab", "strs": 3, "bools": 3, "dtype": "float99"}  # fmt: skip
    for name, attr in definition.attrs.items():
        if attr.kind in wrong:
            yield (
                f"{name} of the wrong type",
                lambda n=name, k=attr.kind: _append(type, _inputs(definition), {**_attrs(definition), n: wrong[k]}),
            )
        if attr.kind == "float":
            yield (
                f"{name} NaN",
                lambda n=name: _append(type, _inputs(definition), {**_attrs(definition), n: float("nan")}),
            )


@pytest.mark.parametrize("type", BUILDABLE)
def test_a_bad_op_is_refused_with_all_parts_and_leaves_the_program(type: str) -> None:
    tried = 0
    for name, call in _building(type):
        program = static.Program()
        with static.program_guard(program, static.Program()), pytest.raises(TstaticError) as caught:
            call()
        try:
            check_message(caught.value)
        except AssertionError as error:
            raise AssertionError(f"{type}: {name}: {error}") from None
        assert not program.global_block().ops, name
        tried += 1
    assert tried >= 2


def calls() -> Iterator[Bad]:
    """Calls of the public functions, row by row of the matrix."""

    def x(shape: Any = (2, 3), dtype: str = "float32", name: str = "x") -> Any:
        return static.data(name, shape, dtype)

    simple: dict[str, Callable[[], Any]] = {
        "reshape two -1": lambda: paddle.reshape(x(), [-1, -1]),
        "reshape to another size": lambda: paddle.reshape(x(), [4, 2]),
        "reshape not dividing": lambda: paddle.reshape(x(), [4, -1]),
        "reshape -2": lambda: paddle.reshape(x(), [-2, 3]),
        "reshape 0 beyond rank": lambda: paddle.reshape(x(), [2, 3, 0]),
        "concat of nothing": lambda: paddle.concat([]),
        "concat of shapes that differ": lambda: paddle.concat([x(), x((3, 4), name="y")], axis=0),
        "concat axis": lambda: paddle.concat([x(), x(name="y")], axis=2),
        "split not dividing": lambda: paddle.split(x(), 2, axis=1),
        "split sizes": lambda: paddle.split(x(), [1, 1], axis=1),
        "split axis": lambda: paddle.split(x(), 1, axis=10**6),
        "stack shapes": lambda: paddle.stack([x(), x((3, 2), name="y")]),
        "matmul sizes": lambda: paddle.matmul(x(), x((4, 5), name="y")),
        "matmul dtypes": lambda: paddle.matmul(x(), x((3, 2), "float64", "y")),
        "add shapes": lambda: paddle.add(x(), x((2, 4), name="y")),
        "add dtypes": lambda: paddle.add(x((2, 3), "uint8"), x((2, 3), "int8", "y")),
        "multiply a text": lambda: paddle.multiply(x(), "a"),
        "sum axis": lambda: paddle.sum(x(), axis=2),
        "sum axis below": lambda: paddle.sum(x(), axis=-3),
        "mean axis huge": lambda: paddle.mean(x(), axis=10**6),
        "max axis": lambda: paddle.max(x(), axis=5),
        "transpose perm": lambda: paddle.transpose(x(), [0, 0]),
        "transpose perm short": lambda: paddle.transpose(x(), [0]),
        "squeeze axis": lambda: paddle.squeeze(x(), 9),
        "unsqueeze axis": lambda: paddle.unsqueeze(x(), 9),
        "softmax axis": lambda: F.softmax(x(), axis=4),
        "dropout above 1": lambda: F.dropout(x(), p=1.5),
        "dropout below 0": lambda: F.dropout(x(), p=-0.1),
        "cast to nothing": lambda: paddle.cast(x(), "float99"),
        "expand smaller": lambda: paddle.expand(x(), [1, 3]),
        "tile negative": lambda: paddle.tile(x(), [-1, 2]),
        "topk too many": lambda: paddle.topk(x(), 7),
        "topk zero": lambda: paddle.topk(x(), 0),
        "one_hot of floats": lambda: F.one_hot(x(), 3),
        "gather with floats": lambda: paddle.gather(x(), x((2,), name="i")),
        "data twice": lambda: (x(), x((2, 4))),
        "data dtype twice": lambda: (x(), x((2, 3), "int64")),
        "data name": lambda: static.data(5, [1]),
        "data shape": lambda: static.data("x", "ab"),
        "data size": lambda: static.data("x", [-5]),
        "data float size": lambda: static.data("x", [1.5]),
        "data dtype": lambda: static.data("x", [1], "float99"),
        "data too large": lambda: static.data("x", [2**40, 2**40]),
        "data text size": lambda: static.data("x", ["a"]),
        "global variable of a text size": lambda: static.create_global_var(["a"], 1.0, "float32"),
        "parameter of a text size": lambda: static.create_parameter(["a"], "float32"),
        "clip of bools": lambda: paddle.clip(x(dtype="bool"), 0, 1),
        "a number for the CPU": lambda: static.device_guard("cpu:1").__enter__(),
        "no_grad_set a text": lambda: static.append_backward(paddle.mean(x()), no_grad_set="x"),
        "parameter_list a Variable": lambda: static.append_backward(paddle.mean(x()), parameter_list=x()),
        "parameter without shape": lambda: static.create_parameter(None, "float32"),
        "parameter of size 0": lambda: static.create_parameter([0, 2], "float32"),
        "parameter of unknown size": lambda: static.create_parameter([-1, 2], "float32"),
        "parameter of two shapes": lambda: [static.create_parameter([n], "float32", name="p") for n in (1, 2)],
        "parameter dtype": lambda: static.create_parameter([1], "float99"),
        "gradient of ints": lambda: static.append_backward(x((1,), "int64")),
        "backward of a text": lambda: static.append_backward("loss"),
        "gradients of a text": lambda: static.gradients("a", "b"),
        "bool of a Variable": lambda: bool(x(dtype="bool")),
        "len of a Variable": lambda: len(x()),
        "iter of an unknown length": lambda: list(x((None, 3))),
        "float of a Variable": lambda: float(x()),
        "numpy of a Variable": lambda: x().numpy(),
        "backward of a Variable": lambda: x().backward(),
        "momentum text": lambda: paddle.optimizer.Adam("fast"),
        "beta out of range": lambda: paddle.optimizer.Adam(0.1, beta1=1.5),
        "clip of the wrong type": lambda: paddle.optimizer.SGD(0.1, grad_clip=1.0),
        "decay of the wrong type": lambda: paddle.optimizer.SGD(0.1, weight_decay="much"),
        "clip norm negative": lambda: paddle.nn.ClipGradByGlobalNorm(-1.0),
        "conv on rank 3": lambda: F.conv2d(x((2, 3, 4)), x((4, 3, 3, 3), name="w")),
        "conv channels": lambda: F.conv2d(x((2, 3, 8, 8)), x((4, 5, 3, 3), name="w")),
        "pool of 0": lambda: F.max_pool2d(x((2, 3, 8, 8)), 0),
        "pool stride 0": lambda: F.max_pool2d(x((2, 3, 8, 8)), 2, stride=0),
        "arange endless": lambda: paddle.arange(0, 10, 0),
        "full of a negative size": lambda: paddle.full([-2], 1.0),
        "full of a text": lambda: paddle.full([2], "a"),
        "py_func of no function": lambda: static.py_func(5, x(), x(name="y")),
        "clip swapped": lambda: paddle.nn.ClipGradByValue(-1.0, 1.0),
        "minimize an array": lambda: paddle.optimizer.SGD(0.1).minimize(np.ones(1)),
        "a masked constant": lambda: paddle.assign(np.ma.masked_array([1.0], True)),
        "a masked operand": lambda: x() + np.ma.masked_array(np.ones((2, 3)), True),
        "masked start values": lambda: paddle.nn.initializer.Assign([np.ma.masked_array([1.0], True)]),
        "start values that are texts": lambda: paddle.nn.initializer.Assign(["a"]),
        "minimize several elements": lambda: paddle.optimizer.SGD(0.1).minimize(x((3, 2))),
        "minimize an unknown number": lambda: paddle.optimizer.SGD(0.1).backward(x((None, 1))),
        "learning rate None": lambda: paddle.optimizer.SGD(None),
        "embedding of floats": lambda: F.embedding(x(), x((5, 2), name="w")),
        "layer_norm shape": lambda: F.layer_norm(x(), [7]),
        "where condition": lambda: paddle.where(x(), x(name="a"), x(name="b")),
        "compare shapes": lambda: paddle.equal(x(), x((5, 7), name="y")),
        "pad length": lambda: F.pad(x(), [1, 2, 3]),
        "cumsum axis": lambda: paddle.cumsum(x(), axis=4),
        "flip axis": lambda: paddle.flip(x(), [7]),
        "index_select dtype": lambda: paddle.index_select(x(), x((2,), name="i")),
    }  # fmt: skip
    for name, call in simple.items():
        yield Bad(name, lambda n, c=call: c())


@pytest.mark.parametrize("bad", list(calls()), ids=lambda b: b.name)
def test_a_bad_call_is_refused_at_the_users_line(bad: Bad) -> None:
    program = static.Program()
    with static.program_guard(program, static.Program()), pytest.raises(TstaticError) as caught:
        bad.call(None)
    check_message(caught.value)


def test_checks_that_paddle_makes_raise_the_class_that_paddle_raises() -> None:
    wrong_types = {"data text size", "global variable of a text size", "parameter of a text size", "clip of bools",
                   "no_grad_set a text", "parameter_list a Variable"}  # fmt: skip
    found = {bad.name: bad for bad in calls()}
    for name in wrong_types:
        with static.program_guard(static.Program(), static.Program()), pytest.raises(TypeError):
            found[name].call(None)
    with pytest.raises(ValueError, match="Should not set device id for cpu"):
        found["a number for the CPU"].call(None)
    with static.device_guard("cpu"), static.device_guard("gpu:1"):
        pass


def test_there_are_at_least_300_cases() -> None:
    built = sum(1 for t in BUILDABLE for _ in _building(t))
    assert len(RUNS) + len(list(calls())) + built >= 300
    assert len(RUNS) >= 130


@pytest.mark.parametrize("number", [-129, 128])
def test_a_number_beyond_the_dtype_is_refused_in_a_list(number: int) -> None:
    x = static.data("x", [2], "int8")
    exe = static.Executor("cpu")
    with pytest.raises(FeedError, match="does not fit its dtype"):
        exe.run(feed={"x": [0, number]}, fetch_list=[x + x])
    assert exe.run(feed={"x": [-128, 127]}, fetch_list=[x])[0].tolist() == [-128, 127]
