"""Arguments that differ from Paddle's on purpose, and why."""

from __future__ import annotations

_VARIABLES = "fluid.Variable fluid.framework.Variable static.Variable framework.io_utils.Variable Tensor"
_PARAMETERS = "*framework.Parameter static.Parameter framework.io_utils.Parameter"
_MADE = "programs make them (static.data, Block.create_var, create_parameter, Block.append_op), scripts do not"
_EAGER = "a method of 1.8's eager layers; the class is nn.Layer, whose methods are those of 2.x, as 2.4's fluid.Layer"
_CALLED = "layers are called, with one tensor by position; the parameter has one name in all networks"
_STANDS = "None means that value"

CHOSEN: tuple[tuple[str, str, str], ...] = (
    (_VARIABLES, "*", _MADE),
    (_PARAMETERS, "*", _MADE),
    ("static.Operator fluid.framework.Operator", "*", _MADE),
    ("*.decorator.OptimizerWithMixedPrecision", "*", "it is made by decorate, from the arguments that Paddle's constructor takes"),
    (
        "*.decorator.OptimizerWithMixedPrecision.apply_gradients", "lacks scaled_params_grads",
        "the name of 2.4 and 2.6; the function of 1.8 took scaled gradients, which nobody else makes",
    ),
    ("fluid.*.load_dict fluid.*.set_dict fluid.*.named_sublayers fluid.*.sublayers", "*", _EAGER),
    ("fluid.*.nanmedian", "keepdim is (False,), not (True,)", "Variables have one class, with the default of 2.6"),
    ("fluid.dygraph.nn.SpectralNorm.forward nn.SpectralNorm.forward", "*", _CALLED),
    ("vision.models.*.forward", "*", _CALLED),
    (
        "fluid.incubate.fleet.collective.CollectiveOptimizer", "strategy is *",
        "a new strategy for each optimizer: Paddle's default is one object that all of them share",
    ),
    (
        "fluid.io.DataLoader fluid.reader.DataLoader", "return_list is *",
        "with a feed_list False, as in 1.8, where it must be given then; without one True, as in 2.4",
    ),
    ("fluid.layers.*Cell.get_initial_states", "dtype is *", "None takes the cell's type; by default that is float32"),
    ("fluid.optimizer.RecomputeOptimizer.load", "lacks stat_dict", "always an error, as in Paddle; the name is that of 2.4"),
    ("*check_shape", "expected_*", _STANDS),
    (
        "fluid.layers.control_flow.flatten", "*",
        "the layer; what Paddle's module of this path imports for itself is another function of that name",
    ),
    (
        "callbacks.ProgBarLogger callbacks.ProgBarLogger.*", "*",
        "callbacks are those of tstatic.callbacks.train: there is no paddle.Model, whose loop Paddle's follow",
    ),
    ("distributed.irecv", "src is *", "it is distributed.recv, which receives from process 0 by default; None names no process"),
    ("distributed.new_group", "timeout is *", "None: the wait that the group of all processes has"),
    ("distributed.fleet.utils.LocalFS.cat", "fs_path is *", "None is not a path"),
    ("incubate*.ModelAverage.*", "executor is *", "None is for eager mode; Paddle needs an Executor in programs, too"),
    ("fluid.clip.GradientClipBase", "lacks need_clip", "a base class, without arguments in 2.4; each clip takes need_clip"),
    (
        "fluid.layers.nn.Normal fluid.layers.metric_op.Normal", "*",
        "the distribution of fluid.layers; what Paddle's modules of these paths import for themselves is the initializer",
    ),
    ("onnx.export", "*", "programs are exported, not layers; see onnx.md"),
    (
        "static.Executor.run", "use_prune is at 9, not 8",
        "2.6 dropped return_merged, which 2.4 has in its place; the Executor is that of fluid, too",
    ),
    ("static.amp*.cast_parameters_to_fp16", "master_weights is *", "None: Paddle's default is one dict that all calls share"),
    (
        "static.amp.decorate", "*",
        "2.6 has both signatures of one function, chosen by the keywords, and so has it here; recorded is the older one alone",
    ),
)  # fmt: skip
"""Patterns of paths below ``paddle``, a pattern of differences, and the reason."""
