"""Delivers alerts: always to the log, and to a webhook when one is configured.

Dagster's own alert policies are not part of its open-source edition. Slack, Teams, PagerDuty and similar services
accept JSON over HTTP, directly or through a small relay, so no client library is needed.
"""

import http.client
import json
import logging
import os
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass

import dagster as dg
from pydantic import Field

from glassflow_dagster.errors import GlassflowError

# A webhook answers in well under a second; one that does not must not block the sensor's tick.
WEBHOOK_TIMEOUT = 10.0  # seconds
TOO_MANY_REQUESTS = 429


class AlertUndelivered(GlassflowError):
    """The webhook did not accept an alert.

    may_accept_others: False when the next alert is sure to fail, too: the URL is invalid, nobody answered, or the
    webhook asked for fewer requests (HTTP status 429). True when it answered with another error status.
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
        return f"{self.state}: {self.subject}: {self.text}"


class AlertResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Sends alerts to the webhook whose URL is in an environment variable; without it, alerts are only logged."""

    webhook_variable: str = Field(
        default="GLASSFLOW_ALERT_WEBHOOK",
        description="environment variable that holds the webhook's URL, which is often secret",
    )

    def send(self, alert: Alert) -> None:
        """Send an alert to the webhook, if there is one; raises `AlertUndelivered` when it does not accept it."""
        address = os.environ.get(self.webhook_variable)
        if address:
            self._post(address, alert)

    def _post(self, address: str, alert: Alert) -> None:
        """Post an alert as JSON; raises `AlertUndelivered` without the address, which may be secret, in its text."""
        if not address.startswith(("http://", "https://")):
            text = f"{self.webhook_variable}: is not a URL; write http://... or https://..."
            raise AlertUndelivered(text, may_accept_others=False)
        # Slack and Teams show the field `text`, so the alert's own text goes into `reason`.
        body = json.dumps({**asdict(alert), "text": alert.line, "reason": alert.text}).encode()
        request = urllib.request.Request(address, body, {"Content-Type": "application/json"})  # noqa: S310 - checked above
        try:
            urllib.request.urlopen(request, timeout=WEBHOOK_TIMEOUT).close()  # noqa: S310 - checked above
        except (OSError, http.client.HTTPException, ValueError) as error:
            # The text leaves out the address: everybody who knows it can post.
            code = error.code if isinstance(error, urllib.error.HTTPError) else None
            reason = f"HTTP status {code}" if code else getattr(error, "reason", type(error).__name__)
            text = f"{self.webhook_variable}: the webhook did not accept the alert ({reason})"
            raise AlertUndelivered(text, may_accept_others=code not in (None, TOO_MANY_REQUESTS)) from None


def log_alert(alert: Alert, log: logging.Logger) -> None:
    """Log an alert: as an error when something failed, else as a warning."""
    log.log(logging.ERROR if alert.state in ("ERROR", "FAILED") else logging.WARNING, alert.line)
