"""What the twins of the scripts on text share: a record of what a script trains with, torch layers with its weights, the loop."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.examples.small import SIZES
from tests.examples.test_text import losses, run
from tstatic import static

Feed = Mapping[str, torch.Tensor]
Arrays = Iterator[np.ndarray]


def parameter(array: np.ndarray) -> nn.Parameter:
    """Returns a copy that is trained."""
    return nn.Parameter(torch.tensor(array))


def linear(weights: Arrays) -> nn.Linear:
    """Returns a layer with the next two arrays; Paddle's weight is ``[in, out]``."""
    weight, bias = next(weights).T, next(weights)
    layer = nn.Linear(weight.shape[1], weight.shape[0])
    layer.weight, layer.bias = parameter(weight), parameter(bias)
    return layer


def norm(weights: Arrays) -> nn.LayerNorm:
    """Returns a layer with the next two arrays."""
    scale, shift = next(weights), next(weights)
    layer = nn.LayerNorm(scale.shape[0])
    layer.weight, layer.bias = parameter(scale), parameter(shift)
    return layer


def encoder_layer(weights: Arrays, heads: int, norm_first: bool) -> nn.TransformerEncoderLayer:
    """Returns a block with the next 16 arrays: query, key, value, output, two linear layers, two norms."""
    q, k, v, out, first, second = (linear(weights) for _ in range(6))
    layer = nn.TransformerEncoderLayer(
        q.in_features, heads, first.out_features, 0.0, "gelu", batch_first=True, norm_first=norm_first
    )
    layer.self_attn.in_proj_weight = nn.Parameter(torch.cat([q.weight, k.weight, v.weight]))
    layer.self_attn.in_proj_bias = nn.Parameter(torch.cat([q.bias, k.bias, v.bias]))
    layer.self_attn.out_proj.weight, layer.self_attn.out_proj.bias = out.weight, out.bias
    layer.linear1, layer.linear2 = first, second
    layer.norm1, layer.norm2 = norm(weights), norm(weights)
    return layer


def adams(model: nn.Module) -> list[torch.optim.Optimizer]:
    """Returns one optimizer for the tables whose gradients are sparse, and one for all else."""
    tables = [m.weight for m in model.modules() if isinstance(m, nn.Embedding) and m.sparse]
    others = [p for p in model.parameters() if all(p is not table for table in tables)]
    return [torch.optim.SparseAdam(tables), *([torch.optim.Adam(others)] if others else [])]


def clip(model: nn.Module, most: float) -> None:
    """Scales all gradients so that their common norm is at most ``most``; rows that are named twice count as their sum."""
    values = []
    for p in model.parameters():
        if p.grad is not None and p.grad.is_sparse:
            p.grad = p.grad.coalesce()
        if p.grad is not None:
            values.append(p.grad.values() if p.grad.is_sparse else p.grad)
    scale = most / max(most, float(torch.sqrt(sum((v**2).sum() for v in values))))
    for v in values:
        v.mul_(scale)


@dataclass
class Recorded:
    """What a script trained with: the weights at the start, and each step's feed, rate and loss."""

    sizes: Any
    weights: list[np.ndarray] = field(default_factory=list)
    feeds: list[dict[str, np.ndarray]] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)


def recorded(name: str, steps: int, rate: float | None) -> Recorded:
    """Runs a script on small settings and writes down what its executor is given."""
    script = importlib.import_module(name)
    seen, models, build = Recorded(script.Sizes(**SIZES[name])), [], script.build

    class Recorder(static.Executor):
        def run(self, program: Any, feed: Any = None, **others: Any) -> Any:
            if program is models[0].main:
                if not seen.weights:
                    scope = static.global_scope()
                    seen.weights = [np.array(scope.find_var(p.name).get_tensor()) for p in program.all_parameters()]
                seen.feeds.append({key: np.array(value) for key, value in feed.items()})
                seen.rates.append(models[0].scheduler.get_lr())
            return super().run(program, feed=feed, **others)

    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(script, "build", lambda *arguments: models.append(build(*arguments)) or models[-1])
        patch.setattr(static, "Executor", Recorder)
        if rate is not None:
            patch.setattr(script, "RATE", rate)
        seen.losses = losses(run(name, Path(folder), "--steps", str(steps)))
    return seen


def follow(
    name: str,
    steps: int,
    twin: Callable[[Arrays, Any], Any],
    optimizers: Callable[[Any], list[torch.optim.Optimizer]] = adams,
    most: float | None = 1.0,
    rate: float | None = None,
) -> tuple[list[float], list[float]]:
    """Returns the losses of a script, and those of its twin from the same weights, feeds and rates.

    Args:
        name: The script.
        steps: How many.
        twin: Makes the module of weights and sizes; its ``loss`` takes a feed.
        optimizers: Makes its optimizers.
        most: What the norm of all gradients is clipped to.
        rate: In place of the script's learning rate.
    """
    seen = recorded(name, steps, rate)
    model = twin(iter(seen.weights), seen.sizes)
    made, theirs = optimizers(model), []
    for number, (feed, now) in enumerate(zip(seen.feeds, seen.rates, strict=True), 1):
        loss = model.loss({key: torch.from_numpy(array) for key, array in feed.items()})
        model.zero_grad()
        loss.backward()
        if most is not None:
            clip(model, most)
        for optimizer in made:
            for group in optimizer.param_groups:
                group["lr"] = now
                if isinstance(optimizer, torch.optim.SparseAdam):
                    # Only here torch adds epsilon before it takes the bias out of the second moment.
                    group["eps"] = 1e-8 * (1.0 - 0.999**number) ** 0.5
            optimizer.step()
        theirs.append(loss.item())
    return seen.losses, theirs
