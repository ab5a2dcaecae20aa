"""Where alerts go: always the log, and a webhook where one is set up.

Dagster's own alert policies are not part of its open-source edition. A JSON object over HTTP is what Slack, Teams,
PagerDuty and their like all take, as it is or through a small relay; it needs no library.
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

# A webhook answers in well under a second; a sensor's tick must not hang on one that does not.
WEBHOOK_TIMEOUT = 10.0  # seconds
TOO_MANY_REQUESTS = 429


class AlertUndelivered(GlassflowError):
    """The webhook did not take an alert; `reached` says whether it answered, so that it may take another one."""

    def __init__(self, reason: str, *, reached: bool) -> None:
        self.reached = reached
        super().__init__(reason)


@dataclass(frozen=True)
class Alert:
    """Something that changed: `subject` (a check, a run), its new `state` (ERROR, WARN, RESOLVED, FAILED), and why."""

    subject: str
    state: str
    text: str

    @property
    def line(self) -> str:
        """The alert in one line."""
        return f"{self.state}: {self.subject}: {self.text}"


class AlertResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Sends alerts to the webhook that an environment variable names; where it names none, there is only the log."""

    webhook_variable: str = Field(
        default="GLASSFLOW_ALERT_WEBHOOK",
        description="the environment variable with the webhook's address, which is often a secret",
    )

    def send(self, alert: Alert) -> None:
        """Send an alert; raises `AlertUndelivered` when the webhook does not take it."""
        address = os.environ.get(self.webhook_variable)
        if address:
            self._post(address, alert)

    def _post(self, address: str, alert: Alert) -> None:
        if not address.startswith(("http://", "https://")):
            text = f"{self.webhook_variable}: is no address; write http://... or https://..."
            raise AlertUndelivered(text, reached=False)
        # `text` is what Slack and Teams show; the rest is for programs.
        body = json.dumps({**asdict(alert), "text": alert.line, "reason": alert.text}).encode()
        request = urllib.request.Request(address, body, {"Content-Type": "application/json"})  # noqa: S310 - checked above
        try:
            urllib.request.urlopen(request, timeout=WEBHOOK_TIMEOUT).close()  # noqa: S310 - checked above
        except (OSError, http.client.HTTPException, ValueError) as error:
            # The address stays out of the text: whoever has it can post.
            code = error.code if isinstance(error, urllib.error.HTTPError) else None
            reason = f"HTTP status {code}" if code else getattr(error, "reason", type(error).__name__)
            text = f"{self.webhook_variable}: the webhook did not take the alert ({reason})"
            raise AlertUndelivered(text, reached=code not in (None, TOO_MANY_REQUESTS)) from None


def log_alert(alert: Alert, log: logging.Logger) -> None:
    """Write an alert to the log, webhook or not."""
    log.log(logging.ERROR if alert.state in ("ERROR", "FAILED") else logging.WARNING, alert.line)
