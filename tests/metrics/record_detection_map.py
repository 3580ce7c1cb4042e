"""Records what Paddle 1.8.5 answers to DetectionMAP: ``.venv-fluid/bin/python -m tests.metrics.record_detection_map``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

CASES: tuple[dict[str, Any], ...] = (
    {"difficult": False},
    {"difficult": True},
    {"difficult": True, "evaluate": False},
    {"difficult": True, "evaluate": False, "version": "11point"},
    {"difficult": False, "version": "11point"},
    {"difficult": False, "background": 2},
    {"difficult": True, "evaluate": False, "background": 1, "images": 2, "runs": 3},
    {"difficult": False, "background": 1, "classes": 3, "images": 1},
)
DEFAULTS = {
    "version": "integral", "evaluate": True, "background": 0, "classes": 4, "threshold": 0.3, "images": 3, "runs": 2,
}  # fmt: skip
RECORDED = Path(__file__).parent / "detection_map.json"


def batch(case: dict[str, Any], rng: Any) -> dict[str, Any]:
    """Draws true boxes, boxes near them, and how many each image has."""
    counts: list[list[int]] = [[], []]
    found, truth = [], []
    for _ in range(case["images"]):
        boxes = []
        for _ in range(rng.randint(1, 4)):
            low = rng.rand(2) * 0.5
            high = low + 0.2 + rng.rand(2) * 0.3
            boxes.append([rng.randint(1, case["classes"]), int(rng.rand() < 0.4), *low, *high])
        near = []
        for _ in range(rng.randint(1, 7)):
            like = boxes[rng.randint(len(boxes))]
            label = like[0] if rng.rand() < 0.7 else rng.randint(1, case["classes"])
            near.append([label, rng.rand(), *(np.array(like[2:]) + rng.randn(4) * 0.05)])
        found += near
        truth += boxes
        counts[0].append(len(near))
        counts[1].append(len(boxes))
    return {"found": np.round(found, 4).tolist(), "truth": np.round(truth, 4).tolist(), "counts": counts}


def run(
    case: dict[str, Any], batches: list[dict[str, Any]], fluid: Any, resets: tuple[int, ...] = (0,)
) -> list[list[float]]:
    """Returns the mean average precision of each batch, and of all since the last of ``resets``: batches with one before them."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        names = {"found": 6, "label": 1, "box": 4, **({"difficult": 1} if case["difficult"] else {})}
        found, label, box, *hard = [fluid.data(n, [None, k], "float32", lod_level=1) for n, k in names.items()]
        metric = fluid.metrics.DetectionMAP(
            found, label, box, *(hard or [None]), class_num=case["classes"], background_label=case["background"],
            overlap_threshold=case["threshold"], evaluate_difficult=case["evaluate"], ap_version=case["version"],
        )  # fmt: skip
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        answers = []
        for number, one in enumerate(batches):
            if number in resets:
                metric.reset(exe)
            rows, (near, true) = np.float32(one["truth"]), one["counts"]
            values = {
                "found": (np.float32(one["found"]), near),
                "label": (rows[:, :1], true),
                "box": (rows[:, 2:], true),
            }
            values["difficult"] = rows[:, 1:2], true
            feed = {n: fluid.create_lod_tensor(values[n][0], [values[n][1]], fluid.CPUPlace()) for n in names}
            answers.append(
                [float(np.ravel(v)[0]) for v in exe.run(main, feed=feed, fetch_list=[*metric.get_map_var()])]
            )
    return answers


def main() -> None:
    """Writes the answers."""
    import paddle.fluid as fluid

    rows = []
    for seed, given in enumerate(CASES):
        case = {**DEFAULTS, **given}
        rng = np.random.RandomState(seed)
        batches = [batch(case, rng) for _ in range(case["runs"])]
        rows.append({"case": case, "batches": batches, "answers": run(case, batches, fluid)})
    RECORDED.write_text(json.dumps(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
