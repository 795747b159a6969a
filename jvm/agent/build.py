"""The agent as a shared library, built when it is asked for.

One library serves every JDK: JVMTI's tables only grow, and all that is particular to a version is read from the
running VM (vmstructs.c).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from jvm.cbuild import BuildError, compiled, compiler

SOURCES = Path(__file__).parent
_FLAGS = (
    *("-std=gnu11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread"),
    *("-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror=implicit-function-declaration"),
)


def include_dir() -> Path:
    """A directory with jvmti.h: of $JAVA_HOME, of the `java` or `javac` on the path, or of any JDK in /usr/lib/jvm."""
    homes = [Path(home)] if (home := os.environ.get("JAVA_HOME")) else []
    programs = [found for program in ("javac", "java") if (found := shutil.which(program))]
    homes += [Path(found).resolve().parent.parent for found in programs]
    homes += sorted(Path("/usr/lib/jvm").glob("*"))
    for home_dir in homes:
        if all((home_dir / "include" / name).is_file() for name in ("jvmti.h", "jvmticmlr.h", "linux/jni_md.h")):
            return home_dir / "include"
    raise BuildError("the agent needs jvmti.h of a JDK (Debian: openjdk-17-jdk-headless; or set JAVA_HOME)")


def library() -> Path:
    """Path of the built agent, built now if its sources changed. Raises BuildError."""
    sources, include = sorted(SOURCES.glob("*.c")), include_dir()
    made = [compiler(), *_FLAGS, f"-I{include}", f"-I{include}/linux", *map(str, sources), "-o", "{out}", "-ldl"]
    return compiled("libstreamer-agent.so", [*sources, *sorted(SOURCES.glob("*.h"))], [made])
