"""Render the findings as Markdown, and write them between two marks of the page. Other text is kept."""

from pathlib import Path

from bench.figures import Amount, Figure, Findings, Goal, Growth

BEGIN = "<!-- bench: begin -->"
END = "<!-- bench: end -->"


def render(findings: Findings) -> str:
    """Return the tables and remarks as Markdown."""
    parts = [
        f"{findings.machine}\n\n{findings.subjects}",
        _table(
            ("what", "n", "Palaver", "hcom", "Palaver / hcom", "goal"),
            [_figure_row(figure) for figure in findings.figures],
        ),
        _table(
            ("what", "n", "Palaver", "then", "ratio", "hcom", "then", "ratio", "goal for Palaver"),
            [_growth_row(growth) for growth in findings.growths],
        ),
        amount_table(findings.amounts),
        "\n".join(f"- {remark}" for remark in findings.remarks),
    ]
    return "\n\n".join(part for part in parts if part)


def amount_table(amounts: list[Amount]) -> str:
    """Return a table of values with their limits."""
    return _table(("what", "Palaver", "goal"), [_amount_row(amount) for amount in amounts])


def write_between_marks(path: Path, text: str) -> None:
    """Replace the text between the marks of the page. Raises ValueError if the page has no marks."""
    page = path.read_text()
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path} lacks the marks of the tables: {BEGIN} and {END}")
    path.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")


def _figure_row(figure: Figure) -> tuple[str, ...]:
    return (
        figure.name,
        f"{figure.n:,}",
        _value(figure.palaver, figure.unit),
        _value(figure.hcom, figure.unit),
        _ratio(figure.ratio),
        _goal(figure.goal, figure.ratio),
    )


def _growth_row(growth: Growth) -> tuple[str, ...]:
    small, big = growth.palaver
    theirs = ("-", "-", "-")
    if growth.hcom:
        their_small, their_big = growth.hcom
        theirs = (
            _value(their_small, growth.unit),
            _value(their_big, growth.unit),
            _ratio(their_big / their_small),
        )
    return (
        growth.name,
        f"{growth.n:,}",
        _value(small, growth.unit),
        _value(big, growth.unit),
        _ratio(growth.ratio),
        *theirs,
        _goal(growth.goal, growth.ratio),
    )


def _amount_row(amount: Amount) -> tuple[str, ...]:
    verdict = "met" if amount.value <= amount.limit else "**missed**"
    return (
        amount.name,
        _value(amount.value, amount.unit),
        f"at most {_value(amount.limit, amount.unit)}: {verdict}",
    )


def _goal(goal: Goal | None, ratio: float) -> str:
    if goal is None:
        return "-"
    return f"{goal}: {'met' if goal.is_met(ratio) else '**missed**'}"


def _value(value: float, unit: str) -> str:
    return f"{value:,.2f} {unit}" if value < 100 else f"{value:,.0f} {unit}"


def _ratio(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    if not rows:
        return ""
    rule = tuple("---" if number == 0 else "---:" for number in range(len(heads)))
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (heads, rule, *rows))
