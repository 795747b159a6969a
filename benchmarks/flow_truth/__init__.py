"""How much of the executed code is decoded right: the product's decoder against the emulator's truth
(docs/flow-truth.md)."""


class FlowTruthError(Exception):
    """Said in one line; exit status 1."""
