"""What a program is.

* ``types``    data types, shapes with unknown sizes, metadata of a value
* ``opdef``    the OpDef (what an op is) and the registry of op definitions and spellings
* ``expr``     pointwise expressions: parse, run on numpy or torch, differentiate
* ``names``    unique names
* ``program``  Program, Block, Operator, Variable, Parameter
* ``build``    guards, and ``emit``: check, infer, name, remember the user's line
* ``edit``     clone, prune
* ``frozen``   the single-assignment copy that passes work on
* ``verify``   what must be true of a frozen program
* ``text``     print and parse
* ``serial``   the saved form of a program
"""
