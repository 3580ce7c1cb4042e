"""The twin of ``examples/resnet.py``."""

from __future__ import annotations

import resnet
import torch
import torch.nn.functional as F
import training
from torch import Tensor, nn

from tests.examples.twins import copy_parameters
from tstatic import static

SEED, BATCH, RATE, STEPS = 16, 8, 0.01, 440


class ConvNorm(nn.Sequential):
    def __init__(self, inputs: int, filters: int, size: int, stride: int = 1) -> None:
        super().__init__(
            nn.Conv2d(inputs, filters, size, stride, padding=size // 2, bias=False), nn.BatchNorm2d(filters)
        )


class Residual(nn.Module):
    def __init__(self, inputs: int, filters: int, stride: int) -> None:
        super().__init__()
        same = stride == 1 and inputs == filters
        self.shortcut = nn.Identity() if same else ConvNorm(inputs, filters, 1, stride)
        self.first = ConvNorm(inputs, filters, 3, stride)
        self.second = ConvNorm(filters, filters, 3)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.second(F.relu(self.first(x))) + self.shortcut(x))


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvNorm(1, 16, 3)
        self.blocks = nn.Sequential(Residual(16, 16, 1), Residual(16, 32, 2), Residual(32, 64, 2))
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(F.relu(self.stem(x))).mean((2, 3)))


def losses(steps: int) -> tuple[list[float], list[float]]:
    train_x, train_y, _, _ = resnet.digits()
    model = resnet.build(STEPS, rate=RATE)
    exe = static.Executor("cpu")
    exe.run(model.startup)
    network = Network()
    copy_parameters(model.main, network)
    optimizer = torch.optim.SGD(network.parameters(), RATE, momentum=0.9, nesterov=True, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    ours, theirs = [], []
    for number in range(steps):
        rows, rng = training.shuffled(len(train_x), BATCH, number, 1)
        x, y = resnet.moved(train_x[rows], rng), train_y[rows]
        ours.append(float(exe.run(model.main, feed={"image": x, "label": y}, fetch_list=[model.loss])[0]))
        model.scheduler.step()
        optimizer.zero_grad()
        loss = F.cross_entropy(network(torch.from_numpy(x)), torch.from_numpy(y[:, 0]))
        loss.backward()
        optimizer.step()
        scheduler.step()
        theirs.append(loss.item())
    return ours, theirs
