"""Every sentence of the README and of the front page is checked, and a fact is the same wherever it stands."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import sentences, source
from tests.helpers.docs import facts

ROOT = source.ROOT
FRONT = ("README.md", "docs/index.md")
"""Pages of which every sentence is listed."""
LISTED: dict[str, list[dict[str, Any]]] = tomllib.loads((ROOT / "docs" / "claims.toml").read_text(encoding="utf-8"))
CLAIMS, NOTHING = LISTED["claim"], LISTED["nothing"]
KINDS = ("an instruction", "a heading")
"""What a sentence may be that claims nothing."""


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def filled(says: str) -> str:
    """A claim's sentence with its facts as their sources have them."""
    return re.sub(r"\{(\w+)\}", lambda match: facts.FACTS[match[1]].value(), says)


def names(says: str) -> list[str]:
    """The facts in a claim's sentence."""
    return re.findall(r"\{(\w+)\}", says)


def unlisted(page: str, text: str, entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Sentences of a page without an entry."""
    known = Counter(filled(entry["says"]) for entry in entries if entry["page"] == page)
    return list((Counter(sentences.sentences(text)) - known).elements())


def gone(text: str, entry: Mapping[str, Any]) -> bool:
    """Whether a page does not say what an entry says: as a whole sentence on the pages in front, as a part of a text elsewhere."""
    if entry["page"] in FRONT:
        return filled(entry["says"]) not in sentences.sentences(text)
    return filled(entry["says"]) not in re.sub(r"\s+", " ", text)


def parts(entry: Mapping[str, Any]) -> dict[str, list[str]]:
    """The claims of a sentence, and the tests of each."""
    tests = entry.get("tests", [])
    return tests if isinstance(tests, dict) else {entry["says"]: tests}


def unchecked(entry: Mapping[str, Any]) -> list[str]:
    """What is wrong with how a sentence's claims are checked."""
    says: str = entry["says"]
    wrong = [f"{name} {why}" for tests in parts(entry).values() for name in tests if (why := sentences.objection(name))]
    wrong += [f"there is no fact {name}" for name in names(says) if name not in facts.FACTS]
    wrong += [f"the sentence does not say: {part}" for part in parts(entry) if part not in says]
    return wrong + [
        f"no test and no fact: {part}" for part, tests in parts(entry).items() if not tests and not names(part)
    ]


# ------------------------------------------------------------------------------------------------------------ sentences
@pytest.mark.parametrize("page", FRONT)
def test_every_sentence_is_a_claim_or_claims_nothing(page: str) -> None:
    found = unlisted(page, read(page), [*CLAIMS, *NOTHING])
    assert found == [], "add each to docs/claims.toml, with the test or the fact that would be untrue were it untrue"


def test_every_entry_stands_on_its_page() -> None:
    """Guards against a claim whose figure differs from its source, and against entries of sentences that are gone."""
    assert [
        (entry["page"], filled(entry["says"])) for entry in [*CLAIMS, *NOTHING] if gone(read(entry["page"]), entry)
    ] == []


def test_every_claim_is_checked() -> None:
    assert [(entry["says"], wrong) for entry in CLAIMS for wrong in unchecked(entry)] == []
    assert sum(len(parts(entry)) for entry in CLAIMS if entry["page"] in FRONT) >= 40


NAMES = re.compile(
    r"`[^`]*`|\]\([^)]*\)|pip install[^#]*#|\bGPT-2( 124M)?|\bH200\b|\bbfloat16\b|\bbelow 1\b|\bfloat16\b|\{\w+\}|<!--.*?-->"
)
"""Names that hold a digit, and what computes one."""


def typed(page: str, text: str) -> list[str]:
    """Figures of a page that are typed rather than computed: in its claims, or outside of them."""
    says = [entry["says"] for entry in CLAIMS if entry["page"] == page]
    found = [one for one in says if re.search(r"\d", NAMES.sub("", one))]
    if page not in FRONT:
        prose = re.sub(r"\s+", " ", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL))
        for one in sorted(map(filled, says), key=len, reverse=True):
            prose = prose.replace(one, "")
        found += re.findall(r".{0,40}\d.{0,40}", NAMES.sub("", prose))
    return found


@pytest.mark.parametrize("page", [*FRONT, "docs/gpu_status.md"])
def test_every_figure_is_computed_from_its_source(page: str) -> None:
    assert typed(page, read(page)) == [], "make it a fact of docs/facts.py"


def test_a_typed_figure_is_found() -> None:
    page = "docs/gpu_status.md"
    (found,) = typed(page, f"{read(page)} It is 3 times as fast.")
    assert "3 times" in found


def test_what_claims_nothing_is_short_and_says_what_it_is() -> None:
    assert [entry["says"] for entry in NOTHING if entry["kind"] not in KINDS] == []
    assert [entry["says"] for entry in NOTHING if re.search(r"\d", re.sub(r"\(.*?\)", "", entry["says"]))] == [], (
        "a figure claims"
    )
    assert sum(entry["kind"] != "a heading" for entry in NOTHING) <= 4
    assert all(entry["says"].startswith("#") for entry in NOTHING if entry["kind"] == "a heading")


def test_every_fact_has_a_source_and_is_used() -> None:
    text = (ROOT / "docs" / "facts.py").read_text(encoding="utf-8")
    used = {name for entry in CLAIMS for name in names(entry["says"])} | set(re.findall(r'_fact\("(\w+)"\)', text))
    assert facts.FACTS.keys() - used == set()
    for name, fact in facts.FACTS.items():
        assert fact.value(), name
        assert [pattern for pattern in fact.source.split(", ") if not list(ROOT.glob(pattern))] == [], name


# -------------------------------------------------------------------------------------------------------------- figures
PAGES = facts.pages()


@pytest.mark.parametrize("figure", facts.FIGURES, ids=lambda figure: figure.name.replace(" ", "-"))
def test_a_figure_is_the_same_wherever_it_stands(figure: Any) -> None:
    assert facts.differing(figure, PAGES) == []
    pages = {page for page, _, _ in facts.found(figure, PAGES)}
    assert len(pages) >= figure.least, f"its pattern finds {figure.name} on {sorted(pages)} alone"


def test_every_page_says_the_same_of_several_gpus() -> None:
    """Guards against pages that differ in whether a program ever ran on several GPUs."""
    about = re.compile(r"several GPUs", re.IGNORECASE)
    verb = re.compile(r"\b(run|ran|runs|executed|tried|measured|tested|works?)\b")
    several = facts.seen.on_several()
    said = {
        page: [one for one in sentences.sentences(text) if about.search(one) and verb.search(one)]
        for page, text in ((page, read(page)) for page in PAGES if page.endswith(".md"))
    }
    same = (several, "| never executed |")
    assert [(page, one) for page, found in said.items() for one in found if not any(map(one.__contains__, same))] == []
    assert {page for page, found in said.items() if found} >= {
        *FRONT,
        "docs/gpu_status.md",
        "docs/scaling.md",
        "docs/devices.md",
    }


def test_what_examples_reach_is_the_same_on_their_page_and_in_the_gallery() -> None:
    """Guards against a full run's figure on the page that is another run's than the recorded one."""
    lines = {
        cells[0].strip("`"): cells for cells in sentences.rows(read("docs/examples.md")) if cells[0].endswith(".py`")
    }
    for name, run in facts.runs().items():
        _, _, reached, goal, *_ = lines[f"{name}.py"]
        figure = re.findall(r"\d\.\d+", reached)[0]
        assert figure == f"{run['reached']:.{len(figure) - 2}f}", (
            f"{name}: {figure} on the page, {run['reached']} on record"
        )
        assert re.findall(r"\d\.\d+", goal)[0] == run["goal"].split()[-1], name
        assert f"{run['reached']:.4g}" in read("docs/gallery.md"), name
    assert len(facts.runs()) >= 5


# ------------------------------------------------------------------------------------------------- each check finds a fault
@pytest.mark.parametrize("page", FRONT)
@pytest.mark.parametrize(
    "planted",
    [
        "It is the fastest of all.",
        "`tstatic` never fails.",
        "* **A sixth reason.** It needs no memory.",
        "```shell\npip install tstatic    # from the index\n```",
        "![A picture of something](docs/pictures/digits.png)",
        "## The fastest of all",
        "| Net | Time |\n|---|---|\n| GPT | the least of all |",
        "| Net | Time |\n|---|---|\n| [GPT](docs/speed.md) | 3 ms |",
        "```text\nloss 0.0000\n```",
        "<!-- claims: made from nothing -->\nIt is fast.\n<!-- end of claims -->",
    ],
)
def test_a_new_sentence_is_found(page: str, planted: str) -> None:
    assert len(unlisted(page, f"{read(page)}\n\n{planted}\n", [*CLAIMS, *NOTHING])) == 1


def test_a_sentence_that_is_said_twice_needs_two_entries() -> None:
    twice = sentences.sentences(read("README.md"))[-1]
    assert unlisted("README.md", f"{read('README.md')}\n\n{twice}\n", [*CLAIMS, *NOTHING]) == [twice]


@pytest.mark.parametrize(
    ("right", "planted"),
    [
        ("one chip, an H200", "two chips, an H100 and an H200"),
        ("never been executed", "been executed"),
        ("six small packages", "five small packages"),
        ("one of 95 rows", "3 of 95 rows"),
        ("on two cores", "on four cores"),
    ],
)
def test_a_claim_that_differs_from_its_source_is_found(right: str, planted: str) -> None:
    text = read("README.md")
    assert right in text
    changed = text.replace(right, planted)
    assert [entry["says"] for entry in CLAIMS if entry["page"] == "README.md" and gone(changed, entry)]
    assert unlisted("README.md", changed, [*CLAIMS, *NOTHING])


def test_a_record_that_changes_makes_its_claim_untrue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "fusions_on_the_cpu", lambda: ["faster", "slower", "same"])
    monkeypatch.setattr(facts, "record", lambda *_: [{"passed": 3, "failed": 1, "good": 2, "cases": 4}])
    found = [entry["says"] for entry in CLAIMS if gone(read(entry["page"]), entry)]
    for part in ("{fusion_faster}", "{gpu_right}", "{gpu_tests}", "{gpu_programs_passed}"):
        assert any(part in says for says in found), part


@pytest.mark.parametrize(
    ("name", "planted"),
    [
        ("versions of Python", "It runs on Python 3.10 to 3.13."),
        ("versions of Python, one by one", "It needs Python 3.12 or 3.13."),
        ("the version", "version: 0.2.0"),
        ("packages installed along", "numpy and seven\nsmall packages"),
        ("the licence", "Licence: Apache-1.1"),
        ("versions of Paddle", "compared with Paddle 2.6.1"),
        ("versions of Triton", "compiled by `triton 3.5.0`"),
        ("chips that tstatic has run on", "Kernels have run on one chip, an H100."),
        ("chips that tstatic has run on", "All of this has run on one A100."),
        ("programs run on a GPU", "624 of 664 tests passed"),
        ("kernel tests run on a GPU", "386 of the interpreter's tests"),
        ("chips that kernels are compiled for", 'It takes `"sm_80"`, `"sm_90"` and `"sm_120"`.'),
        ("devices of the model", "on 2 to 128 devices"),
        ("operators", "It has 420 operators."),
        ("modules that an import loads", "at most 35 of its modules"),
    ],
)
def test_a_figure_that_stands_twice_and_differs_is_found(name: str, planted: str) -> None:
    figure = next(one for one in facts.FIGURES if one.name == name)
    (found,) = facts.differing(figure, {"page.md": facts.plain(planted)})
    assert found.startswith("page.md: ")
    assert figure.source in found


def test_every_figure_is_planted_above() -> None:
    (mark,) = (m for m in test_a_figure_that_stands_twice_and_differs_is_found.pytestmark if m.name == "parametrize")
    assert {name for name, _ in mark.args[1]} == {figure.name for figure in facts.FIGURES}


TESTS = """
import pytest
from tests.folder.test_other import check, nothing

def helper(): assert 1 + 1 == 2
def test_plain(): assert len("a") == 1
def test_raising():
    with pytest.raises(ValueError): int("x")
def test_helped(): helper()
def test_helped_elsewhere(): check()
def test_empty(): pass
def test_constant(): assert True
def test_helped_by_nothing(): nothing()
@pytest.mark.skip
def test_skipped(): assert 1 + 1 == 2
@pytest.mark.xfail(strict=False)
def test_failing(): assert 1 + 1 == 3
@pytest.mark.gpu
def test_elsewhere(): assert 1 + 1 == 2
"""


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("test_plain", ""), ("test_raising", ""), ("test_helped", ""), ("test_helped_elsewhere", ""),
        ("test_empty", "asserts nothing"), ("test_constant", "asserts nothing"), ("test_helped_by_nothing", "asserts nothing"),
        ("test_skipped", "does not run, or may fail"), ("test_failing", "does not run, or may fail"),
        ("test_elsewhere", "does not run, or may fail"), ("test_gone", "has no such function"),
    ],
)  # fmt: skip
def test_a_test_that_checks_nothing_is_found(name: str, why: str, tmp_path: Path) -> None:
    folder = tmp_path / "tests" / "folder"
    folder.mkdir(parents=True)
    (folder / "test_file.py").write_text(TESTS)
    (folder / "test_other.py").write_text("def check(): assert len('b') == 1\ndef nothing(): return 1\n")
    assert sentences.objection(f"tests/folder/test_file.py::{name}", tmp_path) == why


def test_a_file_that_does_not_run_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "tests" / "folder"
    folder.mkdir(parents=True)
    (folder / "test_file.py").write_text(
        "import pytest\npytestmark = pytest.mark.gpu\ndef test_it(): assert len('a')\n"
    )
    assert sentences.objection("tests/folder/test_file.py::test_it", tmp_path) == "does not run, or may fail"


@pytest.mark.parametrize("name", ["tests/unit/test_nowhere.py::test_it", "tests/unit/test_claims.py", "a test"])
def test_a_test_that_does_not_exist_is_found(name: str) -> None:
    assert unchecked({"page": "README.md", "says": "It works.", "tests": [name]})
    assert unchecked({"page": "README.md", "says": "It works."}) == ["no test and no fact: It works."]
    assert unchecked({"page": "README.md", "says": "It works.", "tests": {"It works": []}})
    tests = {"It is fast": ["tests/unit/test_claims.py::test_every_claim_is_checked"]}
    assert unchecked({"page": "README.md", "says": "It works.", "tests": tests}) == [
        "the sentence does not say: It is fast"
    ]
    assert unchecked({"page": "README.md", "says": "It has {no_such_fact}."})
