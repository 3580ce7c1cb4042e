"""Fleet: distributed training as a script spells it, from ``init`` to saving."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NoReturn

from tstatic.comm.rendezvous import launch
from tstatic.distributed.fleet.applied import decorated, noted, recomputing, settings_of
from tstatic.distributed.fleet.common import CollectiveHelper
from tstatic.distributed.fleet.role_maker import (
    PaddleCloudRoleMaker,
    RoleMakerBase,
    endpoints,
    node_num,
    servers,
)
from tstatic.distributed.fleet.strategy import DistributedStrategy
from tstatic.distributed.fleet.util_base import UtilBase
from tstatic.errors import CallOrderError, ProgramTypeError, UnsupportedError, shown
from tstatic.ir.build import check_variable
from tstatic.ir.checks import check_type
from tstatic.ir.declare import default_main_program, default_startup_program
from tstatic.ir.export import notes_signatures
from tstatic.ir.program import Operator, Program, Variable
from tstatic.logs import get_logger
from tstatic.no_effect import no_effect
from tstatic.optimizer.mixed_precision import OptimizerWithMixedPrecision
from tstatic.optimizer.optimizer import Pair
from tstatic.optimizer.wrapper import chain
from tstatic.runtime.scope import Scope
from tstatic.static.explain import Explanation
from tstatic.static.files.variable_files import load_persistables, save_inference_model, save_persistables
from tstatic.static.run.compiled_program import CompiledProgram, Settings
from tstatic.static.strategy import BuildStrategy

_MODE = "models are saved in one form"
_SERVERS = "it belongs to parameter servers, which do not exist here"
_SCALES = BuildStrategy.GradientScaleStrategy


@notes_signatures()
class Fleet:
    """The processes of a training, and the optimizer that trains with them; ``fleet`` has one, whose methods it shows.

    Example:
        >>> from tstatic.distributed import fleet
        >>> fleet.init(is_collective=True)
        >>> loss = paddle.mean(static.nn.fc(static.data("x", [None, 2]), 1))
        >>> strategy = fleet.DistributedStrategy()
        >>> strategy.gradient_merge_configs = {"k_steps": 2}
        >>> optimizer = fleet.distributed_optimizer(paddle.optimizer.SGD(0.1), strategy)
        >>> ops, params_grads = optimizer.minimize(loss)
        >>> [op.type for op in ops], len(params_grads)
        (['sgd', 'sgd'], 2)
    """

    def __init__(self) -> None:
        self._role_maker: Any = None
        self._is_collective = False
        self._user_strategy = DistributedStrategy()
        self._optimizer: Any = None
        self._program: Program | None = None
        self._applied: list[str] = []
        self.user_defined_optimizer: Any = None
        self._origin: Fleet | None = None  # what distributed_optimizer copied for one optimizer
        self.util = UtilBase()

    # ----------------------------------------------------------------------------------------------------------- processes
    def init(
        self,
        role_maker: Any = None,
        is_collective: bool = False,
        strategy: DistributedStrategy | None = None,
        log_level: Any = "INFO",
    ) -> None:
        """Finds out which of the processes this one is; may be called again.

        Args:
            role_maker: A role maker; by default the launcher's environment decides.
            is_collective: The processes train together by collectives; needed where there are several.
            strategy: Used by ``distributed_optimizer`` if that gets none.
            log_level: Level of the log ``tstatic.dist``: a name or number of ``logging``.

        Raises:
            ProgramTypeError: If an argument has another type.
            UnsupportedError: For several processes without ``is_collective``, which would be parameter servers.
        """
        kinds = (DistributedStrategy, type(None))
        check_type(strategy, kinds, "strategy", "fleet.init", expected="a fleet.DistributedStrategy or None")
        check_type(is_collective, bool, "is_collective", "fleet.init")
        maker = PaddleCloudRoleMaker(is_collective) if role_maker is None else role_maker
        if not isinstance(maker, RoleMakerBase):
            raise ProgramTypeError(
                f"`role_maker` should be subclass of `RoleMakerBase`, but got {type(maker).__name__}",
                expected="a role maker, such as fleet.PaddleCloudRoleMaker(is_collective=True), or None",
                received=shown(maker),
                fix="leave it out: the launcher's environment says which process this is",
                op="fleet.init",
            )
        maker._apply()
        collective = maker._is_collective or is_collective
        if maker._worker_num() > 1 and not collective:
            raise servers(f"{maker._worker_num()} processes, and is_collective=False")
        self.set_log_level(log_level)
        self._role_maker, self._is_collective = maker, collective
        self._user_strategy = DistributedStrategy() if strategy is None else strategy.copy()

    def _roles(self, method: str) -> Any:
        if self._role_maker is None:
            raise CallOrderError(
                f"fleet.{method} needs fleet.init, which says which process this is",
                expected="a call of fleet.init before",
                received="none",
                fix="call fleet.init(is_collective=True) first",
                op=f"fleet.{method}",
            )
        return self._role_maker

    def set_log_level(self, level: Any) -> None:
        """Sets the level of the log ``tstatic.dist``.

        Args:
            level: A name or number of ``logging``; ``"INFO"``, the default, leaves the level that ``TSTATIC_LOGS`` gives.
        """
        check_type(level, (str, int), "log_level", "fleet.init")
        if level != "INFO":
            get_logger("dist").setLevel(level)

    def is_first_worker(self) -> bool:
        """Returns whether this is process 0, which saves and prints."""
        return bool(self._roles("is_first_worker")._is_first_worker())

    def worker_index(self) -> int:
        """Returns the number of this process."""
        return int(self._roles("worker_index")._worker_index())

    def worker_num(self) -> int:
        """Returns the number of processes."""
        return int(self._roles("worker_num")._worker_num())

    rank, nranks, world_size = worker_index, worker_num, worker_num

    def node_num(self) -> int:
        """Returns the number of machines."""
        self._roles("node_num")
        return node_num()

    def local_rank(self) -> int:
        """Returns the number of this process on its machine."""
        self._roles("local_rank")
        return launch.current().local_rank

    rank_in_node = local_rank

    def is_worker(self) -> bool:
        """Returns True: all processes are workers."""
        return bool(self._roles("is_worker")._is_worker())

    def is_server(self) -> bool:
        """Returns False: there are no parameter servers."""
        return bool(self._roles("is_server")._is_server())

    def is_coordinator(self) -> bool:
        """Returns False: there are workers alone."""
        return False

    def server_num(self) -> int:
        """Returns 0: there are no parameter servers."""
        return 0

    def server_index(self) -> int:
        """Returns 0: there are no parameter servers."""
        return 0

    def worker_endpoints(self, to_string: bool = False) -> list[str] | str:
        """Returns the addresses of all processes.

        Args:
            to_string: Join them with commas.
        """
        self._roles("worker_endpoints")
        return ",".join(endpoints()) if to_string else endpoints()

    def server_endpoints(self, to_string: bool = False) -> list[str] | str:
        """Returns nothing: there are no parameter servers.

        Args:
            to_string: Return text.
        """
        return "" if to_string else []

    def barrier_worker(self) -> None:
        """Returns when all processes have called it.

        Raises:
            RankFailedError: If one failed or did not come; it says which.
        """
        self._roles("barrier_worker")
        self.util.barrier()

    @no_effect(scopes=_SERVERS)
    def init_worker(self, scopes: Any = None) -> None:
        """Does nothing: processes connect when they first exchange something."""

    def stop_worker(self) -> None:
        """Does nothing: processes leave each other when they end."""

    @no_effect(args=_SERVERS, kwargs=_SERVERS)
    def init_server(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing: there are no parameter servers."""

    def run_server(self) -> None:
        """Does nothing: there are no parameter servers."""

    def all_reduce(self, input: Any, mode: str = "sum") -> Any:
        """Returns an array combined over all processes, as ``fleet.util.all_reduce``.

        Args:
            input: A number or array.
            mode: ``"sum"``, ``"max"`` or ``"min"``.
        """
        return self.util.all_reduce(input, mode)

    # ------------------------------------------------------------------------------------------------------------- training
    def distributed_optimizer(self, optimizer: Any, strategy: DistributedStrategy | None = None) -> Fleet:
        """Sets the optimizer that ``minimize`` uses; returns a copy of this object that keeps it, whatever is set later.

        Args:
            optimizer: An optimizer, or what ``static.amp.decorate`` made of it.
            strategy: Copied; by default that of ``init``.

        Raises:
            ProgramTypeError: If an argument has another type.
        """
        if not callable(getattr(optimizer, "minimize", None)):
            raise ProgramTypeError(
                "fleet.distributed_optimizer takes an optimizer",
                expected="an optimizer, such as paddle.optimizer.Adam()",
                received=shown(optimizer),
                fix="pass the optimizer first, then the strategy",
                op="fleet.distributed_optimizer",
            )
        check_type(strategy, (DistributedStrategy, type(None)), "strategy", "fleet.distributed_optimizer",
                   expected="a fleet.DistributedStrategy or None")  # fmt: skip
        self._roles("distributed_optimizer")
        self.user_defined_optimizer = optimizer
        if strategy is not None:
            self._user_strategy = strategy.copy()
        self._optimizer, self._program, self._applied = None, None, []
        made = copy.copy(self)
        made._origin = self if self._origin is None else self._origin
        return made

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Any = None,
        no_grad_set: Any = None,
    ) -> tuple[list[Operator], list[Pair]]:
        """Appends backward and update ops, and makes the loss's program one that all processes run together.

        The user goes on to run the plain program. The gradient of the loss starts at 1 / number of processes, gradients are
        summed, and the startup program gives all processes the values of process 0. What a run fetches is its own process's.

        Args:
            loss: What to minimise.
            startup_program: Gets the ops that start accumulators and the learning rate.
            parameter_list: Variables or names to update; all trainable ones by default.
            no_grad_set: Variables or names that no gradient flows to.

        Returns:
            The update ops, and (parameter, gradient) pairs in program order.

        Raises:
            CallOrderError: Before ``distributed_optimizer``.
            UnsupportedError: If the strategy asks for training that is not part of tstatic; nothing has changed then.
            LossSizeError: If the loss has another number of elements than 1.
        """
        if self.user_defined_optimizer is None:
            raise CallOrderError(
                "fleet.minimize needs an optimizer",
                expected="a call of fleet.distributed_optimizer before",
                received="none",
                fix="call fleet.distributed_optimizer(paddle.optimizer.Adam(), strategy).minimize(loss)",
                op="fleet.minimize",
            )
        check_variable(loss, "loss", "fleet.minimize")
        strategy = self._user_strategy
        strategy.check()
        size = launch.current().size
        settings = settings_of(strategy, size)
        optimizer, applied, notes = decorated(self.user_defined_optimizer, strategy)
        startup = startup_program if startup_program is not None else default_startup_program()
        with recomputing(optimizer, strategy._checkpoints() if strategy.recompute else ()):
            ops, pairs = optimizer.minimize(loss, startup, parameter_list, no_grad_set)
        program = loss.block.program
        statuses = [noted(status, notes) for status in strategy.explain()]
        program.distributed = Settings(
            settings.build, settings.execution, parallel=settings.parallel, places=settings.places,
            exchange=settings.exchange, statuses=tuple(statuses),
        )  # fmt: skip
        if self._is_collective:
            applied.insert(0, "RawProgramOptimizer")
        if size > 1:
            CollectiveHelper(self._roles("minimize")).update_startup_program(startup)
        # What is minimized last is what the methods of fleet itself speak about.
        for one in (self, self._origin or self):
            one._keep(self.user_defined_optimizer, strategy, optimizer, program, applied)
        return ops, pairs

    def _keep(
        self, given: Any, strategy: DistributedStrategy, optimizer: Any, program: Program, applied: list[str]
    ) -> None:
        """Keeps what ``minimize`` used and made."""
        self.user_defined_optimizer, self._user_strategy = given, strategy
        self._optimizer, self._program, self._applied = optimizer, program, applied

    def explain(self, fetch_list: Any = None, feed_shapes: Any = None) -> Explanation:
        """Explains the minimized program: every field of the three strategies, what is exchanged, which ops were fused.

        Args:
            fetch_list: Variables that will be fetched.
            feed_shapes: Input name -> shape.

        Raises:
            CallOrderError: Before ``minimize``.
        """
        program = self._minimized("explain")
        strategy = self._user_strategy
        settings = settings_of(strategy, launch.current().size)
        return CompiledProgram(program, settings.build, settings.execution).explain(fetch_list, feed_shapes)

    def _minimized(self, method: str) -> Program:
        if self._program is None:
            raise CallOrderError(
                f"fleet.{method} needs a minimized program",
                expected="a call of fleet.distributed_optimizer(...).minimize(loss) before",
                received="none",
                fix="call fleet.distributed_optimizer(optimizer).minimize(loss) first",
                op=f"fleet.{method}",
            )
        return self._program

    def _mixed_precision(self, method: str) -> OptimizerWithMixedPrecision:
        self._minimized(method)
        for one in chain(self._optimizer):
            if isinstance(one, OptimizerWithMixedPrecision):
                return one
        raise CallOrderError(
            f"fleet.{method} is for training in mixed precision",
            expected="strategy.amp = True, or an optimizer of static.amp.decorate",
            received=shown(self.user_defined_optimizer),
            fix="set strategy.amp = True before minimize",
            op=f"fleet.{method}",
        )

    def amp_init(
        self, place: Any, scope: Scope | None = None, test_program: Program | None = None, use_fp16_test: bool = False
    ) -> None:
        """Rounds the values of 16-bit parameters, after the startup program ran; needed for ``use_pure_fp16``.

        Args:
            place, scope, test_program, use_fp16_test: As of ``static.amp.decorate(...).amp_init``.

        Raises:
            CallOrderError: Before ``minimize``, or without mixed precision.
        """
        self._mixed_precision("amp_init").amp_init(place, scope, test_program, use_fp16_test)

    def get_loss_scaling(self) -> Variable:
        """Returns the variable that holds the scale of the loss, ``[1]`` of float32.

        Raises:
            CallOrderError: Before ``minimize``, or without mixed precision.
        """
        return self._mixed_precision("get_loss_scaling").get_loss_scaling()

    def _final_strategy(self) -> DistributedStrategy:
        """Returns a copy of the strategy in force."""
        return self._user_strategy.copy()

    def _get_applied_meta_list(self) -> list[str]:
        """Returns the names that Paddle gives to what ``minimize`` applied."""
        return list(self._applied)

    def _get_applied_graph_list(self) -> list[str]:
        """Returns an empty list: compiling leaves the program as it is."""
        return []

    # --------------------------------------------------------------------------------------------------------------- saving
    @no_effect(mode=_MODE)
    def save_persistables(
        self, executor: Any, dirname: str, main_program: Program | None = None, mode: int = 0
    ) -> None:
        """Saves all persistable variables to a folder; process 0 writes, the others go on.

        Args:
            executor: As of ``fluid.io.save_persistables``.
            dirname: The folder.
            main_program: The minimized program by default.
        """
        if self.is_first_worker():
            save_persistables(executor, dirname, self._or_minimized(main_program))

    @no_effect(mode=_MODE)
    def save_inference_model(
        self, executor: Any, dirname: str, feeded_var_names: Sequence[str], target_vars: Any,
        main_program: Program | None = None, export_for_deployment: bool = True, mode: int = 0,
    ) -> None:  # fmt: skip
        """Saves an inference model to a folder; process 0 writes, the others go on.

        Args:
            executor, dirname, feeded_var_names, target_vars: As of ``fluid.io.save_inference_model``.
            main_program: The minimized program by default.
            export_for_deployment: As there.
        """
        if self.is_first_worker():
            save_inference_model(
                dirname, feeded_var_names, target_vars, executor, self._or_minimized(main_program),
                export_for_deployment=export_for_deployment,
            )  # fmt: skip

    def save(self, dirname: str, feed: Sequence[str] = (), fetch: Sequence[Any] = (), **configs: Any) -> None:
        """Saves an inference model if ``feed`` and ``fetch`` are given, all persistable variables otherwise.

        Args:
            dirname: The folder.
            feed: Names of the inputs.
            fetch: The results.
            **configs: ``executor`` and ``main_program``, as of :meth:`save_persistables`.
        """
        executor, program = configs.get("executor"), configs.get("main_program")
        if feed or fetch:
            names = [one if isinstance(one, str) else one.name for one in feed]
            self.save_inference_model(executor, dirname, names, list(fetch), program)
        else:
            self.save_persistables(executor, dirname, program)

    @no_effect(mode=_MODE)
    def load_model(self, path: str, mode: int = 0) -> None:
        """Loads what ``save_persistables`` saved into the minimized program's variables; each process reads by itself.

        Args:
            path: The folder.

        Raises:
            CheckpointError: If a file is missing or does not fit its variable.
        """
        load_persistables(None, path, self._or_minimized(None))

    def _or_minimized(self, program: Program | None) -> Program:
        if program is not None:
            return program
        return self._program if self._program is not None else default_main_program()

    @no_effect(threshold=_SERVERS)
    def shrink(self, threshold: Any = None) -> None:
        """Does nothing: tables have all of their rows."""

    # ------------------------------------------------------------------------------------------------------------- declined
    def _refuse(self, method: str, what: str, fix: str) -> NoReturn:
        raise UnsupportedError(
            f"fleet.{method} {what}", expected="a static program that processes train together", received=f"fleet.{method}",
            fix=fix, op=f"fleet.{method}",
        )  # fmt: skip

    def distributed_model(self, model: Any) -> NoReturn:
        """Raises UnsupportedError: it wraps a network of eager training."""
        self._refuse("distributed_model", "is for eager training, which is not part of tstatic",
                     "build the program with static.data and layers, and call fleet.distributed_optimizer")  # fmt: skip

    def distributed_scaler(self, scaler: Any) -> NoReturn:
        """Raises UnsupportedError: it wraps a scaler of eager training."""
        self._refuse(
            "distributed_scaler", "is for eager training, which is not part of tstatic", "set strategy.amp = True"
        )

    def load_inference_model(self, path: str, mode: int = 0) -> NoReturn:
        """Raises UnsupportedError: it loads a model for parameter servers."""
        self._refuse("load_inference_model", "belongs to parameter servers, which are not part of tstatic",
                     "call fluid.io.load_inference_model(path, exe) or static.load_inference_model(prefix, exe)")  # fmt: skip

    def _servers_only(self, method: str) -> NoReturn:
        self._refuse(method, "belongs to parameter servers, which are not part of tstatic",
                     "call fleet.init(is_collective=True), static.nn.embedding(is_sparse=True) and "
                     "fleet.save_persistables(exe, folder)")  # fmt: skip

    def save_cache_model(self, dirname: str, **configs: Any) -> NoReturn:
        """Raises UnsupportedError: it belongs to parameter servers."""
        self._servers_only("save_cache_model")

    def save_cache_table(self, table_id: int, pass_id: int, mem_cache_key_threshold: int = 4000000000) -> NoReturn:
        """Raises UnsupportedError: it belongs to parameter servers."""
        self._servers_only("save_cache_table")

    def save_one_table(self, table_id: int, path: str, mode: int) -> NoReturn:
        """Raises UnsupportedError: it belongs to parameter servers."""
        self._servers_only("save_one_table")

    def load_one_table(self, table_id: int, path: str, mode: int) -> NoReturn:
        """Raises UnsupportedError: it belongs to parameter servers."""
        self._servers_only("load_one_table")

    def save_dense_params(
        self, executor: Any, dirname: str, scope: Any, program: Any, var_names: Any = None
    ) -> NoReturn:
        """Raises UnsupportedError: it belongs to parameter servers."""
        self._servers_only("save_dense_params")

    def init_coordinator(self, scopes: Any = None) -> NoReturn:
        """Raises UnsupportedError: it belongs to federated training."""
        self._servers_only("init_coordinator")

    def make_fl_strategy(self) -> NoReturn:
        """Raises UnsupportedError: it belongs to federated training."""
        self._servers_only("make_fl_strategy")

    def get_fl_client(self) -> NoReturn:
        """Raises UnsupportedError: it belongs to federated training."""
        self._servers_only("get_fl_client")

    def get_hybrid_communicate_group(self) -> NoReturn:
        """Raises UnsupportedError: there is data parallelism alone."""
        self._refuse("get_hybrid_communicate_group", "belongs to pipelines and tensor parallelism, which tstatic lacks",
                     "use data parallelism: distributed.new_group(ranks) makes groups for collectives")  # fmt: skip

    def __repr__(self) -> str:
        return f"<Fleet: {self._role_maker!r}>" if self._role_maker is not None else "<Fleet, before init>"


__all__ = ["Fleet"]
