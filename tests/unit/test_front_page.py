"""What the README and the front page claim and no other test checks: set-up, speeds, GPUs, what is not there, where to read."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import tstatic as paddle
from tests.bench import scripts
from tests.distributed.test_strategy import FIELDS
from tests.helpers import sentences, source
from tests.helpers.docs import facts
from tstatic import static, target, unsupported
from tstatic.chips import seen

ROOT = source.ROOT
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
MAKE = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


# --------------------------------------------------------------------------------------------------------------- set-up
def test_every_file_says_the_same_of_python_and_linux() -> None:
    """Guards against a version of Python that the package takes and the linter, the types or `make` do not."""
    versions = facts.pythons()
    listed = [one.split(" :: ") for one in PROJECT["project"]["classifiers"]]
    assert [one[-1] for one in listed if one[:2] == ["Programming Language", "Python"]] == versions
    assert [one[-1] for one in listed if one[0] == "Operating System"] == ["Linux"]
    assert PROJECT["tool"]["mypy"]["python_version"] == versions[0]
    assert PROJECT["tool"]["ruff"]["target-version"] == f"py{versions[0].replace('.', '')}"
    low, high = (int(one.split(".")[1]) for one in (versions[0], versions[-1]))
    assert f"(3, {low}) <= sys.version_info[:2] < (3, {high + 1})" in read("Makefile")


def test_the_install_page_has_what_each_extra_brings() -> None:
    rows = {cells[0].strip("`"): cells[1] for cells in sentences.rows(read("docs/install.md"))}
    extras: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
    assert rows.keys() >= extras.keys()
    for name in set(extras) - {"all", "dev"}:
        brought = {re.split(r"[^\w-]", need)[0] for need in extras[name]} - {"tstatic"}
        assert brought == set(re.findall(r"[\w-]+", rows[name])) - {"on", "Linux"}, name
    assert {re.split(r"[^\w-]", need)[0] for need in extras["gpu"]} == {"torch", "triton"}


def would_run(word: str, venv: Path) -> str:
    """What `make` says that it would run on a machine without an environment."""
    environ = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL")}
    command = ["make", "-n", word, f"VENV={venv}", f"PYTHON={sys.executable}"]  # else it looks for one, many times
    return subprocess.run(command, cwd=ROOT, env=environ, check=True, capture_output=True, text=True).stdout


@MAKE
def test_both_commands_make_their_own_environment(tmp_path: Path) -> None:
    venv = tmp_path / "new"
    for word, extra, last in (("demo", "demo", "examples/digits.py"), ("test", "dev", "-m pytest")):
        said = would_run(word, venv)
        steps = [said.index(part) for part in (f"-m venv --clear {venv}", f"--editable '.[{extra}]'", last)]
        assert steps == sorted(steps)
    assert not venv.exists()


@MAKE
def test_make_test_runs_all_but_what_is_slow_and_kernels_in_the_interpreter(tmp_path: Path) -> None:
    rings = [line for line in would_run("test", tmp_path / "new").split(";") if "-m pytest" in line]
    assert len(rings) == 2
    assert [re.findall(r'-m "([^"]*)"', ring) for ring in rings] == [["not slow"]] * 2
    assert "TSTATIC_CPU_BACKEND=interpret" in rings[1]
    assert re.findall(r"--(?:ignore|deselect) ?(\S+)", rings[0]) == ["tests/kernels"]


def test_the_citation_and_the_licence_are_those_of_the_package() -> None:
    citation = dict(line.split(": ", 1) for line in read("CITATION.cff").splitlines() if ": " in line)
    assert citation["version"] == facts.FACTS["version"].value()
    assert citation["license"] == PROJECT["project"]["license"] == "Apache-2.0"
    (file,) = PROJECT["project"]["license-files"]
    assert re.match(r"\s*Apache License\s+Version 2\.0, January 2004", read(file))


def test_a_report_of_a_fault_has_what_the_doctor_prints() -> None:
    section = read("CONTRIBUTING.md").partition("## Report a fault")[2].partition("\n## ")[0]
    assert "`tstatic doctor`" in section
    for recipe in ("op", "fusion", "device"):
        assert re.search(rf"^## Add an? {recipe}$", read("CONTRIBUTING.md"), re.MULTILINE), recipe


# --------------------------------------------------------------------------------------------------------------- speeds
def test_a_ratio_is_our_median_over_the_peers() -> None:
    """Guards against a table of the wrong way round, and of minima."""
    rows = [
        {"name": name, "threads": 2, "median_s": median, "min_s": least, "quiet_turns": 1}
        for name, median, least in (("tstatic", 3.0, 1.0), ("torch", 2.0, 2.0))
    ]
    result = {"threads": [2], "cases": {"a": {"title": "A", "rows": rows}}}
    assert facts.speed_table.ratios([("2001-01-01", result)])["A", "torch"] == (1.5, "2001-01-01")
    found = [measured for _, measured in facts.speed_table.read()]
    assert {measured["machine"]["cores"] for measured in found} == {facts.cores()}
    # Imports and plans are measured without peers.
    paddles = {measured["versions"]["paddle"] for measured in found if "paddle" in measured["versions"]}
    assert {f"Paddle {version}" for version in paddles} == {facts.speed_table.SHORT_PEERS["paddle"]}


def test_peers_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against a bench that measures one peer after the other, while the machine changes."""
    workers = scripts.script("workers")
    order: list[str] = []

    class Idle:
        def __init__(self, name: str) -> None:
            self.name = name

        def close(self) -> None:
            pass

    def turn(worker: Idle, seconds: float) -> Any:
        order.append(worker.name)
        return workers.Turn([1.0], 1.0, 0.0)

    monkeypatch.setattr(workers, "_prepare", lambda peer: Idle(peer.name))
    monkeypatch.setattr(workers, "_turn", turn)
    workers.measure([workers.Peer(name, 2, "", ("python", "", ())) for name in "abc"], 3, 1.0, 0.0)
    assert order == [*"abc", *"bca", *"cab"]


def test_networks_that_lose_most_come_first() -> None:
    rows = [
        cells for cells in sentences.rows(facts.speed_table.readme().replace("<!-- ", "")) if cells[-1].startswith("20")
    ]
    ratios = [float(cells[1].strip("*")) for cells in rows]
    assert len(ratios) >= 5
    assert ratios == sorted(ratios, reverse=True)


def test_fusion_brings_no_speed_on_the_cpu_on_record() -> None:
    """If more rows are faster than chance makes (one in 20), the README and the front page must no longer say so."""
    found = facts.fusions_on_the_cpu()
    assert found.count("faster") <= len(found) / 20
    assert len(found) > 50


# ----------------------------------------------------------------------------------------------------------------- GPUs
def test_what_was_seen_on_gpus_is_what_the_records_have() -> None:
    """Guards against a chip, or several GPUs, that no record has, and against a record that no page tells of."""
    assert [one.record for one in seen.SEEN] == sorted(p.name for p in facts.RESULTS.glob("gpu-*") if p.is_dir())
    for one in seen.SEEN:
        files = (facts.RESULTS / one.record).glob("*.jsonl")
        lines = [line for file in files for line in facts.record(one.record, file.name)]
        assert {line["name"] for line in lines if line.get("what") == "facts"} == {f"NVIDIA {one.chip}"}
        count = re.search(rf"^(\w+) NVIDIA {one.chip}s?\b", read(f"bench/results/{one.record}/README.md"), re.MULTILINE)
        assert count is not None, "the record does not begin with how many of which GPU there were"
        assert facts.WORDS.index(count[1].lower()) == one.gpus


def test_a_second_chip_and_a_second_gpu_change_the_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    before = seen.on_chips(), seen.on_several()
    monkeypatch.setattr(seen, "SEEN", (*seen.SEEN, seen.Seen("B200", 4, "gpu-2027-01-01")))
    assert seen.on_chips() == "On GPUs tstatic has run on 2 chips, B200, H200."
    assert seen.on_several() == "Programs on several GPUs, with NCCL, have been executed on up to 4."
    assert before == (facts.FACTS["gpu_chips"].value().replace("2 chips, B200, H200", "one chip, an H200"), before[1])


def test_kernels_on_record_are_of_every_chip_and_both_versions_of_triton() -> None:
    folder = ROOT / "tests" / "kernels" / "golden"
    pinned = {facts.pins()["triton"], facts.pins("constraints-device.txt")["triton"]}
    files = [file for file in folder.glob("*.json") if re.fullmatch(r"[\d.]+-\w+\.json", file.name)]
    assert {file.name.partition("-")[0] for file in files} == pinned
    wanted = {one.architecture.removeprefix("sm_") for one in target.CHIPS}
    for file in files:
        chips: set[str] = set().union(*json.loads(file.read_text(encoding="utf-8")).values())
        assert chips == wanted, file.name


def test_a_step_beside_torch_compile_stands_in_the_record_alone() -> None:
    """Guards against the speed of a step that is not compared with its twin, on any page and in any message."""
    speed = r"(faster|slower|times as (fast|long)|\d\.\d\d)"
    claim = re.compile(rf"torch\.compile.*{speed}|{speed}.*torch\.compile")
    files = [ROOT / "CHANGELOG.md", *(ROOT / page for page in facts.pages()), *source.files("tstatic", "docs", "bench")]
    texts = {file: source.text(file) for file in files}
    found = [
        (str(file.relative_to(ROOT)), one)
        for file, text in texts.items()
        if "torch.compile" in text
        for one in sentences.sentences(text)
        if claim.search(one) and re.search(r"GPT|\bsteps?\b|\btrain", one)
    ]
    assert found == []
    assert claim.search("GPT-2 124M trains 1.15 times as fast as with torch.compile")

    record = seen.SEEN[0].record
    steps = {(row["name"], row["run"]): row for row in facts.record(record, "steps.jsonl")}
    ours, theirs = steps["tstatic", "after"], steps["torch.compile", "after"]
    text = re.sub(r"\s+", " ", read(f"bench/results/{record}/README.md"))
    ratio = f"{theirs['median_s'] / ours['median_s']:.2f}"
    assert f"**The {ratio} does not compare equals.** tstatic is at AMP level O2" in text
    assert "torch in autocast" in text
    assert "start from other initial weights" in text
    assert f"the losses are {ours['losses'][-1]:.2f} and {theirs['losses'][-1]:.2f}" in text
    assert f"in the {len(ours['losses'])}th step" in text


def test_figures_of_the_training_step_are_those_of_its_measurements() -> None:
    record = seen.SEEN[0].record
    steps = {(row["name"], row["run"]): row for row in facts.record(record, "steps.jsonl")}
    text = read(f"bench/results/{record}/README.md")
    for run in ("before", "after"):
        ours, theirs = steps["tstatic", run], steps["torch.compile", run]
        cells = [
            f"{1e3 * ours['median_s']:.2f}",
            f"{1e3 * theirs['median_s']:.2f} ({theirs['median_s'] / ours['median_s']:.2f})",
        ]
        cells += [f"{row['held_bytes'] / 1e9:.2f}" for row in (ours, theirs)]
        assert f"| {run} | {' | '.join(cells)} |" in text


# ---------------------------------------------------------------------------------------------- what is there, and is not
def test_a_kernel_holds_the_operators_and_the_users_lines() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        y = paddle.exp(paddle.tanh(static.data("x", [4])))  # this line
    strategy = static.BuildStrategy()
    strategy.enable_auto_fusion = True
    (kernel,) = static.CompiledProgram(main, strategy).explain([y]).kernels
    line = next(i for i, text in enumerate(source.text(Path(__file__)).splitlines(), 1) if "# this line" in text)
    compile(kernel.text, "kernel.py", "exec")
    for op in ("tanh", "exp"):
        assert f"# {op}\n" in kernel.code
        assert f"\n    {op}  at {Path(__file__).name}:{line}\n" in kernel.text


def test_calls_of_the_dynamic_mode_say_what_to_write() -> None:
    names = ("jit", "Model", "autograd", "fluid.dygraph.guard", "fluid.dygraph.to_variable", "fluid.dygraph.Linear")
    for name in names:
        assert "static.Executor.run" in (unsupported.advice(name) or ""), name


def test_ways_to_split_a_model_are_refused() -> None:
    refused = {name for name, field in FIELDS.items() if field.outcome.status == "refused"}
    assert {"pipeline", "tensor_parallel", "sharding", "hybrid_configs"} <= refused
    (entry,) = (one for one in unsupported.UNSUPPORTED if one.why.startswith("Pipeline and tensor parallelism"))
    assert "distributed.split" in entry.names


# -------------------------------------------------------------------------------------------------------- where to read
DOCS = ROOT / "docs"
GENERATED = {"api.md", "ops.md", "strategies.md", "flags.md", "errors.md", "plan.md"}
SAYS = [cells for cells in sentences.rows(read("docs/index.md")) if "](" in cells[0]]
LINKS = [re.findall(r"\]\(([^)]+)\)", cells[0])[0] for cells in SAYS]


def share(says: str, page: str) -> float:
    """How many of the words of a row stand on the page, by their first six letters."""
    text = (DOCS / page).read_text(encoding="utf-8").lower()
    words = {word[:6] for word in re.findall(r"[a-z]{5,}", says.partition(" (")[0].lower())}
    return sum(word in text for word in words) / len(words)


def test_each_row_says_what_its_page_has() -> None:
    assert [(page, cells[1]) for cells, page in zip(SAYS, LINKS, strict=True) if share(cells[1], page) <= 0.5] == []


def test_rows_beside_another_page_would_be_seen() -> None:
    moved = [share(cells[1], page) for cells, page in zip(SAYS, [*LINKS[1:], LINKS[0]], strict=True)]
    assert sum(one <= 0.5 for one in moved) > len(moved) / 2


def test_rows_say_which_pages_are_generated_and_which_a_test_reads() -> None:
    assert {page for cells, page in zip(SAYS, LINKS, strict=True) if "(generated)" in cells[1]} == GENERATED
    for page in GENERATED:
        assert "by `make docs`" in (DOCS / page).read_text(encoding="utf-8")[:400], page
    read_by_tests = [page for cells, page in zip(SAYS, LINKS, strict=True) if "(read by a test)" in cells[1]]
    texts = [source.text(file) for file in source.files("tests")]
    assert read_by_tests
    assert [
        page for page in read_by_tests if not any(f'"{page}"' in text or f"docs/{page}" in text for text in texts)
    ] == []


def test_the_front_page_leads_to_every_page() -> None:
    text = read("docs/index.md")
    trees = {f"{line.strip()}.md" for block in re.findall(r"```\{toctree\}\n(.*?)```", text, re.DOTALL)
             for line in block.splitlines() if line and not line.startswith(":")}  # fmt: skip
    pages = {file.name for file in DOCS.glob("*.md")} - {"index.md"}
    assert pages <= trees
    assert [page for page in trees if not (DOCS / page).is_file()] == []
    assert {"tutorials/index.md", "howto/index.md", "reference/index.md"} <= trees
