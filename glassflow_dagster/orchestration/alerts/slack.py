"""Sends alerts to a Slack channel through dagster-slack, which is an optional package."""

from dataclasses import dataclass, field

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.orchestration.alerts.alert import ANSWER_SECONDS, Alert, AlertUndelivered
from glassflow_dagster.runtime.safe_text import slack_text

_RATE_LIMITED = "ratelimited"


@dataclass(frozen=True)
class SlackChannel:
    """A Slack channel.

    channel: its name or id.
    token: of a bot that may write there (chat:write).
    """

    channel: str
    token: str = field(repr=False)
    name: str = "slack"

    def __post_init__(self) -> None:
        """Raise `GlassflowError` where dagster-slack is not installed."""
        try:
            import dagster_slack  # noqa: F401, PLC0415 - optional
        except ModuleNotFoundError:
            raise GlassflowError(
                "alerts.slack: needs the package dagster-slack; run: pip install 'glassflow-dagster[slack]'"
            ) from None

    def send(self, alert: Alert) -> None:
        """Send an alert; raises `AlertUndelivered`."""
        from dagster_slack import SlackResource  # noqa: PLC0415 - optional
        from slack_sdk.errors import SlackApiError  # noqa: PLC0415

        client = SlackResource(token=self.token).get_client()
        client.timeout = int(ANSWER_SECONDS)
        try:
            client.chat_postMessage(channel=self.channel, text=slack_text(alert.line))
        except SlackApiError as error:
            reason = str(error.response.get("error", error.response.status_code))
            problem = f"slack: {self.channel}: not accepted ({reason})"
            raise AlertUndelivered(problem, may_accept_others=reason != _RATE_LIMITED) from None
        except OSError as error:
            problem = f"slack: {self.channel}: not delivered ({getattr(error, 'reason', type(error).__name__)})"
            raise AlertUndelivered(problem, may_accept_others=False) from None
