"""An alert, and the protocol of what delivers it."""

from dataclasses import dataclass
from typing import Protocol

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.safe_text import one_line


class AlertUndelivered(GlassflowError):
    """A channel did not accept an alert.

    may_accept_others: False when the next alert is sure to fail, too: the settings are wrong, nobody answered, or the
    channel asked for fewer requests. True when it answered with another error.
    """

    def __init__(self, reason: str, *, may_accept_others: bool) -> None:
        self.may_accept_others = may_accept_others
        super().__init__(reason)


@dataclass(frozen=True)
class Alert:
    """A change of `subject` (a check, a run) to `state` (ERROR, WARN, RESOLVED, FAILED); `text` has the reason."""

    subject: str
    state: str
    text: str

    @property
    def line(self) -> str:
        """The alert as one line of text."""
        return one_line(f"{self.state}: {self.subject}: {' '.join(self.text.splitlines())}")


class AlertChannel(Protocol):
    """Delivers alerts somewhere. name: of the channel, the only one of this name of its sensor."""

    @property
    def name(self) -> str:
        """The name by which the sensor remembers what the channel has delivered."""

    def send(self, alert: Alert) -> None:
        """Send an alert, within `ANSWER_SECONDS`; raises `AlertUndelivered`, without secrets in its text."""


# A channel that does not answer must not block the sensor's tick.
ANSWER_SECONDS = 10.0
