"""Names of a package that are imported when they are first used, so that importing the package costs nothing."""

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any


def attributes(
    package: str, names: Mapping[str, str], elsewhere: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return the `__getattr__`, `__dir__` and `__all__` of a package; call it with the package's `__name__`.

    names: each public name and its location: "package.module:name", or "package.module" for a module.
    elsewhere: names that people look for here, and how they are written; of them an AttributeError tells.
    Submodules are found too, `sslkit.zoo.start`.
    """

    def find(name: str) -> Any:
        if name not in names:
            has_modules = "__path__" in vars(sys.modules[package]) and not name.startswith("_")
            if has_modules and importlib.util.find_spec(f"{package}.{name}"):
                return importlib.import_module(f"{package}.{name}")
            meant = f": it is {elsewhere[name]}" if name in (elsewhere or {}) else ""
            raise AttributeError(f"module {package!r} has no attribute {name!r}{meant}")
        module, _, attribute = names[name].partition(":")
        member = importlib.import_module(module)
        member = getattr(member, attribute) if attribute else member
        setattr(sys.modules[package], name, member)  # from now on Python finds it without this function
        return member

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *names})

    return find, list_names, list(names)


@cache
def members(family: str) -> tuple[str, ...]:
    """Every member of a family, by listing its folder, without importing them: `members("sslkit.objectives")`."""
    files = (info.name for info in pkgutil.iter_modules(folders(family)))
    return tuple(sorted(name for name in files if name != "base" and not name.startswith("_")))


def folders(family: str) -> list[str]:
    """The folders of a package, which is not imported: a family may need torch, its names do not."""
    loaded = sys.modules.get(family)
    return list(importlib.util.find_spec(family).submodule_search_locations if loaded is None else loaded.__path__)
