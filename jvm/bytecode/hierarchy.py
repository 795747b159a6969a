"""Loaded classes, their order, and which method an invoke may run: resolution (JVMS 5.4.3.3, 5.4.3.4) and selection
(5.4.6) over the classes that are loaded (class hierarchy analysis).

Classes of one name in several loaders are told apart by the loader that defined them. Which loaders a loader asks is
not known: a name means the class of the same loader, else that of the boot loader, else the last one of that name.

A class is known from `add` to `remove`. A class that waits for a class of a name does so until it is removed itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from jvm.bytecode.class_file import FINAL, INTERFACE, PRIVATE, STATIC, ClassFile

BOOT = 0  # the loader
PUBLIC, PROTECTED, ABSTRACT = 0x1, 0x4, 0x400
OBJECT = "java/lang/Object"
Selector = tuple[str, str]  # name and descriptor


@dataclass(eq=False, slots=True)
class Loaded:
    """A loaded class or interface."""

    id: int
    name: str
    loader: int
    flags: int
    super_name: str | None
    interface_names: list[str]
    methods: dict[Selector, int]  # flags of each
    above: Loaded | None = None  # the superclass, once it is known
    interfaces: list[Loaded] = field(default_factory=list)
    below: dict[int, Loaded] = field(
        default_factory=dict
    )  # itself and all subtypes, by id, in the order of their coming
    turns: int = 0  # how often a subtype has gone, or got another supertype

    @property
    def concrete(self) -> bool:
        return not self.flags & (ABSTRACT | INTERFACE)

    @property
    def package(self) -> str:
        return self.name.rpartition("/")[0]

    def upwards(self) -> Iterator[Loaded]:
        """Itself and its superclasses; a ring of hostile ones ends where it closes."""
        seen = set[int]()
        at: Loaded | None = self
        while at is not None and at.id not in seen:
            seen.add(at.id)
            yield at
            at = at.above

    def supertypes(self) -> Iterator[Loaded]:
        """Itself, its superclasses, and all interfaces of these, each once."""
        seen, open_ = {self.id}, [self]
        while open_:
            at = open_.pop()
            yield at
            for other in (*([at.above] if at.above else ()), *at.interfaces):
                if other.id not in seen:
                    seen.add(other.id)
                    open_.append(other)


Method = tuple[Loaded, Selector]


class Hierarchy:
    def __init__(self) -> None:
        self.classes: dict[int, Loaded] = {}
        self._named: dict[str, list[Loaded]] = {}
        self._orphans: dict[str, dict[int, Loaded]] = {}  # by the name of a supertype that is not loaded

    def add(self, id_: int, loader: int, name: str, file: ClassFile) -> Loaded:
        """`name`: as the JVM has it; that of a hidden class is not the file's. A class of this id is replaced."""
        self.remove(id_)
        methods = dict(zip(file.methods(), file.method_table[:, 0].tolist(), strict=True))
        new = Loaded(id_, name, loader, file.flags, file.super_name, file.interface_names, methods)
        new.below[id_] = new
        self.classes[id_] = new
        self._named.setdefault(name, []).append(new)
        self._link(new)
        for orphan in list(self._orphans.pop(name, {}).values()):
            self._link(orphan)
            for upper in orphan.supertypes():
                upper.turns += 1
        return new

    def remove(self, id_: int) -> Loaded | None:
        gone = self.classes.pop(id_, None)
        if gone is None:
            return None
        same = self._named[gone.name]
        same.remove(gone)
        if not same:
            del self._named[gone.name]
        for name in (gone.super_name, *gone.interface_names):
            orphans = self._orphans.get(name or "", {})
            orphans.pop(id_, None)
            if not orphans:
                self._orphans.pop(name or "", None)
        for other in gone.supertypes():
            if other is not gone:
                for lower in gone.below:
                    if other.below.pop(lower, None) is not None:
                        other.turns += 1
        for one in gone.below.values():  # unloaded with it, or redefined: the others find the new one
            if one.above is gone or gone in one.interfaces:
                one.above = None if one.above is gone else one.above
                one.interfaces = [other for other in one.interfaces if other is not gone]
                self._orphans.setdefault(gone.name, {})[one.id] = one
        for one in gone.below.values():
            for upper in one.supertypes() if one is not gone else ():  # it may be below by another way
                upper.below.setdefault(one.id, one)
        return gone

    def named(self, name: str) -> list[Loaded]:
        """The classes of that name, by whatever loader; the last is the youngest."""
        return self._named.get(name, [])

    def find(self, name: str, loader: int) -> Loaded | None:
        """The class that a class of `loader` means by `name`; of an array, Object, which has its methods."""
        found = self._named.get(OBJECT if name.startswith("[") else name)
        if not found:
            return None
        for wanted in (loader, BOOT):
            for one in found:
                if one.loader == wanted:
                    return one
        return found[-1]

    def _link(self, new: Loaded) -> None:
        """Finds its supertypes as far as they are loaded; it and all below it become subtypes of theirs."""
        if new.above is None and new.super_name is not None:
            new.above = self._supertype(new, new.super_name)
        known = {other.name for other in new.interfaces}
        for name in new.interface_names:
            other = None if name in known else self._supertype(new, name)
            if other is not None:
                new.interfaces.append(other)
        for upper in new.supertypes():
            if upper is not new:
                for lower in new.below.values():
                    upper.below.setdefault(lower.id, lower)

    def _supertype(self, new: Loaded, name: str) -> Loaded | None:
        found = self.find(name, new.loader)
        if found is None or found is new:
            self._orphans.setdefault(name, {})[new.id] = new
            return None
        return found


def resolve(owner: Loaded, selector: Selector) -> Method | None:
    """The method that is meant by a reference to `owner`; None: there is none in the classes that are known."""
    for one in owner.upwards():
        if selector in one.methods:
            return one, selector
    return _default(owner, selector, abstract=True)


def select(receiver: Loaded, resolved: Method) -> Method | None:
    """The method that runs if `resolved` is called with a receiver of this class; None: none, it is an error."""
    holder, selector = resolved
    chain = list(receiver.upwards())
    for i, one in enumerate(chain):
        if one is holder:
            return resolved if not holder.methods[selector] & ABSTRACT else None
        if selector in one.methods and _overrides(chain, i, resolved):
            return (one, selector) if not one.methods[selector] & ABSTRACT else None
    return _default(receiver, selector, abstract=False)


def _overrides(chain: list[Loaded], at: int, resolved: Method) -> bool:
    """Whether the method of `chain[at]` can override `resolved` (JVMS 5.4.5). `chain`: a class and those above it."""
    holder, selector = resolved
    one = chain[at]
    flags = holder.methods[selector]
    if one.methods[selector] & (PRIVATE | STATIC) or flags & PRIVATE:
        return False
    if flags & (PUBLIC | PROTECTED) or holder.flags & INTERFACE:
        return True
    if (one.loader, one.package) == (holder.loader, holder.package):
        return True
    for i in range(at + 1, len(chain)):  # by one in between that overrides it and is overridden
        between = chain[i]
        if between is holder:
            return False
        if selector in between.methods and _overrides(chain, i, resolved):
            return _overrides(chain, at, (between, selector))
    return False


def _default(receiver: Loaded, selector: Selector, abstract: bool) -> Method | None:
    """The most specific method of its interfaces (JVMS 5.4.3.3); `abstract`: or any, where none has code."""
    have = [
        one
        for one in receiver.supertypes()
        if one.flags & INTERFACE and selector in one.methods and not one.methods[selector] & (PRIVATE | STATIC)
    ]
    most = [one for one in have if not any(other is not one and other.id in one.below for other in have)]
    real = [one for one in most if not one.methods[selector] & ABSTRACT]
    if len(real) == 1:
        return real[0], selector
    return (have[0], selector) if abstract and have else None


def bound(method: Method) -> bool:
    """Whether no other can run in its place."""
    holder, selector = method
    return bool(holder.methods[selector] & (PRIVATE | STATIC | FINAL)) or selector[0] == "<init>"
