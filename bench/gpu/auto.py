"""All that a GPU is asked for, within a budget of seconds: first contact, then tests, then the rows furthest from their goals.

``python bench/gpu/auto.py RESULTS --budget 540`` runs each part in processes of its own, which keep their own files in
``RESULTS`` (``contact.jsonl``, ``programs.jsonl``, ``tests.jsonl``, ``rows.jsonl``), and watches: a part that hangs is ended, the
next one runs all the same, and ``RESULTS/auto.jsonl`` has a line for each. Needs the standard library alone.
"""

from __future__ import annotations

import argparse
import datetime
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import parts  # noqa: E402 - found through the line above
from contact import cache_settings, put_aside  # noqa: E402
from parts import Parts  # noqa: E402

CONTACT_S = 80.0
"""After these seconds first contact begins no kernel."""
TESTS_SHARES = {"programs": 0.35, "tests": 0.4}
"""What programs on the GPU, then tests of kernels get of the time that is left; the rows get the rest."""


class Auto(Parts):
    """One run of all parts.

    Args:
        results: The folder of results.
        pack: The file of ``pack.py``.
        budget: Seconds for everything.
        dry_run: Interpret the kernels and invent the times.
        tests: Further arguments for pytest.
    """

    def __init__(self, results: Path, pack: Path, budget: float, dry_run: bool, tests: Sequence[str] = ()) -> None:
        for name in ("auto.jsonl", "rows.jsonl", "rows.txt"):
            put_aside(results / name)
        super().__init__(results, "auto", budget, dry_run)
        self.pack = pack
        self.tests = list(tests)

    def run(self) -> int:
        """Runs the parts; 0 if all went well, 1 if one did not, 2 if no GPU was reached."""
        with tempfile.TemporaryDirectory(prefix="gpu-", ignore_cleanup_errors=True) as folder:
            caches = Path(folder)
            codes = [self._contact(caches)]
            codes.append(self._tests("programs", "--programs"))
            codes.append(self._tests("tests"))
            codes.append(self._rows(caches))
        self.lines.add("end", codes=codes, seconds=time.time() - self.begun)
        reached = [code for code in codes if code is not None]
        return 2 if not reached or all(code == 2 for code in reached) else int(any(codes) or None in codes)

    def _contact(self, caches: Path) -> int | None:
        limit = min(CONTACT_S, max(0.0, self.left - parts.GRACE_S))
        return self.part("contact", limit, "contact.py", "--pack", str(self.pack), "--limit", f"{limit:.0f}",
                          "--caches", str(caches))  # fmt: skip

    def _tests(self, name: str, *which: str) -> int | None:
        limit = max(0.0, TESTS_SHARES[name] * self.left)
        return self.part(name, limit, "ring.py", "--limit", f"{limit:.0f}", *which, last=self.tests)

    def _rows(self, caches: Path) -> int | None:
        until = self.end - parts.GRACE_S
        return self.repeated(
            "rows", until, "rows.py", "--pack", str(self.pack), more=cache_settings(caches), watched="rows.jsonl"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs all parts on the first GPU."""
    parser = argparse.ArgumentParser(description=__doc__)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    default = HERE.parent / "results" / f"gpu-{today}"
    parser.add_argument("results", nargs="?", type=Path, default=default, help="folder of results")
    parser.add_argument("--budget", type=float, default=540.0, help="seconds for all parts (540)")
    parser.add_argument("--pack", type=Path, default=HERE.parent / "out" / "gpu-pack.npz", help="file of pack.py")
    parser.add_argument(
        "--dry-run", action="store_true", help="interpret the kernels and invent the times: no GPU needed"
    )
    parser.add_argument("--tests", nargs=argparse.REMAINDER, default=[], help="arguments for pytest; the last option")
    args = parser.parse_args(arguments)
    return Auto(args.results.resolve(), args.pack, args.budget, args.dry_run, args.tests).run()


if __name__ == "__main__":
    sys.exit(main())
