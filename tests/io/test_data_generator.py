"""Data generators print MultiSlot text, as Paddle 2.6.2's do, and a data set can read it."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.io.test_file_dataset import made
from tstatic import static
from tstatic.io.data_generator import MultiSlotDataGenerator, MultiSlotStringDataGenerator
from tstatic.io.errors import DataError

Samples = Callable[[str | None], list[Any]]


def printed(
    samples: Samples, text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, batch: int = 2,
    kind: type[Any] = MultiSlotDataGenerator,
) -> list[str]:  # fmt: skip
    class Own(kind):  # type: ignore[misc]
        def generate_sample(self, line: str | None) -> Any:
            return lambda: iter(samples(line))

        def generate_batch(self, samples: list[Any]) -> Any:
            return lambda: ([*sample, ("n", [len(samples)])] for sample in samples)

    generator = Own()
    generator.set_batch(batch)
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    (generator.run_from_stdin if text else generator.run_from_memory)()
    return capsys.readouterr().out.splitlines()


def test_samples_are_printed_batch_by_batch(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def samples(line: str | None) -> list[Any]:
        return [None, [("w", [int(word) for word in (line or "9 9").split()]), ("f", [0.5, np.float32(2)])]]

    lines = printed(samples, "1 2 3\n4\n5\n", capsys, monkeypatch)
    assert lines == ["3 1 2 3 2 0.5 2.0 1 2", "1 4 2 0.5 2.0 1 2", "1 5 2 0.5 2.0 1 1"]
    assert printed(samples, "", capsys, monkeypatch) == ["2 9 9 2 0.5 2.0 1 1"]
    texts = printed(lambda line: [[("w", ["a", "b"])]], "x\n", capsys, monkeypatch, kind=MultiSlotStringDataGenerator)
    assert texts[0].startswith("2 a b")


@pytest.mark.parametrize(
    ("sample", "text"),
    [
        ([("w", [])], "the elements of each field can not be empty"),
        ([(1, [1])], "must be in str type"),
        ([("w", 1)], "must be in list type"),
        ([("w", ["a"])], "must be in int or float"),
        (["w"], "not a pair"),
        ([("w", [1]), ("x", [1])], "the complete field set of two given line are inconsistent"),
        ([("z", [1])], "the field name of two given line are not match: require<w>, get<z>"),
    ],
)
def test_samples_that_do_not_fit(
    sample: Any, text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match=text):
        printed(lambda line: [[("w", [1])], sample], "x\n", capsys, monkeypatch)


def test_generate_sample_must_be_defined() -> None:
    with pytest.raises(RuntimeError, match="Please rewrite this function"):
        MultiSlotDataGenerator().run_from_memory()
    for kind in (MultiSlotDataGenerator, MultiSlotStringDataGenerator):
        with pytest.raises(DataError, match="must be in list or tuple type"):
            kind()._gen_str("text")  # type: ignore[arg-type]


def test_a_data_set_reads_what_a_generator_prints(tmp_path: Path) -> None:
    script, data = tmp_path / "clicks.py", tmp_path / "part.csv"
    script.write_text(
        "from tstatic.io.data_generator import MultiSlotDataGenerator\n"
        "class Clicks(MultiSlotDataGenerator):\n"
        "    def generate_sample(self, line):\n"
        "        a, b, price = line.split(',')\n"
        "        return lambda: iter([[('ids', [int(a), int(b)]), ('price', [float(price)])]])\n"
        "Clicks().run_from_stdin()\n"
    )
    data.write_text("7,8,0.5\n1,2,1.5\n3,4,2.5\n")
    use_var = [static.data("ids", [None, 2], "int64"), static.data("price", [None, 1])]
    dataset = made("QueueDataset", [str(data)], use_var, pipe_command=f"{sys.executable} {script}")
    found = [[np.array(batch[name]).tolist() for name in ("ids", "price")] for batch in dataset.batches()]
    assert found == [[[[7, 8], [1, 2]], [[0.5], [1.5]]], [[[3, 4]], [[2.5]]]]
