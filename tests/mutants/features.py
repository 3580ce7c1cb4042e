"""The mutants of what users call: loaders, fleet, mixed precision, recurrences, losses, files, commands, imported modules."""

from __future__ import annotations

from tests.mutants.planting import Mutant

IO, D, A, I, S = "tests/io/", "tests/distributed/", "tests/amp/", "tests/interpret/", "tests/structured/"  # noqa: E741
U, C, O, R = "tests/unit/", "tests/cpu/", "tests/optimizer/", "tests/recurrence/"  # noqa: E741
COMM, CLI, T, Q = "tests/comm/", "tests/cli/", "tests/torch_import/", "tests/sequences/"

# fmt: off
LOADERS = (
    Mutant("io/batch_sampler.py", "DistributedBatchSampler.__iter__", "statement", "self.epoch += 1", "pass",
           (COMM + "test_batch_sampler.py",), "drawn_from_the_epoch"),
    Mutant("io/batch_sampler.py", "DistributedBatchSampler._own", "operation",
           "self.total_size % (self.batch_size * self.nranks)", "self.total_size % self.batch_size",
           (IO + "test_dataset.py",), "distributed_sampler"),
    Mutant("io/dataset.py", "ConcatDataset.__getitem__", "comparison", "idx < -length", "idx <= -length",
           (IO + "test_dataset.py",), "composed"),
    Mutant("io/readers.py", "shuffle.shuffled", "call", "max(buf_size, 1)", "buf_size",
           (IO + "test_readers.py",), "shuffle"),
    Mutant("io/workers.py", "Workers.__init__", "operation", "seed + number", "seed",
           (IO + "test_data_loader.py",), "workers_are_seeded"),
    Mutant("io/global_shuffle.py", "", "argument", "side='right'", "side='left'",
           (COMM + "test_fleet.py",), "global_shuffle"),
    Mutant("io/batch_sampler.py", "DistributedBatchSampler.__len__", "value",
           "0 if self.drop_last else self.batch_size - 1", "0 if self.drop_last else self.batch_size",
           (COMM + "test_batch_sampler.py",), "equally_many"),
    Mutant("io/dataset.py", "random_split", "comparison", "sum(lengths) != len(dataset)", "sum(lengths) > len(dataset)",
           (IO + "test_dataset.py",), "random_split"),
    Mutant("io/workers.py", "_work", "comparison", "epoch != current", "False",
           (IO + "test_data_loader.py",), "workers_that_stay"),
)

FLEET = (
    Mutant("distributed/fleet/util_base.py", "UtilBase.get_file_shard", "comparison", "mine.rank < rest",
           "mine.rank <= rest", (D + "test_fleet.py",), "set_by_hand"),
    Mutant("distributed/fleet/metrics/metric.py", "auc", "operation", "positive[1:] + positive[:-1]",
           "positive[1:] + positive[1:]", (D + "test_programs.py",), "recommender"),
    Mutant("distributed/fleet/applied.py", "recomputing", "statement", "rule._checkpoints = before", "pass",
           (O + "test_lent_settings.py",)),
    Mutant("comm/transport/hierarchy.py", "choose_hierarchy", "comparison", "1 < block < launch.size", "1 < block <= launch.size",
           (COMM + "test_hierarchy.py",), "reason_is_said"),
    Mutant("comm/passes/row_sums.py", "add_rows_in_order", "value", "np.float32 if low else first.dtype", "first.dtype",
           (U + "test_row_gradients.py",), "replicas"),
    Mutant("distributed/fleet/role_maker.py", "node_num", "condition",
           "mine.local_size and mine.size % mine.local_size == 0", "mine.local_size", (D + "test_fleet.py",), "machines"),
    Mutant("distributed/fleet/role_maker.py", "UserDefinedRoleMaker.__init__", "comparison", "own >= len(listed)",
           "own > len(listed)", (D + "test_fleet.py",), "which_process_this_is"),
    Mutant("distributed/fleet/metrics/metric.py", "auc", "condition", "positive[-1] == 0 or negative[-1] == 0",
           "positive[-1] == 0", (D + "test_recorded.py",), "metrics"),
)

PRECISION = (
    Mutant("static/amp/rewrite.py", "Rewrite._block", "statement", "del casts[key]", "pass",
           (A + "test_rewrite.py",), "overwritten"),
    Mutant("static/amp/rewrite.py", "Rewrite._decide", "value", "made[-1]", "made[0]",
           (A + "test_paddle.py",), "attention", number=1),
    Mutant("optimizer/mixed_precision.py", "OptimizerWithMixedPrecision.apply_gradients", "statement",
           "self._optimizer._skip_update = self._optimizer._sparse = None", "pass",
           (O + "test_lent_settings.py",)),
    Mutant("optimizer/mixed_precision.py", "OptimizerWithMixedPrecision.amp_init", "condition",
           "precision.level == 'O2' or use_fp16_test", "use_fp16_test",
           (A + "test_rewrite.py",), "test_program"),
    Mutant("ops/update/loss_scaling.py", "next_scale", "call", "max(scale * decr_ratio, 1.0)", "scale * decr_ratio",
           (U + "test_amp_ops.py",), "stops"),
    Mutant("ops/update/loss_scaling.py", "_update_lower", "call", "torch.clamp(scale * decr_ratio, min=1.0)",
           "scale * decr_ratio", (U + "test_amp_ops.py",), "stops"),
    Mutant("static/amp/lists.py", "changed", "statement", "other.difference_update(names)", "pass",
           (A + "test_rewrite.py",), "lists"),
)

RECURRENCE = (
    Mutant("ops/control/loop.py", "while_loop", "value", "_copy_of(helper, v) if v.name in own else v", "v",
           (C + "test_control_flow.py",), "swaps"),
    Mutant("extras/sequence/_recurrence.py", "Lstm.inside", "comparison", "np.abs(values) < limit", "np.abs(values) <= limit",
           (Q + "test_fluid.py",), "clipped"),
    Mutant("ops/functions/static_rnn.py", "StaticRNN.step", "statement",
           "self._state, self._builder = ('before', StepBuilder(self._builder.helper))", "pass",
           (R + "test_static_rnn.py",), "written_again"),
    Mutant("ops/control/loop.py", "_run_loop_grad", "statement",
           "total[n] = add(total[n], done[run_block.grad_name(n)])", "total[n] = done[run_block.grad_name(n)]",
           (R + "test_arrays.py",)),
)

SEQUENCES = (
    Mutant("extras/sequence/sequence_pool.py", "_ref", "operation", "(x == out[owners(offsets)]) | (x != x)",
           "x == out[owners(offsets)]", (Q + "test_programs.py",), "largest_row"),
    Mutant("io/lod_tensor.py", "create_random_int_lodtensor", "operation", "high + 1", "high",
           (Q + "test_lod.py",), "both_bounds"),
    Mutant("ops/shape/sequence_mask.py", "_ref", "comparison", "size < 0", "size <= 0",
           (S + "test_losses.py",), "mask"),
    Mutant("extras/sequence/sequence_pool.py", "_ref", "statement", "out[~filled] = pad_value", "out[~filled] = 0",
           (Q + "test_fluid.py",), "sequence_pool"),
    Mutant("runtime/lod.py", "joined_offsets", "operation", "part[1:] + end", "part[1:]", (Q + "test_lod.py",), "places"),
)

STRUCTURED = (
    Mutant("extras/structured/edit_distance.py", "_ref", "call", "wanted.all()", "wanted.any()",
           (S + "test_losses.py",), "out_of_range"),
    Mutant("extras/structured/chunk_eval.py", "_chunks", "operation",
           "(tag == 'B') | (tag == 'S') | (tag_before == 'E') | (tag_before == 'S')",
           "(tag == 'B') | (tag == 'S') | (tag_before == 'E')", (S + "test_recorded.py",), "chunks"),
    Mutant("extras/structured/warprnnt.py", "_Lattice.gradient", "operation", "1 + fastemit", "1 - fastemit",
           (C + "test_margin_and_tree_losses.py",), "fast_emission"),
    Mutant("extras/structured/linear_chain_crf.py", "_Moves.backward", "value", "grad[:, None]", "grad[:, :, None]",
           (S + "test_losses.py",), "exponentials"),
    Mutant("extras/structured/beam_search.py", "_ref", "call", "np.lexsort((-row, -score, source))",
           "np.lexsort((row, -score, source))", (S + "test_recorded.py",), "beam_ties"),
    Mutant("extras/structured/beam_search.py", "_settle_tie", "statement", "kept[-1] = number", "pass",
           (S + "test_recorded.py",), "beam_ties"),
    Mutant("extras/structured/beam_search.py", "_settle_tie", "statement", "del kept[room:]", "pass",
           (S + "test_recorded.py",), "beam_ties"),
    Mutant("extras/structured/crf_decoding.py", "best_path", "call", "ends.argmax(axis=1)",
           "ends.shape[1] - 1 - ends[:, ::-1].argmax(axis=1)", (S + "test_recorded.py",), "crf_ties or viterbi_ties"),
    Mutant("extras/structured/crf_decoding.py", "best_path", "call",
           "(best[before] + into[path[order.rows(step)]]).argmax(axis=1)",
           "w.shape[0] - 1 - (best[before] + into[path[order.rows(step)]])[:, ::-1].argmax(axis=1)",
           (S + "test_recorded.py",), "crf_ties or viterbi_ties"),
    Mutant("extras/structured/ctc_align.py", "_ref", "operation", "(classes[1:] != classes[:-1]) | first[1:-1]",
           "classes[1:] != classes[:-1]", (S + "test_recorded.py",), "greedy"),
)

FILES = (
    Mutant("static/files/checkpoint_manager.py", "CheckpointManager._best_with", "comparison", "found[0] >= step",
           "found[0] > step", (C + "test_checkpoint_manager.py",), "looked_for_again"),
    Mutant("static/files/checkpoint_manager.py", "CheckpointManager._undone", "statement",
           "self.scheduler.set_state_dict(before)", "pass", (C + "test_checkpoint_manager.py",), "schedule_keeps"),
    Mutant("static/files/checkpoint_manager.py", "CheckpointManager._rotate", "comparison", "s <= step", "True",
           (C + "test_checkpoint_manager.py",), "looked_for_again"),
    Mutant("formats/pickles.py", "_Reader.array", "value",
           "flat.reshape(shape[::-1]).T if fortran is True else flat.reshape(shape)", "flat.reshape(shape)",
           (U + "test_pickles.py",), "what_python_writes"),
    Mutant("static/files/object_files.py", "save", "comparison", "1 < protocol < 5", "1 < protocol <= 5",
           (U + "test_pickles.py",), "refuses"),
)

EXPLAINED = (
    Mutant("static/explain/savings.py", "Savings.__init__", "statement", "counted.update(replaced)", "pass",
           (U + "test_savings.py",)),
    Mutant("static/compile/ledger.py", "Ledger.explain", "comparison", "len(nearest) <= (not same)", "True",
           (C + "test_ledger.py",)),
    Mutant("static/run/max_batch.py", "with_batch", "statement", "opened |= UNKNOWN in shape", "opened = UNKNOWN in shape",
           (C + "test_memory_fit.py",), "wherever"),
    Mutant("chips/seen.py", "on_several", "comparison", "most == 1", "most >= 1",
           (U + "test_front_page.py",), "second_chip"),
    Mutant("tools/cli/doctor.py", "_unseen", "operation", "set(re.split('\\\\W+', name.upper())) & set(seen.chips())",
           "set(re.split('\\\\W+', name.upper())) | set(seen.chips())", (CLI + "test_doctor.py",), "nothing_has_run"),
    Mutant("tools/cli/weights.py", "_renamed", "comparison", "len(set(names.values())) < len(names)", "False",
           (CLI + "test_convert.py",), "wrong_options"),
    Mutant("static/compile/ledger.py", "Ledger.check", "comparison", "self.count(key.program) <= most",
           "self.count(key.program) < most", (C + "test_ledger.py",), "limit"),
    Mutant("tools/cli/op_forms.py", "_how", "comparison", "rule.pointwise is None", "False",
           (CLI + "test_op.py",), "how_a_gradient"),
    Mutant("tools/cli/op_sources.py", "tuned_calls", "call", "one.__module__.startswith(TUNED)", "False",
           (CLI + "test_op.py",), "tuned_code"),
    Mutant("tools/cli/looking.py", "_chosen", "comparison", "0 < int(name) <= len(kernels)", "0 < int(name) < len(kernels)",
           (CLI + "test_commands.py",), "each_of_its_numbers"),
    Mutant("tools/cli/subjects.py", "_of_run", "operation", "whole[0] + shape[0]", "shape[0]",
           (CLI + "test_commands.py",), "data_parallel_scripts"),
)

ATTENTION = (
    Mutant("fusion/attention/causal.py", "_keeps", "comparison", "op.attrs['scale'] > 0", "True",
           (C + "test_causal_attention.py",), "follows_the_mask"),
    Mutant("fusion/attention/grad.py", "_Gradients._weights_again", "value",
           "[f'p = tl.where({seen}, p, 0.0)'] if seen else []", "[]",
           (I + "test_dot_product_attention.py",), interpret=True),
    Mutant("fusion/attention/parts.py", "Sizes.batch_of_head", "call", "product_of(below)", "'1'",
           (U + "test_attention_parts.py",)),
    Mutant("fusion/attention/causal.py", "triangle", "call", "(hidden < 0).all()", "(hidden < 0).any()",
           (U + "test_causal.py",), "not_causal"),
)

OPTIMIZERS = (
    Mutant("ir/updates.py", "numbered", "statement", "program._updates = old", "pass",
           (O + "test_two_optimizers.py",), "run_as_in_paddle"),
    Mutant("optimizer/lookahead.py", "LookAhead._follow", "operation", "1.0 - self.alpha", "self.alpha",
           (O + "test_averages.py",), "lookahead"),
    Mutant("optimizer/gradient_merge.py", "GradientMergeOptimizer.apply_gradients", "statement", "one._skip_update = None",
           "pass", (O + "test_lent_settings.py",)),
    Mutant("optimizer/averages.py", "ExponentialMovingAverage._average", "call",
           "where(steps > 0, weight, weight * 0.0 + 1.0)", "weight", (O + "test_averages.py",), "before_the_first"),
    Mutant("ops/update/common.py", "", "text",
           "'where(with_decay & (coeff != 0), param * (1 - rate * coeff), param) - step'",
           "'where(with_decay & (coeff != 0), param * (1 - learningrate * coeff), param) - step'",
           (O + "test_rules.py",), "ratio"),
)

IMAGES = (
    Mutant("ops/conv/interpolate.py", "axis_taps", "condition",
           "align_corners or (align_mode == 1 and method == 'linear')", "align_corners or align_mode == 1",
           (C + "test_image_functions.py",), "align_mode"),
)

DEVICES = (
    Mutant("devices/fake/__init__.py", "FakeDevice.free", "statement", "memory._buffer.array[...] = 255", "pass",
           (U + "test_devices.py",), "freed"),
    Mutant("forks.py", "_after_in_child", "statement", "one.lock._at_fork_reinit()", "pass",
           (U + "test_forks.py",), "too_long"),
    Mutant("devices/cpu/blas.py", "Library.let_go", "statement", "del self._found.number", "pass",
           (U + "test_blas.py",), "gives_the_number"),
)

REFUSALS = (
    Mutant("undo.py", "NotedList.insert", "value", "min(at, length) if at >= 0 else max(0, at + length)", "at",
           (U + "test_undo.py",), "edits_of_lists"),
    Mutant("ir/refusal.py", "refusal", "condition", "isinstance(error, IndexError) and not misfits",
           "isinstance(error, IndexError)", ("tests/api/test_refused_calls.py",), "misfit"),
    Mutant("ir/refusal.py", "_fits", "call", "all((fits(item, wanted[0]) for item in value))",
           "any((fits(item, wanted[0]) for item in value))", ("tests/api/test_refused_calls.py",), "annotation"),
    Mutant("guards.py", "Guarded.get", "comparison", "block.of is of", "True", (U + "test_guards.py",), "counts_for"),
)

IMPORTS = (
    Mutant("tools/interop/aten_shapes.py", "_select", "value", "index + 1 if index != -1 else LAST", "index + 1",
           (T + "test_nets.py",), "recurrent"),
    Mutant("tools/interop/aten_recurrent.py", "_lstm", "operation", "dropout * train", "dropout",
           (T + "test_semantics.py",), "recurrent"),
    Mutant("tools/interop/aten_shapes.py", "reshaped", "condition",
           "i < len(old) and old[i] == sizes[i]", "i < len(old)",
           (T + "test_semantics.py",), "open_sizes"),
    Mutant("tools/interop/aten_shapes.py", "_pad", "value", "pairs[::-1]", "pairs", (T + "test_operators.py",), "shapes"),
)

SIZES = (
    Mutant("ops/shape/when_run.py", "pad_when_run", "value", "1 if data_format[-1] == 'C' else 2", "2",
           (C + "test_variable_arguments.py",), "pad"),
    Mutant("ops/indexing/unique.py", "_ref", "value", "number[::-1]", "number", ("tests/ops/test_lower.py",), "unique"),
)
# fmt: on

FEATURES = (
    *LOADERS, *FLEET, *PRECISION, *RECURRENCE, *SEQUENCES, *STRUCTURED, *FILES, *EXPLAINED, *ATTENTION, *OPTIMIZERS, *IMAGES,
    *DEVICES, *REFUSALS, *IMPORTS, *SIZES,
)  # fmt: skip
