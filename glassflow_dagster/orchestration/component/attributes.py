"""The attributes of the component that are objects: models for YAML, whose texts may be templates."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import dagster as dg
from pydantic import Field

from glassflow_dagster.control.runners.settings import (
    KubernetesSettings,
    RunnerSettings,
    SparkSubmitSettings,
    settings_of_attributes,
)
from glassflow_dagster.definition.model.spark import spark_settings
from glassflow_dagster.definition.problems import suggestion
from glassflow_dagster.definition.servers import require_known_keys
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.orchestration.alerts.alert import AlertChannel
from glassflow_dagster.orchestration.alerts.email import EmailChannel
from glassflow_dagster.orchestration.alerts.slack import SlackChannel
from glassflow_dagster.orchestration.alerts.webhook import EnvironmentWebhook, WebhookChannel
from glassflow_dagster.orchestration.automation import schedule_problem
from glassflow_dagster.orchestration.checks import ALL_CHECKS
from glassflow_dagster.orchestration.component.templates import text, texts_within
from glassflow_dagster.orchestration.options import Automation, CheckOptions, OpOptions


def _option(name: str) -> dg.Resolver:
    """Return the resolver of an option of a runner, with the description that the runner gives it."""
    description = f"spark-submit: {SparkSubmitSettings.model_fields[name].description}"
    return text(description)


class Runner(dg.Resolvable, dg.Model):
    """Where the streams run, and how they are started."""

    type: Annotated[
        Literal["local", "spark-submit", "kubernetes"] | None,
        dg.Resolver.default(
            description="local: detached processes of this host; spark-submit: executors on a standalone or YARN "
            "cluster, and the driver there or on this host; kubernetes: pods, by an operator; if omitted: "
            "GLASSFLOW_RUNNER with GLASSFLOW_RUNNER_OPTIONS, else local"
        ),
    ] = None
    state: Annotated[
        str | None,
        text(
            "folder of checkpoints, heartbeats and logs, relative to this file, or the checkpoints' store, "
            "such as s3a://BUCKET/PREFIX; if omitted: GLASSFLOW_STATE, else .glassflow/state in the working folder"
        ),
    ] = None
    create_table: Annotated[
        bool, dg.Resolver.default(description="create a missing table even where the definition has no create_table")
    ] = False
    timeout: Annotated[float, Field(gt=0), dg.Resolver.default(description="seconds that a start may take")] = 180.0
    spark_config: Annotated[
        Mapping[str, Any], texts_within("settings of the drivers' Spark sessions, and of the job that compares keys")
    ] = {}
    log_format: Annotated[
        Literal["text", "json"] | None,
        dg.Resolver.default(
            description="of the drivers' messages: text, or json for one object per line; if omitted: "
            "GLASSFLOW_LOG_FORMAT, else text"
        ),
    ] = None

    master: Annotated[str | None, _option("master")] = None
    deploy_mode: Annotated[Literal["client", "cluster"] | None, _option("deploy_mode")] = None
    python: Annotated[str | None, _option("python")] = None
    archive: Annotated[str | None, _option("archive")] = None
    address: Annotated[str | None, _option("address")] = None
    rest_url: Annotated[str | None, _option("rest_url")] = None
    web_url: Annotated[str | None, _option("web_url")] = None
    kubernetes: Annotated[
        Mapping[str, Any],
        texts_within(
            "options of the type kubernetes: "
            + ", ".join(name for name in KubernetesSettings.model_fields if name != "type"),
            [{"namespace": "streams", "image": "registry.example.com/glassflow-dagster:0.2.0"}],
        ),
    ] = {}

    def chosen(self) -> RunnerSettings:
        """Return the runner's own settings; raises `GlassflowError` for one that its type does not have."""
        given = {name: getattr(self, name) for name in SparkSubmitSettings.model_fields if name != "type"}
        options = {**{name: value for name, value in given.items() if value is not None}, **self.kubernetes}
        return settings_of_attributes(self.type, options, "attributes.runner")

    def settings(self) -> dict[str, str]:
        """Return the Spark settings as text; raises `GlassflowError` for one that may not be set."""
        try:
            return spark_settings(dict(self.spark_config))
        except ValueError as problem:
            raise GlassflowError(f"attributes.runner.spark_config: {problem}") from None


class Connections(dg.Resolvable, dg.Model):
    """Keys of `connection_params` that replace those of all definitions, such as another address or a password."""

    kafka: Annotated[
        Mapping[str, Any], texts_within("of the brokers: brokers, protocol, mechanism, username, password ...")
    ] = {}
    clickhouse: Annotated[
        Mapping[str, Any], texts_within("of ClickHouse: host, port, http_port, database, username, password ...")
    ] = {}

    def replaced(self) -> dict[str, dict[str, Any]]:
        """Return the keys by server, without a server that has none; raises `GlassflowError` for an unknown key."""
        keys = {"kafka": dict(self.kafka), "clickhouse": dict(self.clickhouse)}
        found = {server: values for server, values in keys.items() if values}
        require_known_keys(found, "attributes.connections")
        return found


class Op(dg.Resolvable, dg.Model):
    """The op that starts a pipeline's stream and checks its health."""

    description: Annotated[str | None, text("its description")] = None
    tags: Annotated[Mapping[str, str], texts_within("its tags")] = {}
    pool: Annotated[
        str | None, text("Dagster's pool that limits how many run at once; if omitted: one for each pipeline")
    ] = None

    def options(self) -> OpOptions:
        """Return the settings of the op."""
        return OpOptions(self.description, dict(self.tags), self.pool)


class Check(dg.Resolvable, dg.Model):
    """An asset check."""

    enabled: Annotated[bool, dg.Resolver.default(description="false: the check does not exist")] = True
    severity: Annotated[
        Literal["WARN", "ERROR"] | None,
        dg.Resolver.default(description="of a failure; if omitted: as the check decides"),
    ] = None

    def options(self) -> CheckOptions:
        """Return the settings of the check."""
        return CheckOptions(self.enabled, dg.AssetCheckSeverity[self.severity] if self.severity else None)


def _resolve_checks(context: dg.ResolutionContext, checks: Any) -> dict[str, CheckOptions]:
    """Return the settings of the checks that the attribute names; of all checks where it is `false` alone.

    Raises `GlassflowError` for an unknown name.
    """
    if isinstance(checks, bool):
        return {} if checks else {name: CheckOptions(enabled=False) for name in ALL_CHECKS}
    for name in checks:
        if name not in ALL_CHECKS:
            raise GlassflowError(f"attributes.checks.{name}: unknown check; {suggestion(name, list(ALL_CHECKS))}")
    return {
        name: CheckOptions(enabled=check)
        if isinstance(check, bool)
        else Check.resolve_from_model(context.at_path(name), check).options()
        for name, check in checks.items()
    }


ResolvedChecks = Annotated[
    Mapping[str, CheckOptions],
    dg.Resolver(
        _resolve_checks,
        model_field_type=bool | dict[str, bool | Check.model()],  # type: ignore[misc]
        description=f"asset checks by name ({', '.join(ALL_CHECKS)}): false switches one off, and false alone all",
        examples=[{"dead_letters": {"severity": "ERROR"}, "unmatched_share": False}],
    ),
]


class AutomationAttributes(dg.Resolvable, dg.Model):
    """What the sensors do by themselves."""

    every: Annotated[
        str | None,
        text("cron schedule (UTC) of all health checks; if omitted: checks.every of each definition", ["*/5 * * * *"]),
    ] = None
    health_checks: Annotated[bool, dg.Resolver.default(description="false: no scheduled health checks")] = True
    restarts: Annotated[bool, dg.Resolver.default(description="false: the observer restarts no stream")] = True
    running: Annotated[
        bool, dg.Resolver.default(description="false: the sensors wait until somebody switches them on")
    ] = True

    def options(self) -> Automation:
        """Return the settings of the sensors; raises `GlassflowError` for a schedule that Dagster cannot run."""
        if self.every and (problem := schedule_problem(self.every, "attributes.automation.every")):
            raise GlassflowError(f"{problem.path}: {problem.text}")
        return Automation(self.every, self.health_checks, self.restarts, self.running)


class Webhook(dg.Resolvable, dg.Model):
    """An address that takes alerts as JSON."""

    url: Annotated[str, text("http:// or https://; often secret", ["{{ env.ALERT_WEBHOOK }}"])]


class Slack(dg.Resolvable, dg.Model):
    """A Slack channel; needs `pip install 'glassflow-dagster[slack]'`."""

    channel: Annotated[str, text("name or id of the channel", ["#data"])]
    token: Annotated[str, text("token of a bot with the right chat:write", ["{{ env.SLACK_TOKEN }}"])]


class Email(dg.Resolvable, dg.Model):
    """An SMTP server with encryption and a login."""

    sender: Annotated[str, text("address of the sender")]
    recipients: Annotated[Sequence[str], Field(min_length=1), dg.Resolver.default(description="addresses")]
    host: Annotated[str, text("the SMTP server")]
    password: Annotated[str, text("of the login", ["{{ env.MAIL_PASSWORD }}"])]
    encryption: Annotated[Literal["SSL", "STARTTLS"], dg.Resolver.default(description="SSL or STARTTLS")] = "SSL"
    port: Annotated[int | None, dg.Resolver.default(description="if omitted: 465 for SSL, 587 for STARTTLS")] = None
    user: Annotated[str | None, text("of the login; if omitted: the sender")] = None


class Alerts(dg.Resolvable, dg.Model):
    """Where alerts are sent, besides Dagster's log. Without webhook, that of GLASSFLOW_ALERT_WEBHOOK, if it is set."""

    webhook: Annotated[
        Webhook | None,
        dg.Resolver.default(description="a webhook; if omitted: that in GLASSFLOW_ALERT_WEBHOOK, if it is set"),
    ] = None
    slack: Annotated[Slack | None, dg.Resolver.default(description="a Slack channel")] = None
    email: Annotated[Email | None, dg.Resolver.default(description="e-mail, by an SMTP server with a login")] = None

    def channels(self) -> list[AlertChannel]:
        """Return the channels; raises `GlassflowError` where the package of one is not installed."""
        channels: list[AlertChannel] = [] if self.webhook else [EnvironmentWebhook()]
        if self.webhook:
            channels.append(WebhookChannel(self.webhook.url))
        if self.slack:
            channels.append(SlackChannel(self.slack.channel, self.slack.token))
        if self.email:
            mail = self.email
            channels.append(
                EmailChannel(
                    mail.sender, tuple(mail.recipients), mail.host, mail.password, mail.encryption, mail.port, mail.user
                )
            )
        return channels
