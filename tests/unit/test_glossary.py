"""The words of docs/glossary.md are used as it says; names and phrases that were given up do not return."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.helpers import source
from tests.helpers.measures import trees
from tstatic.fusion.codegen.text import script

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs" / "glossary.md"

# Old names -> what they became, by the places in which they are not defined again (below tstatic/; "**": anywhere in it).
RENAMED = (
    ("Card CARDS card_of", "OpDef OPS op_def", "**"),
    ("Spelling SPELLINGS spelled", "Export PUBLIC_API export", "**"),
    ("Piece PARTIAL", "Tile PARTIAL_SUM", "ir/ ops/ devices/ runtime/"),
    ("Lanes joined", "TileChain chain_steps", "devices/"),
    ("Work makers", "BoundStep tile_binders", "devices/"),
    ("Company", "Replicas", "**"),
    ("Crew Replica crew", "ReplicaThreads ReplicaScope", "**"),
    ("Member", "Communicator; OpInfo", "**"),
    ("meet", "rendezvous", "comm/"),
    ("standing", "current_op", "runtime/ comm/"),
    ("blame", "find_failed_op; failed_rank", "devices/ comm/ runtime/"),
    ("owners", "op_of_call", "devices/ runtime/"),
    ("Launch", "ProcessInfo", "comm/"),
    ("Slot", "Storage", "plan/"),
    ("Region", "SubBlock", "ir/frozen.py"),
    ("Calls Buffer Parameter", "Launches KernelArgument KernelParameter", "fusion/codegen/"),
    ("Target", "OutputView", "ops/base/norm.py"),
    ("reached", "extract_function", "chips/"),
    ("Bound Copies Fill AssignValue _Ufunc", "CallRef", "ops/"),
    ("Pointwise Reduced Update _Sum", "ExpressionRef", "ir/ ops/"),
    ("needs", "scratch_metas", "ops/base/call_ref.py ir/ref.py"),
    ("Companies", "nothing: a CompileCache keeps compilations", "static/"),
    ("settle", "accumulate; resolve_process", "autodiff/ comm/"),
    ("contribute emitted Draft", "add_partial grad_from_rule PendingOp", "autodiff/"),
    ("Draft", "ProgramBuilder", "tools/testing/"),
    ("handed_on", "eliminate_identity_gradients", "fusion/"),
    ("demand demands TOGETHER", "apply_explicit_groups has_explicit_groups EXPLICIT_GROUPS", "fusion/"),
    ("Unfit Refused Apart", "MatchRejected Rejection RejectedPair", "fusion/"),
    ("NoKernel Group Place _places space", "CodegenUnsupported LoopNest AxisMap iteration_space", "fusion/"),
    ("streams state_streams", "flat_buffers state_buffers", "plan/"),
    ("MOST_STREAMS", "MAX_FULL_ARRAYS", "fusion/patterns/auto.py"),
    ("Own", "KernelLocal", "fusion/codegen/"),
    ("alone", "standalone_main", "fusion/codegen/text/script.py"),
    ("apart", "no_chaining", "plan/ devices/"),
    ("inquire", "build_explanation", "static/"),
    ("_rewritten", "replace_matches", "fusion/engine/__init__.py"),
    ("Verdict Answer Traffic", "PropertyStatus FusionAnswer MemoryTraffic", "static/"),
    ("Verdict", "RankFailure", "comm/"),
    ("heard lost tick", "on_message on_disconnect on_timer", "comm/"),
    (
        "need_rank need_integer need_same_dtype need_some need_sizes need_elements need_labels need_fitting",
        "check_*",
        "ops/",
    ),
    ("refuse", "TstaticError.add_context", "ops/base/shapes.py"),
    ("of_floats of_numbers", "infer_*", "ops/base/one_input.py"),
    (
        "again mapped take_again",
        "grad_is_forward_op grad_is_op grad_is_gather",
        "ops/base/gradients.py ops/reduce/ordering.py",
    ),
    ("single several listed", "emit_one emit_list as_list", "ops/base/shapes.py"),
    ("Way ways", "SplitAxis candidates", "ops/matmul/_product.py"),
    ("Values", "ValueRange", "ir/opdef.py"),
    ("moves terms noise trial", "perturbation magnitudes rounding_noise runner", "tools/testing/"),
    ("twin", "duplicate", "passes/cse.py"),
    ("twin", "startup_var", "optimizer/optimizer.py"),
    ("twin", "copied", "ir/edit.py"),
    ("twin float64_twin", "float64_program", "tools/testing/tolerance.py"),
    ("parts", "partial_grads", "autodiff/backward.py"),
    ("rewrite", "simplify", "static/compile/pipeline.py"),
    ("rewritten", "as_program", "static/"),
    ("levels blocks Levels", "hierarchy Hierarchy", "comm/"),
    ("whole known choice", "check_int check_static_dim check_choice", "ir/checks.py"),
    ("wanted", "check_enabled", "nn/param.py"),
    ("divided", "check_divisible", "ir/checks.py"),
    ("whole", "check_int", "static/strategy/property.py"),
    ("Layer layer", "LayerNamer", "ir/build.py"),
    ("touched", "bump_version", "runtime/scope.py"),
)


def defined(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Names of classes, functions, parameters, variables and attributes that a file defines."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def defined_at_top(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Names of classes and functions, methods too, and of the constants of modules and classes."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        if isinstance(node, ast.Module | ast.ClassDef):
            for one in node.body:
                targets = one.targets if isinstance(one, ast.Assign) else [getattr(one, "target", None)]
                yield from (t.id for t in targets if isinstance(t, ast.Name))


@cache
def names_of(file: str, all: bool) -> frozenset[str]:
    """What a file defines, and its own name."""
    nodes = source.nodes(ROOT / file)
    return frozenset({Path(file).stem, *(defined(nodes) if all else defined_at_top(nodes))})


def at(where: str) -> list[str]:
    """The files of a row's places."""
    places = tuple(f"tstatic/{'' if place == '**' else place}" for place in where.split())
    return [file for file in trees() if file.startswith(places)]


@pytest.mark.parametrize("row", RENAMED, ids=lambda r: r[0].split()[0])
def test_an_old_name_is_not_defined_again(row: tuple[str, str, str]) -> None:
    old, new, where = row
    found = [f"{file}: {name}" for file in at(where) for name in set(old.split()) & names_of(file, all=False)]
    assert found == [], f"call it {new}"
    # Test ids and tables show that the row looks at something.
    assert at(where) != []


def test_how_programs_are_cut_is_asked_of_a_target() -> None:
    """The flag that a target replaced is neither a parameter nor a name in the part of a kernel's text that runs alone."""
    text = ast.walk(ast.parse(script._BEFORE + script._AFTER))
    assert "few" not in defined(text)
    assert [file for file in at("fusion/") if "few" in names_of(file, all=True)] == []


def table(title: str) -> list[list[str]]:
    """The rows of a table of the page."""
    part = GLOSSARY.read_text(encoding="utf-8").partition(f"## {title}\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in part.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows[1:]]


def test_the_names_of_the_page_stand_where_it_says() -> None:
    rows = table("Names")
    assert len(rows) > 15
    missing = []
    for names, where, _ in rows:
        (file,) = re.findall(r"`([\w/.]+)`", where)
        missing += [
            f"{n} in {file}" for n in re.findall(r"`(\w+)`", names) if n not in names_of(f"tstatic/{file}", all=True)
        ]
    assert missing == []


def test_each_word_has_one_row() -> None:
    words = [row[0] for row in table("Words")]
    assert len(words) > 30
    assert len(set(words)) == len(words)
    assert set(words) == {word.lower() for word in words}


# -------------------------------------------------------------------------------------------------------------- phrases
PHRASES = {
    r"[Ss]t(?:ands?|ood|anding)\s+for\b": "means, replaces, is",
    r"\b[Hh]angs?\s+on\b": "depends on",
    r"learned\s+numbers": "parameters",
    r"[Ww]ho\s+comes\b": "the caller's rank",
    r"(?<![Tt]here)\s(?:is|are)\s+no\s+(?!longer\b|more\b|other\b)\w": "is not a",
    r"\b(?:he|his|him|himself)\b": "they, the user, the caller",
    r"Waits for all replicas and returns what each brought": "All-gathers",
    r"ring together: then the last one gives way": "form a cycle; drop the last",
    r"whose gradient is ready last, first": "reverse order of gradient completion",
    r"for each its owner": "the op behind each",
    r"who launches the kernel keeps": "the caller keeps",
    r"What of a `+BuildStrategy`+ speaks about": "The BuildStrategy properties that",
    r"slots are bodies, then scalars": "tensor slots, then scalar slots",
    r"One value per normalised place": "Shape `normalized_shape`",
    r"padding never wins": "padding counts as minus infinity",
    r"good in this process only": "bound to this process",
    r"runs as it is\b": "runs unchanged",
    r"may read the same and yet": "a hash alone is not unique",
    r"[Ee]very switch answers": "every option reports what it did",
    r"way through the house": "architecture",
    r"is said by\b": "reports",
    r"took in shows none": "absorbed",
    r"What is left of the decorated": "The decorator returns",
    r"others the mean over the parts": "otherwise the mean of the per-part means",
    r"(?<!have )nothing to do here": "no effect",
    r"\bon 1 places": "on 1 place",
    r"\b[Aa] array": "an array",
    r"Plans on paper": "Predicted launches and bytes",
}
"""Phrases that do not stand in pages, docstrings, comments and messages -> what to write instead."""


def pages() -> list[Path]:
    """What users read; the record of changes says what was."""
    return [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "tests" / "README.md",
        *sorted((ROOT / "docs").rglob("*.md")),
    ]


def spoken(file: Path) -> str:
    """A page's text; of Python its comments and texts, without what an f-string computes."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".md":
        return text
    kinds = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1)}
    return "\n".join(t.string for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type in kinds)


def phrases(text: str) -> list[str]:
    """The phrases of the table in a text, each with a little around it."""
    # Adjacent texts of a message are one sentence.
    joined = re.sub(r"[\"']\s*\n\s*(?:rb?|f)?[\"']|\n\s*#?\s*", " ", text)
    return [
        f"'{joined[max(0, m.start() - 25) : m.end() + 25]}': write {instead}"
        for phrase, instead in PHRASES.items()
        for m in re.finditer(phrase, joined)
    ]


def test_phrases_that_were_given_up_do_not_return() -> None:
    files = [*pages(), *(ROOT / name for name in trees())]
    found = {str(f.relative_to(ROOT)): told for f in files if (told := phrases(spoken(f)))}
    shown = "\n".join(f"{name}: {one}" for name, told in found.items() for one in told)
    assert not shown, shown


@pytest.mark.parametrize(
    "text",
    [
        "The op that it stands for.", "'None' stood\n    for all", "an index that is no index", "a list that\n# is no list",
        "what he calls it", "Plans on paper, 2026", 'f"this is "\n    "no shape"',
    ],
)  # fmt: skip
def test_a_phrase_is_found(text: str) -> None:
    assert len(phrases(text)) == 1, phrases(text)


def test_plain_sentences_pass() -> None:
    assert (
        phrases("There is no such axis. It is no longer used. He et al. (2015); the others stand in a row. An array.")
        == []
    )
