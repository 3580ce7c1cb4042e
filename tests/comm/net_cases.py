"""What ranks do in the trials that train a net; apart from ``cases.py`` because these imports take half a second."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np

import tstatic as paddle
from tests.comm import trainer
from tests.comm.cases import say
from tests.parallel.test_equality import Nets, agree, batch_of, strategy, values
from tstatic import distributed, flags, static
from tstatic.errors import RankFailedError


def train_in_blocks(number: int) -> None:
    """Three steps with one level between processes, and three in blocks; says what explain does, and the bits."""
    flags.set_flags({"FLAGS_numerics": "strict"})
    rank, found, levels = distributed.get_rank(), [], ""
    for on in (False, True):
        exe, scope, main, loss = Nets("momentum", "global").start(False)
        build = strategy(use_hierarchical_allreduce=on, hierarchical_allreduce_inter_nranks=number)
        compiled = static.CompiledProgram(main).with_data_parallel(loss.name, build, places=[paddle.CPUPlace()] * 2)
        for step in range(3):
            exe.run(compiled, feed=batch_of(5, 10 * rank + step), fetch_list=[loss], scope=scope)
        found.append(values(scope))
        levels = compiled.explain().collectives.hierarchy  # type: ignore[union-attr]
    agree(found[0], found[1])
    say(levels, *[[zlib.crc32(one[name].tobytes()) for name in sorted(one)] for one in found])


def written_between(how: str) -> None:
    """Parameters are written between steps; says what the step after it says, and that nothing changed by it."""
    rank = distributed.get_rank()
    nets = Nets("momentum", "global")
    exe, scope, main, loss = nets.start(False)
    compiled = static.CompiledProgram(main).with_data_parallel(loss.name, places=[paddle.CPUPlace()])
    batch = batch_of(5, rank)
    exe.run(compiled, feed=batch, fetch_list=[loss], scope=scope)
    exe.run(compiled, feed=batch, fetch_list=[loss], scope=scope)
    if how == "startup":
        paddle.seed(100 + rank)
        exe.run(nets.parts[False][1], scope=scope)
    elif how == "same startup":
        paddle.seed(100)
        exe.run(nets.parts[False][1], scope=scope)
    elif how == "one rank" and rank == 1:
        name = main.all_parameters()[0].name
        tensor = scope.find_var(name).get_tensor()  # type: ignore[union-attr]
        tensor.set(np.array(tensor) + 1, paddle.CPUPlace())
    elif how == "elsewhere" and rank == 1:
        scope.var("a counter of its own").get_tensor().set(np.ones(3, np.float32))
    before = values(scope)
    try:
        exe.run(compiled, feed=batch, fetch_list=[loss], scope=scope)
    except RankFailedError as error:
        say("error", str(error), all(np.array_equal(a, values(scope)[n]) for n, a in before.items()))
        exe = static.Executor(paddle.CPUPlace())  # which sends rank 0's
        exe.run(compiled, feed=batch, fetch_list=[loss], scope=scope)
    say("done", {n: zlib.crc32(a.tobytes()) for n, a in values(scope).items() if "_" in n})


def training(folder: str) -> None:
    """Trains as it is told, until it is told to end."""
    trainer.serve(Path(folder), say)
