"""Runs the examples with fixed seeds and records their pictures for the gallery: ``make gallery``.

``pictures/`` gets the pictures with few colours, and ``runs.json`` what each run reached. ``page`` makes ``gallery.md`` of these;
it is one of the generated pages (``regenerate.py``).
"""

from __future__ import annotations

import argparse
import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples"
PICTURES = HERE / "pictures"
RECORD = PICTURES / "runs.json"

# Script -> options of its recorded run, which are shorter than by default where a full run takes more than half a minute.
RUNS: dict[str, tuple[str, ...]] = {
    "digits": (),
    "resnet": (),
    "deepfm": (),
    "gan": (),
    "word2vec": (),
    "gpt": ("--steps", "200"),
    "text_lstm": ("--epochs", "3"),
    "text_transformer": ("--epochs", "3"),
    "bert_mlm": ("--epochs", "2"),
}

# Picture -> what is seen on it, for those who do not see it.
SHOWS = {
    "digits": "Training loss and test accuracy over the epochs",
    "resnet": "Training and test loss over the epochs",
    "resnet_hardest": "The eight test digits that the network is least sure of",
    "deepfm_roc": "The ROC curve on held-out rows",
    "deepfm_columns": "The ten columns that matter most",
    "gan": "How often a judge reads the digit that was asked for, over the epochs",
    "gan_drawings": "Drawings from the same noise after more and more epochs",
    "word2vec": "A map of the words of six modules, made by t-SNE",
    "gpt": "Training loss over the steps",
    "text_lstm": "Test accuracy over the steps, and which module is taken for which",
    "text_transformer": "Test accuracy over the steps, and by length of passage",
    "bert_mlm": "Share of hidden words that are guessed, and perplexity, over the steps",
    "bert_mlm_guesses": "What the network puts in the place of a hidden word, with probabilities",
}


def record(name: str, out: Path) -> dict[str, Any]:
    """Runs an example and stores its pictures; returns what it reached."""
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").unlink(missing_ok=True)
    options = RUNS[name]
    subprocess.run([sys.executable, str(EXAMPLES / f"{name}.py"), "--out", str(out), *options], check=True)
    row: dict[str, Any] = json.loads((out / f"{name}.json").read_text(encoding="utf-8"))
    for picture in SHOWS:
        if picture == name or picture.startswith(f"{name}_"):
            shrink(out / f"{picture}.png", PICTURES / f"{picture}.png")
    return {"options": " ".join(options), **{key: row[key] for key in ("metric", "reached", "goal")}}


def shrink(path: Path, to: Path) -> None:
    """Writes a picture with at most 48 colours: a fifth of the bytes."""
    from PIL import Image

    to.parent.mkdir(exist_ok=True)
    with Image.open(path) as image:
        image.convert("RGB").quantize(48, dither=Image.Dither.NONE).save(to, optimize=True)


def page() -> str:
    """Returns ``gallery.md``: each recorded example with what it does, what the run reached, and its pictures."""
    lines = [
        "# Gallery",
        "",
        "Made from the recorded runs (`docs/pictures/runs.json`) by `make docs`; `make gallery` records them anew.",
        "",
        "Whole programs of `examples/`, on real data that comes with installed packages. The pictures are what the scripts draw,",
        "each from one run with the default seed on two CPU cores. Runs that are named short were stopped before they had reached",
        "their goal; [examples](examples.md) has what full runs reach, all options, and how to add a script.",
        "",
    ]
    for name, run in json.loads(RECORD.read_text(encoding="utf-8")).items():
        doc = ast.get_docstring(ast.parse((EXAMPLES / f"{name}.py").read_text(encoding="utf-8"))) or ""
        reached = f"{run['metric']} {run['reached']:.4g}"
        told = f"A full run reached {reached} (wanted: {run['goal']})."
        if run["options"]:
            told = f"A short run (`{run['options']}`) reached {reached}; a full one is to reach {run['goal']}."
        lines += [f"## {name}", "", " ".join(doc.split("\n\n")[0].split()), "", told, ""]
        for picture, shows in SHOWS.items():
            if picture == name or picture.startswith(f"{name}_"):
                lines += [f"![{shows}](pictures/{picture}.png)", ""]
        lines += ["```shell", f"python examples/{name}.py", "```", ""]
    return "\n".join(lines[:-1]) + "\n"


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", choices=[[], *RUNS], help="which examples; all if none is named"
    )
    parser.add_argument("--out", type=Path, default=HERE.parent / "build" / "gallery")
    given = parser.parse_args()
    for name in given.names or RUNS:
        # Checkpoints of an earlier run are of no use here.
        shutil.rmtree(given.out / f"{name}-checkpoints", ignore_errors=True)
        reached = record(name, given.out)
        found = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
        found[name] = reached
        ordered = {one: found[one] for one in RUNS if one in found}
        RECORD.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
