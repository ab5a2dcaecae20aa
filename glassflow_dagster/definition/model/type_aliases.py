"""ClickHouse's other names for types, whose case it ignores.

Source: system.data_type_families of ClickHouse 26.9. All names that are not here, such as UInt8, have one case only.
"""

# Type of integers -> its aliases, which SIGNED or UNSIGNED may follow.
_SIGNED = {
    "Int8": ("tinyint", "int1"),
    "Int16": ("smallint",),
    "Int32": ("int", "integer", "mediumint"),
    "Int64": ("bigint",),
}

# Type -> its other names, in lower case; also its own, where ClickHouse ignores the case of that.
_NAMES = {
    "Bool": ("bool", "boolean"),
    "Date": ("date",),
    "Date32": ("date32",),
    "DateTime": ("datetime", "datetime32", "timestamp"),
    "DateTime64": ("datetime64",),
    "Decimal": ("decimal", "dec", "fixed", "numeric"),
    "Decimal32": ("decimal32",),
    "Decimal64": ("decimal64",),
    "Decimal128": ("decimal128",),
    "Decimal256": ("decimal256",),
    "Enum": ("enum",),
    "FixedString": ("binary",),
    "Float32": ("float", "real", "single"),
    "Float64": ("double", "double precision"),
    "IPv4": ("inet4",),
    "IPv6": ("inet6",),
    "JSON": ("json",),
    "Int8": ("byte",),
    "Int64": ("signed",),
    "UInt16": ("year",),
    "UInt64": ("unsigned", "bit", "set"),
    "String": (
        "text", "tinytext", "mediumtext", "longtext", "clob", "blob", "tinyblob", "mediumblob", "longblob", "bytea",
        "varchar", "varchar2", "nvarchar", "varbinary", "binary varying", "binary large object",
        "char", "char varying", "char large object", "nchar", "nchar varying", "nchar large object",
        "character", "character varying", "character large object", "national char", "national char varying",
        "national character", "national character varying", "national character large object",
    ),
    "Time": ("time",),
    "Time64": ("time64",),
}  # fmt: skip

# Alias in lower case -> the type.
ALIASES = {
    **{alias: name for name, aliases in _NAMES.items() for alias in aliases},
    **{alias: name for name, aliases in _SIGNED.items() for alias in aliases},
    **{f"{alias} signed": name for name, aliases in _SIGNED.items() for alias in aliases},
    **{f"{alias} unsigned": f"U{name}" for name, aliases in _SIGNED.items() for alias in aliases},
}
MAX_WORDS = max(len(alias.split()) for alias in ALIASES)
