"""Tools for what runs on the engine: no other part of the library needs them.

* ``cli``       the command line
* ``benchlib``  measures ops and fusions beside other libraries
* ``profiler``  how long operators take
* ``testing``   checks for programs of one's own
* ``interop``   modules of torch as programs
"""
