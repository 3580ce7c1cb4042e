"""What draws the cases that a test tries where ``make proof`` tries all: fixed, so that a second run tries the same."""

from __future__ import annotations

import os

SEED = os.environ.get("TSTATIC_SEED", "1")
"""Draws other cases where it is set to something else."""
