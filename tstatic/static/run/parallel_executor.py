"""ParallelExecutor: a data-parallel program and its Executor in one object, with Paddle's 1.x interface."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import Any

import numpy as np

from tstatic import places
from tstatic.errors import FeedError, ProgramError
from tstatic.ir.checks import check_int, check_type
from tstatic.ir.declare import default_main_program
from tstatic.ir.export import notes_signatures
from tstatic.ir.program import Program
from tstatic.logs import warn_once
from tstatic.runtime.scope import Scope, global_scope
from tstatic.static.run.compiled_program import CompiledProgram, settings_of
from tstatic.static.run.data_parallel import places_of
from tstatic.static.run.executor import Executor
from tstatic.static.strategy import BuildStrategy, ExecutionStrategy


@notes_signatures(undo=False)
class ParallelExecutor:
    """Runs a program on ``CPU_NUM`` CPU places or on all visible GPUs.

    The constructor does not use any variable: parameters are copied to the places at the first run.

    Args:
        use_cuda: GPUs, not CPU places.
        loss_name: Name of the loss; required if the program has a backward part.
        main_program: The default main program if ``None``.
        share_vars_from: A ParallelExecutor whose variables this one uses. Those of one scope share them anyway.
        exec_strategy, build_strategy: Copied.
        num_trainers: Number of processes; 1 means that of the launcher's environment.
        trainer_id: This process's rank.
        scope: The scope of the variables; the global scope if ``None``.

    Raises:
        ProgramTypeError: If an argument has another type (a ``TypeError``).
        ProgramError: If the program has a backward part and ``loss_name`` is not its loss.

    Example:
        >>> import os
        >>> os.environ["CPU_NUM"] = "2"
        >>> y = paddle.mean(static.data("x", [None, 2]))
        >>> exe = static.ParallelExecutor(use_cuda=False, main_program=static.default_main_program())
        >>> exe.run(feed={"x": np.array([[1, 3], [5, 7]], "float32")}, fetch_list=[y.name])[0]
        array([2., 6.], dtype=float32)
    """

    _scope: Scope
    _compiled: CompiledProgram

    def __init__(
        self,
        use_cuda: bool,
        loss_name: str | None = None,
        main_program: Program | None = None,
        share_vars_from: ParallelExecutor | None = None,
        exec_strategy: ExecutionStrategy | None = None,
        build_strategy: BuildStrategy | None = None,
        num_trainers: int = 1,
        trainer_id: int = 0,
        scope: Scope | None = None,
    ) -> None:
        check_type(share_vars_from, (ParallelExecutor, NoneType), "share_vars_from", "ParallelExecutor")
        check_type(scope, (Scope, NoneType), "scope", "ParallelExecutor")
        check_type(use_cuda, (bool, np.bool_, int), "use_cuda", "ParallelExecutor")
        check_int(num_trainers, "num_trainers", "ParallelExecutor")
        check_int(trainer_id, "trainer_id", "ParallelExecutor")
        if build_strategy is not None and not isinstance(build_strategy, BuildStrategy):
            build = build_strategy  # CompiledProgram raises the error.
        else:
            build = BuildStrategy() if build_strategy is None else build_strategy.copy()
            # The defaults leave both to the given strategy, else to the launcher's environment.
            if num_trainers != 1 or trainer_id != 0:
                build.num_trainers = num_trainers
                build.trainer_id = trainer_id
        if share_vars_from is not None and scope is not None and scope is not share_vars_from._scope:
            warn_once(("scope ignored", id(self)), "share_vars_from is set, scope is ignored.")
        # Shared variables lie in the other's scope, so that one given here has no say.
        self._scope = share_vars_from._scope if share_vars_from is not None else scope or global_scope()
        self._place = places.CUDAPlace(0) if use_cuda else places.CPUPlace()
        self._program = main_program if main_program is not None else default_main_program()
        self._compiled = CompiledProgram(self._program).with_data_parallel(
            loss_name,
            build,
            exec_strategy,
            share_vars_from._compiled if share_vars_from is not None else None,
        )
        self._executor = Executor(self._place)
        self._count: int | None = None
        self._dropped = False

    @property
    def device_count(self) -> int:
        """Number of places: ``CPU_NUM``, or the GPUs; counted on first use, or at the first run."""
        if self._count is None:
            self._count = len(places_of(self._place, None))
        return self._count

    def run(
        self,
        fetch_list: Any,
        feed: Any = None,
        feed_dict: Any = None,
        return_numpy: bool = True,
    ) -> list[Any]:
        """Runs one step of the whole program on all places, whatever is fetched.

        Args:
            fetch_list: Variables or names.
            feed: A dict, whose arrays are split over the places along the first axis, or a list with a dict for each.
            feed_dict: Its name in early releases; used if ``feed`` is ``None``.
            return_numpy: ``False`` returns tensors that hold the arrays.

        Returns:
            For each fetched variable, the places' values joined along the first axis.

        Raises:
            FeedError: If the feed is neither, a list has another length, or there are fewer rows than places (a
                ``ValueError``).
            FeedTypeError: If a list has items other than dicts (also a ``TypeError``).
        """
        if feed is None and feed_dict is not None:
            warn_once("feed_dict", "ParallelExecutor.run: feed_dict is the name that feed had; use feed")
            feed = feed_dict
        if feed is not None and not isinstance(feed, Mapping | list | tuple):
            raise FeedError(
                "ParallelExecutor.run takes a dict or a list as feed",
                expected="{name: array}, which is split over the places, or a list with a dict for each place",
                received=f"{type(feed).__name__}",
                fix="pass feed={'x': array}",
                op="feed",
            )
        values = self._executor.run(
            self._compiled, feed=feed, fetch_list=fetch_list, scope=self._scope, return_numpy=return_numpy
        )
        self._dropped = False
        return values

    def drop_local_exe_scopes(self) -> None:
        """Releases the memory of temporary values now; the next run allocates it again.

        Raises:
            ProgramError: If the program has not run yet.
        """
        _, settings = settings_of(self._compiled)
        # One for each place and each plan that is kept.
        sessions = settings.history.sessions if settings.history is not None else ()
        if not sessions:
            raise ProgramError(
                "there are no local execution scopes to drop before the first run",
                expected="a ParallelExecutor that ran",
                received="one that never ran",
                fix="call run() of this ParallelExecutor first",
                op="ParallelExecutor.drop_local_exe_scopes",
            )
        for session in sessions:
            session.release()
        self._dropped = True

    def _need_create_local_exe_scopes(self) -> bool:
        return self._dropped

    def __repr__(self) -> str:
        count = "" if self._count is None else f"{self._count} x "  # counting may raise
        return f"<ParallelExecutor of {self._program!r} on {count}{self._place}>"


__all__ = ["ParallelExecutor"]
