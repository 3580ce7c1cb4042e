"""The version stands in one place, and the report names what a bug report needs."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import tomllib

import numpy
import pytest

from tests.helpers import source
from tstatic import version

ROOT = source.ROOT


def test_the_version_stands_in_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "tstatic.version.__version__"}
    assert re.fullmatch(r"\d+\.\d+\.\d+", version.__version__)
    assert f"## [{version.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_show_versions_prints_what_it_returns(capsys: pytest.CaptureFixture[str]) -> None:
    report = version.show_versions()
    printed = dict(re.split(r"\s+: ", line, maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert printed == report
    assert report["tstatic"] == version.__version__
    assert report["numpy"] == numpy.__version__
    assert {"python", "platform", "scipy", "torch", "triton", "cpus", "place"} <= set(report)


def test_a_package_that_is_not_there_is_said_to_be_missing() -> None:
    assert version._installed("no-such-package-of-that-name") == "not installed"


def test_what_is_asked_of_a_package_is_what_the_project_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert [version.asked("torch"), version.asked("triton")] == project["optional-dependencies"]["gpu"]
    assert version.asked("ml_dtypes") in project["dependencies"]
    assert version.asked("no-such-package") == "no-such-package"

    def nothing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", nothing)
    assert version.asked("torch") == "torch"


def test_what_is_installed_along_is_imported() -> None:
    from packaging.requirements import Requirement

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = {Requirement(text).name for text in project["dependencies"]}
    found: set[str] = set()
    for file in source.files():
        for node in source.nodes(file):
            if isinstance(node, ast.Import):
                found.update(name.name.split(".")[0] for name in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.split(".")[0])
    assert not needed - found, f"nothing imports {sorted(needed - found)}"
    assert needed == set(version._PACKAGES) - {"torch", "triton", "hypothesis"}


def test_pins_allow_what_the_project_asks_for() -> None:
    from packaging.requirements import Requirement

    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    assert (pins["torch"], pins["triton"]) == ("2.13.0", "3.7.1")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    for text in [*project["dependencies"], *extras["demo"], *extras["testing"], *extras["gpu"], *extras["dev"]]:
        need = Requirement(text)
        if need.name == "tstatic":
            assert need.extras <= set(extras)
        else:
            assert need.specifier.contains(pins[need.name]), f"{need} against the pin {pins[need.name]}"
