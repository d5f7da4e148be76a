"""The one error that is the user's to mend."""


class UserError(ValueError):
    """Bad input, said in one line: what is wrong, where, and how to mend it.

    The recipes print it without a traceback and leave with exit code 2.
    """
