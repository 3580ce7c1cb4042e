"""What a GPU has to confirm of whole programs: their memory, several places on one GPU, and graphs that leave the bits of calls."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Mapping
from typing import Any

import models
import numpy as np
import twins
from packfile import Json
from place import Gpu, told
from twins import Program

Feed = dict[str, "np.ndarray[Any, Any]"]

STEPS = 3
NEAR = 1e-2
"""How far losses of one place and of several may be apart: products of float32 are rounded to TF32."""
SIZES: Mapping[str, Mapping[str, int]] = {
    "gpt-bf16": {"batch": 1},
    "bert-bf16": {"batch": 8, "masked": 160},
    "resnet": {"batch": 16},
}
"""Model -> what its step is checked with: a check brings all values back to the host three times."""
SMALL: Mapping[str, Mapping[str, int]] = {
    "gpt-bf16": twins.SMALL,
    "bert-bf16": {"layers": 1, "width": 32, "heads": 2, "tokens": 8, "vocabulary": 64, "batch": 2, "masked": 4},
    "resnet": {"batch": 2, "side": 32, "classes": 10},
}
SMALL_STAGES = ((1, 8), (1, 8))
DICTS = {"gpt": models.GPT, "gpt-bf16": models.GPT, "bert-bf16": models.BERT, "resnet": models.RESNET}


@contextlib.contextmanager
def sized(model: str, dry: bool, **more: int) -> Iterator[Mapping[str, int]]:
    """The sizes of a model within the block: in a dry run those of a small one."""
    sizes, stages = DICTS[model], models.STAGES
    before = dict(sizes)
    sizes.update(SMALL["gpt-bf16" if model == "gpt" else model] if dry else {})
    sizes.update(more)
    if dry:
        models.STAGES = SMALL_STAGES
    try:
        yield sizes
    finally:
        sizes.clear()
        sizes.update(before)
        models.STAGES = stages


def feed_of(model: str, sizes: Mapping[str, int]) -> Feed:
    """Random inputs of a model."""
    draw = np.random.default_rng(0)
    if model.startswith("gpt"):
        return twins.feed_of(sizes)
    batch = sizes["batch"]
    if model == "resnet":
        side = sizes["side"]
        return {
            "x": draw.standard_normal((batch, side, side, 3), np.float32),
            "label": draw.integers(0, sizes["classes"], (batch, 1)),
        }
    tokens, masked = sizes["tokens"], sizes["masked"]
    return {
        "ids": draw.integers(0, sizes["vocabulary"], (batch, tokens)),
        "kinds": draw.integers(0, 2, (batch, tokens)),
        "mask": np.zeros((batch, 1, 1, tokens), np.float32),
        "places": np.sort(draw.permutation(batch * tokens)[:masked]),
        "label": draw.integers(0, sizes["vocabulary"], (masked, 1)),
        "follows": draw.integers(0, 2, (batch, 1)),
    }


def memory(gpu: Gpu, model: str) -> Json:
    """What the allocator held at most in the steps behind the third, and what the package's report says of them."""
    gc.collect()
    gpu.cuda.empty_cache()
    before = gpu.allocated()
    free = gpu.cuda.mem_get_info()[0]
    with sized(model, gpu.dry) as sizes:
        program = Program(gpu, model, feed_of(model, sizes))
        step = program.step().warmed(STEPS)
        gpu.wait()
        gpu.cuda.reset_peak_memory_stats()
        step()
        step()
        gpu.wait()
        held = gpu.allocated()
        report = {k: v for k, v in program.report().to_dict().items() if k != "by_op"}
    most = held["most_allocated"] - before["allocated"]
    return {
        "before": before,
        "held": held,
        "most_bytes": most,
        "report": report,
        "reported_bytes": report["total_bytes"],
        "held_over_reported": most / report["total_bytes"],
        # Context, modules, graphs: what the driver counts and torch's allocator does not.
        "driver_bytes": free - gpu.cuda.mem_get_info()[0],
        "graphs": told(program.graphs()),
    }


def places(gpu: Gpu, count: int) -> Json:
    """Losses of a program on one place and on several of the same GPU, and how long steps take."""
    found: Json = {}
    losses = []
    layers = 1 if gpu.dry else 2
    with sized("gpt", gpu.dry) as sizes:
        feed = feed_of("gpt", sizes)
    for name, number in (("one", 1), ("several", count)):
        # The model states its batch: that of a place.
        with sized("gpt", gpu.dry, layers=layers, batch=len(feed["ids"]) // number):
            step = Program(gpu, "gpt", feed, places=number).step().warmed(STEPS)
            found[name] = step.timed(STEPS) | {"losses": list(step.losses)} | step.facts
            losses.append(step.losses)
    worst = max(abs(a - b) for a, b in zip(*losses, strict=True))
    return {"places": count, "worst_loss_difference": worst, "right": worst <= NEAR, **found}


def graph(gpu: Gpu, model: str) -> Json:
    """Whether the calls of a step and the graph that is captured of them leave the same bits (``FLAGS_cuda_graph=check``)."""
    with sized(model, gpu.dry, **({} if gpu.dry else SIZES[model])) as sizes:
        program = Program(gpu, model, feed_of(model, sizes), graph="check")
        step = program.step().warmed(STEPS)
        seen = told(program.graphs())
    same = seen["graphs"] > 0 and seen["captured"] == seen["graphs"]
    return {"losses": step.losses, "same_bits": same, "sizes": dict(SIZES[model]), **step.facts, **seen}
