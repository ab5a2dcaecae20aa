"""Sends alerts by e-mail, with the functions by which Dagster sends its own e-mails on failed runs."""

import html
import smtplib
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal

# Not public in Dagster 1.13: its public function only builds a sensor for failed runs.
from dagster._utils.alert import EMAIL_MESSAGE, send_email_via_ssl, send_email_via_starttls

from glassflow_dagster.orchestration.alerts.alert import ANSWER_SECONDS, Alert, AlertUndelivered

_PORTS = {"SSL": 465, "STARTTLS": 587}
SENDERS: dict[str, Callable[..., Any]] = {"SSL": send_email_via_ssl, "STARTTLS": send_email_via_starttls}


@dataclass(frozen=True)
class EmailChannel:
    """An SMTP server with encryption and a login, and who gets its mails.

    user: of the login; None for the address of the sender.
    port: None for 465 (SSL) or 587 (STARTTLS).
    """

    sender: str
    recipients: tuple[str, ...]
    host: str
    password: str = field(repr=False)
    encryption: Literal["SSL", "STARTTLS"] = "SSL"
    port: int | None = None
    user: str | None = None
    name: str = "email"

    def send(self, alert: Alert) -> None:
        """Send an alert; raises `AlertUndelivered`."""
        message = EMAIL_MESSAGE.format(
            email_from=self.sender,
            email_to=",".join(self.recipients),
            # A header ends with its line.
            email_subject=" ".join(f"{alert.state}: {alert.subject}".split()),
            email_body=html.escape(alert.text).replace("\n", "<br>"),
            randomness=uuid.uuid4(),
        )
        # Dagster's functions have no time limit.
        pool = ThreadPoolExecutor(1)
        try:
            pool.submit(self._send, message).result(ANSWER_SECONDS)
        except TimeoutError:
            raise AlertUndelivered(f"email: {self.host} does not answer", may_accept_others=False) from None
        except (OSError, smtplib.SMTPException) as error:
            raise AlertUndelivered(
                f"email: {self.host} did not accept the alert ({type(error).__name__})", may_accept_others=False
            ) from None
        finally:
            pool.shutdown(wait=False)

    def _send(self, message: str) -> None:
        """Send a mail; raises OSError or SMTPException."""
        SENDERS[self.encryption](
            self.sender,
            self.password,
            self.recipients,
            # smtplib takes ASCII text only as str.
            message.encode("ascii", "xmlcharrefreplace").decode(),
            self.host,
            smtp_port=self.port or _PORTS[self.encryption],
            smtp_user=self.user or self.sender,
        )
