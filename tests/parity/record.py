"""Records Paddle's answers: `python -m tests.parity.record` (`make parity` calls it, then compares)."""

from __future__ import annotations

import json
import lzma
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.helpers import child
from tests.parity import generate, names, signatures

ROOT = Path(__file__).resolve().parent.parent.parent
RECORDED = Path(__file__).parent / "recorded" / "paddle.json.xz"
FLUID = RECORDED.with_name("fluid.json.xz")
"""What Paddle 1.8.5 answers to calls of `paddle.fluid`."""
PADDLE = ROOT / ".venv-paddle" / "bin" / "python"
PADDLE_FLUID = ROOT / ".venv-fluid" / "bin" / "python"
"""Paddle 2.6.2, and 1.8.5, which has ``fluid``."""
LONGEST = 60
"""Seconds that a call may take, and the start of a process."""
VERSIONS = "import json, sys, numpy, paddle; print(json.dumps([paddle.__version__, numpy.__version__, sys.version.split()[0]]))"


def environment() -> dict[str, str]:
    """What both sides' processes run in: one thread, and no words of Paddle's about itself."""
    quiet = {"GLOG_minloglevel": "3", "FLAGS_call_stack_level": "0"}
    return child.environment(CPU_NUM="1", OMP_NUM_THREADS="1", **quiet)


def outlived(
    command: list[str], calls: list[dict[str, Any]], out: Path, ended: Callable[[str], Any], longest: float = LONGEST
) -> list[Any]:
    """What a process writes about each call; it is started again behind a call that ends it.

    Args:
        command: The process; the number of the first call to do is added. For each call it appends one line to `out`, as JSON:
            the call's number, and what is returned here.
        calls: All calls.
        out: The file of the lines.
        ended: Makes what is returned for a call that ended the process, from how it ended.
        longest: Seconds without a line, behind which the process is killed.

    Raises:
        RuntimeError: If the process failed in its own code.
    """
    found: list[Any] = []
    while len(found) < len(calls):
        with tempfile.TemporaryFile("w+") as said:
            process = subprocess.Popen(
                [*command, str(len(found))], cwd=ROOT, env=environment(), stdout=subprocess.DEVNULL, stderr=said
            )
            how = _end(process, out, longest)
            said.seek(0)
            words = said.read()
        # A line that the process was ended in the middle of is made again.
        lines = (
            [line for line in out.read_text().splitlines(keepends=True) if line.endswith("\n")] if out.exists() else []
        )
        found = [json.loads(line)[1] for line in lines]
        if len(found) < len(calls):
            if process.returncode > 0 and "Error" in words.rpartition("\n  ")[2]:
                raise RuntimeError(f"{command} failed at {calls[len(found)]['id']}:\n{words[-3000:]}")
            found.append(ended(how))
            out.write_text("".join([*lines, json.dumps([len(lines), found[-1]]) + "\n"]))
    return found


def _end(process: subprocess.Popen[bytes], out: Path, longest: float) -> str:
    """How a process ended, which is killed if it writes nothing for so many seconds."""
    written = -1
    while True:
        try:
            return f"the process ended with {process.wait(longest)}"
        except subprocess.TimeoutExpired:
            now = out.stat().st_size if out.exists() else 0
            if now == written:
                process.kill()
                process.wait()
                return "the process did not end"
            written = now


def answers(python: str, module: str, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Answers of all calls, from a process that is started again behind a call that ends it."""
    with tempfile.TemporaryDirectory() as folder:
        calls_path, out_path = Path(folder, "calls.json"), Path(folder, "answers.jsonl")
        calls_path.write_text(json.dumps(calls))
        command = [python, "-m", "tests.parity.runner", module, str(calls_path), str(out_path)]
        return outlived(
            command, calls, out_path, lambda how: {"fixed": {"raised": "crash", "classes": [], "text": how}}
        )


def slim(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer without what errors are and say: whether something raised is compared, or the class that the call names."""
    return {k: {n: v for n, v in part.items() if n not in ("text", "classes")} for k, part in answer.items()}


def save(recorded: dict[str, Any], path: Path = RECORDED) -> None:
    """Writes recorded answers."""
    path.parent.mkdir(exist_ok=True)
    # Keys stay in order: inputs are fed, and listed for gradients, in the order of the arguments.
    text = json.dumps(recorded, separators=(",", ":"))
    path.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def load(path: Path = RECORDED) -> dict[str, Any]:
    """Reads recorded answers: `versions`, `calls` and, in the same order, `answers`."""
    found: dict[str, Any] = json.loads(lzma.decompress(path.read_bytes()))
    return found


def ask(python: Path, module: str, calls: list[dict[str, Any]], path: Path, *, only_new: bool) -> None:
    """Records a Paddle's answers to calls in a file; with `only_new`, answers to calls that the file has are kept."""
    said = subprocess.run([str(python), "-W", "ignore", "-c", VERSIONS], capture_output=True, text=True, check=True)
    versions = json.loads(said.stdout.splitlines()[-1])
    known: dict[str, Any] = {}
    if only_new and path.exists():
        before = load(path)
        known = {json.dumps(c): a for c, a in zip(before["calls"], before["answers"], strict=True)}
    asked = [c for c in calls if json.dumps(c) not in known]
    told = iter(answers(str(python), module, asked))
    found = [known.get(json.dumps(c)) or next(told) for c in calls]
    recorded = {
        "versions": dict(zip(("paddle", "numpy", "python"), versions, strict=True)),
        "calls": calls,
        "answers": [slim(a) for a in found],
    }
    save(recorded, path)
    paths = {c["path"] for c in calls}
    print(f"recorded {len(asked)} of {len(calls)} calls of {len(paths)} names in {path.stat().st_size:,} bytes")


def main() -> int:
    """Records all calls, with `--new` only those that are not on record; returns the exit code."""
    for python, word in ((PADDLE, ""), (PADDLE_FLUID, " fluid")):
        if not python.exists():
            print(f"{python} is missing: python bench/paddle_env.py{word} makes it", file=sys.stderr)
            return 1
    names.save(names.ask(str(PADDLE)))
    signatures.save({**signatures.load(), **dict(signatures.ask(str(one)) for one in (PADDLE, PADDLE_FLUID))})
    only_new = "--new" in sys.argv[1:]
    ask(PADDLE, "paddle", generate.calls(), RECORDED, only_new=only_new)
    ask(PADDLE_FLUID, "tests.parity.fluid_paddle", generate.fluid_calls(), FLUID, only_new=only_new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
