"""Which errata a processor has, by CPU family and model (Intel specification updates; the names are those of the
first list that carries each).

An erratum makes a processor write a trace that breaks the rules. A decoder that lives with one reads a rule-breaking
trace right and may misread a rule-abiding one, so each is switched on for the affected models alone.
"""

from __future__ import annotations

BDM64 = 0x001  # a transaction abort right after a branch: the branch's TNT or TIP may be wrong
BDM70 = 0x002  # PSB+ may hold a FUP though tracing is off; a TIP.PGE follows
SKD007 = 0x004  # a CYC may swallow the first byte of the OVF after it
SKD010 = 0x008  # the FUP or TIP.PGE after an OVF may be missing
SKD022 = 0x010  # VM entry that turns tracing off may give FUP + TIP.PGD instead of TIP.PGD
SKL014 = 0x020  # a direct branch out of the filter gives a TIP.PGD without IP
SKL168 = 0x040  # CYC before a PSB may be dropped: the first MTC after it does not calibrate
SKZ84 = 0x080  # a TMA may have bits set that must be zero, and a byte more
APL11 = 0x100  # an OVF that ends with tracing off may be followed by a TIP.PGD
APL12 = 0x200  # an OVF that ends with tracing off may be followed by a FUP

_BROADWELL = BDM64 | BDM70
_SKYLAKE = BDM70 | SKD007 | SKD010 | SKD022 | SKL014 | SKL168
_ICELAKE_SERVER = BDM70 | SKD022 | SKL014 | SKZ84
_SAPPHIRE_RAPIDS = BDM70 | SKD022 | SKZ84
_ICELAKE = BDM70 | SKD022 | SKL014
_HYBRID = BDM70 | SKD022 | APL11
_GOLDMONT = APL11 | APL12
_GOLDMONT_PLUS = APL11

_ERRATA: dict[int, dict[int, tuple[int, ...]]] = {
    0x06: {
        _BROADWELL: (0x3D, 0x47, 0x4F, 0x56),
        _SKYLAKE: (0x4E, 0x5E, 0x8E, 0x9E, 0xA5, 0xA6),
        _ICELAKE_SERVER: (0x55, 0x6A, 0x6C),
        _SAPPHIRE_RAPIDS: (0x8F, 0xCF, 0xAD, 0xAE),
        _ICELAKE: (0x66, 0x7D, 0x7E, 0x8C, 0x8D, 0xA7, 0xA8),
        _HYBRID: (0x97, 0x9A, 0xBA, 0xB7, 0xBF, 0xC5, 0xC6, 0xB5, 0xAA, 0xAC, 0xBD, 0xCC, 0xD5),
        _GOLDMONT: (0x5C, 0x5F),
        _GOLDMONT_PLUS: (0x7A, 0x86, 0x96, 0x9C, 0xB6, 0xAF, 0xDD),
    },
    0x12: {_HYBRID: (0x01, 0x03)},
    0x13: {_SAPPHIRE_RAPIDS: (0x01,)},
}


def of_cpu(family: int, model: int) -> int:
    """The errata of a processor as a bit mask; 0 for a processor that is not known (or 0/0: by the book)."""
    for mask, models in _ERRATA.get(family, {}).items():
        if model in models:
            return mask
    return 0


def is_known(family: int, model: int) -> bool:
    """Is it a processor with Intel PT? All of them have an erratum; 0/0 is by the book."""
    return (family, model) == (0, 0) or of_cpu(family, model) != 0


def representatives() -> list[tuple[int, int]]:
    """A processor, (family, model), of each set of errata that some have."""
    found = {mask: (family, models[0]) for family, sets in reversed(_ERRATA.items()) for mask, models in sets.items()}
    return sorted(found.values())
