"""Generic tests over the registry of op definitions: a sampler, the oracles, and one test file per oracle."""
