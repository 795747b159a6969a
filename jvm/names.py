"""Names of methods as people read them: `pkg.Class.method`, free of parts that differ from run to run.

A label must be stable (the same method has the same name tomorrow) and bounded (in length and, because generated
classes share a label, in number). The parts that HotSpot and common generators put in class names and we take out:

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
`A$ByteBuddy$x8Yq2k1L`, `A$auxiliary$x8Yq2k1L`  Byte Buddy, Hibernate               `A$ByteBuddy`, `A$auxiliary`
`A$MockitoMock$1234`                            Mockito                             `A$MockitoMock`
`A_$$_jvst8a1_3`, `A_$$_javassist_12`           Javassist                           `A_$$_jvst`, `A_$$_javassist`
`A$Access4JacksonDeserializer6f0e1d2c`          Jackson's Afterburner               `A$Access4JacksonDeserializer`
`$gen.PageFilter_20261128_093000_17`            Trino, Presto (airlift bytecode)    `$gen.PageFilter`
`user$eval1234$fn__1235`                        Clojure                             `user$eval$fn`
`Script$Recompilation$12$\\^eval\\_`            Nashorn                             `Script$Recompilation$\\^eval\\_`
`gen.page_js_12`                                Rhino                               `gen.page_js`
`_pyx12`, `Script7`                             Jython, Groovy's shell              `_pyx`, `Script`
==============================================  ==================================  ==============================

`lambda$main$0` and `A$1` stay: javac numbers them, so they are stable for one build. So does a name in which such a
text is only a part of a word, or stands where the generator does not put it: `My$Proxy7`, `My$Proxy7Holder` and
`acme.Script7` were written by a person.
"""

from __future__ import annotations

import re
import zlib
from functools import lru_cache

MAX_NAME = 160
"""Longest label, in characters."""

_END = r"(?![\w])"  # of a generated word; `.` (a method), `$` (an inner class) or nothing follows
_ADDRESS = r"[./+](?:0x[0-9a-fA-F]+|\d+)"


def _rule(pattern: str, label: str = r"\1") -> tuple[re.Pattern[str], str]:
    return re.compile(pattern + _END), label


_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    _rule(rf"\$\$Lambda(?:\$\d+)?(?:{_ADDRESS})?", "$$Lambda"),
    _rule(rf"(LambdaForm\$[A-Z]+)\d*(?:{_ADDRESS})?"),
    _rule(r"[./+]0x[0-9a-fA-F]+", ""),
    _rule(r"\bjdk\.proxy\d+", "jdk.proxy"),
    _rule(r"(?:^|(?<=\.))\$Proxy\d+", "$Proxy"),
    _rule(r"(Generated(?:Method|Constructor|SerializationConstructor)Accessor)\d+"),
    _rule(r"(\$\$(?:EnhancerBy|FastClassBy|KeyFactoryBy|BulkBeanBy)?\w*?(?:CGLIB|Guice))\$\$[0-9a-f]+"),
    _rule(r"(\$(?:ByteBuddy|HibernateProxy|HibernateInstantiator|HibernateAccessOptimizer|auxiliary))\$[0-9A-Za-z]{8}"),
    _rule(r"(\$MockitoMock)\$\d+"),
    _rule(r"(_\$\$_jvst)[0-9a-f]*_[0-9a-f]+"),
    _rule(r"(_\$\$_javassist)_\d+"),
    _rule(r"(\$Access4Jackson(?:Des|S)erializer)[0-9a-f]+"),
    _rule(r"(\$gen\.\w+?)_\d{8}_\d{6}_\d+"),
    _rule(r"(\$eval)\d+"),
    _rule(r"(\$[a-z_][\w?!*]*?)__\d{2,}(?:__\d{2,})*"),  # Clojure's gensyms: its functions, not Java's inner classes
    _rule(r"(\bScript(?:\$Recompilation)?)\$\d+(?=\$)"),
    _rule(r"(\bjavascript\.gen\.\w+?)_\d+"),
    _rule(r"(\bpycode\._pyx|^Script)\d+"),
)
_GENERATED = re.compile(r"\d|\$\$|\$(?:ByteBuddy|Hibernate|auxiliary)")
"""A name without any of these is left as it is by all rules: most are."""
# All characters that could break a line of the exposition format, a terminal or a log: control, format, surrogate code
# points.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\uffff\ud800-\udfff]")


def _bounded(name: str, limit: int) -> str:
    """`name` in at most `limit` characters. A cut name keeps its tail (the method) and a checksum, so that two long
    names that differ stay two names."""
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
    before = "" if _GENERATED.search(name) else name
    while name != before:  # neighbours of a part taken out may join into another to take out; it only shrinks
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
