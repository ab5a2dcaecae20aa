"""The base class of errors that users can act on, and the one that a program acts on, too.

Their message is complete: what is wrong, where, and what to do. The command line prints it without a traceback and
exits with 1; Dagster shows it as a failure's description. Any other exception is a defect.
"""


class GlassflowError(Exception):
    """A problem outside the program; the message names where it is and what to do."""


class Fenced(GlassflowError):
    """A newer driver runs this pipeline; this one must not write and must not be restarted."""
