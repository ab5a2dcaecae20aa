"""Sends alerts as JSON by HTTP POST: to Teams, PagerDuty and others, directly or through a small relay."""

import http.client
import json
import os
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass, field

from glassflow_dagster.orchestration.alerts.alert import ANSWER_SECONDS, Alert, AlertUndelivered

_TOO_MANY_REQUESTS = 429
VARIABLE = "GLASSFLOW_ALERT_WEBHOOK"


@dataclass(frozen=True)
class WebhookChannel:
    """A webhook. url: its address, which is often secret."""

    url: str = field(repr=False)
    name: str = "webhook"

    def send(self, alert: Alert) -> None:
        """Send an alert; raises `AlertUndelivered`, without the address, by which everybody could post."""
        if not self.url.startswith(("http://", "https://")):
            problem = f"{self.name}: is not a URL; write http://... or https://..."
            raise AlertUndelivered(problem, may_accept_others=False)
        # Slack and Teams show the field `text`, so the alert's own text goes into `reason`.
        body = json.dumps({**asdict(alert), "text": alert.line, "reason": alert.text}).encode()
        request = urllib.request.Request(self.url, body, {"Content-Type": "application/json"})  # noqa: S310 - checked above
        try:
            urllib.request.urlopen(request, timeout=ANSWER_SECONDS).close()  # noqa: S310 - checked above
        except (OSError, http.client.HTTPException, ValueError) as error:
            code = error.code if isinstance(error, urllib.error.HTTPError) else None
            reason = f"HTTP status {code}" if code else getattr(error, "reason", type(error).__name__)
            problem = f"{self.name}: the webhook did not accept the alert ({reason})"
            raise AlertUndelivered(problem, may_accept_others=code not in (None, _TOO_MANY_REQUESTS)) from None


@dataclass(frozen=True)
class EnvironmentWebhook:
    """The webhook whose URL is in the environment variable `GLASSFLOW_ALERT_WEBHOOK`; nothing is sent without it."""

    name: str = VARIABLE

    def send(self, alert: Alert) -> None:
        """Send an alert, if the variable is set; raises `AlertUndelivered`."""
        url = os.environ.get(VARIABLE)
        if url:
            WebhookChannel(url, self.name).send(alert)
