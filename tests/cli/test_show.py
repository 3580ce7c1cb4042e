"""Tables in narrow terminals: numbers stay whole, texts fold, and a table that cannot be folded further is not cut."""

from __future__ import annotations

import pytest

from tstatic.cli.outcome import Outcome, Table
from tstatic.cli.show import show

ROWS = [("softmax_with_cross_entropy_grad", "a_long_name/of_a_script.py:6", 1234567, "79.7 %", "1.06 kB", "1767.8 us")]
TABLE = Table("Where it goes", ("operator", "line", "calls", "share", "bytes", "average"), ROWS)


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_numbers_are_never_broken(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setattr("tstatic.cli.show.WIDTH", columns)
    show(Outcome({}, (TABLE,)), as_json=False)
    text = capsys.readouterr().out
    for number in ("1234567", "79.7 %", "1.06 kB", "1767.8 us"):
        assert number in text
    for word in TABLE.columns:
        assert word in text, "a heading is whole, too"
    lines = max(len(line) for line in text.splitlines())
    assert lines <= max(columns, 14 + 14 + 7 + 6 + 7 + 9 + 3 * 6)
    assert ("softmax_with_c" if columns < 100 else ROWS[0][0]) in text
