"""``paddle.profiler``: how long operators take, as tables and as traces for a browser.

* ``recording``       profile, which records the statements of a ``with``
* ``profiler``        Profiler, its states and schedules, RecordEvent
* ``tables``, ``step_parts``, ``summary``  records as rows and tables, the parts of steps, and the tables that Paddle has
* ``chrome_trace``    records as a trace for browsers
* ``paddle_trace``    records in Paddle's own format
* ``fluid_profiler``  the functions of ``fluid.profiler``
"""

from tstatic.ir.export import facade, facade_module

__getattr__, __dir__ = facade(__name__, modules="profiler utils")
facade_module("profiler.utils", "reading recordings.")
