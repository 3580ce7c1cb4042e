"""The mechanics of layers: registration, walking the tree, names, hooks, containers, state, text."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.cpu.layer_check import check_error
from tstatic import nn, static
from tstatic.errors import IndexRangeError, NotFoundError, ProgramError, ProgramTypeError, ShapeError, UnsupportedError
from tstatic.nn.layer.layers import snake

HERE = "test_layer.py"


class Net(nn.Layer):
    """One of everything."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(3, 3)
        self.b = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
        self.c = nn.LayerList([nn.Linear(2, 2, bias_attr=False)])
        self.scale = self.create_parameter([2], default_initializer=nn.initializer.Constant(1.0))
        self.register_buffer("count", static.create_global_var([1], 0.0, "float32", persistable=True))
        self.register_buffer(
            "hidden", static.create_global_var([1], 0.0, "float32", persistable=True), persistable=False
        )
        self.plain = 3

    def forward(self, x: Any) -> Any:
        for layer in self.c:
            x = layer(self.b(self.a(x)))
        return paddle.multiply(x, self.scale)


NAMES = ["scale", "a.weight", "a.bias", "b.0.weight", "b.0.bias", "c.0.weight"]


# --------------------------------------------------------------------------------------------------- names and walking
@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("Linear", "linear"),
        ("BatchNorm2D", "batch_norm2d"),
        ("Conv2DTranspose", "conv2d_transpose"),
        ("PReLU", "p_re_lu"),
        ("GELU", "gelu"),
        ("LayerNorm", "layer_norm"),
        ("SyncBatchNorm", "sync_batch_norm"),
        ("LogSoftmax", "log_softmax"),
        ("MyNet", "my_net"),
    ],
)
def test_snake(name: str, wanted: str) -> None:
    assert snake(name) == wanted


def test_full_names_count_per_class() -> None:
    assert [nn.Linear(2, 2).full_name() for _ in range(2)] == ["linear_0", "linear_1"]
    assert nn.Layer("abc").full_name() == "abc_0"
    assert nn.Layer().full_name() == "layer_0"
    assert Net().full_name() == "net_0"


def test_parameters_are_found_once_each_outer_first() -> None:
    net = Net()
    assert [n for n, _ in net.named_parameters()] == NAMES
    assert [n for n, _ in net.named_parameters(prefix="top")] == [f"top.{n}" for n in NAMES]
    assert net.parameters() == [p for _, p in net.named_parameters()]
    assert net.parameters(include_sublayers=False) == [net.scale]
    net.again = net.a
    assert len(net.parameters()) == len(NAMES)
    assert [p.name for p in static.default_main_program().all_parameters()] == [
        "linear_0.w_0", "linear_0.b_0", "linear_1.w_0", "linear_1.b_0", "linear_2.w_0", "net_0.w_0",
    ]  # fmt: skip


def test_sublayers_are_walked_outer_first() -> None:
    net = Net()
    assert [n for n, _ in net.named_sublayers()] == ["a", "b", "b.0", "b.1", "c", "c.0"]
    assert next(n for n, _ in net.named_sublayers(include_self=True)) == ""
    assert net.sublayers() == [net.a, net.b, net.b[0], net.b[1], net.c, net.c[0]]
    assert [n for n, _ in net.named_children()] == ["a", "b", "c"]
    assert list(net.children()) == [net.a, net.b, net.c]


def test_apply_goes_inner_before_outer() -> None:
    net = Net()
    seen: list[Any] = []
    assert net.apply(seen.append) is net
    assert seen == [net.a, net.b[0], net.b[1], net.b, net.c[0], net.c, net]


def test_train_and_eval_reach_all_layers() -> None:
    net = Net()
    net.eval()
    assert not any(layer.training for layer in net.sublayers(include_self=True))
    net.train()
    assert all(layer.training for layer in net.sublayers(include_self=True))


def test_buffers() -> None:
    net = Net()
    assert [n for n, _ in net.named_buffers()] == ["count", "hidden"]
    assert net.buffers() == [net.count, net.hidden]
    other = static.create_global_var([1], 1.0, "float32", persistable=True)
    net.count = other
    assert net.buffers()[0] is other


# ---------------------------------------------------------------------------------------------------------- attributes
def test_attributes_move_between_tables() -> None:
    net = Net()
    net.a = None
    assert [n for n, _ in net.named_children()] == ["b", "c"]
    net.a = nn.ReLU()
    assert net.a.full_name() == "re_lu_1"
    net.plain = nn.Tanh()
    assert "plain" in dict(net.named_children())
    net.a = net.create_parameter([1])
    assert "a" in dict(net.named_parameters())
    assert "a" not in dict(net.named_children())
    del net.a
    assert not hasattr(net, "a")
    assert "scale" in dir(net)


def test_a_registered_name_takes_nothing_else() -> None:
    net = Net()
    for name in ("a", "scale", "count"):
        check_error(lambda name=name: setattr(net, name, 3), ProgramTypeError, words=name, file=HERE)


def test_unknown_attributes_suggest_a_near_one() -> None:
    with pytest.raises(AttributeError, match="scale"):
        _ = Net().scales


def test_assignment_needs_the_constructor_of_the_base() -> None:
    class Wrong(nn.Layer):
        def __init__(self) -> None:
            self.inner = nn.ReLU()

    check_error(Wrong, ProgramError, words="super().__init__()", file=HERE)


def test_adding_by_name() -> None:
    net = nn.Layer()
    relu = net.add_sublayer("act.1", nn.ReLU())
    assert dict(net.named_children()) == {"act.1": relu}
    p = net.add_parameter("w", net.create_parameter([2]))
    assert net.w is p
    assert p.name == "layer_0.w_0"
    assert net.add_parameter("nothing", None) is None
    assert net.create_parameter([2], attr=False) is None
    assert net.create_parameter([2], is_bias=True, dtype="float64").name == "layer_0.b_0"
    for call in (
        lambda: net.add_sublayer("x", 3),
        lambda: net.add_sublayer(3, nn.ReLU()),
        lambda: net.add_parameter("x.y", p),
        lambda: net.add_parameter("x", 3),
        lambda: net.register_buffer("", None),
        lambda: net.register_buffer("x", 3),
    ):
        with pytest.raises(ProgramTypeError, match="expected"):
            call()
    check_error(lambda: net.add_parameter("forward", p), ProgramError, words="attribute already", file=HERE)
    check_error(lambda: net.register_buffer("w", p), ProgramError, words="'w'", file=HERE)


def test_the_dtype_of_a_layer() -> None:
    class Double(nn.Layer):
        def __init__(self) -> None:
            super().__init__(dtype="float64")
            self.w = self.create_parameter([2])

    assert Double().w.dtype.name == "float64"
    paddle.set_default_dtype("float64")
    try:
        assert nn.Linear(2, 2).weight.dtype.name == "float64"
    finally:
        paddle.set_default_dtype("float32")


# --------------------------------------------------------------------------------------------------------------- calls
def test_hooks_change_inputs_and_outputs() -> None:
    x = static.data("x", [None, 3])
    relu = nn.ReLU()
    before = relu.register_forward_pre_hook(lambda layer, inputs: (paddle.scale(inputs[0], 2.0),))
    after = relu.register_forward_post_hook(lambda layer, inputs, output: paddle.scale(output, 3.0))
    silent = relu.register_forward_post_hook(lambda layer, inputs, output: None)
    relu(x)
    block = static.default_main_program().global_block()
    assert [op.type for op in block.ops] == ["scale", "relu", "scale"]
    before.remove()
    before.remove()
    after.remove()
    silent.remove()
    relu(x)
    assert [op.type for op in block.ops][3:] == ["relu"]


def test_a_layer_without_forward_says_so() -> None:
    check_error(lambda: nn.Layer()(1), UnsupportedError, words="forward", file=HERE)


def test_gradients_are_the_programs_business() -> None:
    net = nn.Linear(2, 2)
    net.clear_gradients()
    check_error(lambda: net.backward(), UnsupportedError, words="minimize", file=HERE)


def test_copies_of_layers_with_parameters_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="call the constructor again"):
        copy.deepcopy(nn.Linear(2, 2))
    twin = copy.deepcopy(nn.Sequential(nn.LeakyReLU(0.3)))
    assert twin[0].negative_slope == 0.3


# ---------------------------------------------------------------------------------------------------------- containers
def test_sequential() -> None:
    relu, tanh = nn.ReLU(), nn.Tanh()
    net = nn.Sequential(nn.Linear(3, 2), ("act", relu), tanh)
    assert (len(net), net[1], net["act"], net[-1]) == (3, relu, relu, tanh)
    assert list(net) == [net[0], relu, tanh]
    assert [n for n, _ in net.named_children()] == ["0", "act", "2"]
    assert list(net[1:]) == [relu, tanh]
    net["act"] = tanh
    del net["2"]
    assert list(net) == [net[0], tanh]
    assert list(nn.Sequential([relu, tanh])) == [relu, tanh]
    x = static.data("x", [None, 3])
    assert net(x).name == "tanh_1.tmp_0"
    assert nn.Sequential()(x) is x
    check_error(lambda: nn.Sequential(3), ProgramTypeError, words="Layer", file=HERE)
    check_error(lambda: nn.Sequential(nn.ReLU), ProgramTypeError, words="instances", file=HERE)
    check_error(lambda: net[7], IndexRangeError, words="7", file=HERE)
    check_error(lambda: net["tanh"], NotFoundError, words="tanh", file=HERE)


def test_layer_list() -> None:
    a, b, c = nn.ReLU(), nn.Tanh(), nn.Sigmoid()
    layers = nn.LayerList([a])
    assert layers.append(c) is layers
    layers.insert(1, b)
    assert list(layers) == [a, b, c]
    assert [n for n, _ in layers.named_children()] == ["0", "1", "2"]
    assert list(layers[:2]) == [a, b]
    layers[-1] = a
    del layers[0]
    assert list(layers) == [b, a]
    assert list(layers.extend([c])) == [b, a, c]
    layers.insert(3, b)
    assert (len(layers), layers[3]) == (4, b)
    del layers[1:3]
    assert list(layers) == [b, b]
    check_error(lambda: layers.append(3), ProgramTypeError, words="3", file=HERE)
    check_error(lambda: layers[5], IndexRangeError, words="5", file=HERE)
    check_error(lambda: layers["0"], ProgramTypeError, words="int", file=HERE)


def test_layer_dict() -> None:
    a, b = nn.ReLU(), nn.Tanh()
    layers = nn.LayerDict({"values": a})
    layers.update([("b", b)])
    layers.update(nn.LayerDict({"c": a}))
    assert layers.keys() == ["values", "b", "c"]
    assert layers.values() == [a, b, a]
    assert layers.items()[1] == ("b", b)
    assert "b" in layers
    assert list(layers) == layers.keys()
    assert layers.pop("b") is b
    del layers["c"]
    assert len(layers) == 1
    layers.clear()
    assert layers.keys() == []
    layers["x"] = a
    check_error(lambda: layers["y"], NotFoundError, words="'y'", file=HERE)
    check_error(lambda: layers.update(3), ProgramTypeError, words="3", file=HERE)
    check_error(lambda: layers.update({"y": 3}), ProgramTypeError, words="Layer", file=HERE)


def test_parameter_list() -> None:
    owner = nn.Layer()
    ps = [owner.create_parameter([n]) for n in (1, 2, 3)]
    listed = nn.ParameterList(ps[:1])
    assert listed.append(ps[1]) is listed
    listed[0] = ps[2]
    assert list(listed) == [ps[2], ps[1]]
    assert (len(listed), listed[-1]) == (2, ps[1])
    assert listed.parameters() == [ps[2], ps[1]]
    check_error(lambda: listed.append(nn.ReLU()), ProgramTypeError, words="Parameter", file=HERE)


# --------------------------------------------------------------------------------------------------------------- state
def test_state_dict_holds_variables_under_every_name() -> None:
    net = Net()
    net.again = net.a
    state = net.state_dict()
    assert list(state) == ["scale", "count", *NAMES[1:], "again.weight", "again.bias"]
    assert state["again.weight"] is state["a.weight"] is net.a.weight
    assert list(net.state_dict(include_sublayers=False, structured_name_prefix="p.")) == ["p.scale", "p.count"]
    kept: dict[str, Any] = {"old": 1}
    assert net.a.state_dict(destination=kept) is kept
    assert list(kept) == ["old", "weight", "bias"]


def test_state_dict_hooks() -> None:
    net = nn.Linear(2, 2)
    handle = net.register_state_dict_hook(lambda state: {**state, "more": 1})
    assert list(net.state_dict()) == ["weight", "bias", "more"]
    assert list(net.state_dict(use_hook=False)) == ["weight", "bias"]
    handle.remove()
    assert list(net.state_dict()) == ["weight", "bias"]


def test_set_state_dict_writes_to_the_scope() -> None:
    net = nn.Linear(2, 3)
    static.Executor(paddle.CPUPlace()).run(static.default_startup_program())
    values = {"weight": np.arange(6.0).reshape(2, 3), "bias": np.ones(3, "float32")}
    assert net.set_state_dict(values) == ([], [])
    assert np.array_equal(net.weight.get_value(), values["weight"])
    assert net.set_dict({"linear_0.b_0": np.zeros(3)}, use_structured_name=False) == (["linear_0.w_0"], [])
    assert np.array_equal(net.bias.get_value(), np.zeros(3))
    assert np.array_equal(net.weight.get_value(), values["weight"])


def test_set_state_dict_reports_what_does_not_fit(caplog: pytest.LogCaptureFixture) -> None:
    net = nn.Linear(2, 3)
    startup = static.default_startup_program()
    check_error(lambda: net.set_state_dict({"bias": np.ones(3)}), NotFoundError, words="startup program", file=HERE)
    static.Executor(paddle.CPUPlace()).run(startup)
    before = np.array(net.bias.get_value())
    missing, unexpected = net.set_state_dict({"biass": np.ones(3)})
    assert (missing, unexpected) == (["weight", "bias"], ["biass"])
    assert "biass" in caplog.text
    wrong = {"bias": np.ones(3), "weight": np.ones((3, 2))}
    error = check_error(lambda: net.set_state_dict(wrong), ShapeError, words="[3, 2]", file=HERE)
    assert error.var == "linear_0.w_0"
    assert np.array_equal(net.bias.get_value(), before)
    check_error(lambda: net.set_state_dict([1]), ProgramTypeError, words="dict", file=HERE)


def test_a_layer_trains() -> None:
    main, startup = static.default_main_program(), static.default_startup_program()
    main.random_seed = startup.random_seed = 3
    x, y = static.data("x", [None, 3]), static.data("y", [None, 2])
    net = Net()
    loss = nn.MSELoss()(net(x), y)
    paddle.optimizer.Adam(0.05, parameters=net.parameters()).minimize(loss)
    exe = static.Executor(paddle.CPUPlace())
    exe.run(startup)
    draw = np.random.default_rng(0)
    inputs = draw.normal(size=(32, 3)).astype("float32")
    feed = {"x": inputs, "y": np.abs(inputs[:, :2])}
    losses = [exe.run(main, feed=feed, fetch_list=[loss])[0].item() for _ in range(150)]
    assert losses[-1] < 0.5 * losses[0]
    assert all(np.isfinite(losses))


# ---------------------------------------------------------------------------------------------------------------- text
def test_repr() -> None:
    assert repr(nn.Linear(3, 2)) == "Linear(in_features=3, out_features=2, dtype=float32)"
    assert repr(nn.Conv2D(1, 2, 3)) == "Conv2D(1, 2, kernel_size=[3, 3], data_format=NCHW)"
    assert repr(nn.Conv2D(2, 4, 3, stride=2, groups=2)).startswith(
        "Conv2D(2, 4, kernel_size=[3, 3], stride=[2, 2], groups=2"
    )
    assert repr(nn.Dropout(0.2)) == "Dropout(p=0.2, axis=None, mode=upscale_in_train)"
    assert repr(nn.BatchNorm2D(3)) == "BatchNorm2D(num_features=3, momentum=0.9, epsilon=1e-05)"
    assert repr(nn.LayerNorm(4)) == "LayerNorm(normalized_shape=[4], epsilon=1e-05)"
    assert repr(nn.Embedding(3, 4)) == "Embedding(3, 4, sparse=False)"
    assert repr(nn.ReLU()) == "ReLU()"
    assert repr(nn.Softmax()) == "Softmax(axis=-1)"
    net = nn.Sequential(nn.ReLU(), nn.Sequential(nn.Tanh()))
    assert repr(net) == "Sequential(\n  (0): ReLU()\n  (1): Sequential(\n    (0): Tanh()\n  )\n)"


# --------------------------------------------------------------------------------------------------------------- utils
def test_parameters_as_a_vector() -> None:
    main, startup = static.default_main_program(), static.default_startup_program()
    net = nn.Linear(2, 3)
    vector = nn.utils.parameters_to_vector(net.parameters())
    assert vector.shape == (9,)
    exe = static.Executor(paddle.CPUPlace())
    exe.run(startup)
    weight = np.array(net.weight.get_value())
    (flat,) = exe.run(main, fetch_list=[vector])
    assert np.array_equal(flat[:6], weight.ravel())
    new = static.data("new", [9])
    nn.utils.vector_to_parameters(new, net.parameters())
    exe.run(main, feed={"new": np.arange(9, dtype="float32")})
    assert np.array_equal(net.weight.get_value(), np.arange(6.0).reshape(2, 3))
    assert np.array_equal(net.bias.get_value(), [6.0, 7.0, 8.0])
    check_error(lambda: nn.utils.vector_to_parameters(vector, net.parameters()[:1]), ShapeError, words="[6]", file=HERE)
    check_error(lambda: nn.utils.parameters_to_vector([]), ProgramError, words="parameters", file=HERE)


def test_a_subclass_of_a_convolution_shows_its_own_arguments() -> None:
    class Square(nn.Conv2D):
        def __init__(self, width: int) -> None:
            super().__init__(width, width, 3)

    assert list(inspect.signature(Square).parameters) == ["width"]
    assert inspect.signature(nn.Conv3D).parameters["data_format"].default == "NCDHW"
    assert Square(2).extra_repr() == "2, 2, kernel_size=[3, 3], data_format=NCHW"

    class Same(nn.Conv3DTranspose):
        pass

    assert inspect.signature(Same) == inspect.signature(nn.Conv3DTranspose)
    assert Same(2, 4, 3).extra_repr() == "2, 4, kernel_size=[3, 3, 3], data_format=NCDHW"
