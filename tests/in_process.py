"""Put back the loggers that a recipe changes when it is run within the tests' process."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def logging_as_it_was() -> Iterator[None]:
    """Recipes say how much Lightning logs, and Hydra's logging switches off the loggers that are there."""
    root, names = logging.getLogger(), list(logging.root.manager.loggerDict)
    loggers = [root, *map(logging.getLogger, names)]
    before = [(logger.level, logger.disabled, logger.propagate, list(logger.handlers)) for logger in loggers]
    try:
        yield
    finally:
        for logger, (level, disabled, propagate, handlers) in zip(loggers, before, strict=True):
            if logger.level != level:  # setting one empties the caches of all
                logger.setLevel(level)
            logger.disabled, logger.propagate, logger.handlers = disabled, propagate, handlers
        for name in logging.root.manager.loggerDict.keys() - set(names):  # of modules that it imported
            logging.getLogger(name).disabled = False
