"""Where a pipeline's checkpoint is, if not in the local folder of its state: an extension of this project."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from glassflow_dagster.definition.model.fields import Part, Text

# The environment variable of the local folder of state, or of the store of all checkpoints.
STATE = "GLASSFLOW_STATE"
# That of WebHDFS, where the definition does not name it.
WEBHDFS = "GLASSFLOW_WEBHDFS"

# That of a server in place of Google's, where the definition does not name it; Google's own libraries read it.
GOOGLE_SERVER = "STORAGE_EMULATOR_HOST"

# That of a server in place of Azure's, where the definition does not name it.
AZURE_SERVER = "GLASSFLOW_AZURE_SERVER"
# Those of the key of an Azure account: of Azure's command line, and of some of its libraries.
AZURE_KEYS = ("AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY")

# Hadoop's name of S3 is s3a; s3 is what everybody else writes.
_S3 = re.compile(r"^s3a?://(?P<bucket>[A-Za-z0-9][A-Za-z0-9.\-]{1,61}[A-Za-z0-9])(?:/(?P<prefix>.*))?$")
_GOOGLE = re.compile(r"^gs://(?P<bucket>[a-z0-9][a-z0-9._\-]{1,220}[a-z0-9])(?:/(?P<prefix>.*))?$")
# A container of an account; Azure's clouds have domains of their own.
_AZURE = re.compile(
    r"^abfss?://(?P<bucket>[a-z0-9](?:-?[a-z0-9]){2,62})@(?P<account>[a-z0-9]{3,24})"
    r"\.(?:dfs|blob)\.(?P<domain>[a-z0-9.\-]+)(?:/(?P<prefix>.*))?$"
)
_HDFS = re.compile(r"^(?P<server>hdfs://(?P<host>[A-Za-z0-9][A-Za-z0-9.\-]*)(?::\d{1,5})?)(?P<path>/.*)?$")
# Of the name node's web server, which answers WebHDFS, since Hadoop 3.
_WEBHDFS_PORT = 9870
_IS_URL = re.compile(r"^[A-Za-z][A-Za-z0-9+.\-]*:/")
_DEFAULT_REGION = "us-east-1"

# What a URL of a store may be, for messages.
STORES = (
    "s3a://BUCKET/PREFIX, gs://BUCKET/PREFIX, abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/PREFIX, "
    "hdfs://HOST:PORT/FOLDER or file:///FOLDER"
)


class State(Part):
    """The store of a pipeline's checkpoint: a bucket, HDFS, or a folder; and how the first two are reached."""

    url: Text = Field(description=f"{STORES}; the checkpoint is below it, in PIPELINE_ID")
    endpoint: Text | None = Field(
        default=None,
        pattern=r"^https?://[^/\s;]+/?(;https?://[^/\s;]+/?)*$",
        description=(
            "s3a: URL of a store other than AWS; if omitted: AWS_ENDPOINT_URL_S3, else AWS_ENDPOINT_URL. "
            f"gs: URL of a server other than Google's; if omitted: {GOOGLE_SERVER}. "
            "abfs: URL of a server other than Azure's, which has the account in its paths, such as Azurite; if "
            f"omitted: {AZURE_SERVER}. "
            "hdfs: URL of WebHDFS, several name nodes with ; between them; if omitted: "
            f"{WEBHDFS}, else http://HOST:{_WEBHDFS_PORT}"
        ),
    )
    region: Text | None = Field(
        default=None, description=f"if omitted: AWS_REGION, else AWS_DEFAULT_REGION, else {_DEFAULT_REGION}"
    )
    access_key_id: Text | None = Field(
        default=None, description="if omitted, credentials are AWS's: environment variables, or a role"
    )
    secret_access_key: SecretStr | None = None
    session_token: SecretStr | None = Field(default=None, description="of temporary credentials")

    @model_validator(mode="before")
    @classmethod
    def _take_url(cls, raw: Any) -> Any:
        """Take a text as the URL alone."""
        return {"url": raw} if isinstance(raw, str) else raw

    @field_validator("url")
    @classmethod
    def _require_known(cls, url: str) -> str:
        """Return the URL, without a slash at its end, S3's with the scheme s3a; raise ValueError for another one."""
        if _S3.match(url):
            return f"s3a://{url.split('://', 1)[1].rstrip('/')}"
        if _GOOGLE.match(url):
            return url.rstrip("/")
        if found := _AZURE.match(url):
            root = f"abfs://{found['bucket']}@{found['account']}.dfs.{found['domain']}"
            return f"{root}/{found['prefix'] or ''}".rstrip("/")
        if found := _HDFS.match(url):
            return found["server"] + re.sub("//+", "/", found["path"] or "").rstrip("/")
        parts = urlsplit(url)
        if parts.scheme == "file" and not parts.netloc and parts.path.startswith("/"):
            return f"file://{parts.path.rstrip('/') or '/'}"
        raise ValueError(f"{url!r} is no store for state; write {STORES}")

    @model_validator(mode="after")
    def _require_both_keys(self) -> "State":
        """Raise ValueError for half of the credentials."""
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise ValueError("access_key_id and secret_access_key belong together; write both or neither")
        return self

    @property
    def is_s3(self) -> bool:
        """Whether the store is an S3 bucket."""
        return bool(_S3.match(self.url))

    @property
    def is_google(self) -> bool:
        """Whether the store is a bucket of Google Cloud Storage."""
        return bool(_GOOGLE.match(self.url))

    @property
    def is_azure(self) -> bool:
        """Whether the store is a container of Azure's storage."""
        return bool(_AZURE.match(self.url))

    @property
    def is_hdfs(self) -> bool:
        """Whether the store is HDFS."""
        return bool(_HDFS.match(self.url))

    @property
    def bucket(self) -> str | None:
        """The bucket, or the container; None for a folder."""
        return self._in_bucket["bucket"] if self._in_bucket else None

    @property
    def bucket_url(self) -> str:
        """The URL of the bucket, without the prefix; only for buckets."""
        scheme, rest = self.url.split("://", 1)
        return f"{scheme}://{rest.split('/', 1)[0]}"

    @property
    def prefix(self) -> str:
        """What the names of the bucket's objects begin with, without slashes at its ends."""
        return (self._in_bucket["prefix"] or "").strip("/") if self._in_bucket else ""

    @property
    def _in_bucket(self) -> re.Match[str] | None:
        """The parts of the URL of a bucket; None for another store."""
        return _S3.match(self.url) or _GOOGLE.match(self.url) or _AZURE.match(self.url)

    @property
    def folder(self) -> Path | None:
        """The folder; None for a bucket and for HDFS."""
        return None if self.bucket or self.is_hdfs else Path(urlsplit(self.url).path)

    def endpoint_in(self, environment: Mapping[str, str] = os.environ) -> str | None:
        """Return the URL of the store's server; None for AWS's own. Only for S3."""
        found = self.endpoint or environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
        return found.rstrip("/") if found else None

    def google_server_in(self, environment: Mapping[str, str] = os.environ) -> str | None:
        """Return the URL of a server in place of Google's own; None for that."""
        found = self.endpoint or environment.get(GOOGLE_SERVER)
        return found.rstrip("/") if found else None

    @property
    def azure_account(self) -> str:
        """The account of the container; only for Azure."""
        match = _AZURE.match(self.url)
        assert match
        return match["account"]

    def azure_server_in(self, environment: Mapping[str, str] = os.environ) -> str | None:
        """Return the URL of a server in place of Azure's own; None for that."""
        found = self.endpoint or environment.get(AZURE_SERVER)
        return found.rstrip("/") if found else None

    def azure_account_url_in(self, environment: Mapping[str, str] = os.environ) -> str:
        """Return the URL that the account's containers are below; only for Azure."""
        match = _AZURE.match(self.url)
        assert match
        server = self.azure_server_in(environment)
        return f"{server}/{match['account']}" if server else f"https://{match['account']}.blob.{match['domain']}"

    def webhdfs_in(self, environment: Mapping[str, str] = os.environ) -> str:
        """Return the URL of WebHDFS, or several with a semicolon between them; only for HDFS."""
        match = _HDFS.match(self.url)
        assert match
        return self.endpoint or environment.get(WEBHDFS) or f"http://{match['host']}:{_WEBHDFS_PORT}"

    @property
    def hdfs_path(self) -> str:
        """The folder in HDFS, without a slash at its end; only for HDFS."""
        match = _HDFS.match(self.url)
        assert match
        return match["path"] or ""

    def region_in(self, environment: Mapping[str, str] = os.environ) -> str:
        """Return the region of the bucket."""
        return self.region or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or _DEFAULT_REGION


def azure_key_in(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the key of an Azure account that the environment has; None for other credentials."""
    return next((environment[name] for name in AZURE_KEYS if environment.get(name)), None)


def accept_url(schema: dict[str, Any]) -> None:
    """Add to the JSON Schema of an optional `State` that it may be a text, the URL."""
    schema["anyOf"].insert(0, {"type": "string"})


def is_url(text: str) -> bool:
    """Return whether a place for state is named by a URL, not by a local path."""
    return bool(_IS_URL.match(text))
