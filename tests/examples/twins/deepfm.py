"""The twin of ``examples/deepfm.py``."""

from __future__ import annotations

import deepfm
import torch
import torch.nn.functional as F
import training
from torch import Tensor, nn

from tests.examples.twins import copy_parameters
from tstatic import static

SEED = 1


class Network(nn.Module):
    def __init__(self, fields: int) -> None:
        super().__init__()
        self.first = nn.Embedding(fields * deepfm.BINS, 1, sparse=True)
        self.vectors = nn.Embedding(fields * deepfm.BINS, deepfm.WIDTH, sparse=True)
        self.deep = nn.Sequential(nn.Linear(fields * deepfm.WIDTH, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
        self.last = nn.Linear(32, 1)

    def forward(self, ids: Tensor) -> Tensor:
        vectors = self.vectors(ids)
        pairs = (vectors @ vectors.mT).triu(1).sum((1, 2))
        return self.first(ids).sum(1) + pairs[:, None] + self.last(self.deep(vectors.flatten(1)))


def losses(steps: int) -> tuple[list[float], list[float]]:
    data = deepfm.table("wine")
    model = deepfm.build(len(data.fields), dropout=0.0)
    exe = static.Executor("cpu")
    exe.run(model.startup)
    network = Network(len(data.fields))
    copy_parameters(model.main, network)
    sparse = [network.first.weight, network.vectors.weight]
    dense = [p for p in network.parameters() if all(p is not q for q in sparse)]
    optimizers = torch.optim.SparseAdam(sparse, 2e-3), torch.optim.Adam(dense, 2e-3)
    ours, theirs = [], []
    for number in range(steps):
        rows, _ = training.shuffled(len(data.train_x), deepfm.BATCH, number, 1)
        ids, label = data.train_x[rows], data.train_y[rows]
        ours.append(float(exe.run(model.main, feed={"ids": ids, "label": label}, fetch_list=[model.loss])[0]))
        loss = F.binary_cross_entropy_with_logits(network(torch.from_numpy(ids)), torch.from_numpy(label))
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        theirs.append(loss.item())
    return ours, theirs
