"""Many processes, killed writers and forked children leave the cache whole."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers import warm
from tests.helpers.soak import SOAK
from tests.unit.kernel_cache.entries import age, is_whole, kernel, staged
from tstatic.fusion.engine import cache

RACE = r"""
import inspect, multiprocessing, os, random, sys
from pathlib import Path
from tstatic.fusion import cache

RANKS, ROUNDS = 16, int(sys.argv[1])


def work(rank, start, done):
    dice = random.Random(rank)
    for round in range(ROUNDS):
        text = f"def value():\n    return {round}\n" + "# fill\n" * random.Random(round).randrange(3000)
        start.wait(900)
        if rank == 0 and round % 2:  # somebody spoils the entry while the others write and read it
            path = cache.folder() / (cache._stem(text.encode(), "k") + ".py")
            for _ in range(3):
                path.write_bytes(dice.choice([b"", text.encode()[:-1], text.encode().replace(b"return", b"retorn")]))
        module = cache.load(text, "k")
        assert module.value() == round, "a wrong kernel"
        assert inspect.getsource(module.value) == f"def value():\n    return {round}\n", "a wrong source"
        if dice.random() < 0.1:
            cache.trim(0)
        done.wait(900)
        if rank == 0 and round % 2 == 0:  # nobody spoiled it: it is there, and right
            assert Path(module.__file__).read_bytes() == text.encode(), "a wrong file"
    os._exit(0)  # a failed assert leaves by the other way, with 1


context = multiprocessing.get_context("fork")
start, done = context.Barrier(RANKS), context.Barrier(RANKS)
ranks = [context.Process(target=work, args=(rank, start, done)) for rank in range(RANKS)]
for rank in ranks:
    rank.start()
for rank in ranks:
    rank.join()
print("exit codes", *(rank.exitcode for rank in ranks))
"""


def run(script: str, *words: object) -> subprocess.CompletedProcess[str]:
    """Runs a script in a process with one thread, whose cache and folder for temporary files are those of the test."""
    folder = Path(tempfile.gettempdir())
    return warm.run_text(script, *map(str, words), cwd=folder.parent, TMPDIR=str(folder))


def test_sixteen_processes_race_for_each_key(base: Path) -> None:
    rounds = 200 if SOAK else 20
    done = run(RACE, rounds)
    assert done.stdout == "exit codes" + " 0" * 16 + "\n", done.stderr
    assert "memory only" not in done.stderr
    assert "is not used:" not in done.stderr
    entries = list(base.rglob("*.py"))
    assert len(entries) == rounds
    # What was spoiled last, after everybody had loaded, is found by the next who asks.
    assert sum(is_whole(path) for path in entries) >= rounds // 2
    assert staged(base) == []


KILLED = r"""
import itertools, os, signal, sys
from tstatic.fusion import cache

point, value = sys.argv[1], int(sys.argv[2])


def die(*more):
    os.kill(os.getpid(), signal.SIGKILL)


real_write, real_replace = os.write, os.replace
if point == "write":
    os.write = lambda handle, data: (real_write(handle, data[: len(data) // 2]), die())
elif point == "fsync":
    os.fsync = die
elif point == "replace":
    os.replace = die
elif point == "renamed":
    os.replace = lambda *names: (real_replace(*names), die())
for value in itertools.count(value):
    cache.store(f"def value():\n    return {value}\n" + "# fill\n" * 20000, "k")
"""


def assert_recovers(base: Path, leftovers: int) -> None:
    """Every entry is whole, and what the dead left goes once it is an hour old."""
    own = cache.folder()
    assert all(is_whole(path) for path in own.glob("*.py"))
    assert len(staged(base)) == leftovers
    assert cache.trim() == 0
    assert len(staged(base)) == leftovers
    for path in staged(base):
        age(path, 1.1)
    cache.trim()
    assert staged(base) == []


@pytest.mark.parametrize("point", ["write", "fsync", "replace", "renamed"])
def test_a_writer_killed_at_each_step(point: str, base: Path, warnings: Callable[[], list[str]]) -> None:
    assert run(KILLED, point, 0).returncode == -signal.SIGKILL
    assert len(list(base.rglob("*.py"))) == (point == "renamed")
    assert_recovers(base, leftovers=point != "renamed")
    assert cache.load("def value():\n    return 0\n" + "# fill\n" * 20000, "k").value() == 0
    assert warnings() == []


def test_writers_killed_at_random_moments(base: Path, warnings: Callable[[], list[str]]) -> None:
    """A forked child writes; it is killed within about ten writes. Forked in a script, where there is one thread."""
    script = r"""
import os, random, signal, sys, time
from tstatic.fusion import cache
dice = random.Random(1)
for kill in range(int(sys.argv[1])):
    told, tell = os.pipe()
    child = os.fork()
    if not child:
        for value in range(10**6):
            cache.store(f"def value():\n    return {value}\n# {kill}\n" + "# fill\n" * 20000, "k")
            os.write(tell, b".")
    os.read(told, 1)
    time.sleep(dice.random() * 0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(told)
    os.close(tell)
"""
    kills = 300 if SOAK else 20
    done = run(script, kills)
    assert done.returncode == 0, done.stderr
    assert len(list(base.rglob("*.py"))) >= kills
    assert_recovers(base, leftovers=len(staged(base)))
    assert cache.load(kernel(0), "k").value() == 0
    assert warnings() == []


def test_a_forked_child_goes_on(base: Path) -> None:
    """It has its parent's modules, loads more, and its end takes nothing from its parent, private folder included."""
    script = r"""
import os, sys
from tstatic.fusion import cache
text = "def value():\n    return {}\n".format
first = cache.load(text(1), "k")
private = cache.folder()
child = os.fork()
assert cache.load(text(1), "k") is first
assert cache.load(text(2 if child else 3), "k").value() in (2, 3)
assert cache.folder() == private
if not child:
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert len(list(private.glob("*.py"))) == 3
print(private)
"""
    done = run(script)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).parent == base
    base.chmod(0o777)
    done = run(script)
    assert done.returncode == 0, done.stderr
    private = Path(done.stdout.strip())
    assert private.parent == base.parent / "tmp"
    assert not private.exists()  # gone with the parent


def test_a_child_that_outlives_its_parents_private_folder(base: Path) -> None:
    base.mkdir()
    base.chmod(0o777)
    first = cache.folder()
    cache.load(kernel(1), "k")
    shutil.rmtree(first)  # as the parent's end does
    assert cache.load(kernel(1), "k").value() == 1
    assert cache.load(kernel(2), "k").value() == 2
    assert cache.folder() != first
    assert cache.folder().is_dir()
