"""The 1.x names, as a package of alias modules: each is filled from the names that are exported beside the op definitions.

* ``core``  what scripts take from Paddle's compiled module
* ``as_paddle``  runs a script in which ``paddle`` is this package
* ``device``, ``utils``, ``compat``  small modules of Paddle beside ``fluid``, which users know as ``paddle.device`` and so on

The other modules only pass on names and have no files: each is a call of ``facade_module`` below. Few names are more than
aliases: ``layers.data`` prepends the batch axis, and full reductions give shape ``[1]``.
"""

from tstatic.ir.export import facade, facade_module

__getattr__, __dir__ = facade(
    __name__,
    modules=(
        "average backward clip compiler contrib core data_feeder dataset dygraph executor framework generator incubate "
        "evaluator initializer input install_check io layer_helper layers lod_tensor metrics nets optimizer parallel_executor "
        "param_attr profiler reader regularizer transpiler unique_name"
    ),
    others={
        "tstatic.fluid.device": "XPUPlace",
        "tstatic.flags": "get_flags, set_flags",
        "tstatic.ir.declare": "default_main_program, default_startup_program, program_guard",
        "tstatic.ir.program": "Program, Variable",
        "tstatic.places": (
            "CPUPlace, CUDAPinnedPlace, CUDAPlace, cpu_places, cuda_places, is_compiled_with_cuda, is_compiled_with_xpu"
        ),
        "tstatic.runtime.scope": "LoDTensor, LoDTensor Tensor, LoDTensorArray, Scope, global_scope, scope_guard",
        "tstatic.static": "BuildStrategy, CompiledProgram, ExecutionStrategy, Executor, ParallelExecutor",
        "tstatic.static.mode": (
            "disable_static enable_dygraph, enable_static disable_dygraph, in_dynamic_mode in_dygraph_mode"
        ),
        "tstatic.fluid.utils": "require_version",
    },
)

# ----------------------------------------------------------------------------------------------------- functions, classes
facade_module(
    "fluid.layers",
    "the layer functions, also under the module paths that 1.x scripts import them from.",
    modules=(
        "collective control_flow detection device io learning_rate_scheduler loss metric_op nn ops sequence_lod tensor"
    ),
    others={
        "tstatic": "acosh, asinh, atanh, ceil_, dot, exp_, expm1, floor_, lgamma, reciprocal_, round_, rsqrt_, sqrt_"
    },
)
facade_module("fluid.layers.nn", "the layer functions.", "fluid.layers", "fluid.layers.nn", others={"tstatic": "dot"})
facade_module(
    "fluid.layers.ops",
    "the elementwise functions.",
    "fluid.layers",
    "fluid.layers.ops",
    others={"tstatic": "acosh, asinh, atanh, ceil_, exp_, expm1, floor_, lgamma, reciprocal_, round_, rsqrt_, sqrt_"},
)
facade_module("fluid.layers.tensor", "the tensor functions.", "fluid.layers", "fluid.layers.tensor")
facade_module("fluid.layers.control_flow", "branches and loops.", "fluid.layers", "fluid.layers.control_flow")
facade_module("fluid.layers.io", "declaring inputs.", "fluid.layers", "fluid.layers.io")
facade_module("fluid.layers.sequence_lod", "sequences of different lengths.", "fluid.layers")
# Of these, too, each has all names, as scripts of several versions look for a layer in different ones.
facade_module("fluid.layers.loss", "losses, among the other layers.", "fluid.layers")
facade_module("fluid.layers.detection", "boxes in images, among the other layers.", "fluid.layers")
facade_module("fluid.layers.metric_op", "metrics, among the other layers.", "fluid.layers")
facade_module("fluid.layers.device", "places to run on.")
facade_module("fluid.layers.collective", "collectives between processes.")
facade_module("fluid.layers.learning_rate_scheduler", "learning rates computed by ops of the program.")
facade_module("fluid.nets", "small composed networks.")
facade_module("fluid.transpiler", "what Paddle 1.x rewrote programs with.", modules="details")
facade_module("fluid.transpiler.details", "programs as text.", modules="program_utils")
facade_module("fluid.transpiler.details.program_utils", "programs as text.")
facade_module("fluid.dygraph", "layer classes under their 1.x names; there is no eager mode.", modules="nn")
facade_module("fluid.dygraph.nn", "layer classes under their 1.x names.")

# ------------------------------------------------------------------------------------------------- what they are built with
facade_module(
    "fluid.initializer",
    "how parameters get their first value.",
    others={"tstatic.nn.initializer": "Initializer, set_global_initializer"},
)
facade_module("fluid.regularizer", "weight decay.", others={"tstatic.nn.regularizer": "WeightDecayRegularizer"})
facade_module("fluid.clip", "gradient clipping.", others={"tstatic.nn.clip": "ClipGradBase GradientClipBase"})
facade_module("fluid.param_attr", "settings of one parameter.")
facade_module(
    "fluid.layer_helper", "the helper that layers are written with.", others={"tstatic.nn.param": "LayerHelper"}
)
facade_module(
    "fluid.unique_name",
    "generated names and guards.",
    others={"tstatic.ir.names": "UniqueNameGenerator, generate, generate_with_ignorable_key, guard, switch"},
)

# --------------------------------------------------------------------------------------------------- gradients and updates
facade_module("fluid.backward", "gradients as ops.")
facade_module(
    "fluid.optimizer",
    "the 1.x spellings of the update rules.",
    others={"tstatic.optimizer.optimizer": "Optimizer"},
)

# -------------------------------------------------------------------------------------- programs, running and saving them
facade_module(
    "fluid.framework",
    "programs, blocks, operators and variables.",
    others={
        "tstatic.ir.declare": (
            "default_main_program, default_startup_program, device_guard, name_scope, program_guard, "
            "switch_main_program, switch_startup_program"
        ),
        "tstatic.ir.operator": "OpRole",
        "tstatic.ir.program": "Block, Operator, Parameter, Program, Variable",
        "tstatic.flags": "get_flags, set_flags",
        "tstatic.places": "cpu_places, cuda_places, is_compiled_with_cuda, is_compiled_with_xpu",
        "tstatic.static.mode": "in_dynamic_mode, in_dynamic_mode in_dygraph_mode",
        "tstatic.fluid.utils": "require_version",
    },
)
facade_module(
    "fluid.executor",
    "the Executor and scopes.",
    others={"tstatic.runtime.scope": "global_scope, scope_guard", "tstatic.static.run.executor": "Executor"},
)
facade_module(
    "fluid.compiler",
    "compiled programs and strategies.",
    others={
        "tstatic.static.run.compiled_program": "CompiledProgram",
        "tstatic.static.strategy": "BuildStrategy, ExecutionStrategy",
    },
)
facade_module(
    "fluid.parallel_executor",
    "programs on several places.",
    others={
        "tstatic.static.run.parallel_executor": "ParallelExecutor",
        "tstatic.static.strategy": "BuildStrategy, ExecutionStrategy",
    },
)
facade_module("fluid.install_check", "whether the installation works.", others={"tstatic.fluid.utils": "run_check"})
facade_module("fluid.input", "the layers that look up rows.")
facade_module(
    "fluid.contrib",
    "what Paddle 1.x added beside its layers: mixed precision, and recurrent layers.",
    modules="layers mixed_precision",
)
facade_module("fluid.contrib.layers", "recurrent layers of 1.x programs.")
facade_module(
    "fluid.contrib.mixed_precision",
    "mixed precision; ``decorate`` has the arguments of 1.x.",
    modules="bf16 decorator fp16_lists fp16_utils",
    others={
        "tstatic.static.amp.lists": "AutoMixedPrecisionLists, AutoMixedPrecisionLists CustomOpLists",
        "tstatic.static.amp.rewrite": "cast_model_to_fp16, cast_parameters_to_fp16, fp16_guard",
    },
)
facade_module(
    "fluid.contrib.mixed_precision.decorator",
    "the optimizer of mixed precision.",
    others={
        "tstatic.static.amp.lists": "AutoMixedPrecisionLists",
        "tstatic.optimizer.mixed_precision": "OptimizerWithMixedPrecision",
    },
)
facade_module(
    "fluid.contrib.mixed_precision.fp16_lists",
    "which ops run in 16 bits.",
    others={
        "tstatic.static.amp.lists": (
            "AutoMixedPrecisionLists, AutoMixedPrecisionLists CustomOpLists, black_list, gray_list, white_list"
        )
    },
)
facade_module("fluid.contrib.mixed_precision.fp16_utils", "rewriting programs.", "static.amp.fp16_utils")
facade_module("fluid.contrib.mixed_precision.bf16", "mixed precision with bfloat16.", "static.amp.bf16")
facade_module("fluid.io", "saving and loading, readers of samples, and loaders.", others={"tstatic.io": "Dataset"})
facade_module("fluid.dataset", "data sets of files.")
facade_module("fluid.reader", "loaders, under the module path of Paddle 1.x.")
facade_module("fluid.metrics", "metrics that add up fetched values.")
facade_module("fluid.evaluator", "metrics that ops of the program add up.")
facade_module("fluid.average", "a weighted mean of fetched values.")
facade_module(
    "fluid.lod_tensor",
    "tensors of sequences of different lengths.",
    others={"tstatic.io.lod_tensor": "create_lod_tensor, create_random_int_lodtensor"},
)
facade_module("fluid.data_feeder", "lists of samples as feeds.")
facade_module("fluid.generator", "generators are not part of tstatic, and asking for one says what to use.")
facade_module("fluid.profiler", "a table of how long operators take.")

# ------------------------------------------------------------------------------------------------------------- fleet of 1.x
facade_module("fluid.incubate", "what Paddle 1.x tried out: fleet.", modules="data_generator fleet")
facade_module("fluid.incubate.data_generator", "programs that print the text of data sets of files.")
facade_module("fluid.incubate.fleet", "distributed training.", modules="base collective")
facade_module(
    "fluid.incubate.fleet.collective",
    "training by collectives.",
    others={"tstatic.distributed.fleet.older": "CollectiveOptimizer, DistributedStrategy, fleet"},
)
facade_module("fluid.incubate.fleet.base", "role makers.", modules="role_maker")
facade_module(
    "fluid.incubate.fleet.base.role_maker",
    "who this process is.",
    others={
        "tstatic.distributed.fleet.older": "OlderRoleMaker UserDefinedRoleMaker",
        "tstatic.distributed.fleet.role_maker": "PaddleCloudRoleMaker, Role, RoleMakerBase, UserDefinedCollectiveRoleMaker",
    },
)
