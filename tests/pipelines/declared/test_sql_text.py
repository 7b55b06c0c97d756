"""The tables of a query are found without Spark."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.pipelines.declared.sql_text import query_tables


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT * FROM a", ["a"]),
        ("select * from a as x join b using (id) left outer join c on x.id = c.id", ["a", "b", "c"]),
        ("SELECT * FROM a, b AS y, c WHERE x IN (1, 2)", ["a", "b", "c"]),
        ("SELECT x, y FROM a WHERE x IN (SELECT y FROM b) AND EXISTS (SELECT 1 FROM c)", ["a", "b", "c"]),
        ("SELECT * FROM (SELECT * FROM a) t JOIN (b JOIN c)", ["a", "b", "c"]),
        ("WITH a AS (SELECT * FROM b), c (x, y) AS (SELECT 1, 2 FROM d) SELECT * FROM a JOIN c", ["b", "d"]),
        ("SELECT extract(day FROM at), trim(BOTH FROM x), x IS DISTINCT FROM y FROM a", ["a"]),
        ("SELECT 'FROM b', \"FROM c\" -- FROM d\n FROM a /* JOIN e */", ["a"]),
        ("SELECT * FROM `odd name` JOIN `b`", ["odd name", "b"]),
        ("SELECT * FROM range(10) JOIN a", ["a"]),
        ("SELECT * FROM a LATERAL VIEW explode(items) t AS item", ["a"]),
        ("SELECT * FROM a, LATERAL (SELECT * FROM b)", ["a", "b"]),
        ("SELECT * FROM other.a", []),
        ("SELECT * FROM VALUES (1), (2)", []),
        ("SELECT a, b FROM x UNION ALL SELECT c, d FROM y", ["x", "y"]),
        ("SELECT window.start, count(*) FROM a GROUP BY window(at, '1 minute'), b", ["a"]),
        ("SELECT 1", []),
        ("FROM", []),
        (")) FROM a", ["a"]),
    ],
)
def test_tables(sql: str, names: list[str]) -> None:
    assert [table.name for table in query_tables(sql).names] == names


@pytest.mark.parametrize(
    ("sql", "joins"),
    [
        ("SELECT * FROM a JOIN b", True),
        ("SELECT * FROM a, b", True),
        ("SELECT * FROM a UNION SELECT * FROM b", False),
        ("SELECT x, y FROM a WHERE x IN (1, 2) GROUP BY x, y", False),
    ],
)
def test_joins(sql: str, joins: bool) -> None:
    assert query_tables(sql).joins is joins


@given(st.text(alphabet="FROMJIN abc,()'\"`-/*\n.;"))
def test_any_text_is_accepted_and_positions_are_valid(sql: str) -> None:
    for table in query_tables(sql).names:
        assert sql[table.index :].lstrip("`").startswith(table.name.split("`")[0])
