"""Class hierarchies compiled for tests."""

from __future__ import annotations

import subprocess
import tempfile
from functools import cache
from pathlib import Path

from jvm.bytecode.class_file import ClassFile
from tests.jdks import tool
from tests.jvm.bytecode.javap import below

SHAPES = """
package p;
interface Shape { int area(); default int twice() { return 2 * area(); } static int zero() { return 0; } }
interface Named extends Shape { default int twice() { return 3; } }
abstract class Base implements Shape {
    public int area() { return 1; }
    int own() { return 1; }
    private int hidden() { return 1; }
    final int last() { return hidden(); }
}
class Square extends Base { public int area() { return super.area(); } int own() { return 2; } }
class Cube extends Square implements Named { public String toString() { return "cube"; } }
final class Point extends Base implements Named { public int twice() { return Named.super.twice(); } }
class Other { public int area() { return 7; } }
class Adopted extends Other implements Shape { }
class Calls {
    static int interface_(Shape s) { return s.area(); }
    static int default_(Shape s) { return s.twice(); }
    static int virtual(Base b) { return b.area(); }
    static int package_(Base b) { return b.own(); }
    static int final_(Base b) { return b.last(); }
    static int static_() { return Shape.zero(); }
    static int exact(Point p) { return p.area(); }
    static Object made() { return new Square(); }
    static String text(Object o) { return o.toString(); }
    static Object array(int[] a) { return a.clone(); }
    static Runnable dynamic() { return () -> {}; }
    static Object handle(java.lang.invoke.MethodHandle h) throws Throwable { return h.invokeExact(); }
}
"""
STRANGER = """
package q;
public class Stranger extends p.Open { int own() { return 9; } public int area() { return 9; } }
"""
OPEN = "package p; public class Open extends Square { }"


@cache
def classes() -> dict[str, ClassFile]:
    """By name: those above, and a few of the library that they name."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        (root / "Shapes.java").write_text(SHAPES)
        (root / "Open.java").write_text(OPEN)
        (root / "Stranger.java").write_text(STRANGER)
        names = ["Shapes.java", "Open.java", "Stranger.java"]
        subprocess.run([tool("javac"), "--release", "17", "-d", "out", *names], cwd=root, check=True, timeout=120)
        jimage = Path(tool("jimage")).resolve()
        image = jimage.parent.parent / "lib" / "modules"
        chosen = r"regex:/java\.base/java/lang/(Object|String|Runnable|invoke/MethodHandle)\.class"
        subprocess.run([jimage, "extract", "--dir", root / "jdk", "--include", chosen, image], check=True, timeout=120)
        files = below(root / "out") | below(root / "jdk" / "java.base")
        return {name: ClassFile.of(path.read_bytes()) for name, path in files.items()}
