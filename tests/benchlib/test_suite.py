"""A run: results first, wrong ones have no time, what is done is kept, and what is compared."""

from __future__ import annotations

import builtins
import copy
import json
import os
import random
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.benchlib.fakes import FakeTimer
from tstatic.benchlib import peers, report, results, table
from tstatic.benchlib.cases import Case, build
from tstatic.benchlib.compare import compare
from tstatic.benchlib.measure import Setting
from tstatic.benchlib.peers import PEERS, Competitor, PeerMissingError, peer
from tstatic.benchlib.rows import rows_from_domain
from tstatic.benchlib.suite import Selection, Suite, chosen_rows, surroundings
from tstatic.benchlib.timers import CpuTimer, Timer
from tstatic.errors import ProgramError

pytestmark = pytest.mark.numpy_device("looks at results of the references")

SIZES = """
[[op]]
op = "tanh"
shapes = { X = [4, 6] }
[[op]]
op = "matmul_v2"
shapes = { X = [8, 6], Y = [6, 5] }
directions = ["fwd"]
"""
SHORT = Setting(repeats=12, seconds=1e-9)


@pytest.fixture
def rows(tmp_path: Path) -> list[Any]:
    (tmp_path / "sizes.toml").write_text(SIZES)
    return list(chosen_rows(Selection(shapes=tmp_path / "sizes.toml")))


@pytest.fixture
def registered() -> Iterator[None]:
    """Takes off peers that a test registers."""
    before = dict(PEERS)
    yield
    PEERS.clear()
    PEERS.update(before)


def suite(path: Path | None = None, peers: tuple[str, ...] = ("tstatic", "numpy"), **changes: Any) -> Suite:
    return Suite(changes.pop("timer", FakeTimer(calls=False)), list(peers), SHORT, path=path, **changes)


def test_a_wrong_result_has_no_time_and_is_a_finding(rows: list[Any], registered: None) -> None:
    def off(case: Case, timer: Timer, sets: int) -> Competitor:
        wrong = [np.asarray(a * 1.001) for a in case.expected]
        return Competitor(
            [lambda: None] * sets, lambda: [w.astype(a.dtype) for w, a in zip(wrong, case.expected, strict=True)]
        )

    peer("off", usual=False)(off)
    record = suite(peers=("tstatic", "off")).run(rows)
    for row in record["rows"]:
        assert row["peers"]["off"]["state"] == "wrong"
        assert "seconds" not in row["peers"]["off"]
        assert "allowed" in row["peers"]["off"]["detail"]
        assert len(row["peers"]["tstatic"]["seconds"]) == 12
    assert len(results.findings(record)) == len(rows) == 4
    assert table.summary(record).count("4 wrong") == 1


@pytest.mark.parametrize("change", [lambda a: a[:-1], lambda a: a.astype(np.float64), lambda a: np.where(a > 1, np.nan, a)],
                         ids=["shape", "dtype", "nan"])  # fmt: skip
def test_other_faults_are_found_too(rows: list[Any], change: Any) -> None:
    case = build(rows[-1])
    assert case.difference(case.expected) == ""
    assert case.difference([change(a) for a in case.expected]) != ""
    assert "in the place of" in case.difference([])


def test_a_difference_of_one_rounding_is_none(rows: list[Any]) -> None:
    case = build(rows[-1])
    assert case.difference([np.nextafter(a, np.float32(9), dtype=np.float32) for a in case.expected]) == ""


def test_a_peer_that_cannot_is_missing_and_one_that_fails_is_an_error(rows: list[Any], registered: None) -> None:
    @peer("absent", usual=False)
    def absent(case: Case, timer: Timer, sets: int) -> Competitor:
        raise PeerMissingError("it is not installed")

    @peer("broken", usual=False)
    def broken(case: Case, timer: Timer, sets: int) -> Competitor:
        raise ZeroDivisionError("by zero")

    (row,) = suite(peers=("tstatic", "absent", "broken")).run(rows[:1])["rows"]
    assert row["peers"]["absent"] == {"state": "missing", "detail": "peer missing: it is not installed"}
    assert row["peers"]["broken"] == {"state": "error", "detail": "ZeroDivisionError: by zero"}
    assert len(results.findings({"rows": [row]})) == 1
    with pytest.raises(ProgramError, match="'absent' already"):
        peer("absent")(absent)


def test_without_torch_its_peer_is_missing(rows: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == "torch":
            raise ImportError("No module named 'torch'")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    (row,) = suite(peers=("tstatic", "torch")).run(rows[:1])["rows"]
    assert row["peers"]["torch"]["detail"] == "peer missing: torch is not installed"
    assert row["peers"]["tstatic"]["state"] == "ok"


@pytest.mark.parametrize("noisy", [False, True])
def test_a_noisy_machine_is_said_before_the_first_row(rows: list[Any], noisy: bool) -> None:
    """Guards the user's time: hours of rows that will all be undecided are announced in the first second."""
    draw = random.Random(1)
    timer = FakeTimer(lambda run: draw.choice((1e-3, 3e-3)) if noisy else 1e-3)
    told: list[str] = []
    record = Suite(timer, ("tstatic",), SHORT).run(rows[:1], lambda row: told.append("row"), told.append)
    assert told[-1] == "row"
    assert len(told) == 1 + noisy
    if noisy:
        assert "this machine is noisy" in told[0]
        assert "--repeats" in told[0]
    assert (record["noise"]["high"] > 1.05) == noisy


def test_one_peer_is_prepared_and_measured_twice(rows: list[Any], registered: None) -> None:
    prepared = []

    @peer("counted", usual=False)
    def counted(case: Case, timer: Timer, sets: int) -> Competitor:
        prepared.append(case.row.name)
        return Competitor([lambda: None] * sets, lambda: case.expected)

    (row,) = suite(peers=("counted",)).run(rows[:1])["rows"]
    assert prepared == [rows[0].name] * 2
    assert row[results.CONTROL]["of"] == "counted"
    assert len(row[results.CONTROL]["seconds"]) == 12


def test_an_interrupt_leaves_a_file_that_the_next_run_continues(rows: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "out" / "result.json"
    done: list[str] = []

    def stop(row: dict[str, Any]) -> None:
        done.append(row["name"])
        if len(done) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        suite(path).run(rows, stop)
    cut = results.read(path)
    assert [row["name"] for row in cut["rows"]] == done
    assert not cut["complete"]
    more: list[str] = []
    record = suite(path).run(rows, lambda row: more.append(row["name"]))
    assert more == [row.name for row in rows[2:]]
    assert record["rows"][:2] == cut["rows"]
    assert results.read(path) == json.loads(json.dumps(record))
    assert record["complete"]
    assert [p.name for p in path.parent.iterdir()] == ["result.json"]


def test_a_run_never_continues_that_of_another_machine_version_or_setting(rows: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    suite(path).run(rows[:1])
    before = path.read_text()
    with pytest.raises(ProgramError, match="seed: 0 and 5"):
        suite(path, seed=5).run(rows)
    with pytest.raises(ProgramError, match="setting, peers"):
        suite(path, ("tstatic",)).run(rows)
    changed = json.loads(before)
    changed["machine"]["cpu"] = "another"
    changed["machine"]["load"] = [99.0]
    changed["versions"]["numpy"] = "1.0"
    path.write_text(json.dumps(changed))
    with pytest.raises(ProgramError) as caught:
        suite(path).run(rows)
    assert "machine, cpu: another" in str(caught.value)
    assert "versions, numpy: 1.0" in str(caught.value)
    assert "load" not in str(caught.value)
    assert path.read_text() == json.dumps(changed), "what is refused stays as it was"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kind": "tstatic bench", "rows": [], "version": 9}', "\x00"])
def test_what_is_no_result_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(ProgramError, match=r"r\.json"):
        results.read(tmp_path / "r.json")


def test_threads_are_those_asked_for_and_come_back(rows: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("CPU_NUM", "7")
    before = torch.get_num_threads()
    seen: list[Any] = []
    made = suite(peers=("torch",), threads=3)
    made.timer.threads = 3  # type: ignore[misc]
    made.run(rows[:1], lambda row: seen.append((os.environ["CPU_NUM"], torch.get_num_threads())))
    assert seen == [("3", 3)]
    assert (os.environ["CPU_NUM"], torch.get_num_threads()) == ("7", before)
    monkeypatch.delenv("CPU_NUM")
    with surroundings(1):
        assert os.environ["CPU_NUM"] == "1"
    assert "CPU_NUM" not in os.environ


@pytest.mark.parametrize("most", [1, 3])
def test_the_time_of_a_run_is_divided_among_its_iterations(
    rows: list[Any], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies of feeds and results are shared by the iterations of a run, which do the row's work several times."""
    monkeypatch.setattr(peers, "MOST_ITERATIONS", most)
    made = suite(timer=FakeTimer(lambda run: 1e-3, calls=False)).run(rows[:1])
    (row,) = made["rows"]
    seconds = {name: row["peers"][name]["seconds"] for name in ("tstatic", "numpy")}
    assert seconds["tstatic"] == pytest.approx([1e-3 / most] * len(seconds["numpy"]), rel=1e-4)
    assert row[results.CONTROL]["seconds"] == seconds["tstatic"]
    assert seconds["numpy"] == pytest.approx([1e-3] * len(seconds["numpy"]))


@pytest.mark.torch
@pytest.mark.parametrize(
    ("op", "direction", "borrows"),
    [
        ("transpose2", "bwd", True),
        ("reduce_sum", "bwd", True),
        ("elementwise_add", "bwd", True),
        ("relu", "fwd", False),
    ],
)
def test_a_view_of_torch_is_copied_where_the_row_asks_for_a_result(op: str, direction: str, borrows: bool) -> None:
    torch = pytest.importorskip("torch")
    (row, *_) = rows_from_domain(op, ["float32"], (direction,))
    made = PEERS["torch"].prepare(build(row), CpuTimer(1), 2)
    for run in made.runs:
        assert (getattr(run, "func", None) is peers._owning) is borrows
        for result in run():  # type: ignore[attr-defined]
            assert isinstance(result, torch.Tensor)
            assert result.is_contiguous()
            assert result._base is None


# --------------------------------------------------------------------------------------------------------------- compare
@pytest.fixture
def record(rows: list[Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(peers, "MOST_ITERATIONS", 1)

    def cost(run: Any) -> float:
        return 1e-3

    timer = FakeTimer(cost, calls=False)
    made: dict[str, Any] = json.loads(json.dumps(suite(timer=timer).run(rows)))
    for i, row in enumerate(made["rows"]):
        for samples in (row["peers"]["tstatic"], row["peers"]["numpy"], row[results.CONTROL]):
            # All samples of these are equal: that is no machine.
            samples["seconds"] = [s * (1 + (i + k * 7 % 5) / 1000) for k, s in enumerate(samples["seconds"])]
    return made


def slower(record: dict[str, Any], number: int, factor: float, peer: str = "tstatic") -> dict[str, Any]:
    changed = copy.deepcopy(record)
    row = changed["rows"][number]
    row["peers"][peer]["seconds"] = [s * factor for s in row["peers"][peer]["seconds"]]
    if peer == "tstatic":
        row[results.CONTROL]["seconds"] = [s * factor for s in row[results.CONTROL]["seconds"]]
    return changed


def test_rows_are_better_worse_the_same_or_in_one_only(record: dict[str, Any]) -> None:
    after = slower(slower(record, 0, 1.5), 1, 0.7)
    lacks = after["rows"].pop(3)["name"]
    found = compare(record, after)
    assert [one.row for one in found.of("slower")] == [record["rows"][0]["name"]]
    assert [one.row for one in found.of("faster")] == [record["rows"][1]["name"]]
    assert [one.row for one in found.of("same")] == [record["rows"][2]["name"]]
    assert found.only_before == [lacks]
    assert found.regressed
    assert compare(after, record).only_after == [lacks]
    assert not compare(record, record).regressed
    assert not compare(record, slower(record, 1, 0.7)).regressed


def test_the_threshold_and_the_control_decide_what_counts(record: dict[str, Any]) -> None:
    after = slower(record, 0, 1.1)
    assert compare(record, after).regressed
    assert not compare(record, after, threshold=0.15).regressed
    noisy = copy.deepcopy(after)
    noisy["rows"][0][results.CONTROL]["seconds"] = [s * 1.08 for s in after["rows"][0]["peers"]["tstatic"]["seconds"]]
    assert not compare(record, noisy).regressed


def test_what_makes_all_peers_slower_cancels_where_it_is_asked(record: dict[str, Any]) -> None:
    after = slower(slower(record, 0, 1.5), 0, 1.5, "numpy")
    assert compare(record, after).regressed
    assert not compare(record, after, relative_to="numpy").regressed


def test_a_row_that_became_wrong_is_a_regression(record: dict[str, Any]) -> None:
    after = copy.deepcopy(record)
    after["rows"][0]["peers"]["tstatic"] = {"state": "wrong", "detail": "off"}
    found = compare(record, after)
    assert found.lost == [(record["rows"][0]["name"], "tstatic", "wrong: off")]
    assert found.regressed


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"peers": ["nunpy"]}, "did you mean 'numpy'"),
        ({"peers": ["tstatic"], "relative_to": "nobody"}, "both time 'nobody'"),
    ],
)
def test_a_comparison_of_nothing_is_refused(record: dict[str, Any], given: dict[str, Any], said: str) -> None:
    with pytest.raises(ProgramError, match="there is nothing to compare") as error:
        compare(record, record, **given)
    assert said in str(error.value)


def test_results_of_different_machines_are_refused(record: dict[str, Any]) -> None:
    after = copy.deepcopy(record)
    after["machine"]["cpu"] = "another"
    after["machine"]["load"] = [9.0]
    with pytest.raises(ProgramError, match="machine, cpu"):
        compare(record, after)
    assert compare(record, after, force=True).different == [f"machine, cpu: {record['machine']['cpu']} and another"]
    after = copy.deepcopy(record)
    after["versions"]["torch"] = after["commit"] = "other"
    assert compare(record, after).different == []


# ---------------------------------------------------------------------------------------------------------------- report
class _Page(HTMLParser):
    """Collects tags and attributes, and checks that tags close."""

    VOID = ("meta", "line", "circle", "polygon", "polyline")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def test_the_page_loads_nothing_and_shows_every_row(record: dict[str, Any]) -> None:
    earlier = slower(record, 0, 1.3)
    earlier["begun"] = "2001-01-01T00:00:00+00:00"
    record["rows"][1]["peers"]["numpy"] = {"state": "wrong", "detail": "<script>alert(1)</script>"}
    text = report.page(record, [earlier])
    page = _Page()
    page.feed(text)
    assert page.open == []
    assert {"script", "img", "link", "iframe"}.isdisjoint(page.tags)
    assert not any(name in ("src", "href", "onload") for name, _ in page.attributes)
    assert "url(" not in text
    assert "http" not in text
    assert "<script>" not in text
    assert page.tags.count("svg") == 3, "ratios, roofline, history"
    assert "prefers-color-scheme: dark" in text
    assert all(f"<td>{row['name']}</td>" in text for row in record["rows"])
    assert "2001-01-01" in text
    assert all(c.isprintable() or c == "\n" for c in text)
    assert text == report.page(record, [earlier]), "the page follows from the results alone"


def test_an_unfinished_result_without_times_has_a_page(record: dict[str, Any]) -> None:
    empty = {**record, "rows": [], "complete": False}
    assert "was stopped" in report.page(empty)
    record["rows"][0]["peers"] = {"tstatic": {"state": "error", "detail": "no"}}
    del record["rows"][0][results.CONTROL]
    assert "error: no" in report.page(record)


def test_the_csv_has_a_line_for_each_row_and_peer(record: dict[str, Any]) -> None:
    import csv

    lines = list(csv.DictReader(table.to_csv(record).splitlines()))
    assert len(lines) == 2 * len(record["rows"])
    assert {line["peer"] for line in lines} == {"tstatic", "numpy"}
    assert all(float(line["median_s"]) > 0 for line in lines)
    assert all(line["finding"] == "same" for line in lines if line["peer"] == "numpy")


def test_markdown_has_every_row_and_peer(record: dict[str, Any]) -> None:
    text = table.markdown(slower(record, 2, 2.0))
    assert text.count("\n| ") == len(record["rows"]) + 1
    assert "x2.00 -" in text


@pytest.mark.parametrize(
    ("seconds", "text"), [(1.5, "1.5 s"), (0.99999, "1 s"), (2e-3, "2 ms"), (1.234e-5, "12.3 us"), (5e-9, "5 ns")]
)
def test_times_have_units(seconds: float, text: str) -> None:
    assert table.duration(seconds) == text
