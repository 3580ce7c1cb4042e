"""Worker for torch eager: twins of the nets with the same layers, initial values and optimizers."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from nets import (
    DENSE,
    DEPTHWISE_LAYERS,
    HEADS,
    LAYERS,
    LINEAR_WIDTH,
    LINEARS,
    NETS,
    RESIDUAL_WIDTHS,
    TABLE_ROWS,
    TABLE_WIDTH,
    TABLES,
    TOKENS,
    VOCABULARY,
    WIDTH,
    causal_mask,
    initial_values,
    residual_blocks,
)
from peer import Case, serve
from torch import Tensor, nn


class MLP(nn.Module):
    """784-1024-1024-10 with relu."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(784, 1024), nn.Linear(1024, 1024), nn.Linear(1024, 10)

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        return F.cross_entropy(self.fc3(F.relu(self.fc2(F.relu(self.fc1(x))))), label[:, 0])


class CNN(nn.Module):
    """Two convolutions with pooling, batch norm on the second, two dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 64, 3, padding=1)
        self.bn = nn.BatchNorm2d(64)
        self.fc1, self.fc2 = nn.Linear(64 * 8 * 8, 128), nn.Linear(128, 10)

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        h = F.max_pool2d(F.relu(self.conv1(x)), 2)
        h = F.max_pool2d(F.relu(self.bn(self.conv2(h))), 2)
        return F.cross_entropy(self.fc2(F.relu(self.fc1(h.flatten(1)))), label[:, 0])


class Block(nn.Module):
    """Pre-norm transformer block."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.fused = fused
        self.register_buffer("mask", torch.tensor(causal_mask()), persistent=False)

    def forward(self, h: Tensor) -> Tensor:
        b, t, _ = h.shape
        q, k, v = (p.view(b, t, HEADS, -1).transpose(1, 2) for p in self.qkv(self.ln1(h)).split(WIDTH, 2))
        if self.fused:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(2, 3) * (1 / math.sqrt(WIDTH // HEADS)) + self.mask
            mixed = torch.softmax(scores, -1) @ v
        h = h + self.out(mixed.transpose(1, 2).reshape(b, t, WIDTH))
        return h + self.down(F.gelu(self.up(self.ln2(h)), approximate="tanh"))


class GPT(nn.Module):
    """Embeddings, blocks, head."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Parameter(torch.empty(TOKENS, WIDTH))
        for layer in range(LAYERS):
            setattr(self, f"block{layer}", Block(fused))
        self.ln, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids: Tensor, label: Tensor) -> Tensor:
        h = self.tokens(ids) + self.positions
        for layer in range(LAYERS):
            h = getattr(self, f"block{layer}")(h)
        return F.cross_entropy(self.head(self.ln(h)).flatten(0, 1), label.flatten())


class ConvNorm(nn.Module):
    """A convolution without bias, batch norm, and relu if asked for."""

    def __init__(self, channels: int, filters: int, kernel: int, stride: int, groups: int, relu: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, kernel, stride, kernel // 2, groups=groups, bias=False)
        self.bn, self.relu = nn.BatchNorm2d(filters), relu

    def forward(self, x: Tensor) -> Tensor:
        x = self.bn(self.conv(x))
        return F.relu(x) if self.relu else x


class ResidualBlock(nn.Module):
    """Two convolutions, and the input added to them."""

    def __init__(self, channels: int, filters: int, stride: int) -> None:
        super().__init__()
        self.first = ConvNorm(channels, filters, 3, stride, 1, True)
        self.second = ConvNorm(filters, filters, 3, 1, 1, False)
        self.short = ConvNorm(channels, filters, 1, stride, 1, False) if channels != filters else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.second(self.first(x)) + self.short(x))


class Residual(nn.Module):
    """The residual net of 20 layers."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvNorm(3, RESIDUAL_WIDTHS[0], 3, 1, 1, True)
        for name, channels, filters, stride in residual_blocks():
            setattr(self, name, ResidualBlock(channels, filters, stride))
        self.fc = nn.Linear(RESIDUAL_WIDTHS[-1], 10)

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        h = self.stem(x)
        for name, *_ in residual_blocks():
            h = getattr(self, name)(h)
        return F.cross_entropy(self.fc(h.mean((2, 3))), label[:, 0])


class Pair(nn.Module):
    """A depthwise and a 1 x 1 convolution."""

    def __init__(self, channels: int, filters: int, stride: int) -> None:
        super().__init__()
        self.depth = ConvNorm(channels, channels, 3, stride, channels, True)
        self.point = ConvNorm(channels, filters, 1, 1, 1, True)

    def forward(self, x: Tensor) -> Tensor:
        return self.point(self.depth(x))


class Depthwise(nn.Module):
    """The depthwise net."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, channels = ConvNorm(3, 32, 3, 1, 1, True), 32
        for index, (filters, stride) in enumerate(DEPTHWISE_LAYERS):
            setattr(self, f"layer{index}", Pair(channels, filters, stride))
            channels = filters
        self.fc = nn.Linear(channels, 10)

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        h = self.stem(x)
        for index in range(len(DEPTHWISE_LAYERS)):
            h = getattr(self, f"layer{index}")(h)
        return F.cross_entropy(self.fc(h.mean((2, 3))), label[:, 0])


class Recommender(nn.Module):
    """26 tables, three dense layers."""

    def __init__(self) -> None:
        super().__init__()
        for index in range(TABLES):
            setattr(self, f"table{index}", nn.Embedding(TABLE_ROWS, TABLE_WIDTH))
        self.fc1 = nn.Linear(DENSE + TABLES * TABLE_WIDTH, 256)
        self.fc2, self.fc3 = nn.Linear(256, 128), nn.Linear(128, 1)

    def forward(self, dense: Tensor, slots: Tensor, label: Tensor) -> Tensor:
        rows = [getattr(self, f"table{index}")(slots[:, index]) for index in range(TABLES)]
        h = F.relu(self.fc2(F.relu(self.fc1(torch.cat([dense, *rows], 1)))))
        return F.binary_cross_entropy_with_logits(self.fc3(h), label)


class Small(nn.Module):
    """8-16-1 with relu; the mean is the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(8, 16), nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.relu(self.fc1(x))).mean()


class Linears(nn.Module):
    """Linear layers one after the other."""

    def __init__(self) -> None:
        super().__init__()
        for layer in range(1, LINEARS + 1):
            setattr(self, f"fc{layer}", nn.Linear(LINEAR_WIDTH, LINEAR_WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.children():
            x = layer(x)
        return x


def load(model: nn.Module, values: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Copies initial values in; a dense layer's weight is stored transposed here."""
    left = dict(values)
    with torch.no_grad():
        for path, module in model.named_modules():
            for name, parameter in module.named_parameters(recurse=False):
                key = f"{path}.{'w' if name == 'weight' else 'b'}" if path else name
                key = key if key in left else path
                value = torch.tensor(left.pop(key))
                parameter.copy_(value.T if isinstance(module, nn.Linear) and name == "weight" else value)
    assert not left, f"no place for {sorted(left)}"


def _model(case: str) -> tuple[nn.Module, Any]:
    """The model and its optimizer, if it is trained; ``+fused`` after the name takes torch's fused attention and optimizer."""
    name, _, fused = case.partition("+")
    extra: dict[str, Any] = {"fused": True} if fused else {}
    if name == "mlp":
        model: nn.Module = MLP()
        return model, torch.optim.Adam(model.parameters(), lr=1e-3, **extra)
    if name in ("cnn", "residual", "depthwise"):
        model = {"cnn": CNN, "residual": Residual, "depthwise": Depthwise}[name]()
        return model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, **extra)
    if name == "small":
        model = Small()
        return model, torch.optim.Adam(model.parameters(), lr=1e-3, **extra)
    if name == "recommender":
        model = Recommender()
        return model, torch.optim.Adam(model.parameters(), lr=1e-3, **extra)
    if name == "infer":
        return Linears(), None
    model = GPT(bool(fused))
    return model, torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, **extra)


def prepare(case: str, threads: int) -> Case:
    """Builds a twin: a net's name, or with ``+fused``."""
    torch.set_num_threads(threads)
    net = NETS[case.partition("+")[0]]
    model, optimizer = _model(case)
    load(model, initial_values(net))
    model.train()
    feed = {name: torch.tensor(value) for name, value in net.feed(np.random.default_rng(1)).items()}
    inputs = tuple(feed.values())

    @torch.inference_mode()
    def infer() -> np.ndarray[Any, Any]:
        return model(*inputs).numpy()

    if not net.trained:
        return Case(infer, {"first_value": float(infer()[0, 0])})

    def step() -> float:
        loss = model(*inputs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss)

    return Case(step, {"first_value": step()})


def facts() -> dict[str, Any]:
    """Versions."""
    return {"version": torch.__version__, "numpy": np.__version__, "python": sys.version.split()[0]}


if __name__ == "__main__":
    serve(prepare, facts)
