"""Generated kernels compiled for chips that need not be here.

* ``sources``     a kernel's launches as what a compiler without a GPU takes
* ``aot``         compiles them for the figures of what came out
* ``ahead``       compiles those of a plan before the first run needs them
* ``processes``   processes that compile, and may crash or hang
* ``aot_worker``  what runs in such a process, under any interpreter that has triton
* ``sass``        reads the compiler's log, PTX and machine code
* ``loops``       finds the loops of such code
* ``matrix``      its matrix instructions, and what else runs in their loops
* ``ir``          reads Triton's own forms of a kernel: products asked for, copies of boxes
* ``report``      the figures of one kernel on one chip, and what each chip has
* ``seen``        what has run on GPUs, in the words of the doctor and of the pages
"""
