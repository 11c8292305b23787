"""DDL is read as Spark reads it, before there is a Spark; errors name the column."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.spark.pipelines.ddl import columns

GOOD = [
    "id BIGINT NOT NULL, price DOUBLE",
    "a tinyint, b byte, c smallint, d short, e int, f integer, g long, h real, i float, j boolean, k binary, l date",
    "a timestamp, b timestamp_ntz, c timestamp_ltz, d decimal, e dec(5), f NUMERIC(10, 2), g char(3), h varchar(4)",
    "tags ARRAY<STRING>, m MAP<STRING, ARRAY<INT>>, s STRUCT<x: INT, `y z`: STRING NOT NULL> COMMENT 'it''s'",
    '`a b` STRING, `back``tick` INT COMMENT "two words"',
    "a: int, b: struct<c: string>",
    "struct<a: int, b: array<struct<c: string>>>",
    "a VARIANT, b void",
]


@pytest.mark.parametrize("text", GOOD)
def test_as_spark_reads_it(spark: Any, text: str) -> None:
    from pyspark.sql.types import StructType

    def plain(node: Any) -> Any:
        """Without comments, which have no bearing on columns."""
        if isinstance(node, dict):
            return {key: plain(value) for key, value in node.items() if key != "metadata"}
        return [plain(one) for one in node] if isinstance(node, list) else node

    assert plain(columns(text).jsonValue()) == plain(StructType.fromDDL(text).jsonValue())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("id BIGNT", "column 'id' has the unknown type 'BIGNT'; did you mean BIGINT?"),
        ("id zzz", "column 'id' has the unknown type 'zzz'"),
        ("id", "column 'id' has no type"),
        ("id INT price DOUBLE", "column 'id': ',' is missing after 'INT'"),
        ("id INT,", "a column is missing"),
        ("", "a column is missing"),
        (", a int", "the name of a column is missing before ','"),
        ("a ARRAY<INT", "column 'a': '>' is missing after 'INT'"),
        ("a map<int>", "column 'a': ',' is missing after 'int'"),
        ("a decimal(50)", "column 'a': DECIMAL can have at most 38 digits"),
        ("a decimal(x)", "column 'a': a number is missing after '('"),
        ("a char", "column 'a': CHAR needs a length"),
        ("a int, A string", "two columns are named 'A'"),
    ],
)
def test_errors_name_the_column(text: str, problem: str) -> None:
    with pytest.raises(ValueError) as caught:
        columns(text)
    assert problem in str(caught.value)
