"""Program to program, naming no op.

* ``manager``    runs named passes in order, verifies after each, and keeps a log
* ``dce``        drops ops whose results nobody needs
* ``cse``        merges ops that compute the same
* ``fold``       computes constants once, at compile time
* ``recompute``  repeats parts of the forward pass in the backward pass
"""
