"""Facts that pages state: each has one source, and every page that states it is compared with that."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import speed_table  # noqa: E402 - the line above makes it importable for a script

from tstatic import target  # noqa: E402
from tstatic.benchlib import results  # noqa: E402
from tstatic.chips import seen  # noqa: E402
from tstatic.version import __version__  # noqa: E402

WORDS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@dataclass(frozen=True)
class Fact:
    """Something that pages state.

    Attributes:
        source: The file or files that decide.
        value: Computes it from them, as pages write it.
    """

    source: str
    value: Callable[[], str]


def word(number: int) -> str:
    """Returns a small number as a word, a large one in digits."""
    return WORDS[number] if number < len(WORDS) else str(number)


def listed(names: list[str]) -> str:
    """Returns names as a sentence lists them: ``a, b and c``."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


# ------------------------------------------------------------------------------------------------------------- packages
@cache
def project() -> dict[str, Any]:
    """Returns ``pyproject.toml``."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def pythons() -> list[str]:
    """Returns the versions of Python that the package may be installed on."""
    low, high = re.findall(r"3\.(\d+)", project()["project"]["requires-python"])
    return [f"3.{minor}" for minor in range(int(low), int(high))]


def pins(file: str = "constraints.txt") -> dict[str, str]:
    """Returns package -> version of a file of constraints."""
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    return dict(line.partition(";")[0].strip().split("==") for line in lines if line and not line.startswith("#"))


def paddles() -> set[str]:
    """Returns the versions of Paddle that tests compare with: those that have an environment, and that of recorded signatures."""
    environments = (ROOT / "bench" / "paddle_env.py").read_text(encoding="utf-8")
    recorded = (ROOT / "tests" / "parity" / "signatures.py").read_text(encoding="utf-8").split('"""')[1]
    return {*re.findall(r"paddlepaddle==([\d.]+)", environments), *re.findall(r"\d+\.\d+\.\d+", recorded)}


# ----------------------------------------------------------------------------------------------------------------- GPUs
def record(folder: str, file: str) -> list[dict[str, Any]]:
    """Returns the lines of a file of a GPU's record."""
    lines = (RESULTS / folder / file).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def idle_tests() -> int:
    """Returns how many tests of programs failed by a fault of their own, before they compared anything: all of one function."""
    lines = record(seen.SEEN[-1].record, "programs.jsonl")
    return sum("::test_fused_programs[" in line["name"] for line in lines if line.get("outcome") == "failed")


def _last(file: str, *keys: str) -> str:
    """Returns numbers of the last line of the newest GPU record's file, added up."""
    end = record(seen.SEEN[-1].record, file)[-1]
    return str(sum(int(end[key]) for key in keys))


# --------------------------------------------------------------------------------------------------------------- speeds
@cache
def fusions_on_the_cpu() -> list[str]:
    """Returns what the newest record of operators finds of each row beside itself unfused."""
    rows = results.read(max(RESULTS.glob("ops-*.json")))["rows"]
    return [one.finding for row in rows for peer, one in results.judgements(row) if peer == "unfused"]


def cores() -> int:
    """Returns the threads with which the speeds were measured, which is the number of the machine's cores."""
    (found,) = {(result["machine"]["cores"], max(result["threads"])) for _, result in speed_table.read()}
    assert found[0] == found[1], found
    return int(found[0])


def devices() -> list[int]:
    """Returns the numbers of devices that the tables of `scaling.md` have, beyond one."""
    text = (ROOT / "docs" / "scaling_table.py").read_text(encoding="utf-8")
    match = re.search(r"^DEVICES = \((.*)\)$", text, re.MULTILINE)
    assert match is not None
    return [int(number) for number in match[1].split(",")][1:]


def operators() -> set[str]:
    """Returns the number of operators, which `ops.md` counts in the registry."""
    match = re.search(r"^(\d+) operators\.", (ROOT / "docs" / "ops.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert match is not None
    return {match[1]}


def runs() -> dict[str, dict[str, Any]]:
    """Returns what full runs of the examples reached, as recorded; short ones are left out."""
    found = json.loads((ROOT / "docs" / "pictures" / "runs.json").read_text(encoding="utf-8"))
    return {name: run for name, run in found.items() if not run["options"]}


FACTS: Mapping[str, Fact] = {
    "version": Fact("tstatic/version.py", lambda: __version__),
    "python": Fact("pyproject.toml", lambda: f"{pythons()[0]} to {pythons()[-1]}"),
    "packages": Fact("pyproject.toml", lambda: word(len(project()["project"]["dependencies"]) - 1)),
    "licence": Fact("pyproject.toml", lambda: project()["project"]["license"]),
    "gpu_chips": Fact("tstatic/chips/seen.py", seen.on_chips),
    "gpu_several": Fact("tstatic/chips/seen.py", seen.on_several),
    "gpu_record": Fact("tstatic/chips/seen.py", lambda: f"bench/results/{seen.SEEN[-1].record}/README.md"),
    "gpu_kernels": Fact("bench/results/gpu-*/contact.jsonl", lambda: _last("contact.jsonl", "cases")),
    "gpu_right": Fact("bench/results/gpu-*/contact.jsonl", lambda: _last("contact.jsonl", "good")),
    "gpu_tests": Fact("bench/results/gpu-*/tests.jsonl", lambda: _last("tests.jsonl", "passed")),
    "gpu_tests_failed": Fact("bench/results/gpu-*/tests.jsonl", lambda: word(int(_last("tests.jsonl", "failed")))),
    "gpu_programs_passed": Fact("bench/results/gpu-*/programs.jsonl", lambda: _last("programs.jsonl", "passed")),
    "gpu_programs": Fact("bench/results/gpu-*/programs.jsonl", lambda: _last("programs.jsonl", "passed", "failed")),
    "gpu_idle_tests": Fact("bench/results/gpu-*/programs.jsonl", lambda: str(idle_tests())),
    "tritons": Fact(
        "constraints.txt, constraints-device.txt",
        lambda: word(len({pins()["triton"], pins("constraints-device.txt")["triton"]})),
    ),
    "modules": Fact("tstatic", lambda: str(sum(1 for _ in (ROOT / "tstatic").rglob("*.py")) // 100 * 100)),
    "compiled_chips": Fact("tstatic/target.py", lambda: listed(list(dict.fromkeys(c.architecture for c in target.CHIPS)))),
    "cores": Fact("bench/results", lambda: word(cores())),
    "fusion_rows": Fact("bench/results/ops-*.json", lambda: str(len(fusions_on_the_cpu()))),
    "fusion_faster": Fact("bench/results/ops-*.json", lambda: word(fusions_on_the_cpu().count("faster"))),
    "devices": Fact("docs/scaling_table.py", lambda: f"{min(devices())} to {max(devices())}"),
    "most_devices": Fact("docs/scaling_table.py", lambda: str(max(devices()))),
    "own_modules": Fact(
        "tests/unit/ratchets.json",
        lambda: str(
            json.loads((ROOT / "tests/unit/ratchets.json").read_text(encoding="utf-8"))[
                "own modules that `import tstatic` loads"
            ]
        ),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """A figure wherever it stands, in whatever sentence.

    Attributes:
        name: What it is.
        pattern: Finds it in the text of a page, whose lines are joined; the first group is the figure.
        source: The file or files that decide.
        allowed: What the figure may be.
        least: On how many pages it stands at least, so that a pattern which finds nothing is noticed.
    """

    name: str
    pattern: str
    source: str
    allowed: Callable[[], set[str]]
    least: int = 1


def _fact(name: str) -> Callable[[], set[str]]:
    return lambda: {FACTS[name].value()}


CHIP = "[ABH][1-9]00"
FIGURES = (
    Figure("versions of Python", r"Python (3\.\d+ to 3\.\d+)", "pyproject.toml", _fact("python"), 3),
    Figure(
        "versions of Python, one by one", r"Python (3\.\d+(?:, 3\.\d+)* (?:and|or) 3\.\d+)", "pyproject.toml",
        lambda: {listed(pythons()), listed(pythons()).replace(" and ", " or ")},
    ),
    Figure("the version", r"(?<!cff-)\bversion: (\d[\d.]*)", "tstatic/version.py", _fact("version"), 1),
    Figure("packages installed along", r"(\w+) small packages", "pyproject.toml", _fact("packages"), 2),
    Figure("the licence", r"[Ll]icen[cs]e: (Apache-\d\.\d)", "pyproject.toml", _fact("licence"), 2),
    Figure(
        "versions of Paddle", r"Paddle (\d+\.\d+\.\d+)", "bench/paddle_env.py, tests/parity/signatures.py",
        paddles, 5,
    ),
    Figure(
        "versions of Triton", r"[Tt]riton (\d+\.\d+\.\d+)", "constraints.txt, constraints-device.txt",
        lambda: {pins()["triton"], pins("constraints-device.txt")["triton"]}, 0,
    ),
    Figure(
        "chips that tstatic has run on", rf"(?:run|runs|tried) on (?:one|an|a)(?: chip,| GPU,)?(?: an?)? (?:NVIDIA )?({CHIP})\b",
        "tstatic/chips/seen.py", lambda: set(seen.chips()), 4,
    ),
    Figure("programs run on a GPU", r"(\d+ of \d+) tests passed", "bench/results/gpu-*/programs.jsonl",
           lambda: {f"{FACTS['gpu_programs_passed'].value()} of {FACTS['gpu_programs'].value()}"}),
    Figure("kernel tests run on a GPU", r"(\d+) of the interpreter's tests", "bench/results/gpu-*/tests.jsonl", _fact("gpu_tests")),
    Figure(
        "chips that kernels are compiled for", r"`?\"?(sm_\d+`?\"?, `?\"?sm_\d+`?\"? and `?\"?sm_\d+)", "tstatic/target.py",
        _fact("compiled_chips"), 2,
    ),
    Figure("devices of the model", r"2 to (\d+) (?:devices|CPU places)|[Ss]caling to (\d+) devices", "docs/scaling_table.py",
           _fact("most_devices"), 3),
    Figure("operators", r"(?<!Above )(?<!Host overhead: )\b(\d{3,}) operators\b", "docs/ops.md", operators),
    Figure("modules that an import loads", r"at most (\d+) of its", "tests/unit/ratchets.json", _fact("own_modules")),
)  # fmt: skip


def plain(text: str) -> str:
    """Returns a page's text without marks of code and with its lines joined; a line of a table stays a line."""
    lines: list[str] = []
    for line in text.replace("`", "").replace('"', "").splitlines():
        goes_on = lines and line and lines[-1] and line[0] not in "|#*-" and lines[-1][-1] != "|"
        lines[-1:] = [f"{lines[-1]} {line.lstrip()}"] if goes_on else [*lines[-1:], line]
    return "\n".join(lines)


def found(figure: Figure, pages: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yields page, figure and the words around it, wherever one stands in plain texts."""
    for page, text in pages.items():
        for match in re.finditer(figure.pattern, text, re.MULTILINE):
            yield page, next(group for group in match.groups() if group), match[0]


def differing(figure: Figure, pages: Mapping[str, str]) -> list[str]:
    """Returns a line for each place where a page says something else than the source."""
    allowed = figure.allowed()
    return [
        f"{page}: '{words}'; by {figure.source}, {figure.name}: {' or '.join(sorted(allowed))}"
        for page, value, words in found(figure, pages)
        if value not in allowed
    ]


def pages() -> dict[str, str]:
    """Returns the plain text of every page and file that may state a fact, by its path below the root."""
    files = [
        ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CITATION.cff", ROOT / "Makefile", ROOT / "tests" / "README.md",
        *sorted(file for file in (ROOT / "docs").rglob("*.md") if file.parent.name != "design"),
    ]  # fmt: skip
    return {str(file.relative_to(ROOT)): plain(file.read_text(encoding="utf-8")) for file in files}
