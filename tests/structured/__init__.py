"""Losses and decoders of label sequences, and whole 1.x programs on sequences, compared with what Paddle answered."""
