"""``python -m tstatic``: the command line."""

from tstatic.tools.cli import main

if __name__ == "__main__":
    main()
