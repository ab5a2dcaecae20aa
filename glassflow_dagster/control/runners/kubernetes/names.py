"""Names, labels and annotations of the objects that belong to a pipeline."""

import hashlib
import re
from collections.abc import Mapping

from glassflow_dagster.definition.model.pipeline import PipelineConfig

_DOMAIN = "glassflow-dagster"
# By it the objects of a pipeline are found; the value is the application's name.
PIPELINE_LABEL = f"{_DOMAIN}/pipeline"
# The id as it is written, which no label may be.
ID_ANNOTATION = f"{_DOMAIN}/pipeline-id"
# The SHA-256 of everything that a driver is started with, and of what decides its rows.
FINGERPRINT_ANNOTATION = f"{_DOMAIN}/fingerprint"
DIGEST_ANNOTATION = f"{_DOMAIN}/definition-digest"
MANAGER = "glassflow-dagster"

# A label has 63 characters at most; the operators append "-driver" and the like to an application's name.
_LONGEST = 45
_HASH = 8


def application_name(pipeline_id: str) -> str:
    """Return the name of a pipeline's application: its id where that is a name in Kubernetes, else one made of it.

    Different ids have different names.
    """
    name = f"glassflow-{pipeline_id}"
    plain = re.sub(r"[^a-z0-9-]", "-", name.lower())
    if plain == name and len(name) <= _LONGEST and not name.endswith("-"):
        return name
    return f"{plain[: _LONGEST - _HASH - 1].rstrip('-')}-{hashlib.sha256(pipeline_id.encode()).hexdigest()[:_HASH]}"


def labels_of(pipeline_id: str, further: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of all objects and pods of a pipeline. further: of the settings; they do not replace these."""
    name = application_name(pipeline_id)
    return {
        **further,
        "app.kubernetes.io/name": MANAGER,
        "app.kubernetes.io/instance": name,
        "app.kubernetes.io/managed-by": MANAGER,
        PIPELINE_LABEL: name,
    }


def driver_labels(pipeline_id: str) -> dict[str, str]:
    """Return the labels by which a pipeline's driver pod is found; the second is Spark's own."""
    return {PIPELINE_LABEL: application_name(pipeline_id), "spark-role": "driver"}


def selector_of(labels: Mapping[str, str]) -> str:
    """Return the selector of the objects with these labels, as the API and kubectl take it."""
    return ",".join(f"{key}={value}" for key, value in labels.items())


def annotations_of(config: PipelineConfig) -> dict[str, str]:
    """Return the annotations of a pipeline's application."""
    return {
        ID_ANNOTATION: config.pipeline_id,
        FINGERPRINT_ANNOTATION: config.fingerprint,
        DIGEST_ANNOTATION: config.digest,
    }
