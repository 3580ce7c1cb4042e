"""What has run on GPUs: the one source of what the doctor and the pages say of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Seen:
    """A machine on which programs and generated kernels have run.

    Attributes:
        chip: The chip's short name.
        gpus: GPUs that one program used at a time.
        record: The folder of ``bench/results`` with what was found.
    """

    chip: str
    gpus: int
    record: str


SEEN = (Seen("H200", 1, "gpu-2026-11-26"),)
"""A new machine is a line here; a test compares these with the records, and the pages with the two sentences below."""


def chips() -> list[str]:
    """Returns the names of the chips, each once."""
    return sorted({one.chip for one in SEEN})


def on_chips() -> str:
    """Returns the sentence on chips: on which tstatic has run."""
    names = chips()
    which = f"one chip, an {names[0]}" if len(names) == 1 else f"{len(names)} chips, {', '.join(names)}"
    return f"On GPUs tstatic has run on {which}."


def on_several() -> str:
    """Returns the sentence on several GPUs: whether a program ever ran on more than one."""
    most = max(one.gpus for one in SEEN)
    if most == 1:
        return "Programs on several GPUs, with NCCL, have never been executed."
    return f"Programs on several GPUs, with NCCL, have been executed on up to {most}."
