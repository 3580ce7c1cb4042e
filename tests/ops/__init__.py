"""Generic tests over the registry of cards: a sampler, the oracles, and one test file per oracle."""
