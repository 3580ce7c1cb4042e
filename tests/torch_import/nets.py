"""Ten small networks as they are written in torch, each with an example and other inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """A basic or a bottleneck block of a ResNet."""

    def __init__(self, width: int, out: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        inner = out // 2 if bottleneck else out
        first = (
            nn.Conv2d(width, inner, 1, bias=False) if bottleneck else nn.Conv2d(width, inner, 3, stride, 1, bias=False)
        )
        self.conv1, self.bn1 = first, nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner if bottleneck else out, 3, stride if bottleneck else 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(inner if bottleneck else out)
        self.conv3 = nn.Conv2d(inner, out, 1, bias=False) if bottleneck else None
        self.bn3 = nn.BatchNorm2d(out) if bottleneck else None
        self.relu = nn.ReLU(inplace=True)
        same = stride == 1 and width == out
        self.down = None if same else nn.Sequential(nn.Conv2d(width, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Any) -> Any:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        if self.conv3 is not None:
            y = self.bn3(self.conv3(self.relu(y)))
        y += x if self.down is None else self.down(x)
        return self.relu(y)


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 4, 7, 2, 3, bias=False), nn.BatchNorm2d(4, momentum=0.3), nn.ReLU(inplace=True)
        )
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.layer1, self.layer2 = Block(4, 4, 1, False), Block(4, 8, 2, True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        y = self.layer2(self.layer1(self.pool(self.stem(x))))
        return self.head(torch.flatten(F.adaptive_avg_pool2d(y, 1), 1))


class Separable(nn.Module):
    """Depthwise convolutions, as of MobileNet, with squeeze and excitation."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 6, 3, 2, 1), nn.ReLU6(), nn.Conv2d(6, 6, 3, 1, 1, groups=6), nn.BatchNorm2d(6), nn.Hardswish(),
        )  # fmt: skip
        self.squeeze, self.excite = nn.Conv2d(6, 3, 1), nn.Conv2d(3, 6, 1)
        self.head = nn.Linear(6, 4)

    def forward(self, x: Any) -> Any:
        y = self.body(x)
        y = y * F.hardsigmoid(self.excite(F.silu(self.squeeze(y.mean((2, 3), keepdim=True)))))
        return F.log_softmax(self.head(y.mean(dim=[2, 3])), dim=1)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.inner = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding="same")
        self.up = nn.ConvTranspose2d(4, 4, 2, 2)
        self.out = nn.Conv2d(16, 2, 1)
        self.norm = nn.GroupNorm(2, 4)

    def forward(self, x: Any) -> Any:
        y = F.leaky_relu(self.down(x), 0.1)
        z = self.norm(self.inner(F.max_pool2d(y, 2)))
        smooth = F.interpolate(F.avg_pool2d(y, 2), scale_factor=2, mode="bilinear", align_corners=False)
        near = F.interpolate(z, size=y.shape[2:], mode="nearest")
        return torch.sigmoid(self.out(torch.cat([y, self.up(z), smooth, F.pad(near, (0, 0, 0, 0))], dim=1)))


class Recurrent(nn.Module):
    """An LSTM of two layers and a GRU in both directions; a dict of results."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4, num_layers=2, batch_first=True)
        self.gru = nn.GRU(4, 5, bidirectional=True, batch_first=True, bias=False)
        self.head = nn.Linear(10, 2)

    def forward(self, x: Any) -> Any:
        y, (h, c) = self.lstm(x)
        z, last = self.gru(y)
        return {"logits": self.head(z[:, -1]), "states": (h, c[-1]), "last": last}


class GPTBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        b, t, w = x.size()
        q, k, v = self.qkv(self.ln_1(x)).split(w, dim=2)
        q, k, v = (one.view(b, t, self.heads, w // self.heads).transpose(1, 2) for one in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).contiguous().view(b, t, w))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    """A decoder whose head is its table of tokens."""

    def __init__(self, words: int = 20, width: int = 16, tokens: int = 8, heads: int = 2, layers: int = 1) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(words, width), nn.Embedding(tokens, width)
        self.blocks = nn.ModuleList(GPTBlock(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, ids: Any) -> Any:
        x = self.wte(ids) + self.wpe(torch.arange(ids.size(1), device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln_f(x))


class Bert(nn.Module):
    """An encoder with a padding mask."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(20, 8, padding_idx=0)
        self.register_buffer("places", torch.arange(6)[None], persistent=False)
        self.position = nn.Embedding(6, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.pooler = nn.Linear(8, 8)

    def forward(self, ids: Any, padding: Any) -> Any:
        y = self.encoder(self.tokens(ids) + self.position(self.places), src_key_padding_mask=padding)
        return y, torch.tanh(self.pooler(y[:, 0]))


class ViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, 4)
        self.cls, self.pos = nn.Parameter(torch.randn(1, 1, 8)), nn.Parameter(torch.randn(1, 5, 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True)
        self.norm, self.head = nn.LayerNorm(8, eps=1e-6), nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        y = self.patches(x).flatten(2).transpose(1, 2)
        y = torch.cat([self.cls.expand(y.shape[0], -1, -1), y], dim=1) + self.pos
        return self.head(self.norm(self.layer(y))[:, 0])


class DeepFM(nn.Module):
    """Factorization over embeddings, and a deep part; two inputs, one of them integers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Embedding(30, 1), nn.Embedding(30, 4)
        self.deep = nn.Sequential(nn.Linear(5 * 4 + 3, 8), nn.BatchNorm1d(8), nn.PReLU(), nn.Linear(8, 1))
        self.bias = nn.Parameter(torch.zeros(()))
        self.register_buffer("scale", torch.tensor([1.0, 0.5, 2.0]))

    def forward(self, ids: Any, dense: Any) -> Any:
        e = self.second(ids)
        pairs = 0.5 * (e.sum(1).pow(2) - (e**2).sum(1)).sum(1, keepdim=True)
        deep = self.deep(torch.cat([e.reshape(e.shape[0], -1), dense * self.scale], dim=-1))
        return torch.sigmoid(self.bias + self.first(ids).sum(dim=1) + pairs + deep).squeeze(-1)


class Digits(nn.Module):
    """A convolutional network as LeNet."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 3, 3), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(3, 4, 3, padding=1), nn.ELU(), nn.MaxPool2d(2)
        )
        self.classes = nn.Sequential(nn.Flatten(), nn.Dropout(0.0), nn.Linear(4 * 2 * 2, 10), nn.Softmax(dim=-1))

    def forward(self, x: Any) -> Any:
        return self.classes(self.features(x))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.GELU(), nn.Softplus(), nn.Linear(8, 3))


@dataclass(frozen=True)
class Net:
    """A network, and arguments for a batch of some size."""

    make: Callable[[], nn.Module]
    arguments: Callable[[int], tuple[torch.Tensor, ...]]


def images(*shape: int) -> Callable[[int], tuple[torch.Tensor, ...]]:
    return lambda n: (torch.randn(n, *shape),)


def _padded(n: int) -> tuple[torch.Tensor, ...]:
    lengths = torch.arange(n) % 5 + 2
    return torch.randint(1, 20, (n, 6)), torch.arange(6)[None] >= lengths[:, None]


NETS = {
    "mlp": Net(mlp, images(6)),
    "digits": Net(Digits, images(1, 10, 10)),
    "resnet": Net(ResNet, images(3, 16, 16)),
    "separable": Net(Separable, images(3, 8, 8)),
    "unet": Net(UNet, images(1, 8, 8)),
    "recurrent": Net(Recurrent, images(3, 3)),
    "gpt": Net(GPT, lambda n: (torch.randint(0, 20, (n, 8)),)),
    "bert": Net(Bert, _padded),
    "vit": Net(ViT, images(3, 8, 8)),
    "deepfm": Net(DeepFM, lambda n: (torch.randint(0, 30, (n, 5)), torch.randn(n, 3))),
}


def made(name: str, train: bool = True) -> nn.Module:
    """Returns a network with the same weights each time; running statistics that are not those of new ones."""
    torch.manual_seed(sum(map(ord, name)))
    module = NETS[name].make().train(train)
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            nn.init.uniform_(part.running_mean, -0.5, 0.5)
            nn.init.uniform_(part.running_var, 0.5, 1.5)
            nn.init.uniform_(part.weight, 0.5, 1.5)
    return module
