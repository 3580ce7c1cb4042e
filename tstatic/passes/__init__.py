"""Program to program, naming no op.

* ``manager``    runs named passes in order, verifies after each, and keeps a log
* ``dce``        drops ops whose results nobody needs
* ``cse``        merges ops that compute the same
* ``fold``       computes constants once, at compile time
* ``addto``      adds gradients in place, without a sum op
"""
