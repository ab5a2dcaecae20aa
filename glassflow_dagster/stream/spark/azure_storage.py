"""Spark's access to a checkpoint in Azure's storage: Hadoop's ABFS and Azure's client, set up for a session.

The settings go into the JVM after its start, not on its command line, which every user of the host can read.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from glassflow_dagster.definition.model.state import State, azure_key_in
from glassflow_dagster.stream.spark.session import UPLOAD_FOLDER, use_store

# Of the manager of checkpoint files (AzureFiles.scala): the URL of the account.
_SERVER = "glassflow.azure.server"
_AUTH_TYPE = "fs.azure.account.auth.type"
_PROVIDERS = "org.apache.hadoop.fs.azurebfs.oauth2"
_AUTHORITY = "https://login.microsoftonline.com/"
_SETTINGS = {
    "fs.abfs.impl": "org.apache.hadoop.fs.azurebfs.AzureBlobFileSystem",
    # State files are read from their beginning to their end.
    "fs.azure.read.request.size": str(4 * 1024 * 1024),
    # Of a server that does not answer: with growing pauses some 100 s; by default 30, a quarter of an hour.
    "fs.azure.io.retry.max.retries": "8",
}


def use_azure_storage(spark: SparkSession, state: State, scratch: Path) -> None:
    """Let a session keep its checkpoints in a container. scratch: a local folder for files on their way there."""
    use_store(spark, "glassflow.AzureFiles", azure_storage_settings(state, scratch), folder=UPLOAD_FOLDER)


def azure_storage_settings(state: State, scratch: Path) -> dict[str, str]:
    """Return the settings of ABFS for a store, secrets among them; parameters as of `use_azure_storage`."""
    return {
        **_SETTINGS,
        **_server(state.azure_server_in()),
        **_credentials(os.environ),
        _SERVER: state.azure_account_url_in(),
        UPLOAD_FOLDER: str(scratch / "azure"),
    }


def _server(endpoint: str | None) -> dict[str, str]:
    """Return ABFS's settings for a server other than Azure's; none for Azure's own."""
    if endpoint is None:
        return {}
    found = urlsplit(endpoint)
    return {
        "fs.azure.abfs.endpoint": f"{found.hostname}:{found.port or (443 if found.scheme == 'https' else 80)}",
        "fs.azure.always.use.https": str(found.scheme == "https").lower(),
        # Such a server has blobs alone.
        "fs.azure.account.hns.enabled": "false",
        "fs.azure.fns.account.service.type": "BLOB",
        # The default, Apache's client, does not work without TLS.
        "fs.azure.networking.library": "JDK_HTTP_URL_CONNECTION",
    }


def _credentials(environment: Mapping[str, str]) -> dict[str, str]:
    """Return ABFS's settings for the credentials that the environment names, in the order in which obstore takes them.

    Executors on other hosts have the driver's settings, not its environment.
    """
    if key := azure_key_in(environment):
        return {_AUTH_TYPE: "SharedKey", "fs.azure.account.key": key}
    tenant, authority = environment.get("AZURE_TENANT_ID", ""), environment.get("AZURE_AUTHORITY_HOST", _AUTHORITY)
    if secret := environment.get("AZURE_CLIENT_SECRET"):
        provider = "ClientCreds"
        own = {"client.secret": secret, "client.endpoint": f"{authority.rstrip('/')}/{tenant}/oauth2/token"}
    elif token := environment.get("AZURE_FEDERATED_TOKEN_FILE"):
        provider, own = "WorkloadIdentity", {"token.file": token, "msi.tenant": tenant, "msi.authority": authority}
    else:
        provider, own = "Msi", {}
    if client := environment.get("AZURE_CLIENT_ID"):
        own["client.id"] = client
    return {
        _AUTH_TYPE: "OAuth",
        "fs.azure.account.oauth.provider.type": f"{_PROVIDERS}.{provider}TokenProvider",
        **{f"fs.azure.account.oauth2.{name}": value for name, value in own.items()},
    }
