"""The Spark settings of a definition; those that the guarantees depend on cannot be set."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from glassflow_dagster.definition.model.fields import setting_text
from glassflow_dagster.errors import GlassflowError

# Setting that cannot be set -> why.
_FIXED = {
    "spark.speculation": "two attempts of a task at once would write its blocks twice at once",
    "spark.sql.adaptive.enabled": "coalescing partitions would change the block of a row",
    "spark.sql.caseSensitive": "JSON and ClickHouse distinguish id from ID",
    "spark.sql.extensions": "it registers the functions of the stages",
    "spark.sql.session.timeZone": "batches, windows and ClickHouse's DateTime share one time zone",
    "spark.sql.streaming.stateStore.providerClass": "the deduplication state needs this state store",
    "spark.jars": "it loads the Kafka connector; add more jars with spark.driver.extraClassPath",
}


# Settings that each session of a JVM may have; all others are of the JVM or of Spark's context.
_OF_SESSION = ("spark.sql.", "spark.glassflow.")


def is_session_setting(key: str) -> bool:
    """Return whether pipelines that share a JVM may set this differently."""
    return key.startswith(_OF_SESSION)


# The setting for the heap of a driver's JVM, and its value where nobody sets it.
DRIVER_MEMORY, DEFAULT_MEMORY = "spark.driver.memory", "1g"


def refused_in_pool(key: str, pool: str) -> str:
    """Return why a pipeline in a pool cannot have a setting of the JVM, and what to do."""
    return (
        f"{key} belongs to the JVM, which pool {pool!r} shares; give it to the pool: glassflow-dagster pool start "
        f"{pool} --conf {key}=VALUE"
    )


def spark_settings(raw: Any) -> dict[str, str]:
    """Return settings with their values as text, whatever YAML type they have; raises ValueError for invalid ones."""
    if not isinstance(raw, dict):
        raise ValueError("write settings as KEY: VALUE")  # noqa: TRY004 - pydantic reports ValueErrors only
    return {key: _text(key, value) for key, value in raw.items()}


def _text(key: Any, value: Any) -> str:
    """Return the value of one setting as text; raises ValueError when its name or value is invalid, or it is fixed."""
    if not isinstance(key, str) or not key.startswith("spark."):
        raise ValueError(f"{key!r} is not a Spark setting; their names begin with 'spark.'")
    if key in _FIXED:
        raise ValueError(f"{key} cannot be set: {_FIXED[key]}; remove it")
    if isinstance(value, str | int | float):
        return setting_text(value)
    raise ValueError(f"{key}: {value!r} is not a value of a setting; write a string, a number, true or false")


SparkSettings = Annotated[
    dict[str, str],
    BeforeValidator(spark_settings),
    WithJsonSchema({
        "type": "object", "propertyNames": {"pattern": r"^spark\."},
        "additionalProperties": {"type": ["string", "number", "boolean"]},
    }),
]  # fmt: skip


def allowed_settings(settings: Mapping[str, str], option: str) -> dict[str, str]:
    """Return Spark settings of a command line; raise `GlassflowError`, which names the option, for one that may not be.

    option: where they come from.
    """
    try:
        return spark_settings(dict(settings))
    except ValueError as problem:
        raise GlassflowError(f"{option}: {problem}") from None
