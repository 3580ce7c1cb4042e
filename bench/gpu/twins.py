"""Training steps of GPT-2 that compute the same in tstatic and in torch: weights by name, data, precision and update are one.

At AMP level O2 parameters are of bfloat16 with copies of float32 that the update works on, norms and the mean of the losses are of
float32; torch's twin does the same. ``autocast`` is how torch's users train: parameters of float32, cast in every step.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import models
import numpy as np
import torch
import torch.nn.functional as F
from beforehand import compiled_beforehand, jobs_of
from packfile import Json
from place import Gpu, graphs, said, told
from plan_count import paddle, planned, static, strategy
from torch import nn

from tstatic.logs import TOPICS

COMPARED = 20
"""Steps whose losses are compared."""
COMPARED_DRY = 4
TOLERANCE = 1e-2
SMALL = {"layers": 1, "width": 32, "heads": 2, "tokens": 16, "vocabulary": 64, "batch": 2}
"""For dry runs."""
RATE, DECAY, MOST_NORM = 3e-4, 0.1, 1.0
SCALE = 0.02
"""Standard deviation of the weights."""

Weights = Mapping[str, "np.ndarray[Any, Any]"]


def feed_of(sizes: Mapping[str, int]) -> dict[str, np.ndarray[Any, Any]]:
    """Tokens at random, and for each the one that follows."""
    ids = np.random.default_rng(0).integers(0, sizes["vocabulary"], (sizes["batch"], sizes["tokens"] + 1))
    return {"ids": ids[:, :-1], "label": ids[:, 1:, None]}


def weights_of(main: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Parameter -> its first numbers: they depend on its name's place and its shape alone."""
    rng = np.random.default_rng(1)
    found = {}
    for one in main.all_parameters():
        shape = tuple(one.shape)
        if len(shape) > 1:
            found[one.name] = rng.standard_normal(shape, np.float32) * np.float32(SCALE)
        else:
            found[one.name] = np.full(shape, float("layer_norm" in one.name and ".w_" in one.name), np.float32)
    return found


def first_weights(model: str) -> dict[str, np.ndarray[Any, Any]]:
    """The first numbers of a model's parameters, at the sizes that it has now."""
    paddle.enable_static()
    main = static.Program()
    with static.program_guard(main, static.Program()), paddle.utils.unique_name.guard():
        models.MODELS[model].build(paddle)
    return weights_of(main)


class Step:
    """A training step that remembers its losses.

    Attributes:
        losses: Of all steps so far.
        facts: What is known of it beside times.
    """

    def __init__(self, run: Callable[[], float], facts: Json) -> None:
        self._run = run
        self.losses: list[float] = []
        self.facts = facts

    def __call__(self) -> float:
        self.losses.append(self._run())
        return self.losses[-1]

    def timed(self, count: int) -> Json:
        """Seconds of further steps; the loss is fetched in each, so the device has done its work then."""
        seconds = []
        for _ in range(count):
            begun = time.perf_counter()
            self()
            seconds.append(time.perf_counter() - begun)
        return {"median_s": statistics.median(seconds), "least_s": min(seconds), "seconds": seconds}

    def warmed(self, count: int = COMPARED) -> Step:
        """Runs until there are so many losses; the first two steps, which prepare, are timed apart."""
        for name in ("first_step_s", "second_step_s"):
            if name not in self.facts:
                self.facts[name] = self.timed(1)["median_s"]
        while len(self.losses) < count:
            self()
        return self


# -------------------------------------------------------------------------------------------------------------- tstatic
class Program:
    """A model's training program on the first GPU, with its own scope.

    Args:
        gpu: The GPU.
        model: Of ``models.py``.
        feed: What is fed in each step.
        graph: ``FLAGS_cuda_graph`` while it is planned.
        places: How many places share the batch; 1 is no data parallelism.
        fused: Whether fusions are on.
        place: Where it runs; the first GPU by default.
    """

    flags: ClassVar[Json] = {}
    """Those of the program that ran last."""

    def __init__(
        self,
        gpu: Gpu,
        model: str,
        feed: Mapping[str, Any],
        graph: str = "auto",
        places: int = 1,
        fused: bool = True,
        place: Any = None,
    ) -> None:
        paddle.enable_static()
        self.gpu, self.feed, self.graph = gpu, dict(feed), graph
        self.model = models.MODELS[model]
        self.place = paddle.CUDAPlace(0) if place is None else place
        self.facts: Json = {}
        begun = time.perf_counter()
        self.main, startup = static.Program(), static.Program()
        with static.program_guard(self.main, startup), paddle.utils.unique_name.guard():
            paddle.seed(1)
            self.loss = self.model.build(paddle)
        self.weights = weights_of(self.main)
        chosen = strategy(None if fused else "-")
        self._took("build_s", begun)
        self._flags()
        self.scope, self.executor = static.Scope(), static.Executor(self.place)
        if "compile" not in TOPICS:
            # A package that says so compiles the kernels of a plan together by itself.
            begun = time.perf_counter()
            # The model states the batch of one place.
            shapes = {n: (len(a) // places, *a.shape[1:]) for n, a in self.feed.items()}
            plan = planned(self.main, chosen, shapes, [self.loss.name])
            self._took("plan_s", begun)
            begun = time.perf_counter()
            self.facts |= {"planned_bytes": plan.arena_bytes, **_compiled(gpu, plan)}
            self._took("compile_s", begun)
        self.compiled = static.CompiledProgram(self.main, chosen)
        if places > 1:
            self.compiled = self.compiled.with_data_parallel(self.loss.name, places=[self.place] * places)
        begun = time.perf_counter()
        with static.scope_guard(self.scope):
            self.executor.run(startup)
            self._set()
        self._took("startup_s", begun)
        # The startup program's own run once, and are never captured.
        self._before = graphs()

    def _took(self, what: str, begun: float) -> None:
        self.facts[what] = time.perf_counter() - begun

    def _flags(self) -> None:
        wanted = {"FLAGS_allow_tf32": self.model.tf32, "FLAGS_cuda_graph": self.graph}
        # Asked in every step, whose time is measured.
        if Program.flags != wanted:
            paddle.set_flags(wanted)
            Program.flags = wanted

    def _set(self) -> None:
        """Writes the weights, those of the update's own copies too."""
        low = {p.name for p in self.main.all_parameters() if str(p.dtype).endswith("bfloat16")}
        if low:
            static.amp.bf16.cast_parameters_to_bf16(self.place, self.main, to_bf16_var_names=low)
        for name, value in self.weights.items():
            for variable in (name, f"{name}_fp32_master_0"):
                found = self.scope.find_var(variable)
                if found is not None:
                    tensor = found.get_tensor()
                    tensor.set(value.astype(np.asarray(tensor).dtype), self.place)

    def run(self) -> float:
        """A step; returns the loss, the mean of several places' ones."""
        self._flags()
        [loss] = self.executor.run(self.compiled, feed=self.feed, fetch_list=[self.loss], scope=self.scope)
        return float(np.mean(np.asarray(loss, np.float32)))

    def step(self) -> Step:
        """The step, and what is known of it; its first run is logged."""
        made = Step(self.run, self.facts)
        with said("compile") as lines:
            made.warmed(2)
        self.facts["compile_log"] = lines[:40]
        self.facts |= told(self.graphs())
        return made

    def graphs(self) -> Any:
        """The parts of its plan that are launched as graphs."""
        return graphs(self._before)

    def report(self) -> Any:
        """The package's own report of what the program's run takes."""
        shapes = {name: array.shape for name, array in self.feed.items()}
        return self.compiled.memory_report(shapes, [self.loss], self.scope, self.place)


def _compiled(gpu: Gpu, plan: Any) -> Json:
    """Compiles a plan's kernels; a dry run only says which ones it would."""
    if gpu.dry:
        return {"compiled": 0, "jobs": len(jobs_of(plan)), "failed": []}
    major, minor = gpu.cuda.get_device_capability()
    return compiled_beforehand(plan, 10 * major + minor)


# ---------------------------------------------------------------------------------------------------------------- torch
class Block(nn.Module):
    """A block whose norms stand before attention and feed-forward."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, h: Any) -> Any:
        """Adds what attention and feed-forward make."""
        b, t, width = h.shape
        q, k, v = (p.view(b, t, self.heads, -1).transpose(1, 2) for p in self.qkv(_norm(self.ln1, h)).split(width, 2))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = h + self.out(mixed.transpose(1, 2).reshape(b, t, width))
        return h + self.down(F.gelu(self.up(_norm(self.ln2, h)), approximate="tanh"))

    def ordered(self) -> list[nn.Module]:
        """The layers in the order in which the static program makes them."""
        return [self.ln1, self.qkv, self.out, self.ln2, self.up, self.down]


class Network(nn.Module):
    """Embeddings, blocks, and the tokens' table again as the head."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__()
        self.tokens = nn.Embedding(sizes["vocabulary"], sizes["width"])
        self.positions = nn.Parameter(torch.zeros(sizes["tokens"], sizes["width"]))
        self.blocks = nn.ModuleList(Block(sizes["width"], sizes["heads"]) for _ in range(sizes["layers"]))
        self.ln = nn.LayerNorm(sizes["width"])

    def forward(self, ids: Any, label: Any) -> Any:
        """The mean loss, of float32."""
        h = self.tokens(ids) + self.positions
        for block in self.blocks:
            h = block(h)
        logits = F.linear(_norm(self.ln, h), self.tokens.weight)
        return F.cross_entropy(logits.float().flatten(0, 1), label.flatten())

    def load(self, weights: Weights) -> None:
        """Takes the static program's weights by their names.

        Raises:
            LookupError: If the program has others.
        """
        blocks: list[Any] = [layer for block in self.blocks for layer in block.ordered()]
        layers: list[Any] = [*blocks, self.ln]
        named: dict[str, Any] = {"tokens": self.tokens.weight, "positions": self.positions}
        numbers = {nn.LayerNorm: itertools.count(), nn.Linear: itertools.count()}
        for layer in layers:
            kind = "layer_norm" if type(layer) is nn.LayerNorm else "fc"
            number = next(numbers[type(layer)])
            named |= {f"{kind}_{number}.w_0": layer.weight, f"{kind}_{number}.b_0": layer.bias}
        if named.keys() != weights.keys():
            raise LookupError(f"parameters differ: {sorted(named.keys() ^ weights.keys())}")
        with torch.no_grad():
            for name, parameter in named.items():
                value = torch.from_numpy(weights[name])
                # The static program's layers hold the matrix that torch's linear layer turns.
                parameter.copy_(value.mT if name.startswith("fc_") and value.ndim == 2 else value)


def _norm(layer: Any, h: Any) -> Any:
    """A norm of float32, as the static program's: its scale and shift are, too."""
    return F.layer_norm(h.float(), layer.normalized_shape, layer.weight, layer.bias, layer.eps).to(h.dtype)


def lowered(net: Network) -> list[tuple[Any, Any]]:
    """Makes the parameters of all layers but the norms bfloat16; returns them with their copies of float32."""
    kept = {id(p) for layer in net.modules() if type(layer) is nn.LayerNorm for p in layer.parameters()}
    pairs = []
    for parameter in net.parameters():
        if id(parameter) not in kept:
            copy = parameter.detach().clone()
            parameter.data = parameter.data.bfloat16()
            pairs.append((parameter, copy))
    return pairs


def torch_step(gpu: Gpu, weights: Weights, mode: str = "", precision: str = "lowered", tf32: bool = False) -> Step:
    """Makes torch's step from the same weights.

    Args:
        gpu: The GPU.
        weights: Of the static program.
        mode: Of ``torch.compile``: ``""`` is torch as it is, ``default`` or ``reduce-overhead``.
        precision: ``lowered`` (as AMP level O2), ``autocast`` or ``float32``.
        tf32: Whether products of float32 may be rounded to TF32.
    """
    sizes = models.GPT
    torch.backends.cuda.matmul.allow_tf32 = tf32
    net = Network(sizes)
    net.load(weights)
    net.to(gpu.where)
    pairs = lowered(net) if precision == "lowered" else []
    low, masters = [p for p, _ in pairs], [copy for _, copy in pairs]
    for one in masters:
        one.grad = torch.zeros_like(one)
    of_low = {id(p) for p in low}
    updated = [p for p in net.parameters() if id(p) not in of_low] + masters
    optimizer = torch.optim.AdamW(updated, RATE, weight_decay=DECAY, fused=True)
    ids, label = (torch.from_numpy(np.ascontiguousarray(a)).to(gpu.where) for a in feed_of(sizes).values())
    run = compiled(gpu, net, mode) if mode else net

    def step() -> float:
        net.zero_grad()
        with torch.autocast(gpu.where, torch.bfloat16, enabled=precision == "autocast"):
            loss = run(ids, label)
        loss.backward()
        if low:
            torch._foreach_copy_([one.grad for one in masters], [one.grad for one in low])
        nn.utils.clip_grad_norm_(updated, MOST_NORM)
        optimizer.step()
        if low:
            with torch.no_grad():
                torch._foreach_copy_(low, masters)
        return float(loss.detach())

    return Step(step, {"precision": precision})


def compiled(gpu: Gpu, net: Network, mode: str) -> Any:
    """The network through ``torch.compile``; in a dry run it is only traced."""
    # Otherwise the second batch size of a process would be compiled for batches of any size, which takes more time in each step.
    torch.compiler.reset()
    chosen = {"backend": "eager"} if gpu.dry else {"mode": mode}
    return torch.compile(net, dynamic=False, **chosen)


def compared(ours: Sequence[float], theirs: Sequence[float], count: int = COMPARED) -> Json:
    """How far the losses of two trainings are apart at most, and whether they are the same training."""
    far = [abs(a - b) for a, b in zip(ours[:count], theirs[:count], strict=False)]
    # `max` passes over what is not a number.
    worst = float(np.max(far)) if far else float("nan")
    return {
        "compared_steps": len(far),
        "worst_loss_difference": worst,
        "twin": len(far) == count and worst <= TOLERANCE,
    }
