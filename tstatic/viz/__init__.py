"""Drawings of programs, loaded when one is asked for.

* ``svg``  a program as SVG text, op by op
* ``overview``  a program as SVG text that fits a page, folded
* ``picture``  what of a block is drawn, in layers
* ``layout``  where the nodes of a layered graph stand
* ``folding``, ``graphviz``  a program as groups that open, for pages; Graphviz orders their rows where it is installed
"""

from tstatic.ir.program import Program


def draw(program: Program, max_ops: int = 600, folded: bool = False) -> str:
    """Returns the program as an SVG document (see :func:`tstatic.viz.svg.svg` and :func:`tstatic.viz.overview.overview`)."""
    from tstatic.viz.overview import overview
    from tstatic.viz.svg import svg

    return overview(program) if folded else svg(program, max_ops)
