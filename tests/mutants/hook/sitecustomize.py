"""Plants a fault into one module of tstatic as it is imported: ``PYTHONPATH`` names this folder, ``TSTATIC_MUTANT`` the fault.

No file of the package is touched, and processes that a test starts have the fault, too. ``TSTATIC_MUTANT`` is JSON: the module's
name, what is changed, and a file that is made when it was.
"""

import json
import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder, SourceFileLoader

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Planted(SourceFileLoader):
    """Compiles the changed syntax tree; neither reads nor writes a pyc file."""

    mutant: dict

    def get_code(self, fullname):  # type: ignore[no-untyped-def]
        from change import changed

        path = self.get_filename(fullname)
        code = compile(changed(self.get_data(path).decode(), self.mutant), path, "exec", dont_inherit=True)
        open(self.mutant["planted"], "w").close()
        return code


class Finder(MetaPathFinder):
    """Finds the one module."""

    def __init__(self, mutant: dict) -> None:
        self.mutant = mutant

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        if name != self.mutant["module"]:
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None:
            loader = Planted(spec.loader.name, spec.loader.path)
            loader.mutant = self.mutant
            spec.loader = loader
        return spec


if "TSTATIC_MUTANT" in os.environ:
    sys.meta_path.insert(0, Finder(json.loads(os.environ["TSTATIC_MUTANT"])))
