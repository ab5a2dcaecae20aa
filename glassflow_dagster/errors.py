"""The root of the errors that are meant for people.

Their text is complete on its own: what is wrong, where, and what to do. The command line prints it in one
line and exits with 1; Dagster shows it as a failure's description. Anything else that is raised is a defect.
"""


class GlassflowError(Exception):
    """Something outside the program is not as it must be; the text names the place and the remedy."""
