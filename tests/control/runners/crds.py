"""The schemas of the operators' custom resources, as strict as a typing error needs them."""

import lzma
from functools import cache
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).with_name("crds")
OPERATORS = {"kubeflow": "v1beta2", "apache": "v1"}


@cache
def crd(operator: str) -> dict[str, Any]:
    """Return the definition of an operator's application."""
    content: dict[str, Any] = yaml.load(
        lzma.decompress((FOLDER / f"{operator}.yaml.xz").read_bytes()), Loader=yaml.CSafeLoader
    )
    return content


@cache
def schema(operator: str) -> dict[str, Any]:
    """Return the schema of an operator's application, in which unknown fields are errors: a cluster drops them."""
    [version] = [each for each in crd(operator)["spec"]["versions"] if each["name"] == OPERATORS[operator]]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    _forbid_unknown(found)
    # Of Kubernetes itself; the definitions leave it out.
    found["properties"] |= {name: {} for name in ("apiVersion", "kind", "metadata")}
    return found


def _forbid_unknown(part: Any) -> None:
    """Forbid fields that an object's schema does not have, in all objects that list theirs."""
    if isinstance(part, list):
        for each in part:
            _forbid_unknown(each)
    if not isinstance(part, dict):
        return
    is_open = part.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in part
    if isinstance(part.get("properties"), dict) and not is_open:
        part["additionalProperties"] = False
    for each in list(part.values()):
        _forbid_unknown(each)
