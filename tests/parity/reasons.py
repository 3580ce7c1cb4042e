"""Why public functions have no recorded call or gradient; `test_census.py` finds what is missing here and what is stale."""

from __future__ import annotations


def _each(prefix: str, names: str, reason: str) -> dict[str, str]:
    return {prefix + name: reason for name in names.split()}


OTHER_MODULES: dict[str, str] = {
    "amp.": "what the machine can do; mixed precision is compared by tests/amp",
    "compat.": "texts and numbers of Python, for scripts of Python 2: no tensors",
    "callbacks.": "training loops of tstatic's own",
    "device.": "devices of the machine",
    "distributed.": "several processes; compared with Paddle by tests/distributed",
    "errors.": "errors of tstatic's own",
    "fluid.backward.": "helpers that scripts import: tests/api/test_internals.py",
    "fluid.contrib.mixed_precision.": "mixed precision is compared by tests/amp",
    "fluid.core.": "facts of the library",
    "fluid.data_feeder.": "checks of arguments: tests/api/test_internals.py",
    "fluid.executor.": "runs programs: every recorded call goes through it",
    "fluid.framework.": "programs and their variables",
    "fluid.incubate.": "several processes; compared with Paddle by tests/distributed",
    "fluid.io.": "files and readers; compared with Paddle's files by tests/cpu/test_paddle_files.py",
    "fluid.layers.collective.": "several processes; compared with Paddle by tests/distributed",
    "fluid.layers.device.": "devices of the machine",
    "fluid.layers.learning_rate_scheduler.": "a counter of steps; the schedules that read it are compared by tests/optimizer",
    "fluid.reader.": "readers: tests/io",
    "fluid.transpiler.": "text of programs",
    "fluid.unique_name.": "names of variables: tests/parity/programs.py has those of layers",
    "framework.": "programs and their variables",
    "inference.": "runs saved programs; compared with Paddle's files by tests/cpu/test_paddle_files.py",
    "io.": "readers and loaders; compared with Paddle by tests/io",
    "onnx.": "writes files: tests/onnx compares them with onnxruntime",
    "profiler.": "measures how long runs take",
    "reader.": "readers of Python values",
    "static.amp": "mixed precision is compared with Paddle by tests/amp",
    "static.io.": "files; compared with Paddle's by tests/cpu/test_paddle_files.py",
    "utils.": "tools around the library",
    "version.": "facts of the library",
    "vision.datasets.": "files of data sets; compared with Paddle by tests/dataset",
    "vision.models.": "whole networks; compared with Paddle by tests/vision",
    "vision.transforms.": "images on the host; compared with Paddle by tests/vision",
}
"""Start of a module's path -> what it holds instead of functions of tensors, and which tests compare that."""

_LSTM = "recurrence/recorded_2x.json: programs"
_OLD = "recurrence/recorded.json: programs"
_RULES = "optimizer/recorded.json: 1.8.5 > rules"
ELSEWHERE: dict[str, str] = {
    **{f"nn.{name}": f"{_LSTM} > {name} > gradients" for name in ("GRU", "LSTM", "SimpleRNN")},
    "fluid.contrib.basic_gru": f"{_OLD} > basic_gru > gradients",
    "fluid.contrib.basic_lstm": f"{_OLD} > basic_lstm > gradients",
    "fluid.layers.GRUCell": f"{_OLD} > rnn GRUCell > gradients",
    "fluid.layers.LSTMCell": f"{_OLD} > rnn LSTMCell > gradients",
    "fluid.layers.IfElse": f"{_OLD} > IfElse > gradients",
    "static.nn.While": f"{_OLD} > arrays in While > gradients",
    "array_read": f"{_OLD} > arrays in While > gradients",
    "array_write": f"{_OLD} > arrays in While > gradients",
    "array_length": f"{_OLD} > arrays in While",
    "create_array": f"{_OLD} > arrays in While",
    "static.nn.StaticRNN": f"{_OLD} > static_rnn > gradients",
    "fluid.layers.DynamicRNN": "structured/fluid.json: dynamic_rnn",
    "fluid.layers.BasicDecoder": f"{_OLD} > decode training",
    "fluid.layers.TrainingHelper": f"{_OLD} > decode training",
    "fluid.layers.GreedyEmbeddingHelper": f"{_OLD} > decode greedy",
    "nn.BeamSearchDecoder": f"{_OLD} > decode beam",
    "nn.dynamic_decode": f"{_OLD} > decode beam",
    "fluid.layers.beam_search": "structured/fluid.json: beam_steps",
    "fluid.layers.beam_search_decode": "structured/fluid.json: decoded_beams",
    "fluid.layers.chunk_eval": "structured/fluid.json: chunks_lod",
    "static.nn.crf_decoding": "structured/fluid.json: crf_lod",
    "static.nn.static_pylayer": "detection/paddle.json: static_pylayer",
    "fluid.optimizer.DecayedAdagrad": f"{_RULES} > decayed adagrad",
    "fluid.optimizer.Dpsgd": f"{_RULES} > dpsgd",
    "fluid.optimizer.Ftrl": f"{_RULES} > ftrl",
    "incubate.optimizer.LarsMomentumOptimizer": "optimizer/recorded.json: 2.6.2 > rules > lars",
    "static.ExponentialMovingAverage": "optimizer/recorded.json: 2.6.2 > ema > plain",
    "incubate.LookAhead": "optimizer/recorded.json: 2.6.2 > lookahead",
    "incubate.ModelAverage": "optimizer/recorded.json: 2.6.2 > windows",
    "fluid.optimizer.ModelAverage": "optimizer/recorded.json: 1.8.5 > windows",
    "static.WeightNormParamAttr": "optimizer/recorded.json: 2.6.2 > weight norm",
    "incubate.optimizer.GradientMergeOptimizer": "optimizer/recorded.json: 2.6.2 > two in one > merged chosen",
    "static.ctr_metric_bundle": "detection/paddle.json: ctr_metric_bundle",
}
"""Public path -> the record of another folder that has its numbers, gradients included: file, then keys."""

OF_PROGRAMS: dict[str, list[str]] = {
    "programs.cond_true": ["static.nn.cond"],
    "programs.case_first": ["static.nn.case"],
    "programs.switch_two": ["static.nn.switch_case"],
    "programs.while_gradient": ["static.nn.while_loop"],
    "programs.py_func_gradient": ["static.py_func"],
    "programs.assert_true": ["static.nn.Assert"],
    "programs.detached": ["Variable.detach"],
    "programs.append_backward_pairs": ["static.append_backward"],
    "programs.gradient_of_gradient": ["static.gradients"],
    "programs.name_scopes": ["static.name_scope"],
}
"""Program of `programs.py` -> the public functions that it is about."""

_EAGER = "Paddle 2.6.2 has it in eager mode only"
_STATE = "switches, seeds and modes of the process: no operator"
_OBJECT = "makes or describes an object: no operator, and no number of its own"
_FILES = "files; compared with Paddle's by tests/cpu/test_paddle_files.py"
_BASE = "a base class, whose subclasses are compared"
_OWN = "a name of tstatic's own, which no Paddle has"
_SCHEDULE = "a schedule as an operator; Paddle 1.8.5's rates are those of the 2.x class, which is compared"
_READER = "reads data from Python: tests/io compares what is fed"
_CRASH = (
    "the process of Paddle 2.6.2 ends (signal 11) when the CPU kernel runs in a program; torch is asked by tests/ops"
)
NO_CALL: dict[str, str] = {
    **_each("", "as_strided cauchy_ geometric_ normal_ uniform_ unfold view view_as", _EAGER),
    **_each(
        "",
        "CPUPlace CUDAPinnedPlace CUDAPlace ParamAttr Tensor dtype finfo iinfo batch flops summary check_shape XPUPlace",
        _OBJECT,
    ),
    **_each(
        "",
        "disable_signal_handler disable_static enable_static enable_grad no_grad set_grad_enabled is_grad_enabled get_flags "
        "set_flags get_rng_state set_rng_state get_cuda_rng_state set_cuda_rng_state seed set_printoptions show_versions "
        "get_device set_device in_dynamic_mode is_compiled_with_cinn is_compiled_with_cuda is_compiled_with_custom_device "
        "is_compiled_with_distribute is_compiled_with_ipu is_compiled_with_mlu is_compiled_with_npu is_compiled_with_rocm "
        "is_compiled_with_xpu",
        _STATE,
    ),
    **_each("", "load save", _FILES),
    **_each("", "from_torch register_kernel", _OWN),
    "grad": "Paddle's is for eager mode; static.gradients is what every recorded gradient goes through",
    "create_tensor": "declares a variable: no operator",
    "swapaxes": "Paddle 2.6.2 lacks it",
    "tensor_array_to_tensor": "Paddle 2.6.2's fails on arrays of a program; tests/recurrence/test_arrays.py has the numbers",
    "linalg.eig": "eigenvectors have any phase; tests/numbers compares what does not depend on it",
    **_each(
        "Variable.",
        "backward get_value set_value item numpy to_string",
        "asks a Variable for its value or text: no operator of a program",
    ),
    **_each("Variable.", "__rfloordiv__ __rmod__", "Paddle 2.6.2 refuses a number on the left of these operators"),
    "Variable.__setitem__": "Paddle 2.6.2 refuses the statement in a program; static.setitem, which it names instead, is compared",
    "Variable.stack": "Paddle's method of a list of tensors cannot be called on one",
    **_each("distribution.", "Distribution ExponentialFamily Transform", _BASE),
    "distribution.register_kl": "registers a formula: no operator",
    **_each(
        "geometric.",
        "sample_neighbors weighted_sample_neighbors",
        "Paddle 2.6.2's CPU kernel raises 'vector::_M_default_append'; neighbours are drawn",
    ),
    "incubate.graph_sample_neighbors": "Paddle 2.6.2's CPU kernel raises 'vector::_M_default_append'; neighbours are drawn",
    **_each(
        "incubate.nn.functional.",
        "fused_bias_dropout_residual_layer_norm fused_feedforward fused_layer_norm fused_linear_activation "
        "fused_multi_head_attention fused_rms_norm fused_rotary_position_embedding "
        "variable_length_memory_efficient_attention",
        "Paddle has no kernel for it on a CPU; tests/parity/test_older_calls.py has the formula",
    ),
    "incubate.softmax_mask_fuse_upper_triangle": "Paddle has no kernel for it on a CPU",
    "incubate.optimizer.RecomputeOptimizer": "changes when values are computed only: tests/optimizer/test_recompute.py",
    **_each("vision.ops.", "psroi_pool PSRoIPool", _CRASH),
    **_each("vision.ops.", "decode_jpeg read_file", "decodes files of images on the host"),
    **_each("vision.", "get_image_backend set_image_backend image_load", "decodes files of images on the host"),
    **_each("nn.", "Layer Decoder RNNCellBase", _BASE),
    **_each("nn.", "LayerDict LayerList ParameterList", "holds layers or parameters, which are compared"),
    "nn.SyncBatchNorm": "Paddle has no kernel for it on a CPU",
    "nn.clip_by_norm": "of Paddle 1.8 as fluid.layers.clip_by_norm, one function with it",
    **_each("nn.functional.", "birnn rnn", "names of tstatic for what nn.BiRNN and nn.RNN do, which are compared"),
    "nn.functional.class_center_sample": "draws class centres at random; margin_cross_entropy, which takes them, is held to torch",
    "nn.functional.margin_cross_entropy": "Paddle has no kernel for it on a CPU",
    "nn.functional.group_norm": "Paddle 2.6.2 lacks it; nn.GroupNorm is compared",
    **_each("nn.initializer.", "Initializer", _BASE),
    **_each("nn.initializer.", "default_initializer dtype_of fans", _OWN),
    "nn.initializer.set_global_initializer": "programs.global_initializer has its parameters; it returns nothing",
    **_each(
        "nn.",
        "remove_weight_norm weight_norm spectral_norm",
        "Paddle 2.6.2 writes to parameters, which fails in a program",
    ),
    **_each("nn.utils.", "parameters_to_vector vector_to_parameters", "Paddle 2.6.2's are for eager tensors"),
    "optimizer.Optimizer": _BASE,
    "optimizer.lr.LRScheduler": _BASE,
    "regularizer.WeightDecayRegularizer": _BASE,
    **_each(
        "metric.", "Accuracy Auc Metric Precision Recall", "counts on the host; compared with Paddle by tests/metrics"
    ),
    **_each(
        "fluid.metrics.",
        "Accuracy Auc ChunkEvaluator CompositeMetric EditDistance MetricBase Precision Recall",
        "counts on the host; compared with Paddle by tests/metrics",
    ),
    **_each(
        "fluid.evaluator.",
        "ChunkEvaluator DetectionMAP EditDistance",
        "counts over batches; compared with Paddle by tests/metrics",
    ),
    "fluid.average.WeightedAverage": "an average on the host: tests/metrics",
    **_each(
        "static.",
        "BuildStrategy CompiledProgram ExecutionStrategy Executor RunFuture InputSpec IpuCompiledProgram IpuStrategy Operator "
        "ParallelExecutor Parameter Program Scope cpu_places cuda_places xpu_places default_main_program "
        "default_startup_program device_guard global_scope ipu_shard_guard program_guard scope_guard set_ipu_shard "
        "normalize_program is_persistable",
        _OBJECT,
    ),
    **_each(
        "static.",
        "load_vars save_vars deserialize_persistables deserialize_program load load_from_file load_inference_model "
        "load_program_state save save_inference_model save_to_file serialize_persistables serialize_program "
        "set_program_state CheckpointManager",
        _FILES,
    ),
    **_each("static.", "fuse_together no_fuse", _OWN),
    "static.Print": "prints and passes its argument on: tests/cpu",
    "static.exponential_decay": _SCHEDULE,
    "static.nn.nce": "draws classes at random; with its own table it is compared by tests/detection",
    "static.nn.sparse_embedding": "Paddle's needs servers of parameters",
    **_each(
        "text.",
        "Conll05st Imdb Imikolov Movielens UCIHousing WMT14 WMT16",
        "files of data sets; compared with Paddle by tests/dataset",
    ),
    **_each(
        "fluid.",
        "DataFeeder DatasetFactory LoDTensor LoDTensorArray create_lod_tensor create_random_int_lodtensor "
        "memory_optimize release_memory",
        _OBJECT,
    ),
    **_each("fluid.", "load_dygraph save_dygraph", _FILES),
    **_each(
        "fluid.clip.",
        "GradientClipByGlobalNorm append_gradient_clip_ops set_gradient_clip",
        "sets a clip, which is compared as nn.ClipGradBy* of every optimizer",
    ),
    **_each("fluid.contrib.", "BasicGRUUnit BasicLSTMUnit", "a step of basic_gru and basic_lstm, which are compared"),
    **_each(
        "fluid.initializer.",
        "MSRA Normal TruncatedNormal Uniform Xavier",
        "draws numbers as the initializer of paddle.nn.initializer does, which is compared",
    ),
    **_each("fluid.layers.", "DecodeHelper RNNCell", _BASE),
    **_each(
        "fluid.layers.",
        "cosine_decay inverse_time_decay linear_lr_warmup natural_exp_decay noam_decay piecewise_decay polynomial_decay",
        _SCHEDULE,
    ),
    **_each("fluid.layers.", "create_py_reader_by_data data double_buffer py_reader read_file", _READER),
    **_each("fluid.layers.", "SampleEmbeddingHelper random_crop sampling_id", "draws at random"),
    "fluid.layers.Switch": "chooses a branch as static.nn.case does, which is compared",
    "fluid.layers.autoincreased_step_counter": "a counter of steps: tests/optimizer",
    "fluid.data": "declares what is fed: every recorded call of Paddle 1.8.5 goes through it",
    "fluid.clip.GradientClipBase": _BASE,
    **_each(
        "fluid.clip.",
        "ErrorClipByValue error_clip_callback",
        "clips gradients of values on their way: tests/optimizer and tests/parity/test_older_calls.py",
    ),
    "fluid.layers.hash": "Paddle 1.8.5 fails in its own check of the arguments",
    "fluid.layers.load": _FILES,
    "fluid.layers.Print": "prints and passes its argument on: tests/cpu",
    "fluid.optimizer.append_regularization_ops": "adds decays as minimize does, which is compared with every optimizer",
    "fluid.layers.resize_linear": "Paddle 1.8.5 lacks it; nn.functional.interpolate is compared",
    "fluid.layers.lstm": "Paddle's is for a GPU only; nn.LSTM is compared",
    **_each(
        "fluid.optimizer.",
        "Adadelta Adagrad Adam AdamW Adamax Lamb Momentum RMSProp SGD",
        "the older arguments of the optimizer of paddle.optimizer, whose rule is compared there",
    ),
}
"""Public path -> why no recorded call of Paddle has an answer."""

_STOPPED = "Paddle stops the gradient in a program; test_slopes.py holds ours to finite differences"
_COUNTS = "a count of hits: piecewise constant"
NO_GRADIENT: dict[str, str] = {
    **_each("", "diag diag_embed diagflat", _STOPPED),
    **_each(
        "",
        "floor_mod Variable.__mod__ fluid.layers.elementwise_mod",
        "Paddle registers no gradient of a remainder; test_slopes.py holds ours to finite differences",
    ),
    "nn.functional.label_smooth": _STOPPED,
    "linalg.lstsq": _STOPPED,
    "linalg.eigvals": "Paddle's result has no gradient in a program; tests/ops has ours against finite differences",
    "linalg.matrix_rank": "a whole number: piecewise constant",
    "linalg.slogdet": "Paddle's gradient fails at a shape that it declares wrongly; test_slopes.py holds ours",
    "static.gradients": "its results are gradients themselves; their values are compared",
    "static.append_backward": "its results are gradients themselves; their values are compared",
    **_each("", "argsort fluid.layers.ctc_greedy_decoder", "the result is indices: whole numbers"),
    **_each(
        "",
        "fluid.layers.box_coder fluid.layers.yolo_box vision.ops.box_coder vision.ops.yolo_box",
        "boxes are answers, in Paddle without a gradient; ours is stopped, too",
    ),
    "fluid.layers.distribute_fpn_proposals": "boxes are sorted onto levels on the host; Paddle 1.8.5 has no gradient of it",
    "fluid.layers.eye": "made of Python numbers: nothing to differentiate",
    "full": "a value that is fed has no gradient in Paddle: fill_constant has none",
    "logspace": "made of Python numbers: nothing to differentiate",
    "exponential_": "random numbers that do not depend on what the tensor held",
    "randint_like": "random whole numbers",
    "static.accuracy": _COUNTS,
    "fluid.layers.accuracy": _COUNTS,
    **_each(
        "fluid.layers.",
        "argsort diag label_smooth topk",
        "Paddle 1.8.5 stops the gradient; test_slopes.py holds ours to finite differences",
    ),
}
"""Public path -> why no recorded call has a gradient although an operator that the call makes has one."""
