"""``fleet.util``: exchanges of numpy arrays and Python objects between processes, and each one's share of files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.comm.processes import world
from tstatic.comm.rendezvous import launch
from tstatic.errors import ProgramTypeError, shown
from tstatic.ir.checks import check_choice, check_int
from tstatic.no_effect import no_effect

_WORKERS = "all processes are workers"
_REDUCED = {"sum": np.add, "max": np.maximum, "min": np.minimum}


class UtilBase:
    """Exchanges between the workers that a script calls beside its programs; all workers must make the same calls.

    Example:
        >>> from tstatic.distributed import fleet
        >>> fleet.init()
        >>> fleet.util.all_reduce(np.array([1.0, 2.0]))
        array([1., 2.])
        >>> fleet.util.get_file_shard(["a", "b", "c"])
        ['a', 'b', 'c']
    """

    @no_effect(comm_world=_WORKERS)
    def all_reduce(self, input: Any, mode: str = "sum", comm_world: str = "worker") -> Any:
        """Returns an array combined over all workers, element by element; on one worker the input as it is.

        Args:
            input: A number, or an array of the same shape and dtype on all workers.
            mode: ``"sum"``, ``"max"`` or ``"min"``.

        Raises:
            ProgramError: For another mode.
            RankFailedError: If a worker failed, did not come, or passed another shape.
        """
        check_choice(mode, tuple(_REDUCED), "mode", "fleet.util.all_reduce")
        group = world()
        if group is None:
            return input
        given = np.asarray(input)
        group.agree(f"fleet.util.all_reduce, {mode} of shape {list(given.shape)}, {given.dtype}")
        parts = group.all_gather(given)
        total = parts[0]
        for part in parts[1:]:
            total = _REDUCED[mode](total, part)
        return total if isinstance(input, np.ndarray) else total[()] if np.isscalar(input) else np.asarray(total)

    @no_effect(comm_world=_WORKERS)
    def all_gather(self, input: Any, comm_world: str = "worker") -> list[Any]:
        """Returns what each worker passed, in the order of their ranks.

        Args:
            input: A number, text, or a list or dict of them; an array comes back as an array.

        Raises:
            ProgramTypeError: If it is anything else.
            RankFailedError: If a worker failed or did not come.
        """
        group = world()
        if group is None:
            return [input]
        if isinstance(input, np.ndarray | np.generic):
            group.agree(f"fleet.util.all_gather, shape {list(input.shape)}, {input.dtype}")
            return list(group.all_gather(np.asarray(input)))
        if not isinstance(input, bool | int | float | str | list | tuple | dict | None):
            raise ProgramTypeError(
                "fleet.util.all_gather sends numbers, text and arrays",
                expected="a number, text, an array, or a list or dict of numbers and text",
                received=shown(input),
                fix="pass what the other workers need as one of these",
            )
        return group.exchange("fleet.util.all_gather", input)

    @no_effect(comm_world=_WORKERS)
    def barrier(self, comm_world: str = "worker") -> None:
        """Returns when all workers have called it.

        Raises:
            RankFailedError: If one failed or did not come; it says which.
        """
        group = world()
        if group is not None:
            group.agree("barrier")

    def get_file_shard(self, files: Sequence[str]) -> list[str]:
        """Returns this worker's share of files: blocks that follow one another; the first workers take the rest.

        Args:
            files: Names of files, the same list on all workers.

        Raises:
            ProgramTypeError: If it is not a list.
        """
        if not isinstance(files, list):
            raise ProgramTypeError(
                "files should be a list of file need to be read.",
                expected="a list of names",
                received=shown(files),
                fix="pass a list, sorted, so that it is the same on all workers",
                op="fleet.util.get_file_shard",
            )
        mine = launch.current()
        size, rest = divmod(len(files), mine.size)
        start = mine.rank * size + min(mine.rank, rest)
        return files[start : start + size + (mine.rank < rest)]

    def print_on_rank(self, message: Any, rank_id: int) -> None:
        """Prints a message on one worker.

        Args:
            message: The message.
            rank_id: Number of the worker that prints.
        """
        if launch.current().rank == check_int(rank_id, "rank_id", "fleet.util.print_on_rank"):
            print(message, flush=True)


__all__ = ["UtilBase"]
