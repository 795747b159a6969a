from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jvm import names
from jvm.names import MAX_NAME, class_name, display, normalise


@pytest.mark.parametrize(
    ("seen", "label"),
    [
        ("java.util.ArrayList.add", "java.util.ArrayList.add"),
        ("Mix$$Lambda$56.0x00007f5e9c00a400.run", "Mix$$Lambda.run"),
        ("Mix$$Lambda$14/0x0000000800c03000.run", "Mix$$Lambda.run"),
        ("Mix$$Lambda.0x00007f1a2b000400.apply", "Mix$$Lambda.apply"),
        ("Mix$$Lambda/0x00007f1a2b000400.apply", "Mix$$Lambda.apply"),
        ("Mix$$Lambda$5/1268447657.accept", "Mix$$Lambda.accept"),
        ("java.lang.invoke.LambdaForm$MH.0x00007f1a2b000400.invoke", "java.lang.invoke.LambdaForm$MH.invoke"),
        ("java.lang.invoke.LambdaForm$DMH/0x0000000800c04000.f", "java.lang.invoke.LambdaForm$DMH.f"),
        ("java.lang.invoke.LambdaForm$BMH007/17.f", "java.lang.invoke.LambdaForm$BMH.f"),
        ("a.Hidden+0x00007f1a2b000400.m", "a.Hidden.m"),
        ("a.Hidden.0x00007f1a2b000400", "a.Hidden"),
        ("com.sun.proxy.$Proxy12.equals", "com.sun.proxy.$Proxy.equals"),
        ("jdk.proxy2.$Proxy3.annotationType", "jdk.proxy.$Proxy.annotationType"),
        (
            "jdk.internal.reflect.GeneratedMethodAccessor17.invoke",
            "jdk.internal.reflect.GeneratedMethodAccessor.invoke",
        ),
        ("a.Bean$$EnhancerBySpringCGLIB$$1f2e3d4c.get", "a.Bean$$EnhancerBySpringCGLIB.get"),
        ("a.Bean$$SpringCGLIB$$0.get", "a.Bean$$SpringCGLIB.get"),
        ("a.Bean$$FastClassByGuice$$77f.get", "a.Bean$$FastClassByGuice.get"),
        ("a.Bean$ByteBuddy$x8Yq2k1L.get", "a.Bean$ByteBuddy.get"),
        ("a.Bean$MockitoMock$1234.get", "a.Bean$MockitoMock.get"),
        ("org.python.pycode._pyx12.f$1", "org.python.pycode._pyx.f$1"),
        ("Script7.run", "Script.run"),
        ("a.Bean_$$_jvst8a1_3.get", "a.Bean_$$_jvst.get"),
        ("a.Bean_$$_jvstc4f_1f.get", "a.Bean_$$_jvst.get"),
        ("a.Bean_$$_javassist_12.get", "a.Bean_$$_javassist.get"),
        ("a.Bean$Access4JacksonDeserializer6f0e1d2c.set", "a.Bean$Access4JacksonDeserializer.set"),
        ("a.Bean$Access4JacksonSerializer17.get", "a.Bean$Access4JacksonSerializer.get"),
        ("$gen.PageFilter_20261128_093000_17.filter", "$gen.PageFilter.filter"),
        ("io.trino.$gen.CursorProcessor_20261128_093000_2.run", "io.trino.$gen.CursorProcessor.run"),
        ("user$eval1234$fn__1235.invoke", "user$eval$fn.invoke"),
        ("my.ns$handler$step__12__34.doInvoke", "my.ns$handler$step.doInvoke"),
        ("a.Bean$HibernateInstantiator$x8Yq2k1L.get", "a.Bean$HibernateInstantiator.get"),
        ("a.Bean$auxiliary$x8Yq2k1L.run", "a.Bean$auxiliary.run"),
        (
            "jdk.nashorn.internal.scripts.Script$Recompilation$12$eval.f",
            "jdk.nashorn.internal.scripts.Script$Recompilation$eval.f",
        ),
        ("jdk.nashorn.internal.scripts.Script$3$eval.f", "jdk.nashorn.internal.scripts.Script$eval.f"),
        ("org.mozilla.javascript.gen.page_js_12.call", "org.mozilla.javascript.gen.page_js.call"),
        # written by a person: a part of a word, or another place
        ("My$Proxy7Holder.get", None),
        ("My$Proxy7.get", None),
        ("acme.Script7.run", None),
        ("My$ByteBuddy$Builder.make", None),
        ("a.GeneratedMethodAccessor17Test.run", None),
        ("a.B$$Lambda$7Test.run", None),
        ("a.B$Step__1.run", None),
        ("a.B$eval12st.run", None),
        ("a.Script$3.run", None),
        # numbers that javac gives are stable and stay
        ("Mix.lambda$main$0", "Mix.lambda$main$0"),
        ("Mix$1.run", "Mix$1.run"),
        ("a.Scripted7.run", "a.Scripted7.run"),
        ("evil\nname.\x1b[31m", "evil?name.?[31m"),
    ],
)
def test_label(seen: str, label: str | None) -> None:
    """None: it stays as it is."""
    label = label or seen
    assert normalise(seen) == label
    assert normalise(label) == label


@pytest.mark.parametrize(
    ("signature", "name"),
    [
        ("Ljava/lang/String;", "java.lang.String"),
        ("java/lang/String", "java.lang.String"),
        ("LMix$$Lambda.0x00007f;", "Mix$$Lambda.0x00007f"),
        ("[[I", "int[][]"),
        ("[La/B;", "a.B[]"),
        ("I", "I"),  # a class named I in the unnamed package, internal form
        ("", ""),
    ],
)
def test_class_name(signature: str, name: str) -> None:
    assert class_name(signature) == name


def test_display() -> None:
    assert display("Ljava/util/ArrayList;", "add") == "java.util.ArrayList.add"
    assert display("LMix$$Lambda.0x00007fa;", "run") == "Mix$$Lambda.run"


def test_long_names_stay_distinct() -> None:
    a, b = ("p." * 200 + f"x{i}" + ".C" * 200 + ".method" for i in range(2))
    assert len(normalise(a)) == MAX_NAME
    assert normalise(a) != normalise(b)
    assert normalise(a).endswith(".method")


@given(st.text(max_size=600))
def test_any_text_is_bounded_and_printable(name: str) -> None:
    label = normalise(name)
    assert len(label) <= MAX_NAME
    assert "\n" not in label
    label.encode()


@given(st.text(alphabet="$.0x1fALambdPryGenScCBIuity/+_vjstkw", max_size=100))
def test_idempotent(name: str) -> None:
    once = normalise(name)
    assert normalise(once) == once


PARTS = (
    *("A", "a.B", "$$", "Lambda", "LambdaForm$MH", "$", ".", "/", "0x1f", "7", "_", "__12", "Hibernate", "Proxy", "٣"),
    *("HibernateProxy", "ByteBuddy", "auxiliary", "x8Yq2k1L", "abcdefgh", "MockitoMock", "CGLIB", "_$$_jvst", "Script"),
    *("gen", "eval", "fn", "jdk.proxy", "GeneratedMethodAccessor", "EnhancerBy", "Guice", "deadbeef"),
)


@given(st.lists(st.sampled_from(PARTS), max_size=8).map("".join))
def test_a_name_on_which_no_rule_is_tried_is_one_that_none_changes(name: str) -> None:
    if not names._GENERATED.search(name):
        assert all(pattern.sub(label, name) == name for pattern, label in names._RULES)
