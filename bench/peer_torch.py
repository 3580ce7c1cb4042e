"""Worker for torch eager: twins of the nets with the same layers, initial values and optimizers."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from nets import HEADS, LAYERS, LINEAR_WIDTH, LINEARS, NETS, TOKENS, VOCABULARY, WIDTH, causal_mask, initial_values
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
                own = isinstance(module, nn.Embedding) or not path
                key = (path or name) if own else f"{path}.{'w' if name == 'weight' else 'b'}"
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
    if name == "cnn":
        model = CNN()
        return model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, **extra)
    if name == "small":
        model = Small()
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
