"""Runs the scripts of this folder in full and prints a table of what each reached."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
SHARED = ("__main__", "library", "training")


def scripts() -> list[str]:
    """Returns the names of all scripts."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in SHARED)


def run(name: str, out: Path) -> tuple[str, bool]:
    """Runs a script in full; returns its row of the table, and whether it reached its goal."""
    out.mkdir(parents=True, exist_ok=True)
    result = out / f"{name}.json"
    result.unlink(missing_ok=True)
    code = subprocess.run([sys.executable, str(FOLDER / f"{name}.py"), "--out", str(out)]).returncode
    if not result.exists():
        return f"{name:18} failed with exit code {code}", False
    row = json.loads(result.read_text(encoding="utf-8"))
    measured = f"{row['reached']:10.4f}  {row['goal']:>9}{row['seconds']:9.0f}{row['processor']:11.0f}"
    return f"{name:18} {row['metric']:32}{measured}  {'missed' if code else ''}".rstrip(), code == 0


def main() -> int:
    """Command line; the exit code is 1 if a script failed or missed its goal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", choices=[[], *scripts()], help="which scripts; all if none is named"
    )
    parser.add_argument("--out", type=Path, default=FOLDER / "out")
    given = parser.parse_args()
    rows = [run(name, given.out) for name in given.names or scripts()]
    print(f"\n{'script':18} {'metric':32}{'reached':>10}  {'wanted':>9}{'seconds':>9}{'processor':>11}")
    print("\n".join(row for row, _ in rows))
    return int(not all(reached for _, reached in rows))


if __name__ == "__main__":
    sys.exit(main())
