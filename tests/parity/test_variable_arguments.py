"""A Variable is accepted where Paddle 2.6.2 accepts one in the place of a number, and the results are Paddle's.

``tests/parity/variable_arguments.py`` makes the calls: each number, and each list of numbers, of a recorded call of each public
function is said by Variables, fed ones and constants, with and without an axis. A fixed sample runs in `make test`.
"""

from __future__ import annotations

import json
import os
import zlib
from collections import defaultdict
from typing import Any

import pytest

import tstatic
from tests.parity import compare, record, runner, variable_arguments

EVERYTHING = os.environ.get("TSTATIC_PARITY") == "all"
SHARE = 4
"""One call in so many runs in `make test`, and at least one of each argument."""

REFUSED: dict[str, str] = {
    "*(output_padding)": "Paddle takes only zeros there in the calls on record; pass output_size, which may be a list of numbers",
    "bincount(minlength)": "the least length is a number; pad the result instead",
    "static.auc(topk)": "Paddle does not look at it",
    "static.nn.fc(num_flatten_dims)": "the shape of the parameter depends on it",
    "multigammaln(p)": "as many operators as the number says",
    "multigammaln_(p)": "as many operators as the number says",
    "rot90(k)": "quarter turns change which axis has which size",
    "to_tensor(data)": "a list of Variables is a list of numbers only where it is a shape: use stack",
    "nn.*Maxout(axis)": "the operator is chosen by the axis",
    "nn.functional.maxout(axis)": "the operator is chosen by the axis",
    "nn.GLU(axis)": "the halves are split by the axis",
    "nn.functional.glu(axis)": "the halves are split by the axis",
    "*osine*imilarity(axis)": "an axis of two reductions and two broadcasts",
    "*osine_embedding_loss(margin)": "margins are numbers",
    "nn.*inge*(margin)": "margins are numbers",
    "nn.*argin*(margin)": "margins are numbers",
    "nn.*ocal*esponse*orm(alpha)": "the kernel has it as a number",
    "nn.*ocal*esponse*orm(beta)": "the kernel has it as a number",
    "nn.functional.sigmoid_focal_loss(*)": "weights of the loss are numbers",
    "nn.functional.scaled_dot_product_attention(dropout_p)": "the fused kernels have it as a number; dropout takes a Variable",
    "nn.*nPool2D(output_size)": "pass one Variable with all sizes",
    "nn.functional.max_unpool2d(output_size)": "pass one Variable with all sizes",
    "nn.functional.zeropad2d(padding)": "pad takes a Variable",
    "linalg.pca_lowrank(q)": "the number of directions is a number",
    "signal.istft(length)": "the length is a number",
    "geometric.send_u*_recv(out_size)": "the number of nodes is a number",
    "vision.ops.nms(*)": "a list of categories and a limit are numbers",
}
"""Pattern of an argument -> why it takes numbers only, though Paddle accepts a Variable."""

DIFFERENT: dict[str, str] = {
    "linspace(start)": "Paddle declares the dtype of the Variable and returns float32; here float32 is declared",
    "broadcast_to(shape)": "Paddle declares the sizes of x, so the weights of its gradient have one row",
    "expand(shape)": "Paddle declares the sizes of x, so the weights of its gradient have one row",
    "*trapezoid(dx)": "Paddle declares fewer rows than the result has, so the weights of its gradient repeat",
    "nn.Unflatten(shape)": "Paddle does not find the sizes of a list with Variables behind an unknown first size",
    "metric.accuracy(k)": "Paddle marks a share of hits as with a gradient if k is a Variable",
    "normal(mean)": "one draw",
    "normal(std)": "one draw",
    "nn.InstanceNorm1D(momentum)": "Paddle's gradient of the scale has no elements",
    "static.nn.batch_norm(momentum)": "Paddle does not read the Variable, and takes 0.9",
    "linalg.lstsq(rcond)": "Paddle marks float results as without a gradient",
    "linalg.matrix_rank(tol)": "whole numbers have no gradient",
}
"""Pattern of an argument -> why a Variable is accepted and something of the answer differs."""


def _listed(argument: str, table: dict[str, str]) -> list[str]:
    return [pattern for pattern in table if compare.matches(argument, pattern)]


def _matters(difference: compare.Difference) -> bool:
    """Whether a difference counts: sizes that are known here and not in Paddle, or a gradient that Paddle lacks, do not."""
    if difference.aspect == "declared shape":
        return False
    return not (difference.aspect.startswith("gradient error") and difference.aspect.endswith("here none"))


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    return record.load(variable_arguments.RECORDED)


def test_a_variable_is_accepted_where_paddle_accepts_one(recorded: dict[str, Any]) -> None:
    by_argument: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = defaultdict(list)
    for call, answer in zip(recorded["calls"], recorded["answers"], strict=True):
        by_argument[call["plain"]].append((call, answer))
    unlisted, stale = [], []
    for argument, pairs in by_argument.items():
        chosen = [p for p in pairs if EVERYTHING or zlib.crc32(p[0]["id"].encode()) % SHARE == 0] or pairs[:1]
        refused, different = _listed(argument, REFUSED), _listed(argument, DIFFERENT)
        seen = False
        for call, answer in chosen:
            found = [d for d in compare.compare(call, answer, runner.answer(tstatic, call)) if _matters(d)]
            seen = seen or bool(found)
            unlisted += [d for d in found if not (refused if d.aspect.endswith("here build") else different)]
        if (refused or different) and not seen and (EVERYTHING or len(chosen) == len(pairs)):
            stale.append(argument)
    assert not unlisted, f"{len(unlisted)} differences:\n" + "\n".join(map(str, unlisted[:40]))
    assert not stale, f"listed, and as Paddle: {stale}"


def test_every_pattern_names_an_argument(recorded: dict[str, Any]) -> None:
    arguments = {call["plain"] for call in recorded["calls"]}
    for table in (REFUSED, DIFFERENT):
        assert [p for p in table if not any(compare.matches(a, p) for a in arguments)] == []


def test_calls_on_record_are_those_that_are_made(recorded: dict[str, Any]) -> None:
    made = {json.dumps(call) for call in variable_arguments.calls()}
    assert {json.dumps(call) for call in recorded["calls"]} <= made, (
        "python -m tests.parity.variable_arguments records anew"
    )
