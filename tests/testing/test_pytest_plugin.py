"""The pytest plugin proves users' programs: fixtures, marker, options, and the scripts of failures."""

from __future__ import annotations

import pytest

from tests.helpers import child

pytest_plugins = ["pytester"]

LOAD = ("-p", "tstatic.testing.pytest_plugin")


@pytest.fixture(autouse=True)
def _this_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other processes, since a run inside of this one forgets the modules that it imported; they find this checkout."""
    monkeypatch.setenv("PYTHONPATH", child.python_path())


NET = """
    import tstatic as paddle
    from tstatic import static
    import pytest

    def net():
        x = static.data("x", [None, 6])
        return paddle.nn.functional.relu(static.nn.fc(x, 4) + 1.0)
"""


def test_programs_are_proved_and_counted(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        NET
        + """
    @pytest.mark.tstatic(examples=2)
    @pytest.mark.parametrize("again", [0, 1])
    def test_mine(prove_equivalent, tstatic_programs, again):
        main, startup = tstatic_programs
        assert not main.global_block().ops
        y = net()
        assert y.name.startswith("relu_0")
        made = prove_equivalent(main, fetch_list=[y])
        assert made.feeds == 2
        assert made.fusions > 0

    @pytest.mark.tstatic(examples=1, require_kernels=True)
    def test_needs_kernels(prove_equivalent, tstatic_programs):
        prove_equivalent(tstatic_programs[0], fetch_list=[net()])
    """
    )
    found = pytester.runpytest_subprocess(*LOAD, "-p", "no:cacheprovider")
    found.assert_outcomes(passed=2, failed=1)
    found.stdout.fnmatch_lines(
        [
            "*no generated kernel ran: run pytest with --tstatic-interpret*",
            "tstatic: 3 programs proved, with 3 fusions*",
        ]
    )


@pytest.mark.slow
def test_a_failure_has_its_script_in_the_report_and_in_a_file(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        NET
        + """
    from tests.testing import faults

    def test_wrong(prove_equivalent, tstatic_programs, monkeypatch):
        x = static.data("x", [None, 6])
        y = paddle.nn.functional.relu(x * 2.0 + 1.0)
        faults.plant(monkeypatch, faults.lost_bias)
        on = static.BuildStrategy()
        on.fuse_elewise_add_act_ops = True
        prove_equivalent(tstatic_programs[0], on, fetch_list=[y], examples=1)
    """
    )
    found = pytester.runpytest_subprocess(*LOAD, "-p", "no:cacheprovider", "--tstatic-scripts", "scripts")
    found.assert_outcomes(failed=1)
    found.stdout.fnmatch_lines(["*tstatic script*", "import numpy as np", "*assert_equivalent(main*"])
    (script,) = (pytester.path / "scripts").iterdir()
    assert script.name.endswith("test_wrong.py")
    assert "static.BuildStrategy()" in script.read_text()


def test_options_beat_the_marker_and_wrong_settings_are_named(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        NET
        + """
    @pytest.mark.tstatic(examples=9)
    def test_mine(prove_equivalent, tstatic_programs):
        assert prove_equivalent(tstatic_programs[0], fetch_list=[net()]).feeds == 1

    @pytest.mark.tstatic(exmples=9)
    def test_typo(prove_equivalent):
        pass
    """
    )
    found = pytester.runpytest_subprocess(
        *LOAD, "-p", "no:cacheprovider", "--tstatic-examples", "1", "--strict-markers"
    )
    found.assert_outcomes(passed=1, errors=1)
    found.stdout.fnmatch_lines(["*the marker tstatic takes strategies, examples*exmples*"])
