"""A Python that has tstatic imported and forks to run scripts: as if each were started anew, without the second of imports.

What reads the environment while tstatic is imported (``TSTATIC_LOGS``, ``FLAGS_*``) or what must be the first importer of a
package needs a process of its own; everything else can run here.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tests.helpers import child, preloaded
from tests.helpers.patience import HANG
from tests.helpers.plain_draws import draw_plainly
from tstatic import flags

ROOT = Path(__file__).parents[2]


def run(
    script: Path | str,
    *arguments: str,
    cwd: Path,
    module: bool = False,
    without: tuple[str, ...] = (),
    timeout: float = HANG,
    **environ: str,
) -> subprocess.CompletedProcess[str]:
    """Runs a script with warnings as errors, as ``python -W error script arguments`` does.

    Args:
        script: A file, or with ``module`` the name of a module, as of ``python -m``.
        arguments: What ``sys.argv`` holds behind it.
        cwd: Where it runs, and where its output is kept until this returns.
        module: Whether ``script`` names a module.
        without: Beginnings of names of variables that it does not get.
        timeout: Seconds.
        **environ: Variables on top of this process's.
    """
    return _server().run(
        {
            "script": str(script),
            "arguments": arguments,
            "module": module,
            "cwd": str(cwd),
            "environ": {k: v for k, v in os.environ.items() if not k.startswith(without)} | environ,
            "timeout": timeout,
        }
    )


class _Server:
    def __init__(self) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("FLAGS_", "TSTATIC_"))}
        environment["PYTHONPATH"] = child.python_path()
        if "TSTATIC_MUTANT" in os.environ:
            # A fault that ``tests/mutants`` plants: by what is first on the path, as tstatic is imported.
            environment["TSTATIC_MUTANT"] = os.environ["TSTATIC_MUTANT"]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.helpers.warm"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        atexit.register(self.close)

    def run(self, order: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        code = json.loads(self._process.stdout.readline())
        out, err = (Path(order["cwd"]) / f".warm-{name}" for name in ("out", "err"))
        texts = [p.read_text(encoding="utf-8", errors="replace") for p in (out, err)]
        out.unlink()
        err.unlink()
        if code is None:
            raise subprocess.TimeoutExpired(order["script"], order["timeout"], *texts)
        return subprocess.CompletedProcess([order["script"], *order["arguments"]], code, *texts)

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(HANG)


def run_text(text: str, *arguments: str, cwd: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """:func:`run` for the text of a script, as of ``python -c``."""
    script = cwd / "script.py"
    script.write_text(text, encoding="utf-8")
    return run(script, *arguments, cwd=cwd, **options)


@cache
def _server() -> _Server:
    return _Server()


# ------------------------------------------------------------------------------------------------------- in the server
def _become(order: Mapping[str, Any]) -> None:
    """Makes a forked child what ``python -W error script`` would start."""
    for fd, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{order['cwd']}/.warm-{name}", os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), fd)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["environ"])
    for place in order["environ"].get("PYTHONPATH", "").split(os.pathsep):
        if place and place not in sys.path:
            sys.path.insert(1, place)
    warnings.resetwarnings()
    warnings.simplefilter("error")
    sys.argv = [order["script"], *order["arguments"]]
    flags._reset_for_tests()  # the next read looks at the environment
    tempfile.tempdir = None


def _run_and_exit(order: Mapping[str, Any]) -> None:
    """Runs a script and ends with its exit code: exit hooks run, modules are not torn down."""
    code: Any = 0
    preloaded.leave_teardown()
    try:
        _become(order)
        if order["module"]:
            runpy.run_module(order["script"], run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = str(Path(order["script"]).resolve().parent)
            runpy.run_path(order["script"], run_name="__main__")
    except SystemExit as ended:
        code = ended.code
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    with contextlib.suppress(BaseException):
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(int(code or 0))


def _wait(pid: int, seconds: float) -> int | None:
    """The exit code of a child, or None if it had to be killed."""
    handle = os.pidfd_open(pid)
    try:
        ended, _, _ = select.select([handle], [], [], seconds)
        if not ended:
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        return os.waitstatus_to_exitcode(status) if ended else None
    finally:
        os.close(handle)


def serve(lines: Iterable[str]) -> None:
    """Answers each order with an exit code."""
    draw_plainly()
    preloaded.load()
    answers = os.fdopen(os.dup(1), "w")
    for line in lines:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            answers.close()
            _run_and_exit(order)
        answers.write(json.dumps(_wait(pid, order["timeout"])) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve(sys.stdin)
