"""Explains where a run got no memory: the operator, the user's line, and the batch that would fit."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from tstatic.display import size
from tstatic.errors import OutOfMemoryError, TstaticError
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.types import Meta
from tstatic.plan.plan import Plan
from tstatic.plan.report import MemoryReport, memory_report
from tstatic.shortage import is_shortage, out_of_memory
from tstatic.where import show

Method = TypeVar("Method", bound=Callable[..., Any])

MAX_BATCH = "compiled.max_batch(fetch_list=...) returns the largest batch that fits"
_TAKES = "; the run takes"
_PERHAPS = f"use a smaller batch ({MAX_BATCH}) or smaller shapes"


def state_metas(plan: Plan) -> dict[str, Meta]:
    """Returns the metadata of the variables that a plan reads or writes."""
    slots = (slot for slot in plan.storage.values() if slot.kind == "state" and slot.meta is not None)
    return {slot.of: slot.meta for slot in slots if slot.meta is not None}


def _advice(plan: Plan) -> str:
    if plan.program.feeds:
        return f"feed a smaller batch: {MAX_BATCH}"
    return "use smaller shapes; static.CompiledProgram(program).memory_report(...) lists what each operator needs"


def of_op(error: BaseException, op: FrozenOp) -> BaseException:
    """Returns an operator's error about memory as a typed one, with the operator and the user's line; others as they are."""
    if isinstance(error, TstaticError) or not is_shortage(error):
        return error
    made = out_of_memory(f"operator '{op.type}'", cause=error, fix=_PERHAPS)
    # The first six: an update of all parameters reads hundreds.
    made.add_context(op=op.type, var=", ".join(list(op.reads())[:6]) or None, where=show(op.where))
    made.__cause__ = error
    return made


def of_section(error: OutOfMemoryError, op: FrozenOp) -> OutOfMemoryError:
    """Returns the error about memory for steps whose sizes a run finds, with the first of them and the user's line."""
    made = out_of_memory(error.what.partition(" needs memory")[0], error.wanted_bytes, error, fix=_PERHAPS)
    made.add_context(op=op.type, where=show(op.where))
    return made


def with_report(error: BaseException, report: MemoryReport) -> None:
    """Adds the largest parts of a plan's memory to an operator's error about memory."""
    # Once: what runs in a run passes here, too.
    if isinstance(error, OutOfMemoryError) and _TAKES not in str(error.received):
        error.received = f"{error.received}{_taken(report)}"


def _taken(report: MemoryReport) -> str:
    return f"{_TAKES} {size(report.total_bytes)}: {report.largest}"


def of_run(error: BaseException, plan: Plan) -> OutOfMemoryError:
    """Returns the error about memory that a plan as a whole could not have, with the operator at its peak."""
    wanted = getattr(error, "wanted_bytes", None)
    # `out_of_memory` adds these words to what it is given: an error that is explained once more would have them twice.
    what = error.what.partition(" needs memory")[0] if isinstance(error, OutOfMemoryError) else "the run"
    report = memory_report(plan, state_metas(plan), 0)
    made = out_of_memory(what, wanted, error, fix=_advice(plan))
    peak = report.peak
    if peak is not None:
        most = f"most is needed at '{peak.op}', where {size(peak.live_bytes)} are live at once"
        made.received = f"{made.received}; {most}{_taken(report)}"
        made.add_context(op=peak.op, where=peak.where)
    return made


def explained(method: Method) -> Method:
    """Makes a session's method say what a run lacked memory for; what it had bound is freed, so that the next run binds anew."""

    @functools.wraps(method)
    def run(session: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(session, *args, **kwargs)
        # numpy says it by a ValueError where the size cannot be addressed, torch by a RuntimeError.
        except (MemoryError, ValueError, RuntimeError) as error:
            if not is_shortage(error):
                raise
            if isinstance(error, TstaticError) and error.op is not None:
                # Of one operator, behind whose failure all is as before.
                with_report(error, memory_report(session.plan, state_metas(session.plan), 0, seen=session.seen))
                raise
            made = of_run(error, session.plan)
            # Behind the report, which reads the plan, and before the error: the memory is needed by whoever handles it.
            session.drop()
            raise made from error

    return run  # type: ignore[return-value]


__all__ = ["explained", "of_op", "of_run", "of_section", "with_report"]
