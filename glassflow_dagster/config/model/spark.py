"""The Spark settings of a definition; those that the guarantees depend on cannot be set."""

from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

# Setting that cannot be set -> why.
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
    """Return the value of a setting as Spark reads it: `true`, not `True`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def spark_settings(raw: Any) -> dict[str, str]:
    """Return settings with their values as text, whatever YAML type they have; raises ValueError for invalid ones."""
    if not isinstance(raw, dict):
        raise ValueError("write settings as KEY: VALUE")  # noqa: TRY004 - pydantic reports ValueErrors only
    return {key: _text(key, value) for key, value in raw.items()}


def _text(key: Any, value: Any) -> str:
    """Return the value of one setting as text; raises ValueError when its name or value is invalid, or it is fixed."""
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
