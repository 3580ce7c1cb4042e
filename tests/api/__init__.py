"""The public API: frozen signatures, stubs for type checkers, and the names and module paths that Paddle scripts use."""
