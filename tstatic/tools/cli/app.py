"""Declares the commands: their arguments and help; what a command needs is imported when it runs."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Annotated, Any, NoReturn

import typer

import tstatic
from tstatic.tools.cli.perform import perform

app = typer.Typer(
    name="tstatic",
    help="Runs, explains and checks programs of tstatic. Exit codes: 0 all is well, 1 something was found, 2 wrong call, "
    "3 something is missing on this machine.",
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help: rich takes 0.17 s of processor time to draw it
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

TARGET = "A script, or a saved program: a prefix, a .pdmodel file or a folder."
Target = Annotated[str, typer.Argument(help=TARGET, metavar="TARGET", show_default=False)]
Arguments = Annotated[list[str] | None, typer.Argument(help="Arguments of the script, behind --.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Program = Annotated[
    int, typer.Option(help="Number of the script's program; 0: the largest that is fed or fetched from.", min=0)
]
First = Annotated[int, typer.Option(help="End the script when it compiled so many programs; 0: run all of it.", min=0)]
Interpret = Annotated[
    bool, typer.Option(help="Run generated kernels in Triton's interpreter, where triton and torch are installed.")
]
Every = Annotated[bool, typer.Option("--all", help="Turn every fusion on.")]
Switch = Annotated[
    list[str] | None, typer.Option(help="Turn a property of the BuildStrategy on; may be repeated.", show_default=False)
]
Batch = Annotated[int, typer.Option(help="Sizes that are open; 0: those of the run, or 16.", min=0)]
Feed = Annotated[
    list[str] | None, typer.Option(help="Shape of an input, as x=32,784; may be repeated.", show_default=False)
]


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"tstatic {tstatic.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def _do(command: str, as_json: bool, **options: Any) -> NoReturn:
    """Runs ``module:function`` of this package and ends with its exit code."""
    raise typer.Exit(perform(command, as_json, **options))


def _interpreted(wanted: bool) -> None:
    if wanted and find_spec("triton") and find_spec("torch"):
        # Read at the first use of a CPU place, which is later.
        os.environ.setdefault("TSTATIC_CPU_BACKEND", "interpret")


SCRIPT = {"allow_interspersed_args": False, "ignore_unknown_options": True}


@app.command(
    context_settings=SCRIPT,
    short_help="Runs a Paddle script unchanged.",
    epilog="Example: tstatic run train.py --epochs 3",
)
def run(
    script: Annotated[str, typer.Argument(help="A Python file.", show_default=False)],
    arguments: Annotated[list[str] | None, typer.Argument(help="Its arguments.", show_default=False)] = None,
) -> None:
    """Runs a Paddle script unchanged: its imports of paddle give tstatic."""
    _do("running:run", False, script=script, arguments=arguments or [])


@app.command(epilog="Example: tstatic explain train.py --all")
def explain(
    target: Target,
    arguments: Arguments = None,
    why: Annotated[
        tuple[str, str] | None, typer.Option(help="Ask about two operators, by what they write.", show_default=False)
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="List everything.")] = False,
    html: Annotated[str, typer.Option(help="Also write a page with the program drawn to this file.")] = "",
    every: Every = False,
    switch: Switch = None,
    program: Program = 0,
    first: First = 0,
    batch: Batch = 0,
    feed: Feed = None,
    as_json: Json = False,
) -> None:
    """Says what was fused, what not, why, and what each would save."""
    _do(
        "looking:explain", as_json, target=target, arguments=arguments or [], why=why or (), verbose=verbose, html=html,
        every=every, switches=switch or [], program=program, first=first, batch=batch, feeds=feed or [],
    )  # fmt: skip


@app.command(
    short_help="Lists, shows or writes the generated kernels of a program.",
    epilog="Example: tstatic kernels train.py --all --write kernels",
)
def kernels(
    target: Target,
    arguments: Arguments = None,
    show: Annotated[str, typer.Option(help="Print the source of one, by number or name.")] = "",
    write: Annotated[str, typer.Option(help="Write each to a file of this folder.")] = "",
    every: Every = False,
    switch: Switch = None,
    program: Program = 0,
    first: First = 0,
    batch: Batch = 0,
    feed: Feed = None,
    as_json: Json = False,
) -> None:
    """Lists the generated kernels of a program, shows one, or writes them to files that check themselves."""
    _do(
        "looking:kernels", as_json, target=target, arguments=arguments or [], show_one=show, write=write, every=every,
        switches=switch or [], program=program, first=first, batch=batch, feeds=feed or [],
    )  # fmt: skip


@app.command(
    short_help="Says what memory a run takes, and whether it fits.",
    epilog="Example: tstatic memory train.py --batch 64 --fits H100",
)
def memory(
    target: Target,
    arguments: Arguments = None,
    fits: Annotated[
        str,
        typer.Option(
            help="Also say whether it fits: '80 GB', a chip that need not be here (H100).", show_default=False
        ),
    ] = "",
    top: Annotated[int, typer.Option(help="How many operators to list.", min=0)] = 10,
    every: Every = False,
    switch: Switch = None,
    program: Program = 0,
    first: First = 0,
    batch: Batch = 0,
    feed: Feed = None,
    as_json: Json = False,
) -> None:
    """Says what memory a run takes, of what it consists, and at which line most is live."""
    _do(
        "looking:memory", as_json, target=target, arguments=arguments or [], fits=fits, top=top, every=every, switches=switch or [],
        program=program, first=first, batch=batch, feeds=feed or [],
    )  # fmt: skip


@app.command(epilog="Example: tstatic summary model.pdmodel")
def summary(
    target: Target, arguments: Arguments = None, program: Program = 0, first: First = 0, as_json: Json = False
) -> None:
    """Lists inputs, results, parameters and operators of a program."""
    _do("looking:summary", as_json, target=target, arguments=arguments or [], program=program, first=first)


@app.command(short_help="Shows one operator in every form that it has.", epilog="Example: tstatic op gelu")
def op(
    name: Annotated[
        str,
        typer.Argument(help="An operator's type, or the name of a function that is one.", show_default=False),
    ],
    as_json: Json = False,
) -> None:
    """Shows an operator's record, numpy, gradient, torch, Triton, ONNX and Paddle forms, names and tests, or why it has none."""
    _do("op:op", as_json, name=name)


@app.command(
    short_help="Says where a step goes, by operator and line.",
    epilog="Example: tstatic profile train.py --trace trace.json",
)
def profile(
    target: Target,
    arguments: Arguments = None,
    runs: Annotated[int, typer.Option(help="Runs of a saved program, on drawn numbers; 0: 10.", min=0)] = 0,
    batch: Annotated[int, typer.Option(help="Open sizes of a saved program; 0: 16.", min=0)] = 0,
    trace: Annotated[str, typer.Option(help="Also write a trace for Perfetto to this file.")] = "",
    top: Annotated[int, typer.Option(help="How many operators to list.", min=1)] = 20,
    nan: Annotated[
        bool, typer.Option("--nan", help="Stop at the first NaN or infinity, and say where it came from.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Says where a step goes, how long each operator takes, and at which line it was made."""
    _do(
        "running:profile", as_json, target=target, arguments=arguments or [], runs=runs, batch=batch, trace=trace, top=top,
        nan=nan,
    )  # fmt: skip


@app.command(
    short_help="Compares a program with itself under every strategy.",
    epilog="Example: tstatic verify train.py --first 2 --examples 3",
)
def verify(
    target: Target,
    arguments: Arguments = None,
    examples: Annotated[int, typer.Option(help="Drawn feeds for each strategy.", min=1)] = 5,
    steps: Annotated[int, typer.Option(help="Runs in a row, for programs that train.", min=1)] = 1,
    seed: Annotated[int, typer.Option(help="Of the drawn feeds.")] = 0,
    interpret: Interpret = True,
    program: Program = 0,
    first: First = 0,
    as_json: Json = False,
) -> None:
    """Compares a program without fusions with itself under every strategy, on drawn feeds."""
    _interpreted(interpret)
    _do(
        "running:verify", as_json, target=target, arguments=arguments or [], examples=examples, steps=steps, seed=seed,
        program=program, first=first,
    )  # fmt: skip


@app.command(
    "compile",
    short_help="Compiles kernels for chips that need not be here.",
    epilog="Example: tstatic compile train.py --all --chip sm_90 --ptx ptx",
)
def compile_kernels(
    target: Target,
    arguments: Arguments = None,
    chip: Annotated[list[str] | None, typer.Option(help="sm_80, sm_90, sm_100, ...; may be repeated. [sm_90]")] = None,
    ptx: Annotated[str, typer.Option(help="Write the PTX of each kernel to this folder.")] = "",
    workers: Annotated[int, typer.Option(help="Processes that compile.", min=1)] = 2,
    every: Every = False,
    switch: Switch = None,
    program: Program = 0,
    first: First = 0,
    batch: Batch = 0,
    feed: Feed = None,
    as_json: Json = False,
) -> None:
    """Compiles the kernels for chips that need not be here: registers, spills, shared memory, PTX."""
    _do(
        "chips:compile_kernels", as_json, target=target, arguments=arguments or [], chips=chip or ["sm_90"], ptx=ptx,
        workers=workers, every=every, switches=switch or [], program=program, first=first, batch=batch, feeds=feed or [],
    )  # fmt: skip


@app.command(
    short_help="Measures ops, fusions and programs beside numpy and torch.",
    epilog="Example: tstatic bench --op softmax --direction fwd --peers tstatic,numpy --html report.html",
)
def bench(
    target: Annotated[
        str,
        typer.Argument(
            help="A script, or a saved program, whose step is measured; without it, operators and fusions.",
            metavar="[TARGET]",
            show_default=False,
        ),
    ] = "",
    arguments: Arguments = None,
    op: Annotated[
        list[str] | None,
        typer.Option(
            help="Op types, programs, fusions: patterns with commas between them; '*' is every op. By default the file of sizes.",
            show_default=False,
        ),
    ] = None,
    shapes: Annotated[str, typer.Option(help="A file of sizes (TOML or JSON) in the place of the shipped one.")] = "",
    dtype: Annotated[list[str] | None, typer.Option(help="Float types: float32,bfloat16.", show_default=False)] = None,
    direction: Annotated[list[str] | None, typer.Option(help="fwd, bwd or fwd_bwd.", show_default=False)] = None,
    peers: Annotated[
        list[str] | None, typer.Option(help="Who is measured; --list names them.", show_default=False)
    ] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    only: Annotated[list[str] | None, typer.Option(help="Peers, or patterns of rows.", show_default=False)] = None,
    skip: Annotated[list[str] | None, typer.Option(help="Peers, or patterns of rows.", show_default=False)] = None,
    csv: Annotated[str, typer.Option(help="Write a table to this file.")] = "",
    result: Annotated[
        str, typer.Option("--json", help="Write all samples to this file; rows that it has are kept. - prints them.")
    ] = "",
    html: Annotated[str, typer.Option(help="Write a page with plots to this file.")] = "",
    history: Annotated[
        list[str] | None, typer.Option(help="An earlier result, for the page; may be repeated.", show_default=False)
    ] = None,
    repeats: Annotated[int, typer.Option(help="Turns; fewer than 11 call no difference.", min=1)] = 25,
    time: Annotated[float, typer.Option(help="Least milliseconds of a sample.", min=0.001)] = 2.0,
    seed: Annotated[int, typer.Option(help="Of the values and the order.", min=0)] = 0,
    threads: Annotated[int, typer.Option(help="Threads of each peer on the CPU; 0: all cores.", min=0)] = 0,
    load: Annotated[
        list[str] | None, typer.Option(help="A module that registers peers; may be repeated.", show_default=False)
    ] = None,
    block: Annotated[
        list[str] | None,
        typer.Option(help="A size of the kernels' blocks, as ROWS=64; may be repeated.", show_default=False),
    ] = None,
    peer: Annotated[
        list[str] | None,
        typer.Option(
            help="A kernel or function of your own, as kernels.py:softmax; may be repeated.", show_default=False
        ),
    ] = None,
    program: Program = 0,
    first: First = 0,
    batch: Batch = 0,
    feed: Feed = None,
    listed: Annotated[bool, typer.Option("--list", help="List rows and peers, and measure nothing.")] = False,
) -> None:
    """Measures ops, fusions or a program beside numpy and torch: results first, then times, in turns."""
    _do(
        "benching:bench", result == "-", op=op or [], shapes=shapes, dtype=dtype or [], direction=direction or [],
        peers=peers or [], device=device, only=only or [], skip=skip or [], csv=csv, result=result, html=html,
        history=history or [], repeats=repeats, time=time, seed=seed, threads=threads, load=load or [], listed=listed,
        block=block or [], own=peer or [], subject=target, arguments=arguments or [], program=program, first=first, batch=batch,
        feeds=feed or [],
    )  # fmt: skip


@app.command(
    short_help="Compares two results of bench, row by row.",
    epilog="Example: tstatic compare before.json after.json --threshold 5",
)
def compare(
    before: Annotated[str, typer.Argument(help="A result of tstatic bench.", show_default=False)],
    after: Annotated[str, typer.Argument(help="A later one.", show_default=False)],
    peers: Annotated[
        list[str] | None, typer.Option(help="Whose times are compared. [tstatic]", show_default=False)
    ] = None,
    threshold: Annotated[float, typer.Option(help="Percent that a difference must have at least.", min=0.0)] = 3.0,
    relative_to: Annotated[str, typer.Option(help="Divide by the times of this peer, turn by turn.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Compare results of different machines.")] = False,
    as_json: Json = False,
) -> None:
    """Compares two results row by row; exit code 1 if anything became slower or wrong."""
    _do(
        "benching:compare_results", as_json, before=before, after=after, peers=peers or [], threshold=threshold,
        relative_to=relative_to, force=force,
    )  # fmt: skip


@app.command(
    short_help="Converts weights and models: Paddle, torch, ONNX.",
    epilog="Example: tstatic convert model.pth model.pdparams --to paddle --transpose 'fc*.weight'",
)
def convert(
    source: Annotated[
        str,
        typer.Argument(help="Weights, or an inference model.", show_default=False),
    ],
    destination: Annotated[str, typer.Argument(help="The file, or a model's prefix, to write.", show_default=False)],
    to: Annotated[
        str, typer.Option(help="tstatic, paddle, torch, safetensors or npz; by default the suffix decides.")
    ] = "",
    transpose: Annotated[
        list[str] | None,
        typer.Option(
            help="Transpose matrices with such names: linear layers of torch and Paddle differ.", show_default=False
        ),
    ] = None,
    rename: Annotated[
        list[str] | None, typer.Option(help="OLD=NEW, a regular expression and its text.", show_default=False)
    ] = None,
    bfloat16: Annotated[
        list[str] | None,
        typer.Option(
            help="Arrays of Paddle with such names are bfloat16, whose bits its files have.", show_default=False
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Converts weights (.pdparams, .safetensors, .pt, .npz) and inference models between Paddle, torch and tstatic."""
    _do(
        "weights:convert", as_json, source=source, destination=destination, to=to, transpose=transpose or [],
        rename=rename or [],
        bfloat16=bfloat16 or [],
    )  # fmt: skip


@app.command(short_help="Lists or removes the generated kernels on disk.", epilog="Example: tstatic cache size")
def cache(action: Annotated[str, typer.Argument(help="list, size or clear.")] = "list", as_json: Json = False) -> None:
    """Lists generated kernels on disk, says how much they take, or removes them."""
    _do("kernel_cache:kernel_cache", as_json, action=action)


@app.command(short_help="Checks this machine, and says what to do.", epilog="Example: tstatic doctor --json")
def doctor(
    quick: Annotated[bool, typer.Option("--quick", help="Start no other processes: no torch, GPU, Triton.")] = False,
    as_json: Json = False,
) -> None:
    """Checks this machine: versions, GPUs, Triton, collectives, the kernel cache; says what to do."""
    _do("doctor:doctor", as_json, quick=quick)


@app.command(epilog="Example: tstatic selftest")
def selftest(interpret: Interpret = True, as_json: Json = False) -> None:
    """Runs small programs whose results are known, in some seconds."""
    _interpreted(interpret)
    _do("running:selftest", as_json)
