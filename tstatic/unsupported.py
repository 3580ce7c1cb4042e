"""Names of Paddle's API that tstatic does not have, and what to use instead.

Scripts import names that they never use. A declined name therefore is there, as a module and as an attribute, and raises when it is
called; a name that is merely missing is an AttributeError or ImportError.
"""

from __future__ import annotations

import dis
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import FrameType, ModuleType
from typing import Any, NoReturn

from tstatic.aliases import public_of
from tstatic.errors import UnsupportedError, near

_IMPORT_FROM = dis.opmap["IMPORT_FROM"]

__all__ = ["UNSUPPORTED", "Declined", "Unsupported", "add_namespace", "advice", "declined", "missing_in", "refuse"]


@dataclass(frozen=True, slots=True)
class Unsupported:
    """Names that are missing for one reason.

    Attributes:
        names: Below ``paddle``; a name also covers what lies below it.
        why: A sentence.
        use: What a script does instead.
        declined: Whether tstatic will not have them, as they are not part of static-graph training in one program.
    """

    names: tuple[str, ...]
    why: str
    use: str
    declined: bool = False


def _in(*places: str) -> Callable[[str], tuple[str, ...]]:
    return lambda text: tuple(f"{place}.{name}" for place in places for name in text.split())


_LAYERS = _in("fluid.layers")
_BOTH = _in("static.nn", "fluid.layers")

UNSUPPORTED: tuple[Unsupported, ...] = (
    Unsupported(
        (
            "jit", "Model", "DataParallel", "LazyGuard", "tolist",
            "autograd", "amp.GradScaler", "amp.auto_cast", "amp.decorate",
            "fluid.dygraph_grad_clip", "fluid.framework._test_eager_guard",
            "incubate.jit", "incubate.autograd",
            *_in("fluid.dygraph")(
                "BackwardStrategy BilinearTensorProduct Conv2D Conv2DTranspose Conv3D Conv3DTranspose CosineDecay DataParallel "
                "Dropout Embedding ExponentialDecay GRUUnit GroupNorm InstanceNorm InverseTimeDecay LambdaDecay LayerNorm Linear "
                "LinearLrWarmup MultiStepDecay NCE NaturalExpDecay NoamDecay PRelu ParallelEnv PiecewiseDecay PolynomialDecay "
                "Pool2D ProgramTranslator ReduceLROnPlateau SpectralNorm StaticModelRunner StepDecay TracedLayer Tracer TreeConv "
                "base checkpoint declarative dygraph_to_static dygraph_to_static_func enabled grad guard jit "
                "learning_rate_scheduler no_grad parallel prepare_context to_variable tracer"
            ),
        ),
        "There is no eager mode: tstatic builds programs and runs them",
        "static.data for inputs, layers on them, and static.Executor.run",
        declined=True,
    ),
    Unsupported(
        (
            *_in("distributed")(
                "CountFilterEntry ProbabilityEntry ShowClickEntry ps transpiler fleet.utils.DistributedInfer"
            ),
            *_in("fluid")("DistributeTranspiler DistributeTranspilerConfig incubate.fleet.parameter_server"),
            *_in("fluid.transpiler")("DistributeTranspiler DistributeTranspilerConfig HashName RoundRobin"),
            *_in("fluid.core")("run_cmd PSGPU GraphGpuWrapper DistFleetWrapper"),
            "fluid.incubate.fleet.utils",
            "incubate.distributed",
        ),
        "Parameter servers are not part of tstatic",
        "fleet.init(is_collective=True) and static.nn.embedding(is_sparse=True)",
        declined=True,
    ),
    Unsupported(
        _in("distributed")(
            "DistAttr ParallelMode Partial Placement ProcessMesh ReduceType Replicate Shard Strategy auto_parallel dtensor_from_fn "
            "load_state_dict passes reshard rpc save_state_dict shard_layer shard_optimizer shard_tensor sharding split to_static "
            "fleet.CommunicateTopology fleet.HybridCommunicateGroup fleet.meta_parallel fleet.auto"
        ),
        "Pipeline and tensor parallelism are not part of tstatic",
        "data parallelism: fleet.init(is_collective=True) in processes that python -m tstatic.distributed.launch starts",
        declined=True,
    ),
    Unsupported(
        (
            "quantization", "static.quantization", "nn.quant", "fluid.contrib.slim", "incubate.asp", "static.sparsity", "sparse",
            "nn.functional.sparse_attention", "fluid.contrib.sparsity",
        ),
        "Quantisation, pruned weights and sparse tensors are not part of tstatic",
        "static.amp.decorate(optimizer, dtype='bfloat16') for speed, nn.functional.embedding(sparse=True) for tables",
        declined=True,
    ),
    Unsupported(
        ("hub", "pir", "fluid.core.ProgramDesc", "fluid.core.OpDesc", "fluid.core.Graph",
         "fluid.core.VarDesc.infer_shape"),
        "Descriptions for other tools, and downloads, are not part of tstatic",
        "Program.to_string to read a program, static.save_inference_model for its file",
        declined=True,
    ),
    Unsupported(
        ("nn.utils.clip_grad_norm_", "nn.utils.clip_grad_value_"),
        "Gradients are variables of a program here, not attributes of parameters",
        "grad_clip=nn.ClipGradByGlobalNorm(norm) or nn.ClipGradByValue(value) of an optimizer",
        declined=True,
    ),
    Unsupported(
        (
            *_LAYERS("open_files random_data_generator"),
        ),
        "Readers of record files are not part of tstatic",
        "static.data(name, shape, dtype) for each variable that the reader gave, and 'loader = "
        "fluid.io.DataLoader.from_generator(feed_list=[image, label], capacity=8, iterable=False)'; then start(), exe.run "
        "without a feed, EOFException and reset() as before",
    ),
    Unsupported(
        ("optimizer.LBFGS", "incubate.optimizer.LBFGS"),
        "L-BFGS computes the loss eagerly, as often as a step needs it",
        "scipy.optimize.minimize(method='L-BFGS-B') around exe.run that fetches the loss and static.gradients, or optimizer.Adam",
        declined=True,
    ),
    Unsupported(
        ("static.nn.IfElse", "static.nn.ConditionalBlock", "fluid.layers.ConditionalBlock"),
        "Control flow is built from functions here",
        "static.nn.cond, case, switch_case and while_loop; fluid.layers.IfElse for rows",
    ),
    Unsupported(
        ("testing",),
        "tstatic.testing is loaded on demand, because it needs hypothesis",
        "'import tstatic.testing' or 'from tstatic import testing'",
    ),
    Unsupported(
        ("fluid.core.AnalysisConfig", "fluid.core.create_paddle_predictor"),
        "Predictors have the names of Paddle 2 here",
        "paddle.inference.Config and paddle.inference.create_predictor",
    ),
    Unsupported(
        ("distributed.fleet.utils.recompute", "distributed.fleet.recompute", "incubate.distributed.fleet.recompute_sequential"),
        "A function is computed again by Paddle in eager mode only; in a program, checkpoints say what is computed again",
        "strategy.recompute = True with strategy.recompute_configs = {'checkpoints': [hidden]}, or "
        "fluid.optimizer.RecomputeOptimizer",
        declined=True,
    ),
    Unsupported(
        ("inference.XpuConfig", "inference._get_phi_kernel_name"),
        "There are no XPUs, and operators have kernels of one name",
        "inference.Config for a CPU or an NVIDIA GPU",
        declined=True,
    ),
    Unsupported(
        ("amp.debugging", "static.amp.debugging"),
        "Mixed precision of eager training is not part of this release",
        "static.amp.decorate(optimizer, dtype='bfloat16')",
    ),
    Unsupported(
        _in("fluid.layers", "fluid.layers.detection", "fluid.layers.nn", "static.nn")(
            "anchor_generator bipartite_match box_clip box_decoder_and_assign collect_fpn_proposals deformable_roi_pooling "
            "density_prior_box detection_output generate_mask_labels generate_proposal_labels locality_aware_nms matrix_nms "
            "multi_box_head polygon_box_transform prroi_pool retinanet_detection_output retinanet_target_assign "
            "roi_perspective_transform rpn_target_assign sigmoid_focal_loss ssd_loss target_assign"
        ),
        "These layers of the detectors of 1.x are not part of tstatic",
        "vision.ops (nms, roi_align, prior_box, yolo_box, generate_proposals, distribute_fpn_proposals) and nn.functional",
    ),
    Unsupported(
        _in("fluid.layers", "fluid.layers.nn", "fluid.layers.tensor")(
            "addcmul addmm allclose arange clamp dist elementwise_equal flip full_like index_sample index_select logsumexp "
            "meshgrid nonzero randint randn randperm roll t trace"
        ),
        "Paddle 1.8 alone has these layers, and 2.0 has other arguments for them",
        "the function of that name in paddle, as in paddle.flip(x, axis=[0])",
    ),
    Unsupported(
        _in("fluid.layers", "fluid.layers.nn", "fluid.layers.control_flow")(
            "filter_by_instag get_tensor_from_selected_rows inplace_abn merge_selected_rows reorder_lod_tensor_by_rank "
            "similarity_focus"
        ),
        "Values are tensors here, also gradients of tables, and the plan decides what shares memory",
        "the value itself, fluid.layers.batch_norm(x, act='relu') for inplace_abn, fluid.layers.sequence_pad for sorted batches",
    ),
    Unsupported(
        _in("fluid")(
            "DataFeedDesc DistMultiTrainer HashName HeterPipelineTrainer HeterXpuTrainer MultiTrainer PipelineTrainer RoundRobin "
            "TrainerDesc"
        ),
        "Trainers of descriptions and parameter servers are not part of tstatic",
        "Executor.train_from_dataset with fluid.DatasetFactory",
        declined=True,
    ),
    Unsupported(
        (
            *_in("fluid", "fluid.framework", "fluid.compiler")(
                "IPUPlace IpuCompiledProgram IpuStrategy MLUPlace NPUPlace cuda_pinned_places ipu_shard_guard "
                "is_compiled_with_cinn is_compiled_with_npu is_compiled_with_rocm mlu_places set_ipu_shard xpu_places"
            ),
            "static.mlu_places", "static.npu_places", "NPUPlace", "MLUPlace", "device.MLUPlace", "device.is_compiled_with_mlu",
            "device.is_compiled_with_npu",
        ),
        "Programs run on CPUs and NVIDIA GPUs",
        "fluid.CPUPlace() or fluid.CUDAPlace(0)",
        declined=True,
    ),
    Unsupported(
        (
            *_in("fluid", "fluid.framework")(
                "ComplexVariable VarBase _cuda_synchronize _non_static_mode enable_imperative disable_imperative"
            ),
            *_in("fluid.dygraph")(
                "AmpScaler BCELoss Flatten GRUCell L1Loss LSTMCell MSELoss NLLLoss OptimizerState TranslatedLayer amp_decorate "
                "amp_guard disable_dygraph disable_imperative enable_dygraph enable_imperative load no_grad_ not_to_static save "
                "set_code_level set_verbosity"
            ),
            *_in("fluid.dygraph.nn")(
                "BCELoss BatchNorm BilinearTensorProduct Conv2D Conv2DTranspose Conv3D Conv3DTranspose Dropout Embedding GRUUnit "
                "GroupNorm InstanceNorm L1Loss LayerNorm Linear MSELoss NCE NLLLoss PRelu Pool2D TreeConv"
            ),
        ),
        "There is no eager mode: tstatic builds programs and runs them",
        "static.data for inputs, paddle.nn or fluid.layers on them, and static.Executor.run",
        declined=True,
    ),
    Unsupported(
        (
            "fluid.op", "fluid.learning_rate_decay", "fluid.load_op_library", "fluid.framework.load_op_library",
            *_in("fluid.optimizer")("PipelineOptimizer DGCMomentumOptimizer"),
            *_in("fluid.incubate.fleet.base.role_maker")("GeneralRoleMaker MPISymetricRoleMaker"),
        ),
        "Descriptions of operators, pipelines, sparse exchanges and MPI are not part of tstatic",
        "paddle.register_kernel for your kernels, fluid.layers for learning rates, fleet.init(is_collective=True) for processes",
        declined=True,
    ),
    Unsupported(
        (
            *_in("fluid.contrib", "fluid.contrib.layers")(
                "_pull_box_extended_sparse batch_fc bilateral_slice correlation ctr_metric_bundle fused_bn_add_act "
                "fused_elemwise_activation fused_embedding_seq_pool fused_seqpool_cvm match_matrix_tensor multiclass_nms2 "
                "partial_concat partial_sum rank_attention search_pyramid_hash sequence_topk_avg_pooling shuffle_batch "
                "sparse_embedding tdm_child tdm_sampler tree_conv var_conv_2d"
            ),
            *_in("fluid.contrib")(
                "BeamSearchDecoder CheckMethod Compressor HDFSClient InitState MaskAlgo Momentum QuantizeTranspiler StateCell "
                "TrainingDecoder add_supported_layer calculate_density check_mask_1d check_mask_2d check_sparsity "
                "convert_dist_to_sparse_program create_mask decorate distributed_batch_reader extend_with_decoupled_weight_decay "
                "get_mask_1d get_mask_2d_best get_mask_2d_greedy load_persistables_for_increment load_persistables_for_inference "
                "memory_usage multi_download multi_upload op_freq_statistic prune_model reset_excluded_layers set_excluded_layers"
            ),
            "fluid.contrib.mixed_precision.bf16.convert_float_to_uint16",
        ),
        "What fluid.contrib tried out is not part of tstatic, but for mixed precision and recurrent layers",
        "fluid.layers, fluid.contrib.mixed_precision, optimizer.AdamW for decoupled decay, and static.summary for memory",
        declined=True,
    ),
    Unsupported(
        _in("incubate.nn")(
            "FusedBiasDropoutResidualLayerNorm FusedDropoutAdd FusedEcMoe FusedFeedForward FusedLinear FusedMultiHeadAttention "
            "FusedMultiTransformer FusedTransformerEncoderLayer functional.block_multihead_attention functional.fused_ec_moe "
            "functional.fused_gate_attention functional.fused_multi_transformer functional.masked_multihead_attention"
        ),
        "Kernels that Paddle has for inference on GPUs alone, and layers of them, are not part of tstatic",
        "nn.TransformerEncoderLayer, nn.MultiHeadAttention or incubate.nn.functional.fused_feedforward, which can be fused",
        declined=True,
    ),
    Unsupported(
        (
            *_in("utils")("Ploter dump_config profiler.Profiler profiler.ProfilerOptions profiler.get_profiler"), "incubate.vision",
            "compat.long_type",
        ),
        "Utilities that Paddle has given up are not part of tstatic",
        "int for long_type, tstatic.callbacks for progress, paddle.profiler.Profiler for times",
        declined=True,
    ),
    Unsupported(
        (
            *_in("callbacks")("EarlyStopping LRScheduler ModelCheckpoint ReduceLROnPlateau VisualDL WandbCallback"),
            "incubate.graph_khop_sampler",
        ),
        "Callbacks of paddle.Model and sampling of several hops need eager mode",
        "tstatic.callbacks.train with its callbacks, optimizer.lr.ReduceOnPlateau, geometric.sample_neighbors",
        declined=True,
    ),
    Unsupported(
        ("audio",),
        "These packages are not part of tstatic",
        "static.save and static.load for parameters, static.nn and nn for layers",
    ),
    Unsupported(
        ("fluid.Generator", "fluid.generator.Generator"),
        "Random numbers are counted, so there are no generators",
        "paddle.seed, Program.random_seed or paddle.get_rng_state; static.save keeps the run count",
    ),
)  # fmt: skip


_NAMESPACES: dict[str, Callable[[], Iterable[str]]] = {}
"""Public module, below ``paddle`` -> its names; a search for a missing name goes through all of them."""


def _entry(name: str) -> Unsupported | None:
    """Returns the entry of ``name`` or, failing that, of the longest name above it."""
    while name:
        for entry in UNSUPPORTED:
            if name in entry.names:
                return entry
        name = name.rpartition(".")[0]
    return None


def advice(name: str) -> str:
    """Returns why ``name`` (below ``paddle``) is missing and what to use instead; empty if nothing is known of it."""
    entry = _entry(name)
    return "" if entry is None else f"{entry.why}: use {entry.use}."


def declined(name: str) -> bool:
    """Whether ``name`` (below ``paddle``) is one that tstatic will not have."""
    return (entry := _entry(name)) is not None and entry.declined


def _refuse_call(path: str) -> NoReturn:
    entry = _entry(path)
    assert entry is not None
    raise UnsupportedError(f"paddle.{path} can be imported, but not used. {entry.why}", fix=f"use {entry.use}")


class Declined:
    """A declined name: raises UnsupportedError when it is called, decorated with, or instantiated.

    It can be subclassed, and has every attribute that is asked for: they are declined names too.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        _refuse_call(self._path)

    def __getattr__(self, name: str) -> Declined:
        if name.startswith("__"):
            raise AttributeError(name)
        return Declined(f"{self._path}.{name}")

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return (_DeclinedClass(self._path.rpartition(".")[2], (), {"_path": self._path}),)

    def __instancecheck__(self, instance: object) -> bool:
        return False

    def __subclasscheck__(self, cls: type) -> bool:
        return False

    def __repr__(self) -> str:
        return f"<paddle.{self._path}, which tstatic does not have>"


class _DeclinedClass(type):
    """The class of classes that derive from a declined name: they can be defined, not used."""

    _path: str

    def __call__(cls, *args: object, **kwargs: object) -> NoReturn:
        _refuse_call(cls._path)

    def __getattr__(cls, name: str) -> Declined:
        return getattr(Declined(cls._path), name)  # type: ignore[no-any-return]


class _DeclinedModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers imports of modules that are declined names, or lie below one."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        root, _, below = name.partition(".")
        known = root == __package__ and declined(below)
        return importlib.util.spec_from_loader(name, self, is_package=True) if known else None

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__getattr__"] = Declined(module.__name__.partition(".")[2]).__getattr__


sys.meta_path.append(_DeclinedModules())


def _elsewhere(name: str) -> str:
    """Says which other namespaces have a name; those of 1.x are named only if no other has it."""
    found = [f"{module}.{name}".lstrip(".") for module, names in _NAMESPACES.items() if name in names()]
    found = [one for one in found if not one.startswith("fluid.")] or found
    found.sort(key=lambda one: (one.count("."), one))
    return f"it is {' or '.join(found[:3])}" if found else ""


def add_namespace(module: str, names: Callable[[], Iterable[str]]) -> None:
    """Says which names a public module has; ``names`` is called when one of any module is missing."""
    _NAMESPACES[module.partition(".")[2]] = names


class _Message:
    """What an AttributeError says, worked out when it is read: ``hasattr`` never reads it."""

    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text()

    def __repr__(self) -> str:
        return repr(str(self))

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)


def refuse(module: str, name: str, caller: FrameType, load: Callable[[], None] = lambda: None) -> Declined:
    """Answers for a name that a public module does not have: says what to use instead, or a near one.

    Returns:
        A declined name.

    Args:
        module: Its ``__name__``.
        name: The missing name.
        caller: The frame that asks.
        load: Imports the modules whose names can be suggested.

    Raises:
        ImportError: If a ``from module import name`` asks: Python's own would not say what to use instead.
        AttributeError: In all other cases.
    """
    if name.startswith("__"):
        raise AttributeError(name)
    path = f"{module}.{name}".partition(".")[2]
    if declined(path):
        return Declined(path)

    def text(start: str) -> str:
        load()
        have = sorted(_NAMESPACES[module.partition(".")[2]]())
        hint = advice(path) or _elsewhere(name) or near(name, have, 0.75)
        return f"{start}. {hint}".rstrip()

    if caller.f_code.co_code[caller.f_lasti] == _IMPORT_FROM:
        raise ImportError(text(f"cannot import name '{name}' from '{module}'"), name=module)
    raise AttributeError(_Message(lambda: text(f"module '{module}' has no attribute '{name}'")), name=name)


def missing_in(module: str, names: Iterable[str]) -> Callable[[str], Any]:
    """Returns the ``__getattr__`` of a module whose names are all there; see :func:`refuse`."""
    have, public = tuple(names), public_of(module)
    add_namespace(public, lambda: have)
    return lambda name: refuse(public, name, sys._getframe(1))
