"""Programs on sequences in Paddle's files, where values carry their offsets themselves."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tstatic import fluid, static

MODEL = Path(__file__).with_name("model")


def test_a_model_of_paddle_gives_what_it_gave_there(tmp_path: Path) -> None:
    facts = json.loads((MODEL / "results.json").read_text(encoding="utf-8"))
    exe = static.Executor()
    program, feeds, fetches = static.load_inference_model(str(MODEL / "sequences"), exe)
    feed = {feeds[0]: fluid.create_lod_tensor(np.array(facts["data"]), facts["lengths"])}
    assert feeds == ["words"]
    first = exe.run(program, feed=feed, fetch_list=fetches, return_numpy=False)
    for mine, theirs in zip(first, facts["results"], strict=True):
        np.testing.assert_allclose(np.array(mine), theirs["values"], rtol=1e-5, atol=1e-6)
        assert mine.lod() == theirs["lod"]
    names = program.global_block().vars
    inputs = [names[n] for n in feeds]
    static.save_inference_model(str(tmp_path / "again"), inputs, list(fetches), exe, program=program, format="paddle")
    twin, feeds, fetches = static.load_inference_model(str(tmp_path / "again"), exe)
    second = exe.run(twin, feed=feed, fetch_list=fetches, return_numpy=False)
    for one, other in zip(first, second, strict=True):
        assert np.array_equal(np.array(one), np.array(other))
        assert one.lod() == other.lod()
