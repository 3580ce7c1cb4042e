"""``paddle.profiler``: how long operators take, as tables and as traces for a browser.

* ``profiler``        Profiler, its states and schedules, RecordEvent
* ``tables``          events as tables and as a Chrome trace
* ``paddle_trace``    events in Paddle's own format
* ``fluid_profiler``  the functions of ``fluid.profiler``
"""

from tstatic.ir.export import facade, facade_module

__getattr__, __dir__ = facade(__name__, modules="profiler utils")
facade_module("profiler.utils", "reading recordings.")
