"""JAAS configurations, in which Java's Kafka clients take credentials."""

from collections.abc import Mapping


def login_module(name: str, options: Mapping[str, str]) -> str:
    """Return the configuration of one login module. name: its class."""
    return " ".join([name, "required", *(f"{key}={_quoted(value)}" for key, value in options.items())]) + ";"


def bearer_options(handler: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return the `kafka.*` options of Spark's Kafka source for tokens.

    handler: the class that gets them.
    options: of the handler, in the login module.
    """
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    return {
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.login.callback.handler.class": handler,
        "kafka.sasl.jaas.config": login_module(module, options),
    }


def _quoted(text: str) -> str:
    """Quote a value for Kafka's JAAS parser (Java's StreamTokenizer)."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'
