"""Connections to Kafka and ClickHouse, and the schema registry of a topic."""

import re
from typing import Annotated, Literal

from pydantic import Field, SecretStr

from glassflow_dagster.definition.model.fields import Part, Port, Text, empty_means
from glassflow_dagster.definition.model.kafka_settings import KafkaSettings

# Mechanism whose credentials are a token -> the key of `connection_params` that says how it is got.
TOKEN_KEYS = {"OAUTHBEARER": "oauth", "AWS_MSK_IAM": "aws"}

# The region in a broker's name, such as b-1.demo.a1b2c3.c2.kafka.eu-west-1.amazonaws.com:9098.
_AWS_BROKER = re.compile(r"\.kafka(?:-serverless)?\.(?P<region>[a-z0-9-]+)\.amazonaws\.com")


class OAuthClient(Part):
    """A client of an OpenID provider, which gives it the tokens for the brokers (client credentials)."""

    token_url: Text = Field(description="the provider's token endpoint")
    client_id: Text
    client_secret: Annotated[SecretStr, Field(min_length=1)]
    scope: Text | None = None
    extensions: dict[str, str] = Field(
        default_factory=dict, description="SASL extensions: for Confluent Cloud logicalCluster and identityPoolId"
    )
    root_ca: str | None = Field(
        default=None, description="PEM certificate of the provider's authority, plain or in base64"
    )


class AwsIdentity(Part):
    """The AWS identity of a client of Amazon MSK; by default that of the machine (environment, profile, role)."""

    region: Text | None = Field(default=None, description="the cluster's; by default that in the brokers' names")
    profile: Text | None = Field(default=None, description="a profile of ~/.aws/config, in place of the default one")
    role_arn: Text | None = Field(default=None, description="a role to assume")
    role_session_name: Text | None = Field(default=None, description="the name of the assumed role's session")


class KafkaConnection(Part):
    """The connection to the Kafka brokers."""

    brokers: Annotated[tuple[Text, ...], Field(min_length=1)]
    protocol: Literal["PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL"] = "PLAINTEXT"
    mechanism: Literal["NO_AUTH", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER", "AWS_MSK_IAM"] = (
        "NO_AUTH"
    )
    username: str | None = None
    password: SecretStr | None = None
    root_ca: str | None = Field(default=None, description="PEM certificate of the authority, plain or in base64")
    client_cert: str | None = Field(default=None, description="PEM certificate of this client, plain or in base64")
    client_key: SecretStr | None = Field(default=None, description="PEM private key of this client, plain or in base64")
    oauth: OAuthClient | None = Field(default=None, description="for OAUTHBEARER: who requests tokens, and where")
    aws: AwsIdentity | None = Field(default=None, description="for AWS_MSK_IAM: another identity than the machine's")
    kerberos_service_name: str | None = None
    kerberos_realm: str | None = None
    kerberos_keytab: SecretStr | None = Field(default=None, description="the keytab in base64")
    kerberos_config: str | None = Field(default=None, description="the text of krb5.conf")
    skip_tls_verification: bool = False
    skip_auth: bool = False
    settings: KafkaSettings = Field(default_factory=dict, description="further settings of Kafka's clients")


def region_of(connection: KafkaConnection) -> str | None:
    """Return the AWS region of a connection's cluster: the definition's, or that in the brokers' names, or None."""
    if connection.aws and connection.aws.region:
        return connection.aws.region
    found = (_AWS_BROKER.search(broker) for broker in connection.brokers)
    return next((match["region"] for match in found if match), None)


class SchemaRegistry(Part):
    """A schema registry: values, or a header, begin with a schema id in Confluent's wire format.

    For `avro` the schemas are read from it. JSON is read without them: every record is checked against the declared
    fields, and the registry is not queried.
    """

    url: Text = Field(description="address; several with commas between them")
    api_key: str | None = None
    api_secret: SecretStr | None = None
    bearer_token: SecretStr | None = Field(default=None, description="token, in place of api_key and api_secret")
    root_ca: str | None = Field(default=None, description="PEM certificate of the authority, plain or in base64")
    client_cert: str | None = Field(default=None, description="PEM certificate of this client, plain or in base64")
    client_key: SecretStr | None = Field(default=None, description="PEM private key of this client, plain or in base64")

    @property
    def urls(self) -> tuple[str, ...]:
        """The addresses, of which any will do."""
        return tuple(url.strip() for url in self.url.split(",") if url.strip())


class ClickHouseConnection(Part):
    """The connection to ClickHouse, over HTTP.

    GlassFlow uses the native protocol on `port`. This project uses `http_port`; without it, the HTTP port for a native
    default port (9000 -> 8123, 9440 -> 8443), or else `port` itself.
    """

    host: Text
    port: Port
    http_port: Annotated[Port | None, empty_means(None)] = None
    database: Text
    username: Text
    password: SecretStr = SecretStr("")
    secure: bool = False
    skip_certificate_verification: bool = False
    root_ca: str | None = Field(default=None, description="PEM certificate of the authority, plain or in base64")
    client_cert: str | None = Field(default=None, description="PEM certificate of this client, plain or in base64")
    client_key: SecretStr | None = Field(default=None, description="PEM private key of this client, plain or in base64")

    @property
    def http(self) -> int:
        """The port for HTTP requests."""
        return self.http_port or {9000: 8123, 9440: 8443}.get(self.port, self.port)
