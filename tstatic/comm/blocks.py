"""Hierarchical sums: which processes add theirs first, as a BuildStrategy or the launcher says."""

from __future__ import annotations

from typing import Protocol

from tstatic.comm.launch import ProcessInfo
from tstatic.errors import StrategyValueError


class Levels(Protocol):
    """The BuildStrategy properties that describe the levels of a sum."""

    @property
    def use_hierarchical_allreduce(self) -> bool: ...
    @property
    def hierarchical_allreduce_inter_nranks(self) -> int: ...


def choose(strategy: Levels, launch: ProcessInfo) -> tuple[int, str]:
    """How many neighbours by rank add their sums before all do; 0: there is one level between processes.

    ``hierarchical_allreduce_inter_nranks = 0`` means the processes of one machine, where the launcher tells them.

    Returns:
        The number, and the sentence with which explanations give the reason.

    Raises:
        StrategyValueError: If the processes cannot be cut into blocks of the number that the strategy gives.
    """
    wanted = strategy.hierarchical_allreduce_inter_nranks
    if not strategy.use_hierarchical_allreduce:
        return 0, "off: sums go within each process, then over all processes at once."
    if launch.size == 1:
        return 0, "there is one process: sums stay within it."
    if wanted and (wanted == 1 or wanted >= launch.size or launch.size % wanted):
        fitting = [str(n) for n in range(2, launch.size) if launch.size % n == 0]
        raise StrategyValueError(
            "BuildStrategy.hierarchical_allreduce_inter_nranks does not cut the processes into equal blocks",
            expected=f"one of {', '.join(fitting)}, or 0, for {launch.size} processes"
            if fitting
            else f"0: {launch.size} processes have no equal blocks of two or more",
            received=wanted,
            fix="set it to the number of processes per machine, or leave use_hierarchical_allreduce off",
        )
    block = wanted or launch.local_size
    if not wanted and not (1 < block < launch.size and launch.size % block == 0):
        found = f"{block} of {launch.size} processes on this machine" if block else "no number of processes per machine"
        return (
            0,
            f"one level between processes: {launch.source} say {found}; hierarchical_allreduce_inter_nranks sets one.",
        )
    return (
        block,
        f"sums go within each process, then over blocks of {block} processes, then over the {launch.size // block} blocks.",
    )
