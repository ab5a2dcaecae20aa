"""GlassFlow's SDK from PyPI, unmodified, and which of its methods a test has called."""

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType, ModuleType
from typing import Any


def public_methods(module: ModuleType) -> dict[str, CodeType]:
    """Return the public methods of an edition's classes: `Client.create_pipeline` -> its code."""
    edition = module.__name__.rpartition(".")[2]
    found: dict[str, CodeType] = {}
    for kind in (module.Client, module.Pipeline, module.DLQ):
        for name, member in inspect.getmembers(kind):
            function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if not name.startswith("_") and inspect.isfunction(function):
                found[f"{edition}.{kind.__name__}.{name}"] = function.__code__
    return found


@contextmanager
def recorded(*editions: ModuleType) -> Iterator[set[str]]:
    """Yield a set that gets the name of each public method of the editions that the block calls.

    A method that an edition inherits is called in the edition whose class the object has.
    """
    by_code: dict[CodeType, list[str]] = {}
    for edition in editions:
        for name, code in public_methods(edition).items():
            by_code.setdefault(code, []).append(name)
    called: set[str] = set()

    def observe(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and frame.f_code in by_code:
            owner = frame.f_locals.get("self", frame.f_locals.get("cls"))
            kind = owner if isinstance(owner, type) else type(owner)
            edition = kind.__module__.split(".")[1]
            called.update(name for name in by_code[frame.f_code] if name.startswith(f"{edition}."))

    sys.setprofile(observe)
    try:
        yield called
    finally:
        sys.setprofile(None)
