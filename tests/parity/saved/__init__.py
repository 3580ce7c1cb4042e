"""Models that Paddle saves and tstatic reads, and the other way round."""
