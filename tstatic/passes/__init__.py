"""Passes: from frozen program to frozen program, without knowledge of particular ops.

* ``manager``    runs named passes in order, verifies after each, and keeps a log
* ``dce``        removes ops whose results are not used
* ``cse``        merges ops that compute the same values
* ``fold``       computes constants once, at compile time
* ``row_gradients``  keeps gradients of large tables as the rows that were looked up
* ``wide_halves``  computes mixed precision in float32 where a device has no float16 arithmetic
* ``addto``      adds gradients in place, without a sum op
"""
