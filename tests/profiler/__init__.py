"""The profiler: schedules, tables and traces of real runs."""
