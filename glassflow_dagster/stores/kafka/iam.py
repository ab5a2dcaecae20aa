"""AWS_MSK_IAM: tokens that AWS's own libraries sign, for librdkafka and for Spark's Kafka source (a Java client).

Amazon MSK takes a signed request as an OAUTHBEARER token, so both clients speak that mechanism. The libraries are not
part of a usual installation: the extra `msk` has the one for Python, and a driver fetches the jars when it needs them.
"""

import functools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glassflow_dagster.definition.model.connections import AwsIdentity, KafkaConnection, region_of
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.jars import ensure_jars
from glassflow_dagster.stores.kafka.jaas import bearer_options

_HANDLER = "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler"

# Seconds before a token expires in which it is no longer given out. A token is valid for 900 seconds, of which
# librdkafka asks for the next one when 80 % have passed.
_RENEW_BEFORE = 300


def client_settings(connection: KafkaConnection) -> dict[str, Any]:
    """Return confluent-kafka's SASL settings.

    Raises `GlassflowError` where the library for Python is missing, or AWS gives no credentials.
    """
    tokens = _tokens(_region(connection), connection.aws or AwsIdentity())
    # Now, for an error with a remedy: librdkafka would only report that its callback has failed.
    tokens.current()
    return {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _config: tokens.current()}


def spark_options(connection: KafkaConnection) -> dict[str, str]:
    """Return the `kafka.*` options of Spark's Kafka source."""
    identity = connection.aws or AwsIdentity()
    options = {
        "awsProfileName": identity.profile,
        "awsRoleArn": identity.role_arn,
        "awsRoleSessionName": identity.role_session_name,
        "awsStsRegion": _region(connection) if identity.role_arn else None,
    }
    return bearer_options(_HANDLER, {name: value for name, value in options.items() if value})


def java_options(connection: KafkaConnection) -> str:
    """Return the options that every JVM of a pipeline needs: its handler has no other setting for the region."""
    return f"-Daws.region={_region(connection)}"


def jars(report: Callable[[str], None]) -> list[Path]:
    """Return the jars that every JVM of a pipeline needs; fetch those that are missing."""
    return ensure_jars("msk", report)


def _region(connection: KafkaConnection) -> str:
    region = region_of(connection)
    if region is None:
        raise GlassflowError("connection_params.aws.region: is not in the brokers' names; add it")
    return region


@dataclass
class _Tokens:
    """The tokens of one identity: each is used until `_RENEW_BEFORE` seconds before it expires."""

    region: str
    identity: AwsIdentity
    _token: tuple[str, float] = ("", 0.0)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def current(self) -> tuple[str, float]:
        """Return a token and when it expires, in seconds since 1970; raises `GlassflowError` without credentials."""
        with self._lock:
            if time.time() > self._token[1] - _RENEW_BEFORE:
                self._token = self._sign()
            return self._token

    def _sign(self) -> tuple[str, float]:
        try:
            from aws_msk_iam_sasl_signer import MSKAuthTokenProvider  # noqa: PLC0415 - of an extra
            from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415
            from botocore.session import Session  # noqa: PLC0415
        except ImportError:
            raise GlassflowError(
                "mechanism AWS_MSK_IAM needs AWS's library; run: pip install 'glassflow-dagster[msk]'"
            ) from None
        identity = self.identity
        try:
            if Session(profile=identity.profile).get_credentials() is None:
                raise GlassflowError(
                    "connection_params.aws: AWS has no credentials for this machine; set AWS_ACCESS_KEY_ID and "
                    "AWS_SECRET_ACCESS_KEY, name a profile, or give the machine a role"
                )
            if identity.role_arn:
                name = [identity.role_session_name] if identity.role_session_name else []
                signed = MSKAuthTokenProvider.generate_auth_token_from_role_arn(self.region, identity.role_arn, *name)
            elif identity.profile:
                signed = MSKAuthTokenProvider.generate_auth_token_from_profile(self.region, identity.profile)
            else:
                signed = MSKAuthTokenProvider.generate_auth_token(self.region)
        except (BotoCoreError, ClientError) as error:
            raise GlassflowError(
                f"connection_params.aws: AWS gives no credentials ({error}); correct profile or role_arn"
            ) from error
        token, expires_ms = signed
        return token, expires_ms / 1000


@functools.cache
def _tokens(region: str, identity: AwsIdentity) -> _Tokens:
    return _Tokens(region, identity)
