"""The mutants of what users call: loaders, fleet, mixed precision, recurrences, losses, files, commands, imported modules."""

from __future__ import annotations

from tests.mutants.planting import Mutant

IO, D, A, I, S = "tests/io/", "tests/distributed/", "tests/amp/", "tests/interpret/", "tests/structured/"  # noqa: E741
U, C, O, R = "tests/unit/", "tests/cpu/", "tests/optimizer/", "tests/recurrence/"  # noqa: E741
COMM, CLI, T, Q = "tests/comm/", "tests/cli/", "tests/torch_import/", "tests/sequences/"

# fmt: off
LOADERS = (
    Mutant("io/batch_sampler.py", "DistributedBatchSampler.__iter__", "statement", "self.epoch += 1", "pass",
           (IO, COMM + "test_batch_sampler.py")),
    Mutant("io/batch_sampler.py", "DistributedBatchSampler._own", "operation",
           "self.total_size % (self.batch_size * self.nranks)", "self.total_size % self.batch_size",
           (IO, COMM + "test_batch_sampler.py")),
    Mutant("io/dataset.py", "ConcatDataset.__getitem__", "comparison", "idx < -length", "idx <= -length", (IO,)),
    Mutant("io/readers.py", "shuffle.shuffled", "call", "max(buf_size, 1)", "buf_size", (IO,)),
    Mutant("io/workers.py", "Workers._receive", "comparison", "epoch == self._epoch", "True", (IO,)),
    Mutant("io/workers.py", "Workers.__init__", "operation", "seed + number", "seed", (IO,)),
    Mutant("io/global_shuffle.py", "", "argument", "side='right'", "side='left'", (IO, COMM)),
)

FLEET = (
    Mutant("distributed/fleet/util_base.py", "UtilBase.get_file_shard", "comparison", "mine.rank < rest",
           "mine.rank <= rest", (D, COMM)),
    Mutant("distributed/fleet/metrics/metric.py", "auc", "operation", "positive[1:] + positive[:-1]",
           "positive[1:] + positive[1:]", (D, COMM)),
    Mutant("distributed/fleet/applied.py", "recomputing", "statement", "rule._checkpoints = before", "pass", (D,)),
    Mutant("comm/hierarchy.py", "choose_hierarchy", "comparison", "1 < block < launch.size", "1 < block <= launch.size",
           (COMM + "test_hierarchy.py", COMM)),
    Mutant("comm/row_sums.py", "add_rows_in_order", "value", "np.float32 if low else first.dtype", "first.dtype",
           ("tests/unit/test_row_gradients.py", "tests/parallel", COMM)),
    Mutant("distributed/fleet/role_maker.py", "node_num", "condition",
           "mine.local_size and mine.size % mine.local_size == 0", "mine.local_size", (D, COMM)),
)

PRECISION = (
    Mutant("static/amp/rewrite.py", "Rewrite._block", "statement", "del casts[key]", "pass", (A,)),
    Mutant("static/amp/rewrite.py", "Rewrite._decide", "value", "made[-1]", "made[0]", (A,), number=1),
    Mutant("static/amp/optimizer.py", "OptimizerWithMixedPrecision.apply_gradients", "statement",
           "self._optimizer._skip_update = self._optimizer._sparse = None", "pass", (A, O)),
    Mutant("static/amp/optimizer.py", "OptimizerWithMixedPrecision.amp_init", "condition",
           "precision.level == 'O2' or use_fp16_test", "use_fp16_test", (A,)),
    Mutant("ops/update/loss_scaling.py", "next_scale", "call", "max(scale * decr_ratio, 1.0)", "scale * decr_ratio",
           (A, U + "test_amp_ops.py")),
)

RECURRENCE = (
    Mutant("ops/control/loop.py", "while_loop", "value", "_copy_of(helper, v) if v.name in own else v", "v",
           (C + "test_control_flow.py", R)),
    Mutant("ops/sequence/_recurrence.py", "Lstm.inside", "comparison", "np.abs(values) < limit", "np.abs(values) <= limit",
           (R, Q, "tests/ops/test_grad.py")),
    Mutant("ops/recurrent/static_rnn.py", "StaticRNN.step", "statement",
           "self._state, self._builder = ('before', StepBuilder(self._builder.helper))", "pass", (R,)),
    Mutant("ops/control/loop.py", "_run_loop_grad", "statement",
           "total[n] = add(total[n], done[run_block.grad_name(n)])", "total[n] = done[run_block.grad_name(n)]",
           (C + "test_control_flow.py", R)),
)

SEQUENCES = (
    Mutant("ops/sequence/sequence_pool.py", "_ref", "operation", "(x == out[owners(offsets)]) | (x != x)",
           "x == out[owners(offsets)]", (Q,)),
    Mutant("io/lod_tensor.py", "create_random_int_lodtensor", "operation", "high + 1", "high", (Q, IO)),
    Mutant("ops/shape/sequence_mask.py", "_ref", "comparison", "size < 0", "size <= 0",
           (Q, C + "test_shape_functions.py", C + "test_shape_variables.py")),
)

STRUCTURED = (
    Mutant("ops/structured/edit_distance.py", "_ref", "call", "wanted.all()", "wanted.any()", (S,)),
    Mutant("ops/structured/chunk_eval.py", "_chunks", "operation",
           "(tag == 'B') | (tag == 'S') | (tag_before == 'E') | (tag_before == 'S')",
           "(tag == 'B') | (tag == 'S') | (tag_before == 'E')", (S,)),
    Mutant("ops/structured/warprnnt.py", "_Lattice.gradient", "operation", "1 + fastemit", "1 - fastemit", (S,)),
    Mutant("ops/structured/linear_chain_crf.py", "_Moves.backward", "value", "grad[:, None]", "grad[:, :, None]", (S,)),
    Mutant("ops/structured/beam_search.py", "_ref", "call", "np.lexsort((-row, -score, source))",
           "np.lexsort((row, -score, source))", (S,)),
    Mutant("ops/structured/crf_decoding.py", "best_path", "call", "ends.argmax(axis=1)",
           "ends.shape[1] - 1 - ends[:, ::-1].argmax(axis=1)", (S,)),
    Mutant("ops/structured/crf_decoding.py", "best_path", "call",
           "(best[before] + into[path[order.rows(step)]]).argmax(axis=1)",
           "w.shape[0] - 1 - (best[before] + into[path[order.rows(step)]])[:, ::-1].argmax(axis=1)", (S,)),
)

FILES = (
    Mutant("static/checkpoint_manager.py", "CheckpointManager._best_with", "comparison", "found[0] >= step",
           "found[0] > step", (C + "test_checkpoint_manager.py",)),
    Mutant("static/checkpoint_manager.py", "CheckpointManager._undone", "statement",
           "self.scheduler.set_state_dict(before)", "pass", (C + "test_checkpoint_manager.py",)),
    Mutant("static/checkpoint_manager.py", "CheckpointManager._rotate", "comparison", "s <= step", "True",
           (C + "test_checkpoint_manager.py",)),
    Mutant("runtime/pickles.py", "_Reader.array", "value",
           "flat.reshape(shape[::-1]).T if fortran is True else flat.reshape(shape)", "flat.reshape(shape)",
           (U + "test_pickles.py",)),
)

EXPLAINED = (
    Mutant("static/savings.py", "Savings.__init__", "statement", "counted.update(replaced)", "pass",
           (C + "test_explain_text.py", C + "test_explain_drawn.py", C + "test_explain_html.py")),
    Mutant("static/ledger.py", "Ledger.explain", "comparison", "len(differs) <= len(nearest)", "len(differs) < len(nearest)",
           (C + "test_ledger.py",)),
    Mutant("static/max_batch.py", "with_batch", "statement", "opened |= UNKNOWN in shape", "opened = UNKNOWN in shape",
           (C + "test_memory_fit.py", CLI)),
    Mutant("cli/weights.py", "_renamed", "comparison", "len(set(names.values())) < len(names)", "False", (CLI,)),
)

ATTENTION = (
    Mutant("fusion/causal.py", "_keeps", "comparison", "op.attrs['scale'] > 0", "True",
           (U + "test_causal.py", C + "test_causal_attention.py")),
    Mutant("fusion/codegen/attention_grad.py", "_Gradients._weights_again", "value",
           "[f'p = tl.where({seen}, p, 0.0)'] if seen else []", "[]",
           tuple(I + f"test_{n}.py" for n in ("attention", "dot_product_attention", "fused_attention")), interpret=True),
    Mutant("fusion/codegen/attention_parts.py", "Sizes.batch_of_head", "operation", "other * size", "other",
           tuple(I + f"test_{n}.py" for n in ("attention", "dot_product_attention", "fused_attention", "attention_layouts")),
           interpret=True),
)

OPTIMIZERS = (
    Mutant("ir/updates.py", "numbered", "statement", "program._updates = old", "pass", (O,)),
    Mutant("optimizer/lookahead.py", "LookAhead._follow", "operation", "1.0 - self.alpha", "self.alpha", (O,)),
    Mutant("optimizer/gradient_merge.py", "GradientMergeOptimizer.apply_gradients", "statement", "one._skip_update = None",
           "pass", (D, O)),
    Mutant("optimizer/averages.py", "ExponentialMovingAverage._average", "call",
           "where(steps > 0, weight, weight * 0.0 + 1.0)", "weight", (O,)),
    Mutant("ops/update/common.py", "", "text",
           "'where(with_decay & (coeff != 0), param * (1 - rate * coeff), param) - step'",
           "'where(with_decay & (coeff != 0), param * (1 - learningrate * coeff), param) - step'", (O, U + "test_optimizer_ops.py")),
)

IMAGES = (
    Mutant("ops/conv/interpolate.py", "axis_taps", "condition",
           "align_corners or (align_mode == 1 and method == 'linear')", "align_corners or align_mode == 1",
           (C + "test_image_functions.py",)),
)

DEVICES = (
    Mutant("devices/fake.py", "FakeDevice.free", "statement", "memory._buffer.array[...] = 255", "pass",
           (C + "test_fake_device.py", C + "test_fake_torch.py", U + "test_devices.py")),
    Mutant("forks.py", "_after_in_child", "statement", "one.lock._at_fork_reinit()", "pass", (U + "test_forks.py",)),
    Mutant("devices/cpu/blas.py", "Library.let_go", "statement", "del self._found.number", "pass",
           (U + "test_blas.py", C + "test_blas_threads.py")),
)

REFUSALS = (
    Mutant("undo.py", "NotedList.insert", "value", "min(at, length) if at >= 0 else max(0, at + length)", "at",
           (U + "test_undo.py", "tests/api/test_refused_calls.py")),
    Mutant("ir/refusal.py", "refusal", "condition", "isinstance(error, IndexError) and not misfits",
           "isinstance(error, IndexError)", ("tests/api/test_refused_calls.py",)),
)

IMPORTS = (
    Mutant("interop/aten_shapes.py", "_select", "value", "index + 1 if index != -1 else LAST", "index + 1", (T,)),
    Mutant("interop/aten_recurrent.py", "_lstm", "operation", "dropout * train", "dropout", (T,)),
    Mutant("interop/aten_shapes.py", "reshaped", "condition",
           "i < len(old) and old[i] == sizes[i] and all((a == b for a, b in zip(old[:i], sizes[:i], strict=False)))",
           "i < len(old) and old[i] == sizes[i]", (T,)),
)

SIZES = (
    Mutant("ops/shape/when_run.py", "pad_when_run", "value", "1 if data_format[-1] == 'C' else 2", "2",
           (C + "test_shape_variables.py", C + "test_shape_functions.py", C + "test_variable_arguments.py")),
    Mutant("ops/indexing/unique.py", "_ref", "value", "number[::-1]", "number", (C + "test_more_functions.py", "tests/ops/test_lower.py")),
)
# fmt: on

FEATURES = (
    *LOADERS, *FLEET, *PRECISION, *RECURRENCE, *SEQUENCES, *STRUCTURED, *FILES, *EXPLAINED, *ATTENTION, *OPTIMIZERS, *IMAGES,
    *DEVICES, *REFUSALS, *IMPORTS, *SIZES,
)  # fmt: skip
