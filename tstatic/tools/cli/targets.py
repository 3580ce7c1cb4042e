"""What a command is pointed at: a script or a saved program; told from the file alone, before anything large is imported."""

from __future__ import annotations

from pathlib import Path

from tstatic.errors import near
from tstatic.tools.cli.outcome import CommandError

MODEL, VALUES, STATE = ".pdmodel", ".pdiparams", ".pdparams"
"""Suffixes of a program, and of the values of an inference model and of a training beside it."""
FLUID_MODEL = "__model__"
PROGRAM = b"tstatic-program "
"""How a file with a saved program begins."""


def saved_program(target: str) -> Path | None:
    """Returns the file of the program that a target names (a prefix, the file or its folder); ``None`` if it names none."""
    path = Path(target)
    if path.is_dir():
        models = sorted(path.glob(f"*{MODEL}"))
        return path / FLUID_MODEL if (path / FLUID_MODEL).is_file() else models[0] if len(models) == 1 else None
    if path.name == FLUID_MODEL or path.suffix == MODEL:
        return path if path.is_file() else None
    if path.suffix != ".py" and _holds_program(path):
        return path
    for suffix in (VALUES, STATE):
        path = path.with_name(path.name.removesuffix(suffix) or path.name)
    model = path.with_name(path.name + MODEL)
    return model if path.suffix != ".py" and model.is_file() else None


def check_target(target: str) -> Path | None:
    """Returns the file of a saved program, or ``None`` for a script.

    Raises:
        CommandError: If there is no such file, or it is neither.
    """
    saved = saved_program(target) if target else None
    if saved is not None:
        return saved
    path = Path(target)
    if not target or not path.exists():
        raise CommandError(
            f"there is no script and no saved program '{target}'. {near(path.name, _beside(path))}".strip()
        )
    if not _is_python(path):
        raise CommandError(
            f"'{target}' is neither a script nor a saved program: give a Python file, or what static.save or "
            "static.save_inference_model wrote (model, model.pdmodel, or a folder with __model__), or a program by paddle.save"
        )
    return None


def _beside(path: Path) -> list[str]:
    """Returns what a misspelt target may have meant: the scripts and folders of its folder, and the prefixes of saved programs."""
    files = list(path.parent.iterdir()) if path.parent.is_dir() else []
    prefixes = {one.name.removesuffix(MODEL) for one in files if one.suffix == MODEL}
    return sorted({*prefixes, *(one.name for one in files)})


def refuse_script_options(target: str, **given: object) -> None:
    """Raises CommandError for options that only a script has a use for, where the target is a saved program.

    Args:
        target: What a command is pointed at.
        **given: Option -> its value; those that are empty or 0 were not given. ``arguments`` are those behind ``--``.
    """
    for name, value in given.items():
        if value:
            what = "arguments behind -- are" if name == "arguments" else f"--{name} is"
            raise CommandError(f"{what} for scripts, and '{target}' is a saved program")


def check_output(**files: str) -> None:
    """Checks that files can be written, before a command works for them.

    Args:
        **files: Option -> the file that it names; empty for none.

    Raises:
        CommandError: If the folder of one is not there.
    """
    for option, name in files.items():
        if name and not Path(name).absolute().parent.is_dir():
            raise CommandError(f"--{option} {name}: there is no folder '{Path(name).parent}'")
        if name and Path(name).is_dir():
            raise CommandError(f"--{option} {name} is a folder: give a file")


def _holds_program(path: Path) -> bool:
    """Returns whether a file begins as one that ``paddle.save(program, path)`` wrote, whatever it is called."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(PROGRAM)) == PROGRAM


def _is_python(path: Path) -> bool:
    if not path.is_file():
        return False
    if path.suffix == ".py":
        return True
    with path.open("rb") as file:
        first = file.readline(200)
    return first.startswith(b"#!") and b"python" in first
