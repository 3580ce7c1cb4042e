"""Whether tests try as much as ``make proof`` asks for, rather than what fits a commit."""

from __future__ import annotations

import os

SOAK = "TSTATIC_SOAK" in os.environ
