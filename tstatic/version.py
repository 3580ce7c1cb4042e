"""The version of tstatic, and a report of everything around it that a bug report needs."""

from __future__ import annotations

import os
import platform
import re

from tstatic import places

__all__ = [
    "__version__",
    "commit",
    "cuda",
    "cudnn",
    "full_version",
    "major",
    "minor",
    "patch",
    "rc",
    "show",
    "show_versions",
    "xpu",
    "xpu_xccl",
]

__version__ = "0.1.0"

# Names of paddle.version; a package does not know the commit that it was built from.
full_version = __version__
commit = "unknown"
major, minor, patch = __version__.split(".")
rc = "0"

# What decides numbers, files or speed.
_PACKAGES = (
    "numpy",
    "scipy",
    "ml_dtypes",
    "safetensors",
    "msgspec",
    "platformdirs",
    "threadpoolctl",
    "torch",
    "triton",
    "hypothesis",
)


def _installed(package: str) -> str:
    import importlib.metadata  # here because it brings in `email`: 25 ms, which `import tstatic` need not pay

    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def asked(package: str) -> str:
    """Returns what tstatic's metadata ask of a package (``torch>=2.9``); the bare name where it is not installed as a package."""
    import importlib.metadata  # as above

    try:
        needs = importlib.metadata.requires("tstatic") or []
    except importlib.metadata.PackageNotFoundError:
        return package
    return next((need for need in (one.partition(";")[0].strip() for one in needs) if _named(need) == package), package)


def _named(need: str) -> str:
    """Returns the package that a requirement is about."""
    return re.split(r"[^\w.-]", need, maxsplit=1)[0]


def cuda() -> str:
    """Returns the text ``False``: kernels are compiled on the machine that they run on, by any version of CUDA."""
    return "False"


def cudnn() -> str:
    """Returns the text ``False``: kernels do not come from cuDNN."""
    return "False"


def xpu() -> str:
    """Returns the text ``False``: there is no such device."""
    return "False"


def xpu_xccl() -> str:
    """Returns the text ``False``: there is no such device."""
    return "False"


def show() -> None:
    """Prints the version and its parts, one ``name: value`` a line."""
    for name, value in (
        ("full_version", full_version),
        ("major", major),
        ("minor", minor),
        ("patch", patch),
        ("rc", rc),
    ):
        print(f"{name}: {value}")


def versions() -> dict[str, str]:
    """Returns what :func:`show_versions` prints."""
    chosen = places.chosen_place()
    return {
        "tstatic": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        **{package: _installed(package) for package in _PACKAGES},
        "cpus": f"{places.cpu_count()} usable of {os.cpu_count() or 1}",
        "place": "unset" if chosen is None else chosen.name,
        "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "unset"),
        "CPU_NUM": os.environ.get("CPU_NUM", "unset"),
    }


def show_versions() -> dict[str, str]:
    """Prints what a bug report needs, one ``name : value`` a line, and returns it.

    Package versions come from the installed metadata, so neither torch nor triton is imported. ``place`` is what
    ``set_device`` chose; ``unset`` means that it is chosen at first use.
    """
    report = versions()
    width = max(map(len, report))
    for name, value in report.items():
        print(f"{name:<{width}} : {value}")
    return report
