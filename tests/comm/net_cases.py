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


def tables_as_rows(optimizer: str) -> None:
    """Trains a net with a large table, with rows and with whole gradients; says whether both gave the same, and the bits."""
    rank, made = distributed.get_rank(), []
    for whole in (False, True):
        with static.program_guard(static.Program(), static.Program()), paddle.utils.unique_name.guard():
            paddle.seed(7)
            ids = static.data("ids", [None, 3], "int64")
            table = paddle.ParamAttr(name="table")
            found = static.nn.embedding(ids, [5000, 16], is_sparse=True, param_attr=table)
            loss = paddle.mean(paddle.tanh(static.nn.fc(found, 2)))
            rules = {"sgd": paddle.optimizer.SGD(0.1), "adam": paddle.optimizer.Adam(0.1, lazy_mode=True)}
            rules[optimizer].minimize(loss)
            main, startup = static.default_main_program(), static.default_startup_program()
        exe, scope = static.Executor(paddle.CPUPlace()), static.Scope()
        exe.run(startup, scope=scope)
        compiled = static.CompiledProgram(main).with_data_parallel(loss.name, places=[paddle.CPUPlace()] * 2)
        # A gradient that is fetched stays whole.
        fetch = [loss, "table@GRAD"] if whole else [loss]
        rng = np.random.default_rng(rank)
        for step in range(3):
            feed = [{"ids": rng.integers(0, 5000, (4 + rank + step + place, 3))} for place in range(2)]
            exe.run(compiled, feed=feed, fetch_list=fetch, scope=scope)
        assert compiled.explain(fetch_list=fetch).collectives.tables == (not whole)  # type: ignore[union-attr]
        made.append(values(scope))
    alike = all(np.array_equal(a, made[1][n]) for n, a in made[0].items())
    say(alike, {n: zlib.crc32(a.tobytes()) for n, a in made[0].items()})
