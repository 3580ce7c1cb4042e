"""DistributedStrategy: its fields, what each takes, and what it does in this release."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

from tstatic.errors import StrategyTypeError, UnknownConfigError, UnknownFieldError, UnsupportedError, near, shown
from tstatic.ir.program import Variable
from tstatic.logs import get_logger
from tstatic.static.explain.property_status import PropertyStatus
from tstatic.static.strategy import BuildStrategy, ExecutionStrategy

_log = get_logger("dist")


class Outcome(NamedTuple):
    """What a field does: ``active``, ``no effect`` or ``refused``, and a sentence that says why or where."""

    status: str
    reason: str


@dataclass(frozen=True)
class Field:
    """One field of the strategy.

    Attributes:
        default: Its first value, whose type is that of all its values; a dict for one that configures another field.
        outcome: What it does.
        use: For a refused field, what to use instead.
    """

    default: Any
    outcome: Outcome
    use: str = ""


def _active(default: Any, reason: str) -> Field:
    return Field(default, Outcome("active", reason))


def _idle(default: Any, reason: str) -> Field:
    return Field(default, Outcome("no effect", reason))


def _refused(default: Any, what: str, use: str) -> Field:
    return Field(default, Outcome("refused", f"minimize raises UnsupportedError if it is set: {what}."), use)


_GPU = "it tunes a library of GPUs, which chooses by itself."
_SERVERS = "it belongs to parameter servers, which do not exist here."
_SEARCH = "strategies are not searched for: those that are set act."
_DATA = "data parallelism: fleet.init(is_collective=True) under python -m tstatic.distributed.launch"


class _Fields:
    """The fields, as Paddle names them."""

    # fmt: off
    amp = _active(False, "training in mixed precision, with the settings of amp_configs.")
    amp_configs = _active(
        {
            "init_loss_scaling": 32768.0, "incr_every_n_steps": 1000, "decr_every_n_nan_or_inf": 2, "incr_ratio": 2.0,
            "decr_ratio": 0.8, "use_dynamic_loss_scaling": True, "custom_white_list": [], "custom_black_list": [],
            "custom_black_varnames": [], "use_pure_fp16": False, "use_fp16_guard": True, "use_optimizer_fp16": False,
            "use_pure_bf16": False,
        },
        "settings of amp; use_optimizer_fp16 has no effect: the optimizer updates float32 copies.",
    )
    recompute = _active(False, "values between the checkpoints are computed again in the backward part.")
    recompute_configs = _active(
        {"checkpoints": [], "enable_offload": False, "checkpoint_shape": [], "enable_tuning": False},
        "checkpoints are names or Variables; the other settings have no effect: checkpoints stay in memory.",
    )
    gradient_merge = _active(False, "one update in gradient_merge_configs['k_steps'] runs.")
    gradient_merge_configs = _active({"k_steps": 1, "avg": True}, "settings of gradient_merge.")
    lars = _active(False, "a Momentum optimizer becomes a LarsMomentum.")
    lars_configs = _active(
        {"lars_coeff": 0.001, "lars_weight_decay": 0.0005, "epsilon": 0.0, "exclude_from_weight_decay": []},
        "settings of lars.",
    )
    lamb = _active(False, "an Adam optimizer becomes a Lamb.")
    lamb_configs = _active({"lamb_weight_decay": 0.01, "exclude_from_weight_decay": []}, "settings of lamb.")
    sync_batch_norm = _active(False, "batch norms take the statistics of all processes.")
    fuse_all_reduce_ops = _active(True, "gradients are summed in few collectives; False: in one for each.")
    fuse_grad_size_in_MB = _active(
        32, "the most megabytes of gradients in one collective, unless FLAGS_fuse_parameter_memory_size says other than -1.",
    )
    gradient_scale_configs = _active(
        {"scale_strategy": "avg", "scale_gradient": False},
        "'avg' starts the gradient of the loss at 1 / number of processes, 'sum' at 1, 'customized' at what is fed for it.",
    )
    use_hierarchical_allreduce = _active(False, "acts where trainers > hierarchical_allreduce_inter_nranks > 1.")
    hierarchical_allreduce_inter_nranks = _active(1, "the number of processes that sum first.")
    build_strategy = _active(None, "the program is compiled with it.")
    execution_strategy = _active(None, "the program runs with it.")
    find_unused_parameters = _idle(False, "the program says which parameters have a gradient.")
    fuse_grad_size_in_num = _idle(8, "fuse_grad_size_in_MB limits collectives.")
    _fuse_grad_size_in_TFLOPS = _idle(50.0, "fuse_grad_size_in_MB limits collectives.")
    last_comm_group_size_MB = _active(
        1.0,
        "the most megabytes of gradients in the last collective, which starts when the backward part ends; a gradient that is "
        "larger is one by itself.",
    )
    fuse_grad_merge = _idle(False, "sums over runs are in flat buffers where updates are fused.")
    nccl_comm_num = _active(1, "the collectives take turns over so many rings, each with a stream of its own.")
    sync_nccl_allreduce = _active(
        True,
        "set to True by the script, the host waits behind each collective. Left alone it does not, though Paddle's default is "
        "True: a step then waits once, at its end.",
    )
    _calc_comm_same_stream = _active(
        False, "collectives go into the stream of the computation: nothing runs beside them."
    )
    cudnn_exhaustive_search = _idle(False, _GPU)
    cudnn_batchnorm_spatial_persistent = _idle(False, _GPU)
    conv_workspace_size_limit = _idle(512, _GPU)
    without_graph_optimization = _idle(True, "build_strategy alone says which fusions run.")
    fp16_allreduce = _active(
        False,
        "float32 gradients are sent as float16. Under amp those that were computed in 16 bits are sent so in any case.",
    )
    split_data = _idle(True, "each process feeds its own part of the data.")
    auto = _idle(False, _SEARCH)
    semi_auto = _idle(False, _SEARCH)
    auto_search = _idle(False, _SEARCH)
    elastic = _idle(False, "the number of processes does not change; start all again from a checkpoint.")
    hybrid_parallel_order = _idle(["dp", "pp", "sharding", "sep", "mp"], "there is data parallelism alone.")
    sync_param_name = _idle(["embedding", "layer_norm", ".b_"], "it belongs to tensor parallelism.")
    a_sync = _idle(True, _SERVERS)
    a_sync_configs = _idle(
        {
            "k_steps": -1, "max_merge_var_num": 1, "send_queue_size": 16, "independent_recv_thread": False,
            "min_send_grad_num_before_recv": 1, "thread_pool_size": 1, "send_wait_times": 1,
            "runtime_split_send_recv": False, "launch_barrier": True, "heter_worker_device_guard": "cpu",
            "lr_decay_steps": 10, "use_ps_gpu": 0,
        },
        _SERVERS,
    )
    adam_d2sum = _idle(False, _SERVERS)
    is_fl_ps_mode = _idle(False, _SERVERS)
    is_with_coordinator = _idle(False, _SERVERS)
    fleet_desc_configs = _idle({}, _SERVERS)
    sparse_table_configs = _idle({}, _SERVERS)
    fs_client_param = _idle({}, _SERVERS)
    trainer_desc_configs = _idle(
        {
            "dump_fields_path": "", "dump_fields": [], "dump_param": [], "stat_var_names": [], "trainer": "",
            "device_worker": "", "local_sparse": [], "remote_sparse": [],
        },
        _SERVERS,
    )
    pipeline = _refused(False, "a program is not cut into stages", _DATA)
    pipeline_configs = _idle(
        {
            "micro_batch_size": 1, "accumulate_steps": 1, "schedule_mode": "1F1B", "p2p_cache_shape": True,
            "enable_partial_send_recv": True,
        },
        "settings of pipeline.",
    )
    tensor_parallel = _refused(False, "parameters are not cut", _DATA)
    tensor_parallel_configs = _idle({"tensor_parallel_degree": 1, "tensor_init_seed": -1}, "settings of tensor_parallel.")
    sharding = _refused(
        False, "every process holds all parameters",
        "static.BuildStrategy.reduce_strategy = Reduce, which divides the updates among the places of a process",
    )
    sharding_configs = _idle(
        {
            "sharding_segment_strategy": "segment_broadcast_MB", "segment_broadcast_MB": 32.0, "segment_anchors": [],
            "sharding_degree": 8, "mp_degree": 1, "dp_degree": 1, "hybrid_dp": False, "gradient_merge_acc_step": 1,
            "optimize_offload": False, "pp_allreduce_in_optimize": False, "pp_degree": 1, "optimize_cast": False,
            "_dp_as_optimizer_sharding": False, "stage": 1, "enable_tuning": False, "use_calc_stream": False,
        },
        "settings of sharding.",
    )
    hybrid_configs = Field(
        {
            "dp_degree": -1, "mp_degree": 1, "pp_degree": 1, "sharding_degree": 1, "sep_degree": 1, "mp_configs": {},
            "pp_configs": {}, "sharding_configs": {},
        },
        Outcome("refused", "minimize raises UnsupportedError if a degree but dp_degree is above 1."),
        _DATA,
    )
    dgc = _refused(False, "gradients are not compressed", "amp with bfloat16, which halves what is computed, not sent")
    dgc_configs = _idle({"rampup_begin_step": 0, "rampup_step": 1, "sparsity": []}, "settings of dgc.")
    localsgd = _refused(False, "processes do not train apart", "gradient_merge, which exchanges gradients in every k-th run")
    localsgd_configs = _idle({"k_steps": 1, "begin_step": 1}, "settings of localsgd.")
    adaptive_localsgd = _refused(
        False, "processes do not train apart", "gradient_merge, which exchanges gradients in every k-th run"
    )
    adaptive_localsgd_configs = _idle({"init_k_steps": 1, "begin_step": 1}, "settings of adaptive_localsgd.")
    asp = _refused(False, "weights are not pruned to patterns", "the dense program")
    qat = _refused(False, "there is no quantized training", "amp with bfloat16")
    qat_configs = _idle(
        {"channel_wise_abs_max": True, "weight_bits": 8, "activation_bits": 8, "not_quant_pattern": [], "algo": ""},
        "settings of qat.",
    )
    heter_ccl_mode = _refused(False, "all processes have places of one kind", "one kind of places")
    # fmt: on


FIELDS: dict[str, Field] = {name: field for name, field in vars(_Fields).items() if isinstance(field, Field)}
"""All fields, by name; docs/fleet.md has them as a table."""

_OPEN = frozenset(name for name, field in FIELDS.items() if field.default == {})
"""Fields whose dict may have any key."""
_WHOLE = {"build_strategy": BuildStrategy, "execution_strategy": ExecutionStrategy}


def _fits(value: Any, default: Any) -> bool:
    """Returns whether a value has the type of a default; a float may be given as an int, a list as a tuple."""
    if isinstance(default, bool):
        return isinstance(value, bool)
    if isinstance(default, float):
        return isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(default, int):
        return isinstance(value, int) and not isinstance(value, bool)
    if isinstance(default, list):
        return isinstance(value, list | tuple)
    return isinstance(value, type(default))


class DistributedStrategy:
    """Selects how ``fleet.distributed_optimizer`` trains: fields are typed, and only those that exist can be set.

    A field whose name ends with ``_configs`` takes a dict, which is merged into the settings that it has. ``build_strategy`` and
    ``execution_strategy`` are set whole: what is read is a copy. ``explain`` says for each field what it does.

    Raises:
        UnknownFieldError: A field is set that does not exist (a ``TypeError``).
        UnknownConfigError: A dict has a key that the field does not have (an ``AssertionError``).
        StrategyTypeError: A setting in a dict has another type (a ``TypeError``).

    Example:
        >>> from tstatic.distributed import fleet
        >>> strategy = fleet.DistributedStrategy()
        >>> strategy.gradient_merge = True
        >>> strategy.gradient_merge_configs = {"k_steps": 4}
        >>> strategy.gradient_merge_configs
        {'k_steps': 4, 'avg': True}
        >>> strategy
        DistributedStrategy(gradient_merge=True, gradient_merge_configs={'k_steps': 4, 'avg': True})
    """

    __slots__ = ("_given", "_values")
    _values: dict[str, Any]
    _given: set[str]

    def __init__(self) -> None:
        values = {name: copy.deepcopy(field.default) for name, field in FIELDS.items()}
        values.update((name, kind()) for name, kind in _WHOLE.items())
        object.__setattr__(self, "_values", values)
        object.__setattr__(self, "_given", set())

    def __getattr__(self, name: str) -> Any:
        if name not in FIELDS:
            raise AttributeError(
                f"'DistributedStrategy' object has no attribute '{name}'. {near(name, FIELDS)}".rstrip(), name=name
            )
        value = self._values[name]
        if name in _WHOLE:
            return value.copy()
        return copy.copy(value) if isinstance(value, dict | list) else value

    def __setattr__(self, name: str, value: Any) -> None:
        field = FIELDS.get(name)
        if field is None:
            raise UnknownFieldError(
                f"{name} is not a attribute of DistributedStrategy",
                expected=f"one of its {len(FIELDS)} fields",
                received=repr(name),
                fix=near(name, FIELDS) or "print(fleet.DistributedStrategy().explain()) lists them all",
            )
        if name in _WHOLE:
            if isinstance(value, _WHOLE[name]):
                self._values[name] = value.copy()
            else:
                self._warn(name, _WHOLE[name].__name__, value)
        elif isinstance(field.default, dict):
            self._merge(name, field.default, value)
        elif _fits(value, field.default):
            self._values[name] = list(value) if isinstance(field.default, list) else value
            self._given.add(name)
        else:
            self._warn(name, type(field.default).__name__, value)

    def _warn(self, name: str, wanted: str, value: Any) -> None:
        """Says that a value is not set: Paddle warns, too, and goes on."""
        _log.warning(
            "DistributedStrategy.%s should have value of %s type, but received %s: not set", name, wanted, shown(value)
        )

    def _merge(self, name: str, known: Mapping[str, Any], given: Any) -> None:
        if not isinstance(given, Mapping):
            self._warn(name, "dict", given)
            return
        for key, value in given.items():
            if name in _OPEN:
                continue
            if key not in known:
                raise UnknownConfigError(
                    f"key:{key} not in {name}",
                    expected=f"keys among {', '.join(known)}",
                    received=repr(key),
                    fix=near(str(key), known) or "leave it out",
                )
            if not _fits(value, known[key]):
                raise StrategyTypeError(
                    f"the value given to DistributedStrategy.{name}['{key}'] is of the wrong type",
                    expected=type(known[key]).__name__,
                    received=shown(value),
                    fix=f"set a value like the default, {known[key]!r}",
                )
        self._values[name] = {**self._values[name], **given}

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *FIELDS})

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a field of DistributedStrategy cannot be deleted: '{name}'")

    def __copy__(self) -> DistributedStrategy:
        made = DistributedStrategy()
        for name in FIELDS:
            made._values[name] = getattr(self, name)
        made._given.update(self._given)
        return made

    copy = __copy__

    def __deepcopy__(self, memo: Any) -> DistributedStrategy:
        return self.__copy__()

    def __getstate__(self) -> dict[str, Any]:
        names = {"recompute_configs": {**self.recompute_configs, "checkpoints": self._checkpoints()}}
        return {**{name: names.get(name, getattr(self, name)) for name in FIELDS}, "_given": sorted(self._given)}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        values = dict(state)
        object.__setattr__(self, "_given", set(values.pop("_given", ())))
        object.__setattr__(self, "_values", values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DistributedStrategy):
            return NotImplemented
        mine, its = self.__getstate__(), other.__getstate__()
        return all(mine[name] == its[name] for name in FIELDS) and self._waits == other._waits

    __hash__ = None  # type: ignore[assignment]

    @property
    def _waits(self) -> bool:
        """Whether the host waits behind each collective: only where the script asks for it."""
        return self.sync_nccl_allreduce is True and "sync_nccl_allreduce" in self._given

    def _checkpoints(self) -> list[str]:
        """Returns the names of the checkpoints of recomputation."""
        given: Sequence[Any] = self._values["recompute_configs"]["checkpoints"]
        return [v.name if isinstance(v, Variable) else str(v) for v in given]

    def changed(self) -> dict[str, Any]:
        """Returns the fields whose value is not the default, by name."""
        fresh = DistributedStrategy()
        return {name: getattr(self, name) for name in FIELDS if self._values[name] != fresh._values[name]}

    def check(self) -> None:
        """Checks that nothing is asked for that tstatic does not have.

        Raises:
            UnsupportedError: A refused field is set, or a degree of ``hybrid_configs`` is above 1.
        """
        for name, field in FIELDS.items():
            value = self._values[name]
            if name == "hybrid_configs":
                degrees = [k for k, v in value.items() if isinstance(v, int) and v > 1 and k != "dp_degree"]
                asked = f"hybrid_configs['{degrees[0]}'] = {value[degrees[0]]}" if degrees else ""
            else:
                asked = f"{name} = {value}" if field.outcome.status == "refused" and value else ""
            if asked:
                raise UnsupportedError(
                    f"DistributedStrategy.{asked} asks for training that is not part of tstatic",
                    expected=f"its default, {field.default!r}" if name != "hybrid_configs" else "1",
                    received=asked,
                    fix=f"leave it out, and use {field.use}",
                    op="fleet.minimize",
                )

    def explain(self) -> tuple[PropertyStatus, ...]:
        """Returns for each field its value, ``active``, ``no effect`` or ``refused``, and the reason."""
        return tuple(
            PropertyStatus("DistributedStrategy", name, getattr(self, name), field.default, *field.outcome)
            for name, field in FIELDS.items()
        )

    def save_to_prototxt(self, output: str) -> NoReturn:
        """Raises UnsupportedError: a strategy is a Python object, which ``pickle`` writes."""
        raise _no_text("save_to_prototxt", output)

    def load_from_prototxt(self, pb_file: str) -> NoReturn:
        """Raises UnsupportedError: a strategy is a Python object, which ``pickle`` reads."""
        raise _no_text("load_from_prototxt", pb_file)

    def __repr__(self) -> str:
        return f"DistributedStrategy({', '.join(f'{name}={value!r}' for name, value in self.changed().items())})"


def _no_text(method: str, path: str) -> UnsupportedError:
    return UnsupportedError(
        f"DistributedStrategy.{method} needs Paddle's text format, which is not part of tstatic",
        expected="a strategy that a script sets",
        received=repr(path),
        fix="set the fields in the script, or use pickle",
    )


__all__ = ["FIELDS", "DistributedStrategy"]
