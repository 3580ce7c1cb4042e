"""``fluid.incubate.fleet.collective`` of Paddle 1.x: its strategy, its optimizer and its fleet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tstatic.distributed.fleet.controller import Fleet
from tstatic.distributed.fleet.role_maker import Role, UserDefinedRoleMaker
from tstatic.distributed.fleet.strategy import DistributedStrategy as CurrentStrategy
from tstatic.errors import CallOrderError, UnsupportedError
from tstatic.ir.checks import check_type
from tstatic.ir.declare import default_main_program, default_startup_program
from tstatic.ir.export import notes_signatures
from tstatic.ir.program import Operator, Program, Variable
from tstatic.no_effect import no_effect
from tstatic.optimizer.optimizer import Pair
from tstatic.static.files.variable_files import save_persistables
from tstatic.static.run.compiled_program import CompiledProgram
from tstatic.static.strategy import BuildStrategy, ExecutionStrategy
from tstatic.static.strategy.property import BOOL, TEXT, Kind, Property, active
from tstatic.static.strategy.property import no_effect as idle

_FLEET = active("minimize of fleet obeys it.")


def _execution(value: object) -> ExecutionStrategy:
    if not isinstance(value, ExecutionStrategy):
        raise TypeError
    return value.copy()


def _mode(value: object) -> str | None:
    if value not in (None, "grad_allreduce", "local_sgd"):
        raise TypeError
    return value


def _list(value: object) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise TypeError
    return list(value)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    return float(value)


class DistributedStrategy(BuildStrategy):
    """A BuildStrategy with the settings of fleet; the 1.x class.

    Raises:
        StrategyTypeError: A property is set to a value of another type (a ``TypeError``).
        UnknownPropertyError: There is no property of that name (an ``AttributeError``).

    Example:
        >>> from tstatic.fluid.incubate.fleet.collective import DistributedStrategy
        >>> strategy = DistributedStrategy()
        >>> strategy.use_amp = True
        >>> strategy.exec_strategy.num_threads = 2
        >>> strategy.use_amp, strategy.amp_loss_scaling, strategy.exec_strategy.num_threads
        (True, 32768.0, 2)
    """

    __slots__ = ()

    # fmt: off
    exec_strategy = Property(
        Kind("an ExecutionStrategy", _execution, "set a fluid.ExecutionStrategy()", lambda value: value.key()),
        ExecutionStrategy(), "1.5", "distributed", "How the program runs.", _FLEET,
    )
    mode = Property(
        TEXT, "nccl2", "1.5", "distributed", "How processes are connected.", idle("gloo connects them."),
    )
    collective_mode = Property(
        Kind("None, 'grad_allreduce' or 'local_sgd'", _mode, "leave it at None"), None, "1.6", "distributed",
        "What the processes exchange; local_sgd is refused by minimize.", _FLEET,
    )
    use_local_sgd = Property(BOOL, False, "1.5", "distributed", "Refused by minimize.", _FLEET)
    use_dist_fc = Property(BOOL, False, "1.5", "distributed", "Refused by minimize.", _FLEET)
    forward_recompute = Property(
        BOOL, False, "1.6", "memory", "Computes values between the checkpoints again in the backward part.", _FLEET,
    )
    recompute_checkpoints = Property(
        Kind("a list of Variables or names", _list, "set a list", lambda value: tuple(map(str, value))), [], "1.6", "memory",
        "The values that are kept.", _FLEET,
    )
    use_amp = Property(BOOL, False, "1.7", "rewrite", "Trains in mixed precision.", _FLEET)
    amp_loss_scaling = Property(
        Kind("a number", _number, "set a number"), 2.0**15, "1.7", "rewrite", "The first factor of the loss.", _FLEET,
    )
    # fmt: on

    def _current(self) -> CurrentStrategy:
        """Returns the same settings as a strategy of ``paddle.distributed.fleet``.

        Raises:
            UnsupportedError: It asks for local SGD or divided layers.
        """
        asked = [n for n in ("use_local_sgd", "use_dist_fc") if getattr(self, n)]
        if self.collective_mode == "local_sgd":
            asked.append("collective_mode = 'local_sgd'")
        if asked:
            raise UnsupportedError(
                f"DistributedStrategy.{asked[0]} asks for training that is not part of tstatic",
                expected="gradients that all processes sum in each step",
                received=asked[0],
                fix="leave it out; fluid.optimizer.GradientMergeOptimizer exchanges gradients in every k-th run",
                op="fleet.minimize",
            )
        made, build = CurrentStrategy(), BuildStrategy()
        for item in BuildStrategy.properties():
            setattr(build, item.name, getattr(self, item.name))
        made.build_strategy, made.execution_strategy = build, self.exec_strategy
        if self.use_amp:
            made.amp = True
            made.amp_configs = {"init_loss_scaling": self.amp_loss_scaling}
        if self.forward_recompute:
            made.recompute = True
            made.recompute_configs = {"checkpoints": self.recompute_checkpoints}
        return made


@notes_signatures()
class CollectiveOptimizer:
    """What ``fleet.distributed_optimizer`` of 1.x returns.

    Args:
        optimizer: The optimizer.
        strategy: The strategy; its defaults if ``None``.

    Example:
        >>> from tstatic.fluid.incubate.fleet.collective import fleet
        >>> fleet.init()
        >>> loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 2]), 1))
        >>> optimizer = fleet.distributed_optimizer(fluid.optimizer.SGD(0.1))
        >>> ops, params_grads = optimizer.minimize(loss)
        >>> [op.type for op in ops]
        ['sgd', 'sgd']
    """

    def __init__(self, optimizer: Any, strategy: DistributedStrategy | None = None) -> None:
        self._fleet, self._optimizer = fleet, optimizer
        self._strategy = DistributedStrategy() if strategy is None else strategy

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Any = None,
        no_grad_set: Any = None,
    ) -> tuple[list[Operator], list[Pair]]:
        """Appends backward and update ops; then ``fleet.main_program`` is what to run.

        Args:
            loss, startup_program, parameter_list, no_grad_set: As of :meth:`Fleet.minimize`, with its errors.

        Returns:
            The update ops, and (parameter, gradient) pairs in program order.
        """
        fleet, strategy = self._fleet, self._strategy._current()
        found = fleet._inner.distributed_optimizer(self._optimizer, strategy).minimize(
            loss, startup_program, parameter_list, no_grad_set
        )
        program = loss.block.program
        settings = program.distributed
        fleet._origin_program = program
        fleet._startup = startup_program if startup_program is not None else default_startup_program()
        fleet._compiled = CompiledProgram(program, settings.build, settings.execution)
        return found

    def __getattr__(self, name: str) -> Any:
        """Returns other attributes, such as ``set_lr``, from the optimizer."""
        if name.startswith("__") or "_optimizer" not in vars(self):
            raise AttributeError(name)
        return getattr(self._optimizer, name)


@notes_signatures()
class Collective:
    """The processes of a training, as 1.x spells them; ``fleet`` of ``fluid.incubate.fleet.collective`` is one.

    Example:
        >>> from tstatic.fluid.incubate.fleet.collective import fleet
        >>> fleet.init()
        >>> loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 2]), 1))
        >>> _ = fleet.distributed_optimizer(fluid.optimizer.SGD(0.1)).minimize(loss)
        >>> exe = fluid.Executor(fluid.CPUPlace())
        >>> _ = exe.run(fleet.startup_program)
        >>> exe.run(fleet.main_program, feed={"x": np.zeros([1, 2], "float32")}, fetch_list=[loss])[0]
        array([0.], dtype=float32)
    """

    def __init__(self) -> None:
        self._inner = Fleet()
        self._origin_program: Program | None = None
        self._startup: Program | None = None
        self._compiled: CompiledProgram | None = None

    def init(self, role_maker: Any = None) -> None:
        """Finds out which of the processes this one is; one process without a launcher.

        Args:
            role_maker: A role maker; by default the launcher's environment decides.
        """
        self._inner.init(role_maker, is_collective=True)

    def distributed_optimizer(self, optimizer: Any, strategy: Any = None) -> CollectiveOptimizer:
        """Returns an optimizer that trains over the processes.

        Args:
            optimizer: An optimizer.
            strategy: A DistributedStrategy of this module, or ``None``.

        Raises:
            ProgramTypeError: If an argument has another type.
        """
        given = DistributedStrategy() if strategy is None or strategy == {} else strategy
        check_type(given, DistributedStrategy, "strategy", "fleet.distributed_optimizer")
        self._inner.distributed_optimizer(optimizer)
        made = CollectiveOptimizer(optimizer, given)
        made._fleet = self
        return made

    @property
    def main_program(self) -> CompiledProgram | Program:
        """What to run: the compiled program after ``minimize``, the default main program before."""
        return self._compiled if self._compiled is not None else default_main_program()

    @property
    def startup_program(self) -> Program:
        """The startup program of ``minimize``; the default one before."""
        return self._startup if self._startup is not None else default_startup_program()

    @property
    def _transpiled_program(self) -> Program | None:
        return self._origin_program

    def is_first_worker(self) -> bool:
        """Returns whether this is process 0, which saves and prints."""
        return self._inner.is_first_worker()

    def worker_index(self) -> int:
        """Returns the number of this process."""
        return self._inner.worker_index()

    def worker_num(self) -> int:
        """Returns the number of processes."""
        return self._inner.worker_num()

    def is_worker(self) -> bool:
        """Returns True: all processes are workers."""
        return self._inner.is_worker()

    def is_server(self) -> bool:
        """Returns False: there are no parameter servers."""
        return self._inner.is_server()

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
        return self._inner.worker_endpoints(to_string)

    def server_endpoints(self, to_string: bool = False) -> list[str] | str:
        """Returns nothing: there are no parameter servers.

        Args:
            to_string: Return text.
        """
        return self._inner.server_endpoints(to_string)

    def split_files(self, files: Sequence[str]) -> list[str]:
        """Returns this process's share of files, as ``fleet.util.get_file_shard``.

        Args:
            files: Names of files, the same list in all processes.
        """
        return self._inner.util.get_file_shard(files)

    def barrier_worker(self) -> None:
        """Returns when all processes have called it."""
        self._inner.barrier_worker()

    def all_reduce_worker(self, input: Any, output: Any) -> None:
        """Writes the sum over all processes.

        Args:
            input: A numpy array, of the same shape and dtype in all processes.
            output: A numpy array of that shape.
        """
        output[...] = self._inner.util.all_reduce(input)

    def init_worker(self) -> None:
        """Does nothing: processes connect when they first exchange something."""

    @no_effect(main_programs="the executor runs programs", scopes="the executor runs programs")
    def run_worker(self, main_programs: Any = None, scopes: Any = None) -> None:
        """Does nothing: the executor runs programs."""

    @no_effect(model_dir="there are no parameter servers")
    def init_server(self, model_dir: Any = None) -> None:
        """Does nothing: there are no parameter servers."""

    def run_server(self) -> None:
        """Does nothing: there are no parameter servers."""

    def stop_worker(self) -> None:
        """Does nothing: processes leave each other when they end."""

    def save_persistables(
        self, executor: Any, dirname: str, main_program: Program | None = None, filename: str | None = None
    ) -> None:
        """Saves all persistable variables to a folder; process 0 writes, the others go on.

        Args:
            executor, dirname, filename: As of ``fluid.io.save_persistables``.
            main_program: The minimized program by default.
        """
        if self.is_first_worker():
            save_persistables(executor, dirname, self._origin(main_program), filename)

    def save_inference_model(
        self, executor: Any, dirname: str, feeded_var_names: Any = None, target_vars: Any = None,
        main_program: Program | None = None, export_for_deployment: bool = True,
    ) -> None:  # fmt: skip
        """Saves an inference model to a folder; process 0 writes, the others go on.

        Args:
            executor, dirname, feeded_var_names, target_vars, export_for_deployment: As of ``fluid.io.save_inference_model``.
            main_program: The minimized program by default.
        """
        self._inner.save_inference_model(
            executor, dirname, feeded_var_names, target_vars, self._origin(main_program), export_for_deployment
        )

    def _origin(self, program: Any) -> Program:
        """Returns the program that is given, or was minimized."""
        if isinstance(program, Program):
            return program
        if self._origin_program is None:
            raise CallOrderError(
                "fleet saves the program that was minimized",
                expected="a call of fleet.distributed_optimizer(...).minimize(loss) before",
                received="none",
                fix="call minimize first, or pass main_program",
                op="fleet.save_persistables",
            )
        return self._origin_program

    def __repr__(self) -> str:
        return f"<Collective: {self._inner!r}>"


class OlderRoleMaker(UserDefinedRoleMaker):
    """Takes the role from the script, with the arguments of 1.x.

    Args:
        current_id: Number of this process.
        role: ``Role.WORKER``.
        worker_num: Number of processes; 0 or 1.
        server_endpoints: Addresses of parameter servers; none.

    Raises:
        UnsupportedError: For another role, or with servers.

    Example:
        >>> from tstatic.fluid.incubate.fleet.base import role_maker
        >>> role = role_maker.UserDefinedRoleMaker(current_id=0, worker_num=1)
        >>> role.is_first_worker(), role.server_num()
        (True, 0)
    """

    def __init__(
        self, current_id: int = 0, role: int = Role.WORKER, worker_num: int = 0,
        server_endpoints: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            False, current_id=current_id, role=role, worker_num=worker_num, server_endpoints=server_endpoints
        )


fleet = Collective()

__all__ = ["Collective", "CollectiveOptimizer", "DistributedStrategy", "OlderRoleMaker", "fleet"]
