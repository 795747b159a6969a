"""The errors of a trace, as the codes that kernels hand on, and their texts for a user."""

from __future__ import annotations

# fmt: off
(END, NO_PSB, BAD_OPCODE, BAD_PACKET, BAD_CONTEXT, BAD_MATCH, NO_MEMORY, BAD_INSTRUCTION, NO_IP, SUPPRESSED_IP,
 BAD_RETURN, EMPTY_STACK, BAD_STATUS, NOT_ENABLED, IGNORED_EVENT, TOO_FAR, QUEUE_FULL, NO_TIME, BAD_CONFIG, INTERNAL,
 ENDLESS) = range(-1, -22, -1)
# fmt: on

MESSAGES = {
    END: "the trace ends inside a packet",
    NO_PSB: "no PSB where one must be",
    BAD_OPCODE: "bytes that begin no packet",
    BAD_PACKET: "malformed packet",
    BAD_CONTEXT: "packet must not stand here",
    BAD_MATCH: "the trace does not match the code",
    NO_MEMORY: "no code known at this address",
    BAD_INSTRUCTION: "not an instruction",
    NO_IP: "no address known",
    SUPPRESSED_IP: "the address is suppressed",
    BAD_RETURN: "a compressed return is marked not taken",
    EMPTY_STACK: "a compressed return without its call",
    BAD_STATUS: "PSB+ contradicts the decoder's state",
    NOT_ENABLED: "a branch while tracing is off",
    IGNORED_EVENT: "an event was passed over",
    TOO_FAR: "instruction count overflow",
    QUEUE_FULL: "too many packets wait for the one they belong to",
    NO_TIME: "no time known",
    BAD_CONFIG: "the crystal clock ratio is not known",
    INTERNAL: "inconsistent decoder state",
    ENDLESS: "a loop that no packet ends",
}
