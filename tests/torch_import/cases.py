"""Calls of torch's functions, a family at a time: each converter of ATen operators stands in one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F

aten = torch.ops.aten
Case = Callable[[Mapping[str, Any]], Any]

VALUES: dict[str, Callable[[], torch.Tensor]] = {
    "x": lambda: torch.randn(2, 3, 4),
    "y": lambda: torch.rand(2, 3, 4) + 0.5,
    "row": lambda: torch.randn(4),
    "m": lambda: torch.randn(4, 5),
    "image": lambda: torch.randn(2, 4, 6, 6),
    "volume": lambda: torch.randn(1, 2, 4, 4, 4),
    "line": lambda: torch.randn(2, 4, 7),
    "filters": lambda: torch.randn(4, 2, 3, 3),
    "cube": lambda: torch.randn(2, 2, 2, 2, 2),
    "taps": lambda: torch.randn(4, 4, 3),
    "state": lambda: torch.randn(1, 2, 4),
    "wide": lambda: torch.randn(4, 7),
    "square": lambda: torch.randn(4, 4),
    "state4": lambda: torch.randn(1, 2, 2),
    "wide4": lambda: torch.randn(8, 7),
    "square4": lambda: torch.randn(8, 2),
    "wide3": lambda: torch.randn(6, 7),
    "square3": lambda: torch.randn(6, 2),
    "chance": lambda: torch.rand(2, 3, 4) * 0.8 + 0.1,
}
"""Floats, which are parameters: gradients reach them."""
WHOLE: dict[str, Callable[[], torch.Tensor]] = {
    "i": lambda: torch.randint(-9, 9, (2, 3, 4)),
    "j": lambda: torch.tensor([[[3, -2, 5, -7]]]),
    "ids": lambda: torch.tensor([[0, 2, 1], [1, 0, 3]]),
    "at": lambda: torch.tensor([1, -2, 0]),
    "mask": lambda: torch.tensor([[True, False, True, True], [False, True, False, True], [True, True, False, False]]),
    "label": lambda: torch.tensor([[0, 2, 1, 1], [2, 0, -100, 1]]),
    "target": lambda: torch.rand(2, 3, 4),
}

FAMILIES: dict[str, dict[str, Case]] = {
    "arithmetic": {
        "add": lambda v: v["x"] + 2 * v["row"] + 1.5,
        "add_alpha": lambda v: torch.add(v["x"], v["y"], alpha=0.5),
        "add_whole": lambda v: (v["i"] + 2) + v["x"],
        "add_truth": lambda v: v["mask"] + v["mask"],
        "sub": lambda v: v["x"] - v["y"] - 1,
        "rsub": lambda v: 3 - v["x"],
        "rsub_tensor": lambda v: torch.rsub(v["x"], v["y"], alpha=2),
        "mul": lambda v: v["x"] * v["mask"] * 2,
        "div": lambda v: v["x"] / v["y"] + v["i"] / 2,
        "div_floor": lambda v: torch.div(v["i"], v["j"], rounding_mode="floor"),
        "div_trunc": lambda v: torch.div(v["i"], v["j"], rounding_mode="trunc"),
        "div_trunc_float": lambda v: torch.div(v["x"], 0.3, rounding_mode="trunc"),
        "floordiv": lambda v: v["i"] // 3,
        "mod": lambda v: v["i"] % 3 + v["i"] % v["j"],
        "pow": lambda v: v["y"] ** 2 + v["y"] ** 0.5 + v["y"] ** 1.5 + 2.0 ** v["x"] + v["y"] ** v["x"],
        "addc": lambda v: torch.addcmul(v["x"], v["y"], v["y"], value=0.5) + torch.addcdiv(v["x"], v["x"], v["y"]),
        "lerp": lambda v: torch.lerp(v["x"], v["y"], 0.3) + torch.lerp(v["x"], v["y"], v["y"]),
        "largest": lambda v: (
            torch.maximum(v["x"], v["y"])
            + torch.minimum(v["x"], v["row"])
            + torch.max(v["x"], v["row"])
            + torch.min(v["x"], v["row"])
        ),
        "atan2": lambda v: torch.atan2(v["x"], v["y"]),
        "clamp": lambda v: (
            v["x"].clamp(-0.5, 0.5) + v["x"].clamp_min(0.1) + v["x"].clamp_max(0.2) + v["x"].clip(max=0.3)
        ),
        "clamp_tensor": lambda v: v["x"].clamp(min=v["row"] * 0 - 0.5, max=v["y"]),
        "nan_to_num": lambda v: torch.nan_to_num(v["x"], nan=1.0),
        "comparison": lambda v: [
            v["x"] < 0.2,
            v["x"] <= v["y"],
            v["i"] > 1.5,
            v["i"] >= v["x"],
            v["i"] == 2,
            v["i"] != v["j"],
            v["i"] < v["j"],
            v["x"] > v["row"],
            v["x"] == 0,
            v["x"] != v["y"],
            v["i"] <= 1,
            v["i"] >= 3,
        ],
        "logic": lambda v: [
            torch.logical_and(v["mask"], v["i"]),
            torch.logical_or(v["mask"], v["x"]),
            v["mask"].logical_not(),
            torch.logical_xor(v["mask"], v["mask"][:1]),
        ],
        "bits": lambda v: [
            v["mask"] & v["mask"][:1],
            v["i"] & 3,
            v["i"] | v["j"],
            v["i"] ^ 5,
            ~v["mask"],
            v["i"] | 1,
            v["i"] ^ v["j"],
            torch.bitwise_not(v["i"]),
        ],
        "kinds": lambda v: [torch.isnan(v["x"]), torch.isinf(v["x"]), torch.isfinite(v["x"])],
        "where": lambda v: (
            torch.where(v["mask"], v["x"], v["y"])
            + torch.where(v["mask"], v["x"], 0.0)
            + torch.where(v["mask"], 1.0, v["x"])
        ),
        "where_numbers": lambda v: torch.where(v["mask"], 1.0, 2.0),
        "overloads": lambda v: [
            aten.add.Scalar(v["x"], 2),
            aten.sub.Scalar(v["x"], 2),
            aten.mul.Scalar(v["x"], 2),
            aten.div.Scalar(v["x"], 2),
            aten.bitwise_and.Scalar(v["i"], 3),
            aten.bitwise_or.Scalar(v["i"], 3),
            aten.bitwise_xor.Scalar(v["i"], 3),
            aten.bitwise_and.Tensor(v["i"], v["j"]),
            aten.bitwise_or.Tensor(v["i"], v["j"]),
            aten.bitwise_xor.Tensor(v["i"], v["j"]),
            aten.eq.Tensor(v["i"], v["j"]),
            aten.ne.Scalar(v["x"], 2),
        ],
        "masked_fill": lambda v: v["x"].masked_fill(v["mask"], -1.0) + v["x"].masked_fill(v["mask"], torch.tensor(2.0)),
        "simple": lambda v: v["x"].abs() + (-v["x"]) + v["x"].exp() + v["x"].expm1() + v["x"].square() + v["x"].sign(),
        "logs": lambda v: (
            v["y"].log() + v["y"].log2() + v["y"].log10() + v["y"].log1p() + v["y"].sqrt() + v["y"].rsqrt()
        ),
        "rest": lambda v: (
            v["y"].reciprocal() + v["x"].erf() + v["chance"].erfinv() + v["y"].lgamma() + v["y"].digamma()
        ),
        "circle": lambda v: (
            v["x"].sin()
            + v["x"].cos()
            + v["chance"].tan()
            + v["chance"].asin()
            + v["chance"].acos()
            + v["x"].atan()
            + v["x"].sinh()
            + v["x"].cosh()
        ),
        "whole": lambda v: [
            v["x"].floor(),
            v["x"].ceil(),
            (v["x"] * 3).round(),
            v["x"].trunc(),
            (v["i"] * 0.5).round(),
        ],
        "of_whole": lambda v: (v["i"].abs() + 1).sqrt() + v["i"].sigmoid(),
    },
    "activations": {
        "relus": lambda v: (
            F.relu(v["x"])
            + F.relu6(v["x"] * 4)
            + F.hardtanh(v["x"])
            + F.hardtanh(v["x"], 0.0, 6.0)
            + F.leaky_relu(v["x"], 0.2)
            + F.elu(v["x"], 0.7)
            + F.celu(v["x"], 0.7)
            + F.selu(v["x"])
        ),
        "smooth": lambda v: (
            F.silu(v["x"])
            + F.mish(v["x"])
            + F.hardswish(v["x"])
            + F.gelu(v["x"])
            + F.gelu(v["x"], approximate="tanh")
            + F.hardsigmoid(v["x"])
            + F.softplus(v["x"], 2.0, 10.0)
            + F.logsigmoid(v["x"])
            + torch.sigmoid(v["x"])
            + torch.tanh(v["x"])
        ),
        "shrink": lambda v: F.softshrink(v["x"], 0.3) + F.hardshrink(v["x"], 0.3) + F.prelu(v["x"], v["row"][:3]),
        "glu": lambda v: F.glu(v["x"], -1),
        "no_dropout": lambda v: F.dropout(v["x"], 0.5, False) + F.dropout2d(v["image"], 0.5, False).sum(),
    },
    "shapes": {
        "views": lambda v: [
            v["x"].view(6, 4),
            v["x"].reshape(2, -1),
            v["x"].flatten(1),
            v["row"].unflatten(0, (2, 2)),
            v["x"].view_as(v["y"]),
            v["x"].reshape_as(v["y"]),
        ],
        "ones": lambda v: [
            v["x"][:1].squeeze(),
            v["x"][:1].squeeze(0),
            v["x"].squeeze(1),
            v["x"][:1, :, :1].squeeze((0, 2)),
            v["x"].unsqueeze(-1),
        ],
        "order": lambda v: [
            v["x"].transpose(0, 2),
            v["x"].swapaxes(1, 2),
            v["m"].t(),
            v["m"].T,
            v["x"].mT,
            v["x"].permute(2, 0, -2),
            v["x"].movedim(0, -1),
            v["x"].movedim((0, 1), (1, 0)),
            v["x"].swapdims(0, 1),
        ],
        "repeats": lambda v: [
            v["row"].expand(3, 4),
            v["x"][:, :1].expand(-1, 3, -1),
            v["row"].expand_as(v["x"]),
            v["row"].repeat(2, 2),
            v["row"].tile(3),
            v["x"].repeat_interleave(2, dim=1),
        ],
        "broadcast": lambda v: [*torch.broadcast_tensors(v["x"], v["row"])],
        "turned": lambda v: [
            v["x"].flip(0, 2),
            v["x"].roll(1, 2),
            v["x"].roll((1, 2), (0, 1)),
            F.pixel_shuffle(v["image"], 2),
            torch.diagonal(v["x"], 1, 1, 2),
        ],
        "joined": lambda v: [
            torch.cat([v["x"], v["y"]], 1),
            torch.stack([v["x"], v["y"]], -1),
            torch.concat([v["x"], v["i"]]),
        ],
        "parts": lambda v: [
            *v["x"].split(2, 2),
            *v["x"].split([1, 3], -1),
            *v["m"].chunk(3, 1),
            *v["x"].unbind(1),
            *torch.split_with_sizes(v["x"], [1, 2], 1),
        ],
        "pads": lambda v: [
            F.pad(v["x"], (1, 2, 0, 1), value=0.5),
            F.pad(v["image"], (1, 1, 2, 0), mode="reflect"),
            F.pad(v["x"], (-1, 1)),
            F.pad(v["line"], (2, 1), mode="replicate"),
            torch.constant_pad_nd(v["x"], [1, 1], 2.0),
        ],
        "overloads": lambda v: [aten._unsafe_view.default(v["x"], [6, 4]), *aten.split.sizes(v["x"], [1, 3], 2)],
        "slices": lambda v: [
            v["x"][:, 1:],
            v["x"][..., ::2],
            v["x"][1, :, -1],
            v["x"].narrow(2, 1, 2),
            v["x"][:, -2:, 0],
            v["x"].select(1, 2),
        ],
        "rows": lambda v: [
            v["m"].index_select(0, v["at"].abs()),
            v["m"][v["at"]],
            v["x"][:, :, v["ids"]],
            v["m"][v["at"], v["at"]],
            v["x"][:, v["at"], v["at"]],
            v["x"][v["ids"][:, :2] % 2],
        ],
        "gather": lambda v: [torch.gather(v["x"], 2, v["ids"][:, :, None]), torch.gather(v["m"], 0, v["ids"])],
        "scatter": lambda v: [
            torch.zeros(2, 5).scatter_add(1, v["ids"], v["x"][:, :, 0]),
            torch.zeros(2, 5).scatter(1, v["ids"], v["x"][:, :, 0]),
            torch.zeros(2, 5).scatter(1, v["ids"], 2.0),
        ],
        "placed": lambda v: [
            v["x"].select_scatter(v["row"] * torch.ones(2, 1), 1, 1),
            v["x"].slice_scatter(v["y"][:, :2], 1, 0, 2),
        ],
        "one_hot": lambda v: F.one_hot(v["ids"], 5),
    },
    "filled": {
        "made": lambda v: [
            torch.full((2, 3), 0.5),
            torch.zeros(2),
            torch.ones(2, dtype=torch.int64),
            v["x"].new_zeros(2, 2),
            v["x"].new_ones(3),
            v["x"].new_full((2,), 3.0),
            torch.full_like(v["x"], 2.0),
            torch.zeros_like(v["i"]),
            torch.ones_like(v["x"]),
            torch.scalar_tensor(2.0),
        ],
        "ranges": lambda v: [
            torch.arange(5),
            torch.arange(1, 4),
            torch.arange(0.0, 1.0, 0.25),
            torch.linspace(0, 1, 5),
            torch.eye(3),
            torch.eye(2, 4),
            torch.ones(3, 3).tril(-1),
            torch.ones(3, 3).triu(1),
        ],
        "types": lambda v: [
            v["x"].to(torch.float64),
            v["i"].float(),
            v["x"].double(),
            v["mask"].long(),
            v["i"].type_as(v["x"]),
            v["x"].to("cpu"),
            v["i"].to(v["x"]),
            v["x"].to(torch.int32),
        ],
        "overloads": lambda v: [aten._to_copy.default(v["x"], dtype=torch.float64), aten.alias.default(v["x"])],
        "written": lambda v: [
            v["x"].clone().fill_(2.0),
            v["x"].clone().fill_(v["row"][0]),
            v["x"].clone().zero_(),
            v["x"].clone().copy_(v["row"]),
            v["x"].clone().copy_(v["i"]),
        ],
        "copies": lambda v: [
            v["x"].clone(),
            v["x"].transpose(0, 1).contiguous(),
            v["x"].detach() * v["x"],
            +v["x"],
            torch.tensor([1.0, 2.0]),
        ],
    },
    "reductions": {
        "sums": lambda v: [
            v["x"].sum(),
            v["x"].sum((0, 2)),
            v["x"].sum(1, keepdim=True),
            v["i"].sum(),
            v["mask"].sum(1),
        ],
        "means": lambda v: [
            v["x"].mean(),
            v["x"].mean((0, 1)),
            v["x"].mean(-1, keepdim=True),
            v["i"].mean(dtype=torch.float32),
        ],
        "products": lambda v: [v["y"].prod(), v["y"].prod(1)],
        "extrema": lambda v: [
            v["x"].amax(1),
            v["x"].amin((0, 2), keepdim=True),
            v["x"].max(),
            v["x"].min(),
            *v["x"].max(1),
            *v["x"].min(2, keepdim=True),
            v["x"].argmax(),
            v["x"].argmax(1),
            v["x"].argmin(0),
        ],
        "order": lambda v: [
            *v["x"].topk(2),
            *v["x"].sort(1),
            v["x"].argsort(2, descending=True),
            *v["x"].topk(1, 1, largest=False),
        ],
        "truths": lambda v: [v["mask"].all(), v["mask"].all(1), v["mask"].any(), v["mask"].any(0), (v["x"] > 3).any()],
        "running": lambda v: [v["x"].cumsum(1), v["i"].cumsum(0)],
        "spread": lambda v: [
            v["x"].var(1),
            v["x"].std((0, 1)),
            v["x"].var(0, unbiased=False),
            v["x"].var(),
            v["x"].std(),
            v["x"].var(dim=2, correction=0),
            v["x"].std(unbiased=False),
        ],
        "norms": lambda v: [
            torch.linalg.vector_norm(v["x"], 2, -1),
            v["x"].norm(dim=1),
            v["x"].logsumexp(1),
            torch.norm(v["m"], 1, 0),
        ],
        "overloads": lambda v: [
            aten._softmax.default(v["x"], 1, False),
            aten._log_softmax.default(v["x"], 1, False),
            aten.var.default(v["x"], False),
            aten.all.dims(v["mask"], [0, 1]),
            aten.any.dims(v["mask"], [1]),
        ],
        "softmax": lambda v: [v["x"].softmax(1), v["x"].log_softmax(-1), F.softmax(v["x"], 0, dtype=torch.float64)],
    },
    "products": {
        "matrices": lambda v: [
            v["x"] @ v["m"],
            v["m"].t() @ v["row"],
            torch.bmm(v["x"], v["y"].transpose(1, 2)),
            v["row"] @ v["row"],
            torch.mm(v["m"], v["m"].t()),
            torch.mv(v["m"].t(), v["row"]),
            torch.dot(v["row"], v["row"]),
        ],
        "sums": lambda v: [
            torch.addmm(v["m"][0], v["m"], v["m"].t() @ v["m"], beta=0.5, alpha=2),
            torch.outer(v["row"], v["row"]),
            torch.baddbmm(v["x"], torch.ones(2, 3, 2), torch.ones(2, 2, 4)),
            torch.einsum("abc,cd->abd", v["x"], v["m"]),
        ],
        "linear": lambda v: [F.linear(v["x"], v["m"].t(), v["m"][0]), F.linear(v["row"], v["m"].t())],
        "attention": lambda v: [
            F.scaled_dot_product_attention(v["x"], v["y"], v["y"], scale=0.3),
            F.scaled_dot_product_attention(v["x"], v["y"], v["y"], attn_mask=v["mask"][:, :3] | torch.eye(3).bool()),
            F.scaled_dot_product_attention(v["x"], v["y"], v["y"], attn_mask=v["x"][:, :, :3]),
            F.scaled_dot_product_attention(
                v["image"], v["image"][:, :2], v["image"][:, 2:], is_causal=True, enable_gqa=True
            ),
        ],
        "lookups": lambda v: [F.embedding(v["ids"], v["m"]), F.embedding(v["ids"], v["m"], padding_idx=1)],
    },
    "images": {
        "convolutions": lambda v: [
            F.conv2d(v["image"], v["filters"], v["row"], 2, 1, 1, 2),
            F.conv2d(v["image"], v["filters"], None, padding="same", groups=2),
            F.conv1d(v["line"], v["taps"], v["row"], padding=1, dilation=2),
            F.conv3d(v["volume"], v["cube"], stride=2),
            F.conv1d(v["line"], v["taps"], padding="valid"),
        ],
        "transposed": lambda v: [
            F.conv_transpose2d(v["image"], v["filters"], v["row"][:2], 2, 1, 1),
            F.conv_transpose1d(v["line"], v["taps"], stride=3),
            F.conv_transpose2d(v["image"], v["filters"], None, (2, 1), groups=2, dilation=2),
            F.conv_transpose3d(v["volume"], v["cube"]),
            torch.convolution(v["image"], v["filters"], None, [1, 1], [0, 0], [1, 1], False, [0, 0], 2),
        ],
        "pools": lambda v: [
            F.max_pool2d(v["image"], 3, 2, 1),
            F.max_pool1d(v["line"], 2),
            F.max_pool3d(v["volume"], 2),
            F.max_pool2d(v["image"], 5, 2, ceil_mode=True),
            *F.max_pool2d(v["image"], 2, return_indices=True),
            F.avg_pool2d(v["image"], 3, 2, 1),
            F.avg_pool2d(v["image"], 3, 2, 1, count_include_pad=False),
            F.avg_pool1d(v["line"], 2),
            F.avg_pool2d(v["image"], 4, 3, ceil_mode=True),
            F.avg_pool3d(v["volume"], 2, divisor_override=5),
            F.adaptive_avg_pool1d(v["line"], 3),
            F.adaptive_avg_pool2d(v["image"], (2, None)),
            F.adaptive_avg_pool3d(v["volume"], 2),
            *F.max_pool1d(v["line"], 2, return_indices=True),
            *F.max_pool3d(v["volume"], 2, return_indices=True),
            F.adaptive_max_pool1d(v["line"], 3),
            *F.adaptive_max_pool2d(v["image"], (2, 4), return_indices=True),
            F.adaptive_max_pool3d(v["volume"], 2),
        ],
        "overloads": lambda v: [
            aten._adaptive_avg_pool2d.default(v["image"], [2, 3]),
            aten._adaptive_avg_pool3d.default(v["volume"], [2, 2, 1]),
            aten.upsample_nearest2d.default(v["image"], [4, 4]),
            aten.upsample_bilinear2d.default(v["image"], [4, 4], False),
            aten.upsample_bicubic2d.default(v["image"], [4, 4], True),
            F.conv3d(v["volume"], v["cube"], padding="valid"),
        ],
        "sizes": lambda v: [
            F.interpolate(v["image"], scale_factor=2),
            F.interpolate(v["image"], size=(4, 9)),
            F.interpolate(v["line"], scale_factor=1.5),
            F.interpolate(v["image"], scale_factor=2.0, mode="bilinear"),
            F.interpolate(v["image"], size=(9, 4), mode="bilinear", align_corners=True),
            F.interpolate(v["line"], size=5, mode="linear"),
            F.interpolate(v["volume"], scale_factor=2, mode="trilinear"),
            F.interpolate(v["image"], size=(8, 8), mode="bicubic"),
            F.interpolate(v["volume"], scale_factor=2),
        ],
    },
    "norms": {
        "layers": lambda v: [
            F.layer_norm(v["x"], (4,), v["row"], v["row"]),
            F.layer_norm(v["x"], (3, 4)),
            F.layer_norm(v["row"], (4,)),
            F.rms_norm(v["x"], (4,), v["row"]),
            F.rms_norm(v["x"], (4,), eps=0.01),
            aten._native_batch_norm_legit.no_stats(v["image"], v["row"], v["row"], True, 0.1, 1e-5)[0],
        ],
        "groups": lambda v: [
            F.group_norm(v["image"], 2, v["row"], v["row"]),
            F.instance_norm(v["image"], weight=v["row"], bias=v["row"]),
        ],
        "batch": lambda v: [
            F.batch_norm(v["image"], None, None, v["row"], v["row"], True),
            F.batch_norm(v["x"], None, None, training=True),
            F.batch_norm(v["image"], torch.zeros(4), torch.ones(4), v["row"], v["row"], False, 0.1, 1e-3),
        ],
        "weights": lambda v: [
            torch._weight_norm(v["m"], v["m"][:, :1], 0),
            torch._weight_norm(v["filters"], v["y"][0, :2, 0].view(1, 2, 1, 1), 1),
        ],
        "classes": lambda v: [
            F.cross_entropy(v["x"], v["label"]),
            F.cross_entropy(v["x"], v["label"], reduction="none"),
            F.cross_entropy(v["x"], v["label"], weight=v["row"][:3].detach().abs(), reduction="sum"),
            F.cross_entropy(v["x"], v["label"], weight=v["row"][:3].detach().abs()),
            F.nll_loss(v["x"].log_softmax(1), v["label"]),
            F.nll_loss(v["x"][:, :, 0], v["label"][:, 0]),
            aten.nll_loss.default(v["x"][:, :, 0], v["label"][:, 0]),
        ],
        "distances": lambda v: [
            F.mse_loss(v["x"], v["target"]),
            F.l1_loss(v["x"], v["target"], reduction="sum"),
            F.smooth_l1_loss(v["x"], v["target"], beta=0.5),
        ],
        "chances": lambda v: [
            F.binary_cross_entropy_with_logits(v["x"], v["target"], pos_weight=v["row"].detach().abs()),
            F.binary_cross_entropy(v["chance"], v["target"], reduction="none"),
            F.binary_cross_entropy_with_logits(v["x"], v["target"], reduction="none"),
            F.binary_cross_entropy_with_logits(v["x"], v["target"], v["row"].detach().abs(), reduction="sum"),
            F.binary_cross_entropy_with_logits(v["x"], v["target"] * 0 - 100),
        ],
    },
    "recurrent": {
        "simple": lambda v: [
            *torch.rnn_tanh(
                v["line"], v["state"], [v["wide"], v["square"], v["row"], v["row"]], True, 1, 0.0, True, False, True
            ),
            *torch.rnn_relu(v["line"], v["state"], [v["wide"], v["square"]], False, 1, 0.0, True, False, True),
        ],
        "gated": lambda v: [
            *torch.lstm(
                v["line"], [v["state4"], v["state4"]], [v["wide4"], v["square4"]], False, 1, 0.0, True, False, True
            ),
            *torch.gru(v["line"], v["state4"], [v["wide3"], v["square3"]], False, 1, 0.0, True, False, True),
        ],
    },
}


class Family(torch.nn.Module):
    """All calls of a family; the floats are parameters, whole numbers are inputs."""

    def __init__(self, cases: Mapping[str, Case]) -> None:
        super().__init__()
        self.cases = cases
        for name, make in VALUES.items():
            self.register_parameter(name, torch.nn.Parameter(make()))

    def forward(self, whole: dict[str, Any]) -> dict[str, Any]:
        given = {**dict(self.named_parameters()), **whole}
        return {name: case(given) for name, case in self.cases.items()}
