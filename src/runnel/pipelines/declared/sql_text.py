"""The tables that a query refers to, found without Spark's parser: enough to order steps."""

import re
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""(?P<skip>\s+|--[^\n]*|/\*.*?(?:\*/|$))
      | (?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.)*")
      | (?P<quoted>`(?:[^`]|``)*`)
      | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
# These end a list of tables: a comma after them is not followed by a table.
_ENDS_TABLES = {
    "select", "where", "group", "having", "order", "limit", "union", "intersect", "except", "minus", "window",
    "on", "using", "lateral", "tablesample", "pivot", "unpivot", "qualify", "cluster", "distribute", "sort",
    "offset",
}  # fmt: skip
_BEGINS_QUERY = {"select", "with"}
# A bracket after these opens a query or a list, not the arguments of a function.
_BEFORE_SUBQUERY = {
    "in", "exists", "from", "join", "as", "any", "all", "some", "not", "and", "or", "lateral", "on", "where",
    "select",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TableName:
    """A reference to a table in a query."""

    name: str
    index: int


@dataclass(frozen=True, slots=True)
class QueryTables:
    """The tables of a query, and whether it joins any."""

    names: tuple[TableName, ...]
    joins: bool


@dataclass(slots=True)
class _Level:
    """The state between two parentheses."""

    is_function: bool = False
    in_tables: bool = False
    expects_table: bool = False


def query_tables(sql: str) -> QueryTables:
    """The tables after FROM and JOIN, except common table expressions."""
    tokens = [
        (match.lastgroup or "", match[0], match.start())
        for match in _TOKEN.finditer(sql)
        if match.lastgroup != "skip"
    ]
    own = _own_names(tokens)
    levels, names, joins = [_Level()], [], False
    for position, (kind, text, index) in enumerate(tokens):
        level = levels[-1]
        before = tokens[position - 1][1].lower() if position else ""
        after = tokens[position + 1][1] if position + 1 < len(tokens) else ""
        if text == "(":
            called = bool(position) and tokens[position - 1][0] in ("word", "quoted")
            # FROM ( is followed by a subquery or by joined tables.
            is_table = level.expects_table
            levels.append(_Level(called and before not in _BEFORE_SUBQUERY, is_table, is_table))
            level.expects_table = False
        elif text == ")":
            if len(levels) > 1:
                levels.pop()
        elif kind in ("word", "quoted") and level.expects_table and text.lower() not in _BEGINS_QUERY:
            level.expects_table = text.lower() == "lateral"
            if (
                not level.expects_table
                and after not in ("(", ".")
                and text.lower() not in ("values", "table")
            ):
                names.append(TableName(text.strip("`").replace("``", "`"), index))
        elif kind == "word":
            joins = _word(text.lower(), before, level) or joins
        elif text == "," and level.in_tables:
            level.expects_table = True
            joins = True
    return QueryTables(tuple(name for name in names if name.name.lower() not in own), joins)


def _word(word: str, before: str, level: _Level) -> bool:
    """Process a keyword; True if it is a join."""
    if word in _BEGINS_QUERY:
        level.is_function = level.expects_table = False
    if word == "from" and before != "distinct" and not level.is_function:
        level.in_tables = level.expects_table = True
    elif word == "join":
        level.in_tables = level.expects_table = True
        return True
    elif word in _ENDS_TABLES:
        level.in_tables = False
    return False


def _own_names(tokens: list[tuple[str, str, int]]) -> set[str]:
    """Names of common table expressions: WITH name AS ( … ), name (column, …) AS ( … )."""
    found = set()
    for position, (kind, text, _) in enumerate(tokens):
        before = tokens[position - 1][1].lower() if position else ""
        if kind in ("word", "quoted") and before in ("with", ",", "recursive"):
            rest = [token[1].lower() for token in tokens[position + 1 :]]
            if rest[:1] == ["("] and ")" in rest:
                rest = rest[rest.index(")") + 1 :]
            if rest[:2] == ["as", "("]:
                found.add(text.strip("`").lower())
    return found
