"""A module of a user's own that hides a package of ours: told where ours is imported."""

import importlib.util
import os
import sys


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
