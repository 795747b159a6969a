"""Names of methods as people read them: `pkg.Class.method`, free of what differs from run to run.

A label must be stable (the same method has the same name tomorrow) and bounded (in length and, because generated
classes share a label, in number). What HotSpot and common generators put in class names and we take out:

==============================================  ==================================  ==============================
seen                                            from                                label
==============================================  ==================================  ==============================
`A$$Lambda$56.0x00007f…`, `A$$Lambda$56/0x…`    JDK 17 InnerClassLambdaMetafactory  `A$$Lambda`
`A$$Lambda.0x…`, `A$$Lambda/0x…`                JDK 21 and later                    `A$$Lambda`
`LambdaForm$MH.0x…`, `LambdaForm$MH007/17`      InvokerBytecodeGenerator            `LambdaForm$MH`
`A.0x…`, `A/0x…`, `A+0x…`                       hidden classes (JVMS, JEP 371)      `A`
`$Proxy12`, `jdk.proxy2.$Proxy3`                java.lang.reflect.Proxy             `$Proxy`, `jdk.proxy.$Proxy`
`GeneratedMethodAccessor17`                     reflection before JDK 18            `GeneratedMethodAccessor`
`A$$EnhancerByCGLIB$$1f2e3d4c`                  CGLIB, Spring, Guice                `A$$EnhancerByCGLIB`
`A$ByteBuddy$x8Yq2k1L`, `A$MockitoMock$1234`    Byte Buddy, Hibernate, Mockito      `A$ByteBuddy`, `A$MockitoMock`
`_pyx12`, `Script7`                             Jython, Groovy                      `_pyx`, `Script`
==============================================  ==================================  ==============================

`lambda$main$0` and `A$1` stay: javac numbers them, so they are stable for one build.
"""

from __future__ import annotations

import re
import zlib
from functools import lru_cache

MAX_NAME = 160
"""Longest label, in characters."""

_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\$\$Lambda(?:\$\d+)?(?:[./+](?:0x[0-9a-fA-F]+|\d+))?"), "$$Lambda"),
    (re.compile(r"(LambdaForm\$[A-Z]+)\d*(?:[./+](?:0x[0-9a-fA-F]+|\d+))?"), r"\1"),
    (re.compile(r"[./+]0x[0-9a-fA-F]+"), ""),
    (re.compile(r"\bjdk\.proxy\d+\b"), "jdk.proxy"),
    (re.compile(r"\$Proxy\d+"), "$Proxy"),
    (re.compile(r"(Generated(?:Method|Constructor|SerializationConstructor)Accessor)\d+"), r"\1"),
    (re.compile(r"(\$\$(?:EnhancerBy|FastClassBy|KeyFactoryBy|BulkBeanBy)?\w*?(?:CGLIB|Guice))\$\$[0-9a-f]+"), r"\1"),
    (re.compile(r"(\$(?:ByteBuddy|HibernateProxy|MockitoMock))\$[0-9A-Za-z]+"), r"\1"),
    (re.compile(r"\b(_pyx|Script)\d+(?=[.$]|$)"), r"\1"),
)
# Whatever could break a line of the exposition format, a terminal or a log: control, format, surrogate code points.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\uffff\ud800-\udfff]")


def _bounded(name: str, limit: int) -> str:
    """`name` in at most `limit` characters. What is cut keeps its tail (the method) and a checksum, so that two
    long names that differ stay two names."""
    if len(name) <= limit:
        return name
    mark = f"~{zlib.crc32(name.encode('utf-8', 'surrogatepass')):08x}~"
    keep = limit - len(mark)
    tail = keep // 2
    return name[: keep - tail] + mark + name[len(name) - tail :]


@lru_cache(maxsize=16384)
def normalise(name: str) -> str:
    """The stable label of a method or class name, at most `MAX_NAME` characters; never raises. Idempotent for
    names that need no cutting."""
    name = _UNPRINTABLE.sub("?", name[: 16 * MAX_NAME])
    before = ""
    while name != before:  # what a rule takes out may join its neighbours into what a rule takes out; it only shrinks
        before = name
        for pattern, replacement in _RULES:
            name = pattern.sub(replacement, name)
    return _bounded(name, MAX_NAME)


def class_name(signature: str) -> str:
    """`Ljava/lang/String;` (JVMTI, class files' descriptors) or `java/lang/String` (internal form) →
    `java.lang.String`; a hidden class's `LA.0x1f;` → `A.0x1f`. Arrays get their brackets back: `[I` → `int[]`."""
    dims = len(signature) - len(signature.lstrip("["))
    base = signature[dims:]
    if base.startswith("L") and base.endswith(";"):
        base = base[1:-1]
    elif dims:
        base = _PRIMITIVES.get(base, base)
    return base.replace("/", ".") + "[]" * dims


_PRIMITIVES = {
    "B": "byte", "C": "char", "D": "double", "F": "float", "I": "int", "J": "long", "S": "short", "Z": "boolean",
}  # fmt: skip


def display(class_signature: str, method: str) -> str:
    """The label of a method: `display("Ljava/util/ArrayList;", "add")` → `java.util.ArrayList.add`."""
    return normalise(f"{class_name(class_signature)}.{method}")
