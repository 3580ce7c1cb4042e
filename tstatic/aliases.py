"""Modules under more than one name: each name gives the same object, whose body runs once.

A module that moved keeps its old name: scripts import it, and pickles of its instances name it.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType

from tstatic.errors import MissingPackageError

MOVED = {
    "as_paddle": "fluid.as_paddle",
    "benchlib": "tools.benchlib",
    "callbacks": "io.callbacks",
    "cli": "tools.cli",
    "comm.admission": "comm.rendezvous.admission",
    "comm.buckets": "comm.passes.buckets",
    "comm.choice": "comm.transport.choice",
    "comm.data_parallel": "comm.passes.data_parallel",
    "comm.distribution": "comm.passes.distribution",
    "comm.door": "comm.rendezvous.door",
    "comm.exits": "comm.liveness.exits",
    "comm.feed_watch": "comm.liveness.feed_watch",
    "comm.finite_gradients": "comm.passes.finite_gradients",
    "comm.gloo": "comm.transport.gloo",
    "comm.gloo_transport": "comm.transport.gloo_transport",
    "comm.hierarchy": "comm.transport.hierarchy",
    "comm.host_transport": "comm.transport.host",
    "comm.joining": "comm.rendezvous.joining",
    "comm.launch": "comm.rendezvous.launch",
    "comm.links": "comm.rendezvous.links",
    "comm.low_gradients": "comm.passes.low_gradients",
    "comm.mesh": "comm.liveness.mesh",
    "comm.nccl": "comm.transport.nccl",
    "comm.nccl_proof": "comm.transport.nccl_proof",
    "comm.nccl_transport": "comm.transport.nccl_transport",
    "comm.ordered_sum": "comm.transport.ordered_sum",
    "comm.row_sums": "comm.passes.row_sums",
    "comm.run_sums": "comm.passes.run_sums",
    "comm.sync_batch_norm": "comm.passes.sync_batch_norm",
    "compat": "fluid.compat",
    "dataset": "extras.dataset",
    "device": "fluid.device",
    "devices.after_caller": "devices.cuda.after_caller",
    "devices.clock": "devices.fake.clock",
    "devices.cuda_graphs": "devices.cuda.graphs",
    "devices.fake_torch": "devices.fake.with_torch",
    "devices.host_copies": "devices.torch.host_copies",
    "devices.kernel_launch": "devices.cuda.kernel_launch",
    "devices.late_work": "devices.fake.late_work",
    "devices.pinned_copies": "devices.fake.pinned_copies",
    "devices.recorded_graph": "devices.fake.recorded_graph",
    "devices.torch_device": "devices.torch.device",
    "devices.torch_forms": "devices.torch.forms",
    "devices.torch_kernels": "devices.torch.kernels",
    "devices.torch_settings": "devices.torch.settings",
    "distribution": "extras.distribution",
    "fusion.attention_block": "fusion.attention.block",
    "fusion.attention_search": "fusion.attention.search",
    "fusion.auto": "fusion.patterns.auto",
    "fusion.bn_act": "fusion.patterns.bn_act",
    "fusion.bn_add_act": "fusion.patterns.bn_add_act",
    "fusion.cache": "fusion.engine.cache",
    "fusion.causal": "fusion.attention.causal",
    "fusion.chain": "fusion.engine.chain",
    "fusion.choice": "fusion.engine.choice",
    "fusion.codegen.attention": "fusion.attention.kernel",
    "fusion.codegen.attention_grad": "fusion.attention.grad",
    "fusion.codegen.attention_library": "fusion.attention.library",
    "fusion.codegen.attention_loops": "fusion.attention.loops",
    "fusion.codegen.attention_module": "fusion.attention.module",
    "fusion.codegen.attention_parts": "fusion.attention.parts",
    "fusion.codegen.attention_sums": "fusion.attention.sums",
    "fusion.codegen.attention_tiles": "fusion.attention.tiles",
    "fusion.codegen.batch_norm": "fusion.codegen.channels.batch_norm",
    "fusion.codegen.channel_sums": "fusion.codegen.channels.channel_sums",
    "fusion.codegen.composite": "fusion.codegen.text.composite",
    "fusion.codegen.depthwise": "fusion.codegen.channels.depthwise",
    "fusion.codegen.emit": "fusion.codegen.text.emit",
    "fusion.codegen.gemm": "fusion.codegen.matrix.gemm",
    "fusion.codegen.gemm_tail": "fusion.codegen.matrix.gemm_tail",
    "fusion.codegen.gemm_tiles": "fusion.codegen.matrix.gemm_tiles",
    "fusion.codegen.launched": "fusion.codegen.text.launched",
    "fusion.codegen.layouts": "fusion.codegen.matrix.layouts",
    "fusion.codegen.lines": "fusion.codegen.loops.lines",
    "fusion.codegen.loop_nest": "fusion.codegen.loops.loop_nest",
    "fusion.codegen.per_channel": "fusion.codegen.channels.per_channel",
    "fusion.codegen.prelude": "fusion.codegen.text.prelude",
    "fusion.codegen.products": "fusion.codegen.matrix.products",
    "fusion.codegen.reference": "fusion.codegen.text.reference",
    "fusion.codegen.row_blocks": "fusion.codegen.loops.row_blocks",
    "fusion.codegen.rows": "fusion.codegen.loops.rows",
    "fusion.codegen.script": "fusion.codegen.text.script",
    "fusion.codegen.segments": "fusion.codegen.update.segmenting",
    "fusion.codegen.square_sum": "fusion.codegen.update.square_sum",
    "fusion.codegen.strip_sums": "fusion.codegen.update.strip_sums",
    "fusion.codegen.sums": "fusion.codegen.loops.sums",
    "fusion.compiler": "fusion.patterns.compiler",
    "fusion.dot_product_attention": "fusion.attention.dot_product_attention",
    "fusion.elewise_add_act": "fusion.patterns.elewise_add_act",
    "fusion.embedding_grad_add": "fusion.patterns.embedding_grad_add",
    "fusion.explicit_groups": "fusion.user.explicit_groups",
    "fusion.feedforward": "fusion.patterns.feedforward",
    "fusion.finish_together": "fusion.rewrites.finish_together",
    "fusion.fused_attention": "fusion.attention.fused_attention",
    "fusion.gemm_epilogue": "fusion.patterns.gemm_epilogue",
    "fusion.gradient_norm": "fusion.patterns.gradient_norm",
    "fusion.identity_gradients": "fusion.rewrites.identity_gradients",
    "fusion.in_turn": "fusion.patterns.in_turn",
    "fusion.linear_cross_entropy": "fusion.patterns.linear_cross_entropy",
    "fusion.live_bytes": "fusion.engine.live_bytes",
    "fusion.moves": "fusion.rewrites.moves",
    "fusion.multi_tensor": "fusion.patterns.multi_tensor",
    "fusion.nearest": "fusion.engine.nearest",
    "fusion.pattern": "fusion.engine.pattern",
    "fusion.product_blocks": "fusion.engine.product_blocks",
    "fusion.reasons": "fusion.engine.reasons",
    "fusion.recompute": "fusion.rewrites.recompute",
    "fusion.redrawn": "fusion.rewrites.redrawn",
    "fusion.register": "fusion.user.register",
    "fusion.registration": "fusion.user.registration",
    "fusion.relu_depthwise_conv": "fusion.patterns.relu_depthwise_conv",
    "fusion.row_chunks": "fusion.patterns.row_chunks",
    "fusion.row_groups": "fusion.patterns.row_groups",
    "fusion.shape_readers": "fusion.rewrites.shape_readers",
    "fusion.single_op": "fusion.patterns.single_op",
    "fusion.user_kernel": "fusion.user.user_kernel",
    "fusion.view": "fusion.engine.view",
    "interop": "tools.interop",
    "ir.paddle_attributes": "formats.paddle_attributes",
    "ir.paddle_program": "formats.paddle_program",
    "ir.paddle_proto": "formats.paddle_proto",
    "ir.paddle_writing": "formats.paddle_writing",
    "ir.parse": "formats.parse",
    "ir.restore": "formats.restore",
    "ir.schema": "formats.schema",
    "ir.serial": "formats.serial",
    "ir.text": "formats.text",
    "metric.detection_map": "extras.detection.evaluator",
    "metric.evaluators": "extras.structured.evaluators",
    "nn.layer.structured": "extras.structured.layers",
    "nn.layer.vision": "extras.detection.layers",
    "nn.static_loss": "extras.ranking.hsigmoid_layers",
    "nn.static_sampled": "extras.ranking.static_layers",
    "nn.static_sequence": "extras.sequence.static_layers",
    "nn.static_structured": "extras.structured.static_layers",
    "ops._call_ref": "ops.base.call_ref",
    "ops._expressions": "ops.base.expressions",
    "ops._gradients": "ops.base.gradients",
    "ops._host": "ops.base.host",
    "ops._low": "ops.base.low",
    "ops._rows": "ops.base.rows",
    "ops._torch_gradient": "ops.base.torch_gradient",
    "ops._torch_out": "ops.base.torch_out",
    "ops.composed": "ops.functions.composed",
    "ops.control._blocks": "ops.base.blocks",
    "ops.control.if_else": "ops.functions.if_else",
    "ops.conv._sliding": "ops.base.sliding",
    "ops.conv.deformable_conv": "extras.detection.deformable_conv",
    "ops.conv.interpolate_functions": "ops.functions.interpolate_functions",
    "ops.conv.interpolate_when_run": "ops.functions.interpolate_when_run",
    "ops.conv.pool_first_generation": "ops.functions.pool_first_generation",
    "ops.conv.pool_functions": "ops.functions.pool_functions",
    "ops.detection": "extras.detection",
    "ops.elementwise._mixed": "ops.base.mixed",
    "ops.elementwise._unary": "ops.base.one_input",
    "ops.elementwise.gated": "ops.functions.gated",
    "ops.elementwise.kinds": "ops.functions.kinds",
    "ops.elementwise.nan_to_num": "ops.functions.nan_to_num",
    "ops.elementwise.operators": "ops.functions.operators",
    "ops.first_generation": "ops.functions.first_generation",
    "ops.graph": "extras.graph",
    "ops.indexing._indexing": "ops.base.indexing",
    "ops.indexing.getitem": "ops.functions.getitem",
    "ops.indexing.hash": "extras.ranking.hash",
    "ops.indexing.placing": "ops.functions.placing",
    "ops.loss._labels": "ops.base.labels",
    "ops.loss.center_loss": "extras.ranking.center_loss",
    "ops.loss.ctr_metric": "extras.ranking.ctr_metric",
    "ops.loss.cvm": "extras.ranking.cvm",
    "ops.loss.embedding_loss": "ops.functions.embedding_loss",
    "ops.loss.hierarchical_sigmoid": "extras.ranking.hierarchical_sigmoid",
    "ops.loss.likelihood_loss": "ops.functions.likelihood_loss",
    "ops.loss.margin_loss": "ops.functions.margin_loss",
    "ops.loss.mean_iou": "extras.detection.mean_iou",
    "ops.loss.nce": "extras.ranking.nce",
    "ops.loss.sample_logits": "extras.ranking.sample_logits",
    "ops.loss.teacher_student": "extras.ranking.teacher_student",
    "ops.matmul.einsum": "ops.functions.einsum",
    "ops.matmul.fsp": "ops.functions.fsp",
    "ops.matmul.linear": "ops.functions.linear",
    "ops.matmul.products": "ops.functions.products",
    "ops.norm._norm": "ops.base.norm",
    "ops.norm.affine_channel": "ops.functions.affine_channel",
    "ops.norm.attention": "ops.functions.attention",
    "ops.norm.data_norm": "extras.ranking.data_norm",
    "ops.norm.lrn": "ops.functions.lrn",
    "ops.random.class_center_sample": "extras.ranking.class_center_sample",
    "ops.random.noisy_activation": "ops.functions.noisy_activation",
    "ops.random.random_crop": "extras.detection.random_crop",
    "ops.recurrent.dynamic_rnn": "ops.functions.dynamic_rnn",
    "ops.recurrent.gru_unit": "ops.functions.gru_unit",
    "ops.recurrent.lstm_unit": "ops.functions.lstm_unit",
    "ops.recurrent.static_rnn": "ops.functions.static_rnn",
    "ops.reduce._sum": "ops.base.sum",
    "ops.sequence": "extras.sequence",
    "ops.shape._shapes": "ops.base.shapes",
    "ops.shape.rearranging": "ops.functions.rearranging",
    "ops.spectral": "extras.spectral",
    "ops.structured": "extras.structured",
    "profiler": "tools.profiler",
    "runtime.checkpoint": "formats.checkpoint",
    "runtime.files": "formats.files",
    "runtime.header": "formats.header",
    "runtime.leftovers": "formats.leftovers",
    "runtime.objects": "formats.objects",
    "runtime.paddle_tensors": "formats.paddle_tensors",
    "runtime.pickle_writer": "formats.pickle_writer",
    "runtime.pickles": "formats.pickles",
    "runtime.report_files": "formats.report_files",
    "static.amp.bfloat16": "optimizer.bfloat16",
    "static.amp.optimizer": "optimizer.mixed_precision",
    "static.any_size": "static.compile.any_size",
    "static.checkpoint_manager": "static.files.checkpoint_manager",
    "static.compiled_program": "static.run.compiled_program",
    "static.data_parallel": "static.run.data_parallel",
    "static.dot": "static.explain.dot",
    "static.executor": "static.run.executor",
    "static.explain_html": "static.explain.html",
    "static.file_ops": "static.files.file_ops",
    "static.from_dataset": "static.run.from_dataset",
    "static.graph_parts": "static.compile.graph_parts",
    "static.history": "static.run.history",
    "static.inference": "static.files.inference",
    "static.inquiry": "static.explain.inquiry",
    "static.ledger": "static.compile.ledger",
    "static.loading": "static.files.loading",
    "static.max_batch": "static.run.max_batch",
    "static.mixed_inference": "static.files.mixed_inference",
    "static.object_files": "static.files.object_files",
    "static.onnx_export": "static.files.onnx_export",
    "static.onnx_model": "static.files.onnx_model",
    "static.parallel_executor": "static.run.parallel_executor",
    "static.pipeline": "static.compile.pipeline",
    "static.plan_cache": "static.compile.plan_cache",
    "static.predictor": "static.files.predictor",
    "static.predictor_config": "static.files.predictor_config",
    "static.prepared_run": "static.run.prepared_run",
    "static.property_status": "static.explain.property_status",
    "static.request": "static.compile.request",
    "static.run_future": "static.run.run_future",
    "static.saving": "static.files.saving",
    "static.savings": "static.explain.savings",
    "static.sparse_embedding": "nn.sparse_embedding",
    "static.strategy_property": "static.strategy.property",
    "static.strict_cost": "static.explain.strict_cost",
    "static.summary": "nn.summary",
    "static.variable_files": "static.files.variable_files",
    "static.why": "static.explain.why",
    "testing": "tools.testing",
    "utils": "fluid.utils",
    "vision": "extras.vision",
}
"""Name below this package -> where the module, or the package with all that lies in it, is now."""
SAME = {
    "base": "fluid",
    "framework.core": "fluid.core",
    "static.explain_layout": "static.explain.html",
    "static.explain_script": "static.explain.html",
    "static.explain_style": "static.explain.html",
    "utils.unique_name": "ir.names",
}
"""Further names of modules below this package, as Paddle has them or of what went into another module -> the module or package."""
WINGS = (f"{__package__}.extras", f"{__package__}.tools")
"""Packages that nothing else needs."""
_PLACES = MOVED | SAME
_PUBLIC = {now: old for old, now in MOVED.items()}


def place_of(module: str) -> str:
    """Returns where a module lies: its own name, unless it moved or this is a further name of it.

    Args:
        module: Its full name: ``tstatic.vision.models``.
    """
    return renamed(module, _PLACES)


def public_of(module: str) -> str:
    """Returns the name under which users know a module, from where it lies."""
    return renamed(module, _PUBLIC)


def renamed(module: str, names: Mapping[str, str]) -> str:
    """Returns another name of a module: that of the longest name in a table, below the package, that it has or lies below."""
    package, _, below = module.partition(".")
    parts = below.split(".")
    for length in range(len(parts), 0, -1):
        found = names.get(".".join(parts[:length]))
        if found is not None:
            return ".".join((package, found, *parts[length:]))
    return module


def absent(name: str, error: ImportError) -> ImportError:
    """Returns the error for a name in a wing of the library that is not there; the given one if that is not the reason.

    Args:
        name: What was asked for: a module, a public name, or the type of an operator.
        error: What importing its module raised.
    """
    if error.name not in WINGS:
        return error
    return MissingPackageError(
        f"'{name}' lies in '{error.name}', which is not there",
        expected=f"the whole of tstatic, with '{error.name}'",
        received=str(error),
        fix=f"install tstatic as a whole, or leave out what needs '{name}'",
    )


class SameModule(importlib.abc.InspectLoader):
    """Loads a module under a further name.

    Args:
        name: Its own name.
        find: Imports and returns it; by default what its own name says.
    """

    def __init__(self, name: str, find: Callable[[], ModuleType] | None = None) -> None:
        self._name = name
        self._find = partial(importlib.import_module, name) if find is None else find
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = self._find()
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has just written the further name's spec into a module that is loaded already.
        module.__spec__ = self._spec

    # For ``python -m``, and for tools that read sources.
    def get_code(self, fullname: str) -> CodeType | None:
        loader = self._loader()
        return None if loader is None else loader.get_code(self._name)

    def get_source(self, fullname: str) -> str | None:
        loader = self._loader()
        return None if loader is None else loader.get_source(self._name)

    def _loader(self) -> importlib.abc.InspectLoader | None:
        found = importlib.util.find_spec(self._name)
        loader = None if found is None else found.loader
        return loader if isinstance(loader, importlib.abc.InspectLoader) else None


class _Moved(importlib.abc.MetaPathFinder):
    """Answers imports of modules that lie elsewhere."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith(_BELOW) or (now := place_of(name)) == name:
            return None
        if now in sys.modules:
            # A module without a file, as facades are, has no other way to be found.
            return ModuleSpec(name, SameModule(now), is_package=hasattr(sys.modules[now], "__path__"))
        try:
            found = importlib.util.find_spec(now)
        except ImportError as error:
            raise absent(name, error) from None
        if found is None:
            return None
        return ModuleSpec(name, SameModule(now), origin=found.origin, is_package=bool(found.submodule_search_locations))


_BELOW = f"{__package__}."


def install() -> None:
    """Makes old names of modules known to the import system."""
    if not any(isinstance(finder, _Moved) for finder in sys.meta_path):
        # First: what lies below a package that moved would be found by the package's path, and run once more.
        sys.meta_path.insert(0, _Moved())


__all__ = ["MOVED", "SAME", "WINGS", "SameModule", "absent", "install", "place_of", "public_of", "renamed"]
