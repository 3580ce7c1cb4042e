"""Prints the tables of ``scaling.md``; ``--write`` puts them into the page."""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "bench")]

from models import MODELS  # noqa: E402 - the line above makes these importable for a script
from regenerate import table  # noqa: E402
from scaling_model import (  # noqa: E402
    MEGABYTE,
    Gradient,
    Network,
    Work,
    all_reduce_step,
    all_reduce_traffic,
    owned,
    owners,
    reduce_step,
    reduce_traffic,
    ring_all_reduce,
)

import tstatic as paddle  # noqa: E402
from tstatic import static  # noqa: E402
from tstatic.comm.passes.data_parallel import Distribution, distribute  # noqa: E402
from tstatic.ir.frozen import FrozenOp, FrozenProgram  # noqa: E402
from tstatic.ir.operator import OpRole  # noqa: E402
from tstatic.ir.types import Meta, dtype_of  # noqa: E402
from tstatic.plan.known_values import infer_program  # noqa: E402
from tstatic.runtime.scope import Scope  # noqa: E402
from tstatic.static.compile import pipeline  # noqa: E402
from tstatic.static.compile.request import state_metas  # noqa: E402

PAGE = HERE / "scaling.md"
DEVICES = (1, 2, 4, 8, 16, 32, 64)
LIMIT = 25 * MEGABYTE
"""Bytes of gradients in one collective, where a table says nothing else."""
LIMITS = (0, MEGABYTE, 5 * MEGABYTE, LIMIT, 50 * MEGABYTE, 100 * MEGABYTE, None)


PARTS = {"forward": 4.8e-3, "backward": 10.2e-3, "update": 0.9e-3}
"""Seconds of GPT-2's step of 8 x 1024 tokens on one H200."""
SWITCH = Network("sums in the switch", 8, 450e9, 8 * 50e9 * 0.9, 25e-6, 0.0, 20.9e-6, doubling=True)
"""GPUs of a machine whose switch adds, and a tree over the machines."""


class Chip:
    """What the page's section on sources says of a GPU: products and bytes per second, and its connections."""

    def __init__(self, name: str, products: float, memory: float, link: float, definition: float) -> None:
        self.name, self.products, self.memory = name, products, memory
        # A ring call of NCCL, and its steps: seconds. Op definitions reach nine tenths of their line rate.
        rest = (8.4e-6, 3.4e-6, 9.6e-6)
        self.fast = Network(f"8 cards of {definition / 1e9 * 8:.0f} Gb/s", 8, link, 8 * definition * 0.9, *rest)
        self.slow = Network("1 card of 100 Gb/s", 8, link, 12.5e9 * 0.9, *rest)


H100 = Chip("H100", 989e12, 3.35e12, 370e9, 50e9)
A100 = Chip("A100", 312e12, 2.04e12, 235e9, 25e9)
CASES = {
    # Chip, samples per device, samples per second of one device, bytes of the update per parameter.
    "gpt": (H100, 32 * 1024, 468_000.0, 28, "32 x 1024 tokens"),
    "resnet": (A100, 256, 2_897.0, 20, "256 images"),
}


# -------------------------------------------------------------------------------------------------------- from programs
@functools.cache
def frozen_step(name: str) -> tuple[FrozenProgram, dict[str, Meta]]:
    """A model's training step as a data-parallel run rewrites it, and the metadata of what it is given."""
    model = MODELS[name]
    main = static.Program()
    with static.program_guard(main, static.Program()), paddle.utils.unique_name.guard():
        loss = model.build(paddle)
    block = main.global_block()
    frozen, _ = pipeline.simplify(main, static.BuildStrategy(), list(model.feeds), [loss.name])
    given = {frozen.reads[var]: meta for var, meta in state_metas(frozen, main, Scope()).items()}
    given.update((n, Meta(tuple(s), dtype_of(block.var(n).dtype))) for n, s in model.feeds.items())
    return frozen, given


def seconds(op: FrozenOp, metas: dict[str, Meta], chip: Chip) -> float:
    """An op's time by its products or its bytes, whichever take longer; values in 16 bits, as in mixed precision."""
    if op.definition.view is not None or op.definition.collective:
        return 0.0
    moved = sum(metas[v].nbytes for v in {*op.reads(), *op.writes()})
    flops, cost = 0.0, op.definition.cost
    if cost is not None:
        slots = (metas[e] if isinstance(e, str) else None for e in (*op.inputs, *op.outputs))
        flops = cost(*slots, **op.definition.pick(cost, op.attrs)).flops
    return max(flops / chip.products, moved / 2 / chip.memory)


def timeline(frozen: FrozenProgram, given: dict[str, Meta], chip: Chip) -> tuple[tuple[Gradient, ...], float, float]:
    """Gradients in the order in which they are complete, and the time of forward and backward part by the model of ops."""
    (program, *_), _ = distribute(frozen, Distribution(2, 2, bucket_count=0))
    metas = dict(infer_program(program, given))
    forward = backward = 0.0
    found: list[tuple[Meta, float]] = []
    for op in program.ops:
        if op.type == "c_allreduce_sum":
            found.append((metas[next(iter(op.reads()))], backward))
        elif op.role & OpRole.Backward:
            backward += seconds(op, metas, chip)
        elif not op.role & OpRole.Optimize:
            forward += seconds(op, metas, chip)
    return (
        tuple(Gradient(m.nbytes, m.numel, min(1.0, at / backward), m.dtype.name) for m, at in found),
        forward,
        backward,
    )


@functools.cache
def work(name: str) -> Work:
    """A model's step: sizes from its program, shares of time by op, the sum from a published throughput."""
    chip, samples, speed, streams, _ = CASES[name]
    gradients, forward, backward = timeline(*frozen_step(name), chip)
    update = streams * sum(g.elements for g in gradients) / chip.memory
    rest, share = samples / speed - update, backward / (forward + backward)
    return Work(MODELS[name].title, gradients, rest * (1 - share), rest * share, update, name == "gpt")


@functools.cache
def short_step(name: str) -> Work:
    """GPT-2's step of 8 x 1024 tokens, whose parts take ``PARTS``: nothing of it is long enough to hide a slow exchange."""
    gradients, *_ = timeline(*frozen_step(name), H100)
    return Work(MODELS[name].title, gradients, *PARTS.values(), clipped=True)


# --------------------------------------------------------------------------------------------------------------- tables
def _mb(nbytes: float) -> str:
    return f"{nbytes / 1e6:,.1f}"


def _ms(time: float) -> str:
    return f"{time * 1e3:.2f}"


def _size(limit: float | None) -> str:
    return "all in one" if limit is None else "each alone" if limit == 0 else f"{limit / MEGABYTE:.0f} MB"


def traffic_table(name: str) -> list[str]:
    """What the passes insert, and what a ring makes of it."""
    one = work(name)
    reduced, shared = all_reduce_traffic(one, LIMIT), reduce_traffic(one, LIMIT)
    rows = []
    for k in DEVICES[1:]:
        loads = owned(one.gradients, owners(one.gradients, k), k)
        most = max(loads) / one.nbytes
        rows.append(
            (
                str(k), f"{reduced.calls}", _mb(reduced.nbytes), _mb(ring_all_reduce(one.nbytes, k)),
                f"{shared.calls}", _mb(shared.nbytes), _mb(reduce_step(one, k, H100.fast, LIMIT).sent), f"{most:.1%}",
            )
        )  # fmt: skip
    head = ("Devices", "AllReduce: calls", "MB in", "MB sent", "Reduce: calls", "MB in", "MB sent", "Largest owner")
    return table(head, rows)


def time_table(name: str) -> list[str]:
    """Step time and efficiency against devices."""
    one, chip = work(name), CASES[name][0]
    rows = []
    for k in DEVICES:
        row = [str(k)]
        for network in (chip.fast, chip.slow):
            for step in (all_reduce_step(one, k, network, LIMIT), reduce_step(one, k, network, LIMIT)):
                row += [_ms(step.seconds), f"{one.alone / step.seconds:.1%}"]
        rows.append(row)
    head = ["Devices"]
    for network in (chip.fast, chip.slow):
        for kind in ("AllReduce", "Reduce"):
            head += [f"{kind}, {network.title}: ms", "efficiency"]
    return table(head, rows)


def bucket_table(name: str) -> list[str]:
    """What the size of a bucket costs."""
    one, chip = work(name), CASES[name][0]
    rows = []
    for limit in LIMITS:
        waits = [
            _ms(all_reduce_step(one, k, network, limit).waited)
            for k, network in ((8, chip.fast), (64, chip.fast), (64, chip.slow))
        ]
        rows.append((_size(limit), str(all_reduce_traffic(one, limit).calls), *waits))
    head = ("Bucket", "Calls", "8 devices", f"64, {chip.fast.title}", f"64, {chip.slow.title}")
    return table(head, rows)


def exposed_table() -> list[str]:
    """What a step of 8 x 1024 tokens waits for, by number of devices and type of the gradients."""
    rows = []
    for k in (8, 64, 1024):
        row = [f"{k:,}"]
        for name in ("gpt-bf16", "gpt"):
            one = short_step(name)
            step = all_reduce_step(one, k, SWITCH, LIMIT)
            row += [
                f"{all_reduce_traffic(one, LIMIT).calls}",
                _mb(step.sent),
                _ms(step.waited),
                f"{step.waited / one.alone:.1%}",
            ]
        rows.append(row)
    head = ["Devices"]
    for kind in ("bfloat16", "float32"):
        head += [f"{kind}: calls", "MB sent", "ms waited", "of the step"]
    return table(head, rows)


def sending(name: str) -> list[str]:
    """What it costs to send parameters one by one."""
    one, chip = work(name), CASES[name][0]
    each, together = (reduce_step(one, 64, chip.fast, LIMIT, t) for t in (False, True))
    calls = (reduce_traffic(one, LIMIT, t).calls for t in (False, True))
    return [
        "Without `fuse_broadcast_ops` there are {} calls instead of {}, and a step on 64 devices with {} takes {} ms "
        "instead of {}.".format(*calls, chip.fast.title, _ms(each.seconds), _ms(together.seconds))
    ]


def blocks() -> Iterator[tuple[str, list[str]]]:
    """The generated parts of the page, by name."""
    for name in CASES:
        one, (chip, *_, batch) = work(name), CASES[name]
        parts = f"forward {_ms(one.forward)}, backward {_ms(one.backward)}, update {_ms(one.update)} ms"
        yield (
            f"{name} step",
            [
                f"{one.title.split(',')[0]}: {len(one.gradients)} gradients, {_mb(one.nbytes)} MB in float32; {batch} per "
                f"device on an {chip.name}: {parts}."
            ],
        )
        yield f"{name} traffic", traffic_table(name)
        yield f"{name} time", time_table(name)
        yield f"{name} sending", sending(name)
        yield f"{name} buckets", bucket_table(name)
    yield "exposed", exposed_table()


def filled(page: str, parts: Sequence[tuple[str, list[str]]]) -> str:
    """The page with its generated parts put in between their marks.

    Raises:
        SystemExit: If a mark is missing.
    """
    for name, lines in parts:
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
        if page.count(begin) != 1 or page.count(end) != 1:
            raise SystemExit(f"{PAGE.name} needs the lines {begin.strip()} and {end.strip()} once each")
        head, rest = page.split(begin)
        page = "".join([head, begin, "\n", "\n".join(lines), "\n\n", end, rest.split(end)[1]])
    return page


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the tables into the page")
    parts = list(blocks())
    if parser.parse_args().write:
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), parts), encoding="utf-8")
        return
    for name, lines in parts:
        print(f"{name}:", "", *lines, "", sep="\n")


if __name__ == "__main__":
    main()
