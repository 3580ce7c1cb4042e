"""BuildStrategy and ExecutionStrategy: every property with its default, its checks and its effect in this release.

* ``property``  the record of a property, and the base class that validates, prints, compares and copies by them
"""

from __future__ import annotations

import enum

from tstatic.errors import StrategyValueError
from tstatic.static.strategy.property import (
    BOOL,
    OPTIONAL_BOOL,
    TEXT,
    TEXT_LIST,
    TEXT_SET,
    Effect,
    OpenSwitch,
    Outcome,
    Property,
    Strategy,
    active,
    check_int,
    later,
    member,
    no_effect,
)

__all__ = ["BuildStrategy", "ExecutionStrategy"]

FUSION_LATER = later(
    "this fusion comes with a later release; until then its ops run one by one, or as the other fusions find them, with the "
    "same results."
)
FUSES = active("compiled.explain(feed_shapes={...}) says what it fused and what not, and why.")
IN_ORDER = active(
    "steps run one after another in the program's order, none part by part with its neighbours; print(compiled.plan) shows "
    "what waits for what. Results do not depend on it."
)
ON_PLACES = active("it acts when with_data_parallel runs the program on several places.")
TRAINERS = "it must agree with what the launcher's environment says; {} leaves it to the environment."
BLOCKS = active(
    "sums go within each process, then over blocks of hierarchical_allreduce_inter_nranks processes (0: those of one machine), "
    "then over the blocks. NCCL is told of no blocks: it finds the topology of the machines by itself."
)
RINGS = active(
    "the collectives of a program take turns over so many rings, each with a stream of its own, and under NCCL with a "
    "communicator of its own. CPU places work in one stream."
)


def fusion(
    since: str, doc: str, outcome: Outcome = FUSES, *, default: bool = False, effect: Effect = "fusion"
) -> Property[bool]:
    """Returns the property that switches a fusion; it cannot change once the passes of a program are chosen."""
    return Property(BOOL, default, since, effect, doc, outcome, freezes=True)


class _Choice(enum.Enum):
    """An enum whose members also convert to int; a member never equals a number."""

    def __int__(self) -> int:
        return int(self.value)

    # Paddle's are enums of pybind11, which convert to int and index sequences, too.
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
        # Paddle's name for replicas that exchange no gradients.
        _NoReduce = 2

    class GradientScaleStrategy(_Choice):
        """Where the gradient of the loss starts."""

        CoeffNumDevice = 0
        One = 1
        Customized = 2

    # Kept compact: the formatter would give each argument a line.
    # fmt: off
    reduce_strategy = Property(
        member(ReduceStrategy), ReduceStrategy.AllReduce, "0.13", "multi-device",
        "AllReduce updates every parameter on every place; Reduce updates each on one, which sends it out.",
        ON_PLACES, freezes=True,
    )
    gradient_scale_strategy = Property(
        member(GradientScaleStrategy), GradientScaleStrategy.CoeffNumDevice, "0.13", "multi-device",
        "Starts the gradient of the loss at 1/number of devices, at 1, or (Customized) at what is fed for it.",
        active("Customized takes the gradient of the loss from the feed; on one place the others both start it at 1."),
        freezes=True,
    )
    debug_graphviz_path = Property(
        TEXT, "", "0.14", "debug", "Path prefix of the DOT files that show the program before and after it is rewritten.",
        active("compiling writes PATH_original_graph, PATH_fused_graph and PATH_multi_devices_graph."), freezes=True,
    )
    enable_sequential_execution = Property(
        BOOL, False, "1.0", "order", "Runs the ops in the order in which the program lists them.", IN_ORDER, freezes=True,
    )
    remove_unnecessary_lock = Property(
        BOOL, True, "1.2", "order", "Lets GPU ops run without a lock where all their readers are on the same device.",
        active("set to False, it puts an event after every step, for which the next one waits; print(compiled.plan) shows them."),
        freezes=True,
    )
    fuse_elewise_add_act_ops = fusion(
        "1.1", "Fuses an elementwise add with the activation before or after it, forward and backward.",
    )
    fuse_broadcast_ops = Property(
        BOOL, False, "1.1", "multi-device",
        "With Reduce, sends all updated parameters in one grouped broadcast at the end of the step.",
        ON_PLACES, freezes=True,
    )
    memory_optimize = Property(
        # Paddle has three states: None leaves the choice to the framework.
        OPTIONAL_BOOL, None, "1.3", "memory",
        "Lets values that are not alive at the same time share storage; False gives each its own.",
        active("it decides how values share the arena (None as True); memory_report() shows the difference."),
    )
    enable_inplace = Property(
        BOOL, True, "1.3", "memory", "Lets an op write its result over an input that nobody reads afterwards.",
        active("it decides whether an op may overwrite a dying input; memory_report() shows the difference."),
    )
    fuse_relu_depthwise_conv = fusion(
        "1.4", "Fuses relu into the depthwise convolution that reads it, forward and backward.",
    )
    async_mode = Property(
        BOOL, False, "1.4", "distributed", "Trains without waiting for the other trainers, through a parameter server.",
        no_effect("it belongs to parameter servers, which do not exist here."),
    )
    sync_batch_norm = Property(
        BOOL, False, "1.4", "rewrite",
        "Computes batch-norm statistics over the samples of all places, weighted by their counts.",
        ON_PLACES, freezes=True,
    )
    fuse_all_reduce_ops = Property(
        BOOL, True, "1.4", "multi-device", "Reduces gradients in a few large buckets instead of one by one.", ON_PLACES,
    )
    fuse_all_optimizer_ops = fusion(
        "1.4", "Updates all parameters that share an optimizer and its attributes with one op.", effect="optimizer fusion",
    )
    cache_runtime_context = Property(
        BOOL, False, "1.4", "order", "Keeps the look-ups of an op's variables from one run to the next.",
        no_effect("look-ups are always bound once, when a plan is bound."),
    )
    mkldnn_enabled_op_types = Property(
        TEXT_SET, set(), "1.5", "rewrite", "Names the op types that may run through oneDNN.",
        no_effect("oneDNN is not used: CPU ops run through numpy."),
    )
    # 1 cannot be told from a value that was not set: it leaves all three properties to the environment.
    num_trainers = Property(
        check_int(1), 1, "1.4", "distributed", "Number of processes that train together.", active(TRAINERS.format("1")),
    )
    trainer_id = Property(
        check_int(0), 0, "1.4", "distributed", "This process's rank among the trainers.", active(TRAINERS.format("0")),
    )
    trainers_endpoints = Property(
        TEXT_LIST, [], "1.4", "distributed", "The trainers' addresses, as 'host:port', in the order of their ranks.",
        active(TRAINERS.format("an empty list")),
    )
    is_distribution = Property(
        BOOL, False, "1.3", "distributed", "Says that the program sends to and receives from parameter servers.",
        no_effect("it follows from the program's ops, whatever is set here; parameter servers do not exist here."),
    )
    nccl_comm_num = Property(
        check_int(1), 1, "1.5", "distributed", "Number of NCCL rings.", RINGS,
    )
    bkcl_comm_num = Property(
        check_int(1), 1, "2.0", "distributed", "Number of BKCL rings, on Kunlun devices.",
        no_effect("Kunlun devices are not supported."),
    )
    use_hierarchical_allreduce = Property(
        BOOL, False, "1.5", "distributed", "Reduces inside each machine first, then between machines.", BLOCKS,
    )
    hierarchical_allreduce_inter_nranks = Property(
        check_int(0), 0, "1.5", "distributed", "Number of ranks in the inner ring of a hierarchical all-reduce.", BLOCKS,
    )
    enable_backward_optimizer_op_deps = Property(
        BOOL, True, "1.5", "order", "With several trainers, starts no update before the whole backward part has run.",
        active("updates come after the whole backward part of all places and processes, whatever this says."),
    )
    fuse_bn_act_ops = fusion("1.7", "Fuses batch norm with the activation after it, forward and backward.")
    enable_auto_fusion = fusion("1.8", "Finds groups of elementwise ops and generates one kernel for each.")
    # The only fusion that Paddle turns on by default.
    fuse_bn_add_act_ops = fusion(
        "2.0", "Fuses batch norm, the add of a residual and the activation after it, forward and backward.", default=True,
    )
    enable_addto = Property(
        BOOL, False, "2.0", "memory", "Accumulates the gradients of a value with several uses in place, without a sum op.",
        active("each gradient is added when it is there, in place; memory_report() shows the difference."),
    )
    fix_op_run_order = Property(
        BOOL, False, "2.2", "order", "Gives the ops the same order in every run and every process.", IN_ORDER,
    )
    allow_cuda_graph_capture = OpenSwitch(
        BOOL, False, "2.3", "GPU", "Lets the program be captured as a CUDA graph and replayed.",
        active(
            "unless it is set, FLAGS_cuda_graph decides. False: never. True: a warning names what keeps the program from being one "
            "graph. Only GPUs have graphs."
        ),
    )
    fuse_gemm_epilogue = fusion(
        "2.3", "Fuses a matrix product with its bias and activation, forward and backward.",
    )
    build_cinn_pass = fusion(
        "2.5", "Lowers groups of elementwise and reduction ops with the kernel compiler.", effect="compiler",
    )
    fused_attention = fusion(
        "2.5", "Fuses a whole multi-head attention block into one op, forward and backward.",
    )
    fused_feedforward = fusion("2.5", "Fuses a whole feed-forward block into one op, forward and backward.")
    fuse_adamw = fusion("2.5", "Updates all parameters that AdamW trains with one op.", effect="optimizer fusion")
    sequential_run = Property(
        BOOL, False, "2.5", "order", "Runs op by op in the program's order, on one stream; an aid for debugging.",
        IN_ORDER, freezes=True,
    )
    fuse_dot_product_attention = fusion(
        "3.0", "Fuses the attention core (products, mask, softmax, dropout) into one op, forward and backward.",
    )
    fuse_linear_cross_entropy = fusion(
        # No release of Paddle has it.
        "-", "Computes a linear layer and the cross entropy behind it in chunks of rows, forward and backward, so that its logits "
        "are never whole in memory; of tstatic's own.",
    )
    fuse_embedding_grad_add = fusion(
        "-", "Adds the gradient of an embedding lookup to another gradient of the same table, in its place; of tstatic's own.",
    )
    fuse_resunit = fusion("3.0", "Fuses the convolution, batch norm, add and relu chains of residual units.", FUSION_LATER)
    # fmt: on

    def check(self) -> None:
        """Checks properties against each other, and that lists and sets still hold only str.

        Raises:
            StrategyValueError: ``trainer_id`` is not among ``num_trainers`` or ``trainers_endpoints``.
            StrategyTypeError: A list or set was changed in place and now holds something that is not a str.
        """
        # Reads all values again, and so finds a list or set that was changed in place.
        self.key()
        # Scripts may set the number, the addresses, or both.
        count = max(self.num_trainers, len(self.trainers_endpoints))
        if self.trainer_id >= count:
            raise StrategyValueError(
                "BuildStrategy.trainer_id names a trainer that does not exist",
                expected=f"trainer_id < {count}, the number of trainers",
                received=self.trainer_id,
                fix="set num_trainers, or list the endpoints of all trainers in trainers_endpoints",
            )

    def _finalize_strategy_and_create_passes(self) -> None:
        """Checks the strategy and freezes the properties that decide which passes run."""
        self.check()
        # Past `__setattr__`, which takes properties only.
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
        # 0 depends on the number of places, which the first run decides at the latest.
        check_int(0), 0, "0.13", "order",
        "Size of the pool of worker threads; 0 means 4 for each device. Results do not depend on it.",
        active("it sizes the pool that independent tiles of work run on; the places share it."),
    )
    num_iteration_per_drop_scope = Property(
        check_int(1), 100, "0.14", "memory", "Number of runs after which temporary values are dropped.",
        active("the arena is given back after so many runs."),
    )
    num_iteration_per_run = Property(
        check_int(1), 1, "1.5", "order",
        "Number of steps that one call of run() makes with the same feed; the last one's fetches return.",
        active("run() repeats the step so many times."),
    )
    allow_op_delay = Property(
        BOOL, False, "0.13", "order", "Delayed communication ops in early releases.",
        no_effect("it has had no meaning since early releases."),
    )
    use_thread_barrier = Property(
        BOOL, False, "2.0", "distributed", "Makes all threads wait for each other in asynchronous training.",
        no_effect("it belongs to parameter servers, which do not exist here."),
    )
    use_experimental_executor = Property(
        BOOL, True, "0.15", "order", "Chooses between two graph executors.",
        no_effect("there is one executor, and every property works with it."),
    )
    _dry_run = Property(
        BOOL, False, "2.0", "debug", "Does everything but run the kernels; fetches come back as None.",
        active("run() compiles and checks everything, runs nothing and returns None."),
    )
    _use_device = Property(
        member(DeviceType), DeviceType.CUDA, "2.0", "multi-device", "The kind of device that runs the program.",
        no_effect("the Executor's place decides it."),
    )
    use_cuda = Property(
        BOOL, True, "0.13", "multi-device", "The 1.x name of the choice between GPU and CPU.",
        no_effect("the Executor's place decides it."),
    )
    # fmt: on
