"""Names and addresses of this machine, as they stand in settings and in Host headers."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it: an address, or a name."""
    address = address_of(host)
    return plain(host) == "localhost" if address is None else address.is_loopback


def plain(name: str) -> str:
    """A name as it is compared."""
    return name.lower().removesuffix(".")


def address_of(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """None where it is none."""
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
