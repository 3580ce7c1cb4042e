"""Fusions: what finds them, what they look for, and the kernels that they make.

* ``engine``  finds matches, checks and replaces them, and explains rejections
* ``patterns``  fusions, one file each, and their order
* ``attention``  the fusions of attentions with their kernels
* ``rewrites``  rewrites that let more patterns match, and those that follow
* ``user``  the user's own kernels and groups
* ``codegen``  the text of kernels
"""

from tstatic.fusion.patterns import FUSIONS

__all__ = ["FUSIONS"]
