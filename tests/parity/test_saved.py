"""Ten models trained and saved in Paddle 2.6.2 are run here, and ten trained and saved here are run there (``make parity``)."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import tstatic as paddle
from tests.cpu.test_paddle_files import build_numbers
from tests.helpers.patience import HANG
from tests.parity import compare, record
from tests.parity.record import PADDLE, ROOT
from tests.parity.saved import both_ways, models
from tstatic import static

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("TSTATIC_PARITY") != "all" or not PADDLE.exists(), reason="make parity, which needs Paddle"
    ),
    pytest.mark.timeout(3600),
]
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def in_paddle(module: str, folder: Path) -> dict[str, np.ndarray]:
    """Runs a module in Paddle's Python; returns the answers that it wrote."""
    command = [str(PADDLE), "-m", module, str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=record.environment(), capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stderr[-3000:]
    with np.load(folder / "answers.npz") as answers:
        return dict(answers)


def test_ten_models_of_paddle_answer_here_as_there(tmp_path: Path) -> None:
    expected = in_paddle("tests.parity.saved.record", tmp_path)
    worst = 0.0
    for name in models.MODELS:
        with static.scope_guard(static.Scope()):
            exe = static.Executor("cpu")
            found = models.inferred(paddle, *static.load_inference_model(str(tmp_path / name), exe), exe)
        for i, value in enumerate(found):
            other = expected[f"{name}.{i}"]
            assert (value.shape, value.dtype) == (other.shape, other.dtype)
            np.testing.assert_allclose(value, other, **CLOSE, err_msg=f"{name}, result {i}")
            worst = max(worst, float(np.abs(value.astype("float64") - other).max()))
    print(f"read: {len(models.MODELS)} models, largest difference {worst:.1e}")


def test_ten_models_of_ours_answer_there_as_here(tmp_path: Path) -> None:
    expected: dict[str, np.ndarray] = {}
    for name in models.MODELS:
        with static.scope_guard(static.Scope()):
            main, built, exe = models.trained(paddle, name)
            static.save(main, str(tmp_path / f"{name}_training"), format="paddle")
            static.save_inference_model(
                str(tmp_path / name), built.feeds, built.outputs, exe, program=main, format="paddle"
            )
            expected[f"{name}.state"] = models.checked(paddle, main)
            found = models.inferred(paddle, *static.load_inference_model(str(tmp_path / name), exe), exe)
            expected |= {f"{name}.{i}": value for i, value in enumerate(found)}
    with static.scope_guard(static.Scope()), static.program_guard(static.Program()):
        feeds, fetches = build_numbers()
        exe = static.Executor("cpu")
        given = {"x": np.array([[-1, 0.1, 2]], "float32")}
        expected |= {f"numbers.{i}": value for i, value in enumerate(exe.run(feed=given, fetch_list=fetches))}
        static.save_inference_model(str(tmp_path / "numbers"), feeds, fetches, exe, format="paddle")
    paddle.save({"w": np.arange(3.0), "rows": [1, 2.5, None, ("text", True)]}, tmp_path / "nest")
    answers = in_paddle("tests.parity.saved.answer", tmp_path)
    assert answers.pop("nest").tolist() == [0, 1, 2, 2.5, 2]
    assert set(answers) == set(expected)
    worst = 0.0
    for name, value in answers.items():
        # Results of one element: no axis in Paddle 2.6, one in the functions of 1.x.
        assert (value.size, value.dtype) == (expected[name].size, expected[name].dtype), name
        np.testing.assert_allclose(value.ravel(), expected[name].ravel(), **CLOSE, err_msg=name)
        worst = max(worst, float(np.abs(value.ravel().astype("float64") - expected[name].ravel()).max(initial=0)))
    print(f"written: {len(models.MODELS)} models, largest difference {worst:.1e}")


# Calls (or errors) that may differ -> why; patterns as in docs/paddle_differences.md.
REASONS = {
    "*special*": "special values: the differences that docs/paddle_differences.md lists",
    "*ceil_mode=True*": "a window that holds nothing has the neutral element here",
    "*pos_weight*": "Paddle's kernel forgets pos_weight in one term",
    "cast(*float16*": "Paddle's conversion on the CPU cuts digits off instead of rounding",
    "programs.softmax_then_loss*": "a probability of 0 costs 64 there; here softmax and loss are one function of the logits",
    "diagonal_scatter(i*, f*": "Paddle writes the bits of the other dtype",
    "gather(*": "a negative axis is another axis in Paddle's kernel; an index out of range reads anywhere",
    "programs.py_func*": "it calls functions of the process that saved it",
    "*lstsq*": "Paddle's singular values are a variable that nothing writes",
    "*create_global_var*": "its value is not persistable, so it is not saved",
    "nn.functional.conv3d(*dilation=2*": "a window larger than the input is refused here",
    "histogram(*": "Paddle's bounds are whole numbers: others are not written",
    "*lcm*": "Paddle has no such operator",
    "*gcd*": "Paddle has no such operator",
    "divide(*": "Paddle refuses a whole number over 0",
    "nan_to_num(*": "infinities of float64 become its largest number, which Paddle leaves",
    "digamma(i*": "Paddle computes whole numbers in float32 of another precision",
    "*maxout*": "Paddle has it for images only",
}
ERRORS = ("There are no kernels which are registered", "does not have kernel for", "must be consistent")
"""Of Paddle, which has no kernel for dtypes that tstatic computes in."""


# Calls that end Paddle's own process while it makes their programs -> how.
ENDS_PADDLE = {
    "repeat_interleave(*axis=-1*": "Paddle's kernel writes outside of its memory, which ends it then or later",
}


@dataclass(frozen=True)
class Way:
    """What came of all calls that are compared one by one, written by one side and read by the other.

    Attributes:
        left: Calls that the writer refuses -> why.
        ended: Those of them that ended the writer's process.
        found: All others -> what differs, or an empty text.
    """

    left: dict[str, str]
    ended: dict[str, str]
    found: dict[str, str]

    @property
    def other(self) -> dict[str, str]:
        """The first lines of what differs."""
        return {name: text.partition("\n")[0] for name, text in self.found.items() if text}


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Way]:
    made = {}
    for writer, reader in (("paddle", "tstatic"), ("tstatic", "paddle")):
        folder = tmp_path_factory.mktemp(writer)
        rows = both_ways.saved(writer, both_ways.described(), folder)
        left = {row["id"]: row["left"] for row in rows if "left" in row}
        ended = {name: why for name, why in left.items() if why.startswith("the process")}
        made[writer] = Way(left, ended, both_ways.read(reader, [row for row in rows if row["id"] not in left], folder))
    return made


@pytest.mark.parametrize("writer", ["paddle", "tstatic"])
def test_programs_of_described_calls_mean_the_same_on_the_other_side(writer: str, ways: dict[str, Way]) -> None:
    way = ways[writer]
    found, other = way.found, way.other
    same = len(found) - len(other)
    print(f"written by {writer}: {same} of {len(found)} calls mean the same ({same / len(found):.1%})", end="; ")
    print(f"{len(way.left)} are refused there, {len(way.ended)} end the process")
    print("\n".join(f"{name}: {text[:160]}" for name, text in (way.ended | other).items()))
    assert len(found) > 2500
    assert len(other) <= 0.05 * len(found)
    named = {n for n in other if any(compare.matches(n, p) for p in REASONS) or any(e in found[n] for e in ERRORS)}
    assert sorted(other.keys() - named) == [], "mend these, or say why they differ (REASONS)"
    assert sorted(n for n in way.ended if not any(compare.matches(n, p) for p in ENDS_PADDLE)) == []
    assert writer == "paddle" or not way.ended


def test_no_reason_is_stale(ways: dict[str, Way]) -> None:
    other, ended = ({n for way in ways.values() for n in row(way)} for row in (lambda w: w.other, lambda w: w.ended))
    assert [p for p in REASONS if not any(compare.matches(n, p) for n in other)] == []
    assert [p for p in ENDS_PADDLE if not any(compare.matches(n, p) for n in ended)] == []
    texts = [text for way in ways.values() for text in way.found.values()]
    assert [e for e in ERRORS if not any(e in text for text in texts)] == []


def test_a_call_that_ends_its_process_is_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    script = tmp_path / "ends.py"
    script.write_text(
        "import os, sys, time\n"
        "with open(sys.argv[1], 'a') as out:\n"
        "    for number in range(int(sys.argv[2]), 4):\n"
        "        number == 1 and (out.write('[1, '), out.flush(), os.abort())\n"
        "        number == 2 and time.sleep(600)\n"
        "        out.write(f'[{number}, \"done\"]\\n'), out.flush()\n"
    )
    calls = [{"id": str(number)} for number in range(4)]
    found = record.outlived([sys.executable, str(script), str(tmp_path / "out")], calls, tmp_path / "out", str, 1.0)
    assert found == ["done", "the process ended with -6", "the process did not end", "done"]
