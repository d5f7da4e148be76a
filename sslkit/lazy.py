"""Names of a package that are imported when they are first used, so that importing the package costs nothing."""

import importlib
import importlib.util
import os
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


def tell_of_hidden(name: str, beside: str) -> None:
    """Warn where Python finds another module than the package that lies beside a package's file: it hides ours.

    beside: that file, such as sslkit/__init__.py. Started processes say it no second time.
    """
    ours = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(beside))), name, "__init__.py")
    spec = None if name in sys.modules else importlib.util.find_spec(name)
    origin = spec.origin if spec else getattr(sys.modules.get(name), "__file__", None)
    is_started = "multiprocessing" in sys.modules and sys.modules["multiprocessing"].parent_process() is not None
    if origin and not is_started and os.path.exists(ours) and not os.path.samefile(origin, ours):
        from sslkit.terminal import say  # what an import that hides nothing does without

        say.warn(
            f"{origin} hides the package {name} that comes with sslkit: rename it, or evaluate by the command line, "
            "sslkit evaluate",
            stacklevel=2,
        )


@cache
def members(family: str) -> tuple[str, ...]:
    """Every member of a family, by listing its folder, without importing them: `members("sslkit.objectives")`."""
    files = (info.name for info in pkgutil.iter_modules(folders(family)))
    return tuple(sorted(name for name in files if name != "base" and not name.startswith("_")))


def folders(family: str) -> list[str]:
    """The folders of a package, which is not imported: a family may need torch, its names do not."""
    loaded = sys.modules.get(family)
    return list(importlib.util.find_spec(family).submodule_search_locations if loaded is None else loaded.__path__)
