"""Nets of all kinds leave the same bits whether a graph is launched or its calls are made; the graph holds the plan's steps."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.helpers.captured_nets import NETS
from tests.helpers.captured_runs import Net, differences, ran, refused, standing_in
from tstatic import static
from tstatic.devices.queued import QueuedDevice, QueuedSchedule
from tstatic.runtime.binding import Binding

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    os.environ.get("TSTATIC_CPU_BACKEND", "numpy") != "numpy",
    reason="puts a device of its own in the place of the CPU's",
)

ALL = os.environ.get("TSTATIC_GRAPHS") == "all"
BY_TORCH_TOO = ("attention", "embedding with sparse gradients", "bad positions", "float16 with a moving scale", "lstm")
"""Nets that run with torch's operators in a drawn order, too: torch's results have memory of their own."""


# ---------------------------------------------------------------------------------------------- what the graphs hold
@pytest.fixture
def bindings(monkeypatch: pytest.MonkeyPatch) -> list[Binding]:
    """What plans were bound to, oldest first."""
    found: list[Binding] = []
    bind = Binding.__init__

    def noted(self: Binding, *args: Any) -> None:
        bind(self, *args)
        found.append(self)

    monkeypatch.setattr(Binding, "__init__", noted)
    return found


def planned(device: QueuedDevice, bound: Binding) -> list[list[str]]:
    """Returns the types of the ops of each graph, as the plan has them: those between two steps that end a graph."""
    setting = bound._setting
    # While steps are searched for NaN, each of them is looked at.
    searched = "main" if setting.check_numerics else ""
    steps = [step for step in setting.plan.steps if step.how not in ("view", "joined") and step.region != searched]
    regions = [steps] if bound.whole is not None else [list(g) for _, g in itertools.groupby(steps, lambda s: s.region)]
    return [
        [step.op.type for step in part]
        for region in regions
        for split, part in itertools.groupby(region, lambda step: bool(device.splits(step.op, step.how != "dynamic")))
        if not split
    ]


def graphs(bound: Binding) -> Iterator[Any]:
    for schedule in [bound.whole] if bound.whole is not None else bound.schedules.values():
        if isinstance(schedule, QueuedSchedule):
            yield from schedule.graphs


def nodes(device: str, made: Any) -> list[str]:
    """Returns the op of each piece of work in a captured graph; empty for what belongs to no op."""
    if device == "gpu":
        ops = [work.args[1] if hasattr(work, "args") and len(work.args) == 3 else None for work in made.made.puts]
    else:
        # Its graphs hold recordings of events and waits, too.
        ops = [args[2] if len(args) > 2 else None for function, args in made if function.__name__ == "_put"]
    return ["" if op is None else op.type for op in ops]


def check_launches(made: QueuedDevice, device: str, bound: Binding) -> None:
    """A graph has one launch for each step that is more than a view, in the plan's order, and those of the checks of positions."""
    found = [(graph._made, part) for graph, part in zip(graphs(bound), planned(made, bound), strict=True)]
    held = [(nodes(device, graph), part) for graph, part in found if graph is not None]
    for launches, part in held:
        assert [op for op in launches if op] == part
    checks = [] if bound.checks is None else [*bound.checks._checks]
    # Behind the checks of one plan: whether any failed, and a copy of all their words to the host.
    told = 2 if checks and bound.whole is not None else 0
    if len(held) == len(found):
        assert sum(launches.count("") for launches, _ in held) == len(checks) + told


def refusals(name: str, device: str) -> int:
    """How many graphs cannot be captured.

    torch's LSTM lacks the gates, which the host's gradient reads: its reference runs, on the host, and no graph holds it.
    """
    return int((name, device) == ("lstm", "gpu"))


@pytest.mark.parametrize(
    ("device", "name"),
    [*itertools.product(["fake", "gpu"], NETS), *(("fake+torch", name) for name in BY_TORCH_TOO)],
)
def test_captured_steps_leave_the_bits_of_uncaptured_ones(name: str, device: str, bindings: list[Binding]) -> None:
    """What each run fetches and what all leave; and the graphs hold the plan's launches."""
    net = NETS[name]
    with standing_in(device) as made:
        plain = ran(net, "off")
        assert made.launches == 0
        bindings.clear()
        captured = ran(net, "auto")
        assert made.launches >= 3, "a graph is launched from the second run of a plan on"
        assert len(refused(made)) == refusals(name, device), refused(made)
        assert differences(plain, captured) == []
        assert [one.dtype.kind for one in plain.found].count("U") == net.errors
        whole = [bound for bound in bindings if any(graph.captured for graph in graphs(bound))]
        assert whole
        for bound in whole:
            check_launches(made, device, bound)


@pytest.mark.parametrize("device", ["fake", "gpu"] if ALL else ["gpu"])
@pytest.mark.parametrize("name", NETS if ALL else ["loop", "sizes that values decide", "bad positions with dropout"])
def test_a_checked_graph_is_kept(name: str, device: str) -> None:
    """Calls and launch begin with the same bits, also where a truth value lies in memory that held other numbers before."""
    net = NETS[name]
    with standing_in(device) as made:
        plain, checked = ran(net, "off"), ran(net, "check")
        assert len(refused(made)) == refusals(name, device), refused(made)
        assert made.launches >= 3
    assert differences(plain, checked) == []


def test_iterations_of_one_run_do_not_wait_for_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph is launched as often as the strategy says; the host waits once, for what the last iteration fetches."""
    net = NETS["three iterations a run"]
    waits: list[int] = []
    counts: list[int] = []
    with standing_in("gpu") as gpu:
        run = static.Executor.run
        for name in ("synchronize", "finish"):
            right = getattr(gpu, name)
            monkeypatch.setattr(gpu, name, lambda *args, right=right: (waits.append(1), right(*args))[1])

        def counted(self: static.Executor, *args: Any, **named: Any) -> Any:
            waits.clear()
            found = run(self, *args, **named)
            counts.append(len(waits))
            return found

        monkeypatch.setattr(static.Executor, "run", counted)
        plain = Net(NETS["adamw, clipped by the global norm"].build, net.feed, iterations=3)
        ran(plain, "auto")
        assert [graph.launches for graph in gpu.cuda.graphs] == [14], "the first of fifteen iterations makes the calls"
    assert counts[2:] == [1] * 4, "behind the startup program, and the run that moves what it wrote"
