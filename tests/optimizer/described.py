"""Trainings that both sides run: a small net under each rule and each average, all numbers after each of ten steps.

The recorder runs this file on Python 3.7, too.
"""

import numpy as np

STEPS = 10


def ramp(shape, low, high, shift=0):
    """Numbers between two bounds, in an order that is not sorted."""
    count = int(np.prod(shape))
    order = (np.arange(count) * 7 + shift) % max(count, 1)
    return (low + (high - low) * order / max(count - 1, 1)).reshape(shape).astype("float32")


def feed(step):
    """What one step is fed."""
    return {"x": ramp([6, 3], -1.0, 1.0, step), "y": ramp([6, 2], -1.0, 1.0, 2 * step + 1)}


def _start(api, name, shape, shift):
    initializer = api.assign(ramp(shape, -0.5, 0.7, shift))
    return api.attr(name=name, initializer=initializer)


def net(api):
    """Two layers; the names of the parameters are fixed."""
    x, y = api.data("x", [6, 3]), api.data("y", [6, 2])
    hidden = api.fc(x, 4, "tanh", _start(api, "w0", [3, 4], 0), _start(api, "b0", [4], 1))
    out = api.fc(hidden, 2, None, _start(api, "w1", [4, 2], 2), _start(api, "b1", [2], 3))
    return api.mean(api.square(out - y))


class Fluid:
    """Building a net with ``fluid`` 1.x."""

    def __init__(self, fluid):
        self.fluid = fluid
        self.attr = fluid.ParamAttr
        self.assign = fluid.initializer.NumpyArrayInitializer
        self.mean, self.square = fluid.layers.mean, fluid.layers.square
        self.Program, self.guard, self.scope = fluid.Program, fluid.program_guard, fluid.scope_guard
        self.Scope, self.find = fluid.core.Scope, fluid.global_scope
        self.names = fluid.unique_name.guard
        self.Executor, self.place = fluid.Executor, fluid.CPUPlace()

    def data(self, name, shape):
        return self.fluid.data(name, shape, "float32")

    def fc(self, x, size, act, weight, bias):
        return self.fluid.layers.fc(x, size, param_attr=weight, bias_attr=bias, act=act)


class Static:
    """Building a net with ``paddle.static``."""

    def __init__(self, paddle):
        static = paddle.static
        self.paddle = paddle
        self.attr = paddle.ParamAttr
        self.assign = paddle.nn.initializer.Assign
        self.mean, self.square = paddle.mean, paddle.square
        self.Program, self.guard, self.scope = static.Program, static.program_guard, static.scope_guard
        self.Scope, self.find = static.Scope, static.global_scope
        self.names = paddle.utils.unique_name.guard
        self.Executor, self.place = static.Executor, paddle.CPUPlace()

    def data(self, name, shape):
        return self.paddle.static.data(name, shape, "float32")

    def fc(self, x, size, act, weight, bias):
        return self.paddle.static.nn.fc(x, size, weight_attr=weight, bias_attr=bias, activation=act)


WATCHED = ("w0", "b0", "w1", "b1")

# Rules: name -> (class, arguments), below fluid.optimizer and below paddle.
FLUID_RULES = {
    "lars": ("LarsMomentum", {"learning_rate": 20.0, "momentum": 0.9}),
    "lars decay": (
        "LarsMomentum",
        {"learning_rate": 1.0, "momentum": 0.5, "lars_coeff": 0.2, "lars_weight_decay": 0.1},
    ),
    "ftrl": ("Ftrl", {"learning_rate": 0.5}),
    "ftrl l1 l2": ("Ftrl", {"learning_rate": 0.5, "l1": 0.02, "l2": 0.05}),
    "ftrl power": ("Ftrl", {"learning_rate": 0.5, "l1": 0.01, "l2": 0.1, "lr_power": -0.3}),
    "decayed adagrad": ("DecayedAdagrad", {"learning_rate": 0.05}),
    "decayed adagrad slow": ("DecayedAdagrad", {"learning_rate": 0.1, "decay": 0.5, "epsilon": 0.01}),
    "dpsgd": ("Dpsgd", {"learning_rate": 0.3, "clip": 0.2, "batch_size": 6.0, "sigma": 0.0}),
    "dpsgd wide": ("Dpsgd", {"learning_rate": 0.3, "clip": 9.0, "batch_size": 6.0, "sigma": 0.0}),
}
INCUBATE_RULES = {
    "lars": FLUID_RULES["lars"],
    "lars excluded": (
        "LarsMomentum",
        {
            "learning_rate": 2.0, "momentum": 0.9, "lars_coeff": 0.1, "lars_weight_decay": 0.1, "epsilon": 0.05,
            "exclude_from_weight_decay": ["b"], "rescale_grad": 0.5,
        },
    ),
}  # fmt: skip


def trajectory(api, make, watched=WATCHED):
    """Returns the parameters after each step, as lists.

    Args:
        api: :class:`Fluid` or :class:`Static`.
        make: ``loss -> None``: appends the update.
        watched: Names of variables.
    """
    main, startup, scope = api.Program(), api.Program(), api.Scope()
    found = []
    with api.guard(main, startup), api.names(), api.scope(scope):
        loss = net(api)
        make(loss)
        exe = api.Executor(api.place)
        exe.run(startup)
        for step in range(STEPS):
            exe.run(main, feed=feed(step), fetch_list=[loss])
            found.append(values(scope, watched))
    return found


def values(scope, names=WATCHED):
    """Returns values of a scope, as flat lists."""
    return {n: [float(v) for v in np.array(scope.find_var(n).get_tensor()).ravel()] for n in names}


def fluid_rules(fluid):
    """Trajectories of the rules of ``fluid.optimizer``."""

    def make(loss, cls, kwargs):
        getattr(fluid.optimizer, cls)(**kwargs).minimize(loss)
        for op in loss.block.ops:
            # 1.8.5 gives the op l1 in the place of l2; 2.x does not.
            if op.type == "ftrl":
                op._set_attr("l2", kwargs.get("l2", 0.0))

    api = Fluid(fluid)
    return {
        name: trajectory(api, lambda loss, c=cls, kw=kwargs: make(loss, c, kw))
        for name, (cls, kwargs) in FLUID_RULES.items()
    }


def incubate_rules(paddle):
    """Trajectories of the rules of ``incubate.optimizer``."""
    rules = paddle.incubate.optimizer
    return {
        name: trajectory(
            Static(paddle), lambda loss, c=cls, kw=kwargs: getattr(rules, c + "Optimizer")(**kw).minimize(loss)
        )
        for name, (cls, kwargs) in INCUBATE_RULES.items()
    }


# --------------------------------------------------------------------------------------------------------------- averages
EMA = {"plain": {"decay": 0.9}, "scheduled": {"decay": 0.3}}
LAST = (STEPS - 1,)
WINDOWS = ((0.15, 2, 10), (0.5, 1, 3), (1.0, 100, 100))
LOOKAHEAD = ((0.5, 2), (0.8, 3), (0.25, 1))


def averaged(api, sgd, make, steps=range(STEPS)):
    """Returns the parameters after each step, and while averages are applied.

    Args:
        api: :class:`Fluid` or :class:`Static`.
        sgd: ``loss -> None``.
        make: ``() -> object with apply``, after ``sgd``.
        steps: After which steps.
    """
    main, startup, scope = api.Program(), api.Program(), api.Scope()
    found = []
    with api.guard(main, startup), api.names(), api.scope(scope):
        loss = net(api)
        sgd(loss)
        average = make()
        exe = api.Executor(api.place)
        exe.run(startup)
        for step in range(STEPS):
            exe.run(main, feed=feed(step), fetch_list=[loss])
            if step not in steps:
                continue
            before = values(scope)
            with average.apply(exe):
                applied = values(scope)
            assert values(scope) == before
            found.append({"trained " + n: v for n, v in before.items()})
            found[-1].update({"applied " + n: v for n, v in applied.items()})
    return found


def ema_of(static, how, counter):
    """Makes an exponential moving average and its update."""
    more = {"thres_steps": counter()} if how == "scheduled" else {}
    ema = static.ExponentialMovingAverage(**EMA[how], **more)
    ema.update()
    return ema


WEIGHT_NORM = {"one length": None, "rows": 0, "columns": 1}


def normalised(api, attr, sgd, dim):
    """Returns direction, length and bias after each step; the weight starts as in the net."""
    main, startup, scope = api.Program(), api.Program(), api.Scope()
    found = []
    with api.guard(main, startup), api.names(), api.scope(scope):
        x, y = api.data("x", [6, 3]), api.data("y", [6, 2])
        weight = attr(dim=dim, name="w", initializer=api.assign(ramp([3, 2], -0.5, 0.7, 0)))
        out = api.fc(x, 2, "tanh", weight, _start(api, "b", [2], 1))
        loss = api.mean(api.square(out - y))
        sgd(loss)
        exe = api.Executor(api.place)
        exe.run(startup)
        for step in range(STEPS):
            exe.run(main, feed=feed(step), fetch_list=[loss])
            found.append(values(scope, ("w_v", "w_g", "b")))
    return found


def of_1(fluid):
    """Everything that is recorded from 1.8.5."""
    api = Fluid(fluid)
    rules = fluid.optimizer

    def sgd(loss):
        rules.SGD(0.3).minimize(loss)

    def counter():
        return fluid.layers.autoincreased_step_counter("@COUNTER@", begin=0)

    return {
        "rules": fluid_rules(fluid),
        # Its apply overwrites the averages themselves, so that only the first one is right.
        "ema": {how: averaged(api, sgd, lambda h=how: ema_of(rules, h, counter), LAST) for how in EMA},
        "windows": [averaged(api, sgd, lambda w=w: rules.ModelAverage(*w)) for w in WINDOWS],
        "weight norm": {n: normalised(api, fluid.WeightNormParamAttr, sgd, d) for n, d in WEIGHT_NORM.items()},
    }


def two_in_one(paddle):
    """Programs with two optimizers; Python 3.7 cannot read their file."""
    from tests.optimizer import two_in_one

    return two_in_one.answers(paddle)


def of_2(paddle):
    """Everything that is recorded from 2.6.2."""
    api = Static(paddle)

    def sgd(loss):
        paddle.optimizer.SGD(0.3).minimize(loss)

    def ahead(loss, alpha, k):
        paddle.incubate.LookAhead(paddle.optimizer.SGD(0.3), alpha=alpha, k=k).minimize(loss)

    def window(rate, least, most):
        return paddle.incubate.ModelAverage(rate, min_average_window=least, max_average_window=most)

    return {
        "rules": incubate_rules(paddle),
        # Its thres_steps ends in a TypeError.
        "ema": {"plain": averaged(api, sgd, lambda: ema_of(paddle.static, "plain", None))},
        "windows": [averaged(api, sgd, lambda w=w: window(*w)) for w in WINDOWS],
        # Its gradients have wrong shapes where dim is given.
        "weight norm": {"one length": normalised(api, paddle.static.WeightNormParamAttr, sgd, None)},
        "lookahead": [trajectory(api, lambda loss, c=choice: ahead(loss, *c)) for choice in LOOKAHEAD],
        "two in one": two_in_one(paddle),
    }
