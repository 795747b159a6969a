"""Panes, windows, the byte ledger and hot-method shift: the workers' reports, summed."""

from streamer.hub.hub import Hub
from streamer.hub.ledger import Balance, Ledger
from streamer.hub.view import HotView

__all__ = ["Balance", "HotView", "Hub", "Ledger"]
