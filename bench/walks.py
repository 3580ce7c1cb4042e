"""What a feed and a sum over replicas pass through: ``python bench/walks.py OLD`` compares a commit with the working tree.

A walk is the calls of functions of tstatic that a settled step makes, the files that they stand in and the packages of those: it
says how much of the source a reader has to open. It is counted, not timed, so that it is the same on every machine.

``a feed``: from ``Executor.run`` to the first work of the step, on the CPU and on a device whose work runs late. ``a sum``: within
the collective that sums the gradients of two replicas in threads of one process, and of two processes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import report
from commits import checkout
from own_kernels import plain
from workers import HERE

WALKS = {
    "a feed, CPU": ("feed", ""),
    "a feed, work runs late": ("feed", "fake"),
    "a sum, two threads, CPU": ("threads", ""),
    "a sum, two threads, work runs late": ("threads", "fake"),
    "a sum, two processes, CPU": ("processes", ""),
}
"""Title -> what walks, and TSTATIC_CPU_BACKEND."""


class Recorder:
    """Notes calls of functions of a package, in every thread that starts after it was made.

    Args:
        package: The package's folder.
        first: Where a walk begins: the beginning of a file's name within the package.
        last: The name of the function before which it ends; empty: where the call that began it returns.
    """

    def __init__(self, package: str, first: str, last: str = "") -> None:
        self.walks: list[list[str]] = []
        self.active = False
        self._package, self._first, self._last = package, first, last
        self._local = threading.local()
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        if event not in ("call", "return") or not self.active:
            return
        name = frame.f_code.co_filename
        if not name.startswith(self._package):
            return
        place, walking = name.removeprefix(self._package), getattr(self._local, "walk", None)
        if event == "return":
            if walking is not None and frame is self._local.root:
                self.walks.append(walking)
                self._local.walk = self._local.root = None
        elif walking is not None:
            if self._last and frame.f_code.co_name == self._last:
                self.walks.append(walking)
                self._local.walk = self._local.root = None
            else:
                walking.append(f"{place}:{frame.f_code.co_qualname}")
        elif place.startswith(self._first):
            self._local.walk, self._local.root = [f"{place}:{frame.f_code.co_qualname}"], frame


def _net(batch: int) -> tuple[Any, Any]:
    import tstatic as paddle
    from tstatic import static

    x = static.data("x", [batch, 8])
    loss = paddle.mean(static.nn.fc(static.nn.fc(x, 16, activation="relu"), 1))
    paddle.optimizer.SGD(0.01).minimize(loss)
    return static.default_main_program(), loss


def _feed(recorder: Callable[..., Recorder]) -> list[list[str]]:
    import numpy as np

    import tstatic as paddle
    from tstatic import static

    seen = recorder("static/run/executor.py", "_execute")
    main, loss = _net(4)
    exe = static.Executor(paddle.CPUPlace())
    exe.run(static.default_startup_program())
    for turn in range(5):
        seen.active = turn == 4
        exe.run(main, feed={"x": np.full((4, 8), turn, "float32")}, fetch_list=[loss])
    seen.active = False
    return seen.walks[:1]


def _replicas(recorder: Callable[..., Recorder], places: int) -> list[list[str]]:
    import numpy as np

    import tstatic as paddle
    from tstatic import static

    seen = recorder("comm/")
    main, loss = _net(-1)
    exe = static.Executor(paddle.CPUPlace())
    exe.run(static.default_startup_program())
    compiled = static.CompiledProgram(main).with_data_parallel(loss.name, places=static.cpu_places(places))
    longest = []
    for turn in range(10):
        seen.active = turn > 3
        exe.run(compiled, feed={"x": np.full((8, 8), turn, "float32")}, fetch_list=[loss])
        seen.active = False
        if seen.walks:
            # What replicas agree upon has one call or two; the sum of gradients is what takes most.
            longest.append(max(seen.walks, key=len))
            seen.walks.clear()
    # Who comes last makes the calls; some are made once and kept.
    return [min(longest, key=len)]


def _child(what: str, package: str) -> None:
    def recorder(first: str, last: str = "") -> Recorder:
        return Recorder(package, first, last)

    walks = _feed(recorder) if what == "feed" else _replicas(recorder, 2 if what == "threads" else 1)
    if os.environ.get("PADDLE_TRAINER_ID", "0") == "0":
        Path(os.environ["WALK_OUT"]).write_text(json.dumps(walks))


def _walk(root: Path, what: str, backend: str) -> list[str]:
    """Returns the calls of a walk in the tree at ``root``."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "walk.json"
        given = plain(os.environ) | {"PYTHONPATH": str(root), "WALK_OUT": str(out), "CPU_NUM": "2"}
        given.pop("TSTATIC_CPU_BACKEND", None)
        if backend:
            given["TSTATIC_CPU_BACKEND"] = backend
        start = [sys.executable]
        if what == "processes":
            start += ["-m", "tstatic.distributed.launch", "--nproc_per_node", "2"]
        child = [str(root / "bench" / "walks.py"), "--child", what, "--package", f"{root / 'tstatic'}{os.sep}"]
        subprocess.run([*start, *child], env=given, check=True, cwd=folder, stdout=subprocess.DEVNULL, timeout=300)
        walks = json.loads(out.read_text())
    found: list[str] = walks[0]
    return found


def counted(walk: list[str]) -> dict[str, Any]:
    """Returns the calls of a walk, and the files and packages that they stand in."""
    files = sorted({place.partition(":")[0] for place in walk})
    packages = sorted({str(Path(file).parent) for file in files})
    return {"calls": len(walk), "files": files, "packages": packages, "walk": walk}


def page(result: dict[str, Any]) -> str:
    """Returns the record as Markdown."""
    lines = [
        f"# What a feed and a sum over replicas pass through, {result['date']}",
        "",
        f"Commit {result['old']} against {result['commit']}. Calls of functions of tstatic in a settled step, the files that they",
        "stand in, and the packages of those; counted, not timed, by `python bench/walks.py`.",
        "",
        "| walk | calls | files | packages |",
        "|---|---|---|---|",
    ]
    for row in result["rows"]:
        old, new = row["old"], row["new"]
        counts = [f"{old['calls']} to {new['calls']}"]
        counts += [f"{len(old[part])} to {len(new[part])}" for part in ("files", "packages")]
        lines.append(f"| {row['title']} | {' | '.join(counts)} |")
    for row in result["rows"]:
        lines += ["", f"## {row['title'][0].upper()}{row['title'][1:]}", ""]
        lines += [f"{n}. `{place}`" for n, place in enumerate(row["new"]["walk"], 1)]
    lines += ["", "Files before, and not any more, and files that came:", ""]
    for row in result["rows"]:
        before, after = set(row["old"]["files"]), set(row["new"]["files"])
        gone, came = (", ".join(f"`{f}`" for f in sorted(some)) or "none" for some in (before - after, after - before))
        lines.append(f"- {row['title']}: gone {gone}; came {came}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Counts the walks of both trees, and writes the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", nargs="?", default="HEAD", help="a commit; default: the last one")
    parser.add_argument("--child")
    parser.add_argument("--package")
    parser.add_argument("--name", help="of the record; default: today")
    args = parser.parse_args()
    if args.child:
        _child(args.child, args.package)
        return
    rows = []
    with checkout(args.old) as old:
        for title, (what, backend) in WALKS.items():
            found = {name: counted(_walk(root, what, backend)) for name, root in (("old", old), ("new", HERE.parent))}
            rows.append({"title": title, **found})
    result = {"date": report.today(), "old": args.old, "commit": report.commit(), "rows": rows}
    text = page(result)
    name = args.name or f"walks-{result['date']}"
    (HERE / "results" / f"{name}.md").write_text(text)
    (HERE / "results" / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    print(text)


if __name__ == "__main__":
    main()
