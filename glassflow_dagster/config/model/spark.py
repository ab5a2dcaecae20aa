"""Spark's settings in a definition, and those that are no choice because the guarantee rests on them."""

from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

# Setting -> what another value would do.
_FIXED = {
    "spark.speculation": "a task that runs twice at once would write its blocks twice at once",
    "spark.sql.adaptive.enabled": "joining partitions would change which block a row is in",
    "spark.sql.caseSensitive": "JSON and ClickHouse tell id from ID",
    "spark.sql.extensions": "the functions of the stages come by it",
    "spark.sql.session.timeZone": "batches, windows and ClickHouse's DateTime are one clock",
    "spark.sql.streaming.stateStore.providerClass": "the state of deduplication needs this store",
    "spark.jars": "the connector to Kafka comes by it; name more jars in spark.driver.extraClassPath",
}


def spark_text(value: object) -> str:
    """Write a setting as Spark reads it: true, not True."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def spark_settings(given: Any) -> dict[str, str]:
    """Read settings as texts, however YAML has read them; raises ValueError for those that may not be set."""
    if not isinstance(given, dict):
        raise ValueError("write settings as KEY: VALUE")  # noqa: TRY004 - what pydantic takes for a mistake
    return {key: _text(key, value) for key, value in given.items()}


def _text(key: Any, value: Any) -> str:
    if not isinstance(key, str) or not key.startswith("spark."):
        raise ValueError(f"{key!r} is no setting of Spark; their names begin with 'spark.'")
    if key in _FIXED:
        raise ValueError(f"{key} cannot be set: {_FIXED[key]}; remove it")
    if isinstance(value, str | int | float):
        return spark_text(value)
    raise ValueError(f"{key}: {value!r} is no value of a setting; write a text, a number, true or false")


SparkSettings = Annotated[
    dict[str, str],
    BeforeValidator(spark_settings),
    WithJsonSchema({
        "type": "object", "propertyNames": {"pattern": r"^spark\."},
        "additionalProperties": {"type": ["string", "number", "boolean"]},
    }),
]  # fmt: skip
