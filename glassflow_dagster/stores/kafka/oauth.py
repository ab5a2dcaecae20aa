"""OAUTHBEARER: a client's tokens from an OpenID provider (client credentials), for librdkafka and Spark's Kafka source.

Both clients request the tokens themselves, and request the next one before a token expires.
"""

from typing import Any

from glassflow_dagster.definition.certificates import read_pem
from glassflow_dagster.definition.model.connections import KafkaConnection, OAuthClient
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stores.kafka.jaas import bearer_options

# stream/scala/spark/OAuthLogin.scala
_HANDLER = "glassflow.OAuthLogin"
_ROOT_CA = "connection_params.oauth.root_ca"


def client_settings(connection: KafkaConnection) -> dict[str, Any]:
    """Return confluent-kafka's SASL settings; raises `GlassflowError` for a certificate that is no PEM."""
    client = _client(connection)
    settings: dict[str, Any] = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": client.token_url,
        "sasl.oauthbearer.client.id": client.client_id,
        "sasl.oauthbearer.client.secret": client.client_secret.get_secret_value(),
    }
    if client.scope:
        settings["sasl.oauthbearer.scope"] = client.scope
    if client.extensions:
        settings["sasl.oauthbearer.extensions"] = ",".join(f"{k}={v}" for k, v in client.extensions.items())
    if client.root_ca:
        settings["https.ca.pem"] = read_pem(_ROOT_CA, client.root_ca)
    return settings


def spark_options(connection: KafkaConnection) -> dict[str, str]:
    """Return the options of Spark's Kafka source; raises `GlassflowError` for a certificate that is no PEM."""
    client = _client(connection)
    options = {"clientId": client.client_id, "clientSecret": client.client_secret.get_secret_value()}
    if client.scope:
        options["scope"] = client.scope
    options |= {f"extension_{name}": value for name, value in client.extensions.items()}
    if client.root_ca:
        # The handler reads the TLS settings of the provider here, not from the settings of the broker.
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": read_pem(_ROOT_CA, client.root_ca)}
    return {**bearer_options(_HANDLER, options), "kafka.sasl.oauthbearer.token.endpoint.url": client.token_url}


def _client(connection: KafkaConnection) -> OAuthClient:
    if connection.oauth is None:
        raise GlassflowError("connection_params.oauth: is needed for mechanism OAUTHBEARER; add it")
    return connection.oauth
