"""Bytes and text of programs and values: what files hold, read without trust.

* ``schema``, ``restore``  what is saved of a program, stated once, and a program made of it
* ``serial``  the saved form of a program
* ``text``, ``parse``  programs as text, and back
* ``paddle_program``, ``paddle_attributes``, ``paddle_writing``, ``paddle_proto``  programs in Paddle's files: their translation
  here, slots and attributes among it, and there, and their bytes
* ``checkpoint``, ``header``, ``files``, ``leftovers``  saved values: their format, its reader, sets of files that change together,
  and what is left of a save whose process ended early
* ``pickles``, ``pickle_writer``, ``objects``, ``paddle_tensors``  plain data and values in Paddle's files
* ``report_files``  reports, traces and pages: whole, or a typed error
"""
