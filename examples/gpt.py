"""Trains a small GPT on the sources of Python's own standard library, on one place, several places or several processes.

    python examples/gpt.py [--steps 600] [--out examples/out]
    python examples/gpt.py --places 2
    torchrun --nproc_per_node 2 examples/gpt.py
    python -m tstatic.distributed.launch --nproc_per_node 2 examples/gpt.py
    srun --ntasks-per-node 2 python examples/gpt.py
    python examples/gpt.py --amp bf16

All but the last see the same batches and give the same losses, up to the order of float additions; the last, which may be started
in each of these ways, computes products in 16 bits. Where there are GPUs, each process takes one of them, by its number on its
machine. A checkpoint is written every ``--save-every`` steps; after a crash, or ``kill -9``, the same command with ``--resume``
goes on as if nothing had happened. With more ``--steps`` a finished run is trained longer, at the rates of the longer schedule.
The tokens are bytes; nothing is downloaded.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import training
from library import library

import tstatic as paddle
from tstatic import distributed, static

BYTES = 256
PROMPT = b"def "
GOAL = 2.0


@dataclass(frozen=True)
class Settings:
    """What the losses depend on: a checkpoint can only be resumed with the same, but for the number of steps."""

    steps: int = 600
    batch: int = 16
    tokens: int = 128
    width: int = 128
    layers: int = 3
    heads: int = 4
    dropout: float = 0.0
    rate: float = 2e-3
    seed: int = 1
    amp: str = ""


@dataclass
class Progress:
    """How far the training is; with a checkpoint of the program, all that a resumed run needs."""

    step: int = 0
    losses: list[float] = field(default_factory=list)


# ----------------------------------------------------------------------------------------------------------------- text
def windows(text: np.ndarray, starts: Sequence[int], tokens: int) -> dict[str, np.ndarray]:
    """A feed: rows of text, and the same moved on by one byte, which is what has to be guessed."""
    rows = np.stack([text[s : s + tokens + 1] for s in starts]).astype("int64")
    return {"ids": np.ascontiguousarray(rows[:, :-1]), "label": np.ascontiguousarray(rows[:, 1:, None])}


def batch(text: np.ndarray, settings: Settings, step: int) -> dict[str, np.ndarray]:
    """This process's part of the batch of a step, which depends on the seed and the step's number alone."""
    rng = np.random.default_rng([settings.seed, step])
    starts = rng.integers(0, len(text) - settings.tokens, settings.batch)
    return {name: distributed.local(rows) for name, rows in windows(text, starts.tolist(), settings.tokens).items()}


# -------------------------------------------------------------------------------------------------------------- program
@dataclass(frozen=True)
class Model:
    """The programs, and what stands in them."""

    main: static.Program
    test: static.Program
    startup: static.Program
    loss: static.Variable
    logits: static.Variable
    scheduler: Any


def build(settings: Settings) -> Model:
    """Embeddings, pre-norm transformer blocks under a causal mask, and one dense layer."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        ids = static.data("ids", [None, settings.tokens], "int64")
        label = static.data("label", [None, settings.tokens, 1], "int64")
        small = paddle.ParamAttr(initializer=paddle.nn.initializer.Normal(0.0, 0.02))
        h = static.nn.embedding(ids, [BYTES, settings.width], param_attr=small)
        h = h + static.create_parameter([settings.tokens, settings.width], "float32", attr=small)
        mask = paddle.assign(np.triu(np.full((settings.tokens,) * 2, -1e9, "float32"), 1))
        for _ in range(settings.layers):
            h = paddle.nn.TransformerEncoderLayer(
                settings.width, settings.heads, 4 * settings.width, settings.dropout, "gelu", normalize_before=True
            )(h, mask)
        h = static.nn.layer_norm(h, begin_norm_axis=2)
        logits = static.nn.fc(h, BYTES, num_flatten_dims=2, weight_attr=small)
        loss = paddle.mean(paddle.nn.functional.cross_entropy(logits, label))
        test = main.clone(for_test=True)
        warm = max(1, min(100, settings.steps // 10))
        falling = paddle.optimizer.lr.CosineAnnealingDecay(
            settings.rate, max(1, settings.steps - warm), settings.rate / 10
        )
        scheduler = paddle.optimizer.lr.LinearWarmup(falling, warm, settings.rate / warm, settings.rate * 1.001)
        optimizer: Any = paddle.optimizer.AdamW(
            scheduler, beta2=0.98, weight_decay=0.1, grad_clip=paddle.nn.ClipGradByGlobalNorm(1.0)
        )
        if settings.amp:
            optimizer = static.amp.decorate(optimizer, dtype={"bf16": "bfloat16", "fp16": "float16"}[settings.amp])
        optimizer.minimize(loss)
    return Model(main, test, startup, loss, logits, scheduler)


# ---------------------------------------------------------------------------------------------------------- checkpoints
def save(manager: static.CheckpointManager, progress: Progress, settings: Settings, text: bytes) -> None:
    """Writes a checkpoint with the losses so far, and what a resumed run is compared with."""
    loss = float(np.mean(progress.losses[-20:]))
    manager.save(progress.step, metric=loss, losses=progress.losses, settings=asdict(settings), text=digest(text))


def resume(manager: static.CheckpointManager, settings: Settings, text: bytes) -> Progress:
    """Takes up the newest checkpoint of a folder; a new start if there is none.

    Raises:
        SystemExit: If it was made with other settings or another text; only the number of steps may differ.
    """
    found = manager.read()
    if found is None:
        return Progress()
    mine = {**asdict(settings), "text": digest(text)}
    theirs = {**found.state["settings"], "text": found.state["text"], "steps": settings.steps}
    other = [k for k, v in theirs.items() if mine.get(k) != v]
    if other:
        raise SystemExit(f"{manager.folder} was made with another {', '.join(other)}; use the same, or another --out")
    found = manager.restore()
    return Progress(found.step, found.state["losses"])


def digest(text: bytes) -> str:
    """Tells one text from another."""
    return hashlib.sha256(text).hexdigest()


# ------------------------------------------------------------------------------------------------------------- training
def own_places(count: int, kind: str) -> list[Any]:
    """The places of this process: on GPUs those behind the ones of its neighbours on the same machine.

    Args:
        count: How many.
        kind: ``"cpu"`` or ``"gpu"``.
    """
    if kind == "cpu":
        return [paddle.CPUPlace()] * count
    # What `tstatic.distributed.launch --devices` gave this process, or all that it sees.
    seen = static.cuda_places()
    # A launcher that gives each process GPUs of its own leaves as many as the process has places.
    first = distributed.ParallelEnv().local_rank * count if len(seen) > count else 0
    return [seen[(first + number) % len(seen)] for number in range(count)]


def train(settings: Settings, places: int, out: Path, again: bool, save_every: int, kind: str = "cpu") -> list[float]:
    """Trains to the last step; returns the loss of every step, those before a resumption included.

    Args:
        settings: What the losses depend on.
        places: How many places this process has.
        out: Folder of all that is written.
        again: Whether the newest checkpoint is taken up.
        save_every: Steps between two checkpoints.
        kind: ``"cpu"`` or ``"gpu"``.

    Raises:
        SystemExit: If the batch cannot be shared out evenly: then the mean of the parts' means is not the batch's.
    """
    parts = places * distributed.get_world_size()
    if settings.batch % parts:
        fits = max(parts, settings.batch - settings.batch % parts)
        why = f"a batch of {settings.batch} rows cannot be shared out evenly among {parts} places"
        raise SystemExit(f"{why}; one of {fits} can: --batch {fits}")
    first = distributed.get_rank() == 0
    out.mkdir(parents=True, exist_ok=True)
    paddle.seed(settings.seed)
    text = library()
    numbers = np.frombuffer(text, np.uint8)
    known, unseen = numbers[: len(numbers) * 15 // 16], numbers[len(numbers) * 15 // 16 :]
    model = build(settings)
    own = own_places(places, kind)
    exe = static.Executor(own[0])
    exe.run(model.startup)
    manager = static.CheckpointManager(out / "gpt-checkpoints", model.main, keep=1, scheduler=model.scheduler)
    progress = resume(manager, settings, text) if again else Progress()
    program = static.CompiledProgram(model.main).with_data_parallel(model.loss.name, places=own)
    begun, started = progress.step, time.perf_counter()
    with training.progress("gpt", begun, settings.steps, "step", first) as advance:
        for done in range(begun, settings.steps):
            (losses,) = exe.run(program, feed=batch(known, settings, done), fetch_list=[model.loss])
            progress.losses.append(mean_loss(losses))
            model.scheduler.step()
            progress.step = done + 1
            if first and (progress.step % save_every == 0 or progress.step == settings.steps):
                save(manager, progress, settings, text)
            speed = settings.batch * settings.tokens * (done + 1 - begun) / (time.perf_counter() - started)
            now = progress.step % save_every == 0 or progress.step == settings.steps
            measured = f"loss {progress.losses[-1]:.3f}, {speed:,.0f} tokens/s"
            advance(measured, f"step {progress.step} of {settings.steps}" if now else "")
    if first:
        plot(progress.losses, out / "gpt.png")
        count = settings.batch * settings.tokens
        print(f"{progress.step} steps of {count} bytes on {parts} place{'s' * (parts != 1)}", end="; ")
        print(f"loss {progress.losses[0]:.3f} -> {np.mean(progress.losses[-20:]):.3f}", end="; ")
        print(f"on unseen text {evaluate(exe, model, unseen, settings):.3f}")
        print(f"wrote {training.short(manager.folder)}, {training.short(out / 'gpt.png')}")
        print(training.printable(sample(exe, model, settings, 300)))
    return progress.losses


def mean_loss(losses: Any) -> float:
    """The loss of the whole batch: places and processes have equal parts of it."""
    return float(distributed.mean(np.mean(losses, dtype="float64")))


def evaluate(exe: static.Executor, model: Model, text: np.ndarray, settings: Settings) -> float:
    """The mean loss over a few batches of evenly spread windows."""
    starts = np.linspace(0, len(text) - settings.tokens - 1, 8 * settings.batch).astype(int).reshape(8, -1)
    feeds = (windows(text, row.tolist(), settings.tokens) for row in starts)
    return float(np.mean([exe.run(model.test, feed=feed, fetch_list=[model.loss.name])[0] for feed in feeds]))


def sample(exe: static.Executor, model: Model, settings: Settings, count: int, temperature: float = 0.7) -> bytes:
    """Text that the model writes: each byte is drawn from what it expects after the ones before."""
    rng = np.random.default_rng(settings.seed)
    text = list(PROMPT)
    for _ in range(count):
        # What stands behind the last byte cannot be seen from it: the mask forbids it.
        seen = text[-settings.tokens :]
        ids = np.zeros((1, settings.tokens), "int64")
        ids[0, : len(seen)] = seen
        feed = {"ids": ids, "label": ids[..., None]}
        (logits,) = exe.run(model.test, feed=feed, fetch_list=[model.logits.name])
        scores = logits[0, len(seen) - 1].astype("float64") / temperature
        chances = np.exp(scores - scores.max())
        text.append(int(rng.choice(BYTES, p=chances / chances.sum())))
    return bytes(text)


def plot(losses: Sequence[float], path: Path) -> None:
    """Loss over steps, and its mean over the last 20, as a picture."""
    steps = np.arange(1, len(losses) + 1)
    sums = np.cumsum(np.insert(np.asarray(losses, "float64"), 0, 0.0))
    low = np.maximum(steps - 20, 0)
    lines = {"loss": losses, "mean of 20 steps": (sums[steps] - sums[low]) / (steps - low)}
    with training.picture(path, "GPT on Python's library: training loss") as axes:
        training.curves(axes, steps, lines, "step", "cross entropy (nats per byte)")


def main() -> int:
    """Command line; the exit code is 1 if a full run misses its goal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in asdict(Settings()).items():
        choices = ["", "bf16", "fp16"] if name == "amp" else None
        parser.add_argument(f"--{name}", type=type(value), default=value, choices=choices)
    parser.add_argument("--places", type=int, default=1, help="places of this process, which share its part of a batch")
    default = "gpu" if paddle.is_compiled_with_cuda() else "cpu"
    parser.add_argument("--place", choices=["cpu", "gpu"], default=default, help="what they are")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in --out, if there is one")
    parser.add_argument("--save-every", type=int, default=50)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "out")
    given = vars(parser.parse_args())
    others = {name: given.pop(name) for name in ("places", "place", "resume", "save_every", "out")}
    every, settings = max(1, others["save_every"]), Settings(**given)
    losses = train(settings, others["places"], others["out"], others["resume"], every, others["place"])
    if distributed.get_rank() > 0:
        return 0
    reached, whole = float(np.mean(losses[-20:])), given["steps"] >= Settings().steps
    return training.verdict(others["out"], "gpt", "training loss (nats per byte)", reached, GOAL, whole, "min")


if __name__ == "__main__":
    sys.exit(main())
