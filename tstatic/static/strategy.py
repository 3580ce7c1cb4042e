"""BuildStrategy and ExecutionStrategy: every property with its default, its checks and its effect in this release."""

from __future__ import annotations

import enum

from tstatic.errors import StrategyValueError
from tstatic.static.strategy_property import (
    BOOL,
    OPTIONAL_BOOL,
    TEXT,
    TEXT_LIST,
    TEXT_SET,
    Property,
    Strategy,
    check_int,
    member,
)

__all__ = ["BuildStrategy", "ExecutionStrategy"]

FUSION_LATER = (
    "this fusion comes with a later release; until then its ops run one by one, or as the other fusions find them, with the "
    "same results."
)
FUSES = "compiled.explain(feed_shapes={...}) says what it fused and what not, and why."
IN_ORDER = (
    "steps run one after another in the program's order, none part by part with its neighbours; print(compiled.plan) shows "
    "what waits for what. Results do not depend on it."
)
ON_PLACES = "it acts when with_data_parallel runs the program on several places."
TRAINERS = "it must agree with what the launcher's environment says; {} leaves it to the environment."
GPU_LATER = "it acts on a GPU, which comes with a later release."
BLOCKS = (
    "sums go within each process, then over blocks of hierarchical_allreduce_inter_nranks processes (0: those of one machine), "
    "then over the blocks."
)
LIBRARY_CHOOSES = "the communication library chooses rings and topology by itself."


class _Choice(enum.Enum):
    """An enum whose members also convert to int; a member never equals a number."""

    def __int__(self) -> int:
        return int(self.value)

    __index__ = __int__


class BuildStrategy(Strategy):
    """Selects how a program is rewritten and planned before it runs; an argument of ``CompiledProgram``.

    A strategy is copied when a program is compiled with it. Values are checked when they are set.

    Raises:
        StrategyTypeError: A property is set to a value of another type (a ``TypeError``).
        StrategyValueError: A number is out of range (a ``ValueError``).
        UnknownPropertyError: There is no property of that name (an ``AttributeError``).

    Example:
        >>> strategy = static.BuildStrategy()
        >>> strategy.fuse_all_optimizer_ops = True
        >>> y = paddle.tanh(static.data("x", [2]))
        >>> compiled = static.CompiledProgram(static.default_main_program(), build_strategy=strategy)
        >>> static.Executor().run(compiled, feed={"x": np.zeros(2, "float32")}, fetch_list=[y])[0]
        array([0., 0.], dtype=float32)
    """

    __slots__ = ()

    class ReduceStrategy(_Choice):
        """How gradients are aggregated over places."""

        AllReduce = 0
        Reduce = 1
        _NoReduce = 2

    class GradientScaleStrategy(_Choice):
        """Where the gradient of the loss starts."""

        CoeffNumDevice = 0
        One = 1
        Customized = 2

    # fmt: off
    reduce_strategy = Property(
        member(ReduceStrategy), ReduceStrategy.AllReduce,
        "AllReduce updates every parameter on every place; Reduce updates each on one, which sends it out.",
        since="0.13", effect="multi-device", freezes=True, status="active", reason=ON_PLACES,
    )
    gradient_scale_strategy = Property(
        member(GradientScaleStrategy), GradientScaleStrategy.CoeffNumDevice,
        "Starts the gradient of the loss at 1/number of devices, at 1, or (Customized) at what is fed for it.",
        since="0.13", effect="multi-device", freezes=True, status="active",
        reason="Customized takes the gradient of the loss from the feed; on one place the others both start it at 1.",
    )
    debug_graphviz_path = Property(
        TEXT, "", "Path prefix of the DOT files that show the program before and after it is rewritten.",
        since="0.14", effect="debug", freezes=True, status="active",
        reason="compiling writes PATH_original_graph, PATH_fused_graph and PATH_multi_devices_graph.",
    )
    enable_sequential_execution = Property(
        BOOL, False, "Runs the ops in the order in which the program lists them.",
        since="1.0", effect="order", freezes=True, status="active", reason=IN_ORDER,
    )
    remove_unnecessary_lock = Property(
        BOOL, True, "Lets GPU ops run without a lock where all their readers are on the same device.",
        since="1.2", effect="order", freezes=True, status="active",
        reason="set to False, it puts an event after every step, for which the next one waits; print(compiled.plan) shows them.",
    )
    fuse_elewise_add_act_ops = Property(
        BOOL, False, "Fuses an elementwise add with the activation before or after it, forward and backward.",
        since="1.1", effect="fusion", freezes=True, status="active", reason=FUSES,
    )
    fuse_broadcast_ops = Property(
        BOOL, False, "With Reduce, sends all updated parameters in one grouped broadcast at the end of the step.",
        since="1.1", effect="multi-device", freezes=True, status="active", reason=ON_PLACES,
    )
    memory_optimize = Property(
        OPTIONAL_BOOL, None, "Lets values that are not alive at the same time share storage; False gives each its own.",
        since="1.3", effect="memory", status="active",
        reason="it decides how values share the arena (None as True); memory_report() shows the difference.",
    )
    enable_inplace = Property(
        BOOL, True, "Lets an op write its result over an input that nobody reads afterwards.",
        since="1.3", effect="memory", status="active",
        reason="it decides whether an op may overwrite a dying input; memory_report() shows the difference.",
    )
    fuse_relu_depthwise_conv = Property(
        BOOL, False, "Fuses relu into the depthwise convolution that reads it, forward and backward.",
        since="1.4", effect="fusion", freezes=True, status="active", reason=FUSES,
    )
    async_mode = Property(
        BOOL, False, "Trains without waiting for the other trainers, through a parameter server.",
        since="1.4", effect="distributed", status="no effect",
        reason="it belongs to parameter servers, which do not exist here.",
    )
    sync_batch_norm = Property(
        BOOL, False, "Computes batch-norm statistics over the samples of all places, weighted by their counts.",
        since="1.4", effect="rewrite", freezes=True, status="active", reason=ON_PLACES,
    )
    fuse_all_reduce_ops = Property(
        BOOL, True, "Reduces gradients in a few large buckets instead of one by one.",
        since="1.4", effect="multi-device", status="active", reason=ON_PLACES,
    )
    fuse_all_optimizer_ops = Property(
        BOOL, False, "Updates all parameters that share an optimizer and its attributes with one op.",
        since="1.4", effect="optimizer fusion", freezes=True, status="active", reason=FUSES,
    )
    cache_runtime_context = Property(
        BOOL, False, "Keeps the look-ups of an op's variables from one run to the next.",
        since="1.4", effect="order", status="no effect",
        reason="look-ups are always bound once, when a plan is bound.",
    )
    mkldnn_enabled_op_types = Property(
        TEXT_SET, set(), "Names the op types that may run through oneDNN.",
        since="1.5", effect="rewrite", status="no effect",
        reason="oneDNN is not used: CPU ops run through numpy.",
    )
    num_trainers = Property(
        check_int(1), 1, "Number of processes that train together.",
        since="1.4", effect="distributed", status="active", reason=TRAINERS.format("1"),
    )
    trainer_id = Property(
        check_int(0), 0, "This process's rank among the trainers.",
        since="1.4", effect="distributed", status="active", reason=TRAINERS.format("0"),
    )
    trainers_endpoints = Property(
        TEXT_LIST, [], "The trainers' addresses, as 'host:port', in the order of their ranks.",
        since="1.4", effect="distributed", status="active", reason=TRAINERS.format("an empty list"),
    )
    is_distribution = Property(
        BOOL, False, "Says that the program sends to and receives from parameter servers.",
        since="1.3", effect="distributed", status="no effect",
        reason="it follows from the program's ops, whatever is set here; parameter servers do not exist here.",
    )
    nccl_comm_num = Property(
        check_int(1), 1, "Number of NCCL rings.",
        since="1.5", effect="distributed", status="no effect", reason=LIBRARY_CHOOSES,
    )
    bkcl_comm_num = Property(
        check_int(1), 1, "Number of BKCL rings, on Kunlun devices.",
        since="2.0", effect="distributed", status="no effect", reason="Kunlun devices are not supported.",
    )
    use_hierarchical_allreduce = Property(
        BOOL, False, "Reduces inside each machine first, then between machines.",
        since="1.5", effect="distributed", status="active", reason=BLOCKS,
    )
    hierarchical_allreduce_inter_nranks = Property(
        check_int(0), 0, "Number of ranks in the inner ring of a hierarchical all-reduce.",
        since="1.5", effect="distributed", status="active", reason=BLOCKS,
    )
    enable_backward_optimizer_op_deps = Property(
        BOOL, True, "With several trainers, starts no update before the whole backward part has run.",
        since="1.5", effect="order", status="active",
        reason="updates come after the whole backward part of all places and processes, whatever this says.",
    )
    fuse_bn_act_ops = Property(
        BOOL, False, "Fuses batch norm with the activation after it, forward and backward.",
        since="1.7", effect="fusion", freezes=True, status="active", reason=FUSES,
    )
    enable_auto_fusion = Property(
        BOOL, False, "Finds groups of elementwise ops and generates one kernel for each.",
        since="1.8", effect="fusion", freezes=True, status="active", reason=FUSES,
    )
    fuse_bn_add_act_ops = Property(
        BOOL, True, "Fuses batch norm, the add of a residual and the activation after it, forward and backward.",
        since="2.0", effect="fusion", freezes=True, status="active", reason=FUSES,
    )
    enable_addto = Property(
        BOOL, False, "Accumulates the gradients of a value with several uses in place, without a sum op.",
        since="2.0", effect="memory", status="active",
        reason="each gradient is added when it is there, in place; memory_report() shows the difference.",
    )
    fix_op_run_order = Property(
        BOOL, False, "Gives the ops the same order in every run and every process.",
        since="2.2", effect="order", status="active", reason=IN_ORDER,
    )
    allow_cuda_graph_capture = Property(
        BOOL, False, "Lets the program be captured as a CUDA graph and replayed.",
        since="2.3", effect="GPU", status="not yet active", reason=GPU_LATER,
    )
    fuse_gemm_epilogue = Property(
        BOOL, False, "Fuses a matrix product with its bias and activation, forward and backward.",
        since="2.3", effect="fusion", freezes=True, status="not yet active", reason=FUSION_LATER,
    )
    build_cinn_pass = Property(
        BOOL, False, "Lowers groups of elementwise and reduction ops with the kernel compiler.",
        since="2.5", effect="compiler", freezes=True, status="active", reason=FUSES,
    )
    fused_attention = Property(
        BOOL, False, "Fuses a whole multi-head attention block into one op, forward and backward.",
        since="2.5", effect="fusion", freezes=True, status="not yet active", reason=FUSION_LATER,
    )
    fused_feedforward = Property(
        BOOL, False, "Fuses a whole feed-forward block into one op, forward and backward.",
        since="2.5", effect="fusion", freezes=True, status="not yet active", reason=FUSION_LATER,
    )
    fuse_adamw = Property(
        BOOL, False, "Updates all parameters that AdamW trains with one op.",
        since="2.5", effect="optimizer fusion", freezes=True, status="active", reason=FUSES,
    )
    sequential_run = Property(
        BOOL, False, "Runs op by op in the program's order, on one stream; an aid for debugging.",
        since="2.5", effect="order", freezes=True, status="active", reason=IN_ORDER,
    )
    fuse_dot_product_attention = Property(
        BOOL, False, "Fuses the attention core (products, mask, softmax, dropout) into one op.",
        since="3.0", effect="fusion", freezes=True, status="not yet active", reason=FUSION_LATER,
    )
    fuse_resunit = Property(
        BOOL, False, "Fuses the convolution, batch norm, add and relu chains of residual units.",
        since="3.0", effect="fusion", freezes=True, status="not yet active", reason=FUSION_LATER,
    )
    # fmt: on

    def check(self) -> None:
        """Checks properties against each other, and that lists and sets still hold only str.

        Raises:
            StrategyValueError: ``trainer_id`` is not among ``num_trainers`` or ``trainers_endpoints``.
            StrategyTypeError: A list or set was changed in place and now holds something that is not a str.
        """
        self.key()
        count = max(self.num_trainers, len(self.trainers_endpoints))
        if self.trainer_id > 0 and self.trainer_id >= count:
            raise StrategyValueError(
                "BuildStrategy.trainer_id names a trainer that does not exist",
                expected=f"trainer_id < {count}, the number of trainers",
                received=self.trainer_id,
                fix="set num_trainers, or list the endpoints of all trainers in trainers_endpoints",
            )

    def _finalize_strategy_and_create_passes(self) -> None:
        """Checks the strategy and freezes the properties that decide which passes run."""
        self.check()
        object.__setattr__(self, "_finalized", True)

    def _clear_finalized(self) -> None:
        """Lets every property be set again."""
        object.__setattr__(self, "_finalized", False)


class ExecutionStrategy(Strategy):
    """Selects how a compiled program runs; an argument of ``with_data_parallel`` and ``ParallelExecutor``, which copy it.

    Raises:
        StrategyTypeError: A property is set to a value of another type (a ``TypeError``).
        StrategyValueError: A number is out of range (a ``ValueError``).
        UnknownPropertyError: There is no property of that name (an ``AttributeError``).

    Example:
        >>> strategy = static.ExecutionStrategy()
        >>> strategy.num_iteration_per_drop_scope = 10
        >>> y = paddle.mean(static.data("x", [None, 2]))
        >>> compiled = static.CompiledProgram(static.default_main_program())
        >>> places = [paddle.CPUPlace()] * 2
        >>> compiled = compiled.with_data_parallel(loss_name=y.name, exec_strategy=strategy, places=places)
        >>> static.Executor().run(compiled, feed={"x": np.array([[1, 3], [5, 7]], "float32")}, fetch_list=[y])[0]
        array([2., 6.], dtype=float32)
    """

    __slots__ = ()

    class DeviceType(_Choice):
        """The kinds of device that Paddle numbers."""

        CPU = 0
        CUDA = 1
        XPU = 3

    # fmt: off
    num_threads = Property(
        check_int(0), 0, "Size of the pool of worker threads; 0 means 4 for each device. Results do not depend on it.",
        since="0.13", effect="order", status="active",
        reason="it sizes the pool that independent tiles of work run on; the places share it.",
    )
    num_iteration_per_drop_scope = Property(
        check_int(1), 100, "Number of runs after which temporary values are dropped.",
        since="0.14", effect="memory", status="active",
        reason="the arena is given back after so many runs.",
    )
    num_iteration_per_run = Property(
        check_int(1), 1, "Number of steps that one call of run() makes with the same feed; the last one's fetches return.",
        since="1.5", effect="order", status="active",
        reason="run() repeats the step so many times.",
    )
    allow_op_delay = Property(
        BOOL, False, "Delayed communication ops in early releases.",
        since="0.13", effect="order", status="no effect", reason="it has had no meaning since early releases.",
    )
    use_thread_barrier = Property(
        BOOL, False, "Makes all threads wait for each other in asynchronous training.",
        since="2.0", effect="distributed", status="no effect",
        reason="it belongs to parameter servers, which do not exist here.",
    )
    use_experimental_executor = Property(
        BOOL, True, "Chooses between two graph executors.",
        since="0.15", effect="order", status="no effect",
        reason="there is one executor, and every property works with it.",
    )
    _dry_run = Property(
        BOOL, False, "Does everything but run the kernels; fetches come back as None.",
        since="2.0", effect="debug", status="active", reason="run() compiles and checks everything, runs nothing and returns None.",
    )
    _use_device = Property(
        member(DeviceType), DeviceType.CUDA, "The kind of device that runs the program.",
        since="2.0", effect="multi-device", status="no effect", reason="the Executor's place decides it.",
    )
    use_cuda = Property(
        BOOL, True, "The 1.x name of the choice between GPU and CPU.",
        since="0.13", effect="multi-device", status="no effect", reason="the Executor's place decides it.",
    )
    # fmt: on
