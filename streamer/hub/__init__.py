"""Panes, windows, the byte ledger and hot-method shift: the workers' reports, summed."""
