"""docs/configuration.md, made from the model of the settings: `python -m streamer.reference` (make docs)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from streamer.config import Settings

FILE = Path("docs/configuration.md")
HEAD = """\
# Configuration

Made from `streamer/config.py` by `make docs`; a test holds the two together.

A setting comes from, the strongest first: a flag of the command, where there is one (`--help`); a variable of the
environment; a TOML file, named by `--config` or `STREAMER_CONFIG`; its default. All hold from the start to the end of
a run (docs/operating.md). In TOML, `web.port` is `port` in the table `[web]`; lists in variables are JSON
(`STREAMER_WEB__ALLOWED_HOSTS='["prod-7"]'`). An unknown name is refused.
"""


def text() -> str:
    parts = [HEAD]
    tables: dict[str, list[str]] = {}
    for name, variable, field in fields(Settings):
        section = name.rpartition(".")[0]
        row = f"| `{name}` | `{variable}` | {_type(field)} | {_default(name, field)} | {field.description} |"
        tables.setdefault(section, []).append(row)
    for section, rows in tables.items():
        parts.append(
            f"\n## {section or 'General'}\n\n| setting | variable | type | default | |\n|---|---|---|---|---|\n"
        )
        parts.append("\n".join(rows) + "\n")
    return "".join(parts)


def fields(model: type[BaseModel], before: str = "") -> Iterator[tuple[str, str, FieldInfo]]:
    """(dotted name, variable, field) of each setting, those without a section first."""
    own = model.model_fields.items()
    for name, field in own:
        if not _is_section(field.annotation):
            dotted = f"{before}{name}"
            yield dotted, f"STREAMER_{dotted.replace('.', '__').upper()}", field
    for name, field in own:
        if _is_section(field.annotation):
            assert isinstance(field.annotation, type)
            yield from fields(field.annotation, f"{before}{name}.")


def _is_section(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _type(field: FieldInfo) -> str:
    words = _words(field.annotation)
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    limits = [
        f"{sign} {value:g}" for limit in field.metadata for key, sign in signs.items()
        if (value := getattr(limit, key, None)) is not None
    ]  # fmt: skip
    return f"{words}, {', '.join(limits)}" if limits else words


def _words(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(annotation))
    if get_origin(annotation) is tuple:
        return f"list of {_words(get_args(annotation)[0])}"
    given = [kind for kind in get_args(annotation) if kind is not type(None)]
    if given:
        return _words(given[0])
    names = {bool: "true or false", int: "integer", float: "number", str: "text", Path: "path"}
    return names[annotation]


def _default(name: str, field: FieldInfo) -> str:
    if name == "runtime_dir":  # of the user who makes this page, otherwise
        return "`$XDG_RUNTIME_DIR/streamer`, or `streamer-<uid>` in the temporary directory"
    value = field.default
    assert not field.is_required()
    if value is None or value == ():
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return str(list(value)) if isinstance(value, tuple) else f"`{value}`" if isinstance(value, str) else f"{value:g}"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
