"""The scripts of ``examples/`` can be imported by name, as they import ``training``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "examples"))
