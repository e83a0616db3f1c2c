"""SQL as a reader wants it: one clause per line, and rows that repeat shown once."""

import re
import textwrap
from collections.abc import Iterator

WIDTH = 150
LIMIT = 101  # stands for the limit of a page and one more
_CLAUSE = re.compile(
    r"\b(?:WITH RECURSIVE|WITH|SELECT|FROM|WHERE|UNION ALL|UNION|ORDER BY|GROUP BY|HAVING|LIMIT|RETURNING|VALUES|SET|"
    r"LEFT JOIN|CROSS JOIN|JOIN|ON CONFLICT|FOR UPDATE|FOR SHARE|INSERT INTO|UPDATE|DELETE FROM|USING)\b"
)
_STATEMENT = re.compile(r"\(*(?:SELECT|INSERT|UPDATE|DELETE|WITH)\b")
_ROWS = re.compile(r"VALUES (\((?:\$|\?)[^()]*\))((?:, ?\([^()]*\))*)")
_PARTS = re.compile(r"( AS part_0)(?: UNION ALL SELECT \* FROM \(.*?\) AS part_\d+)*(?=\) AS merged)")
_IDS = re.compile(r"IN \((\?\d*)(?:, ?\?\d*)*\)")
_INLINE_MAX = 90


def normalized(sql: str) -> str:
    """The same statement whatever the number of its rows or merged types, and the limit of its page."""
    text = " ".join(sql.split())
    text = _PARTS.sub(r"\1 /* ... n types */", text)
    text = re.sub(r"\bLIMIT (?!1\b|65\b)\d+", f"LIMIT {LIMIT}", text)
    text = re.sub(r"\bn <= \d+", f"n <= {LIMIT - 1}", text)
    text = _IDS.sub(r"IN (\1 /* ... n ids */)", text)
    shown = _ROWS.sub(r"VALUES \1 /* ... n rows */", text)
    return _renumbered(shown) if "/* ..." in shown else text


def _renumbered(text: str) -> str:
    """Parameters numbered without those of the rows that are not shown."""
    numbers = sorted({int(number) for number in re.findall(r"[$?](\d+)", text)})
    places = {number: place for place, number in enumerate(numbers, start=1)}
    return re.sub(r"([$?])(\d+)", lambda match: f"{match[1]}{places[int(match[2])]}", text)


def formatted(sql: str) -> str:
    text = "\n".join(_lines(sql, 0))
    assert "".join(text.split()) == "".join(sql.split()), "formatting changes nothing but blanks"
    return text


def _lines(sql: str, depth: int) -> Iterator[str]:
    for clause in _clauses(sql):
        indent = "    " * depth
        line = ""
        for piece, is_statement in _pieces(clause):
            line += piece if not is_statement else "("
            if is_statement:
                yield from _wrapped(line, indent)
                yield from _lines(piece[1:-1], depth + 1)
                line = ")"
        yield from _wrapped(line, indent)


def _wrapped(line: str, indent: str) -> list[str]:
    return textwrap.wrap(
        line.strip(), WIDTH, initial_indent=indent, subsequent_indent=indent + "  ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _clauses(sql: str) -> Iterator[str]:
    """The text, split before the keywords that are in no parentheses."""
    depths = _depths(sql)
    starts = [match.start() for match in _CLAUSE.finditer(sql) if not depths[match.start()]]
    for start, end in zip([0, *starts], [*starts, len(sql)], strict=True):
        if sql[start:end].strip():
            yield sql[start:end]


def _pieces(clause: str) -> Iterator[tuple[str, bool]]:
    """The text, and each statement in parentheses that is too long for a line."""
    depths, start, opened = _depths(clause), 0, 0
    for place, letter in enumerate(clause):
        if letter == "(" and not depths[place]:
            opened = place
        if letter == ")" and depths[place] == 1:
            content = clause[opened + 1 : place]
            if len(content) > _INLINE_MAX and _STATEMENT.match(content):
                yield clause[start:opened], False
                yield clause[opened : place + 1], True
                start = place + 1
    yield clause[start:], False


def _depths(text: str) -> list[int]:
    """How many parentheses are open before each letter."""
    depths, depth = [], 0
    for letter in text:
        depths.append(depth)
        depth += (letter == "(") - (letter == ")")
    return depths
