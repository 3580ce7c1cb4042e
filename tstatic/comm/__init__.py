"""Communication between replicas and between processes, and the passes that make a program data parallel."""
