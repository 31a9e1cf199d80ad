"""The results as values: figures with their goals, and remarks. Pure."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Goal:
    """The limit of a ratio: a maximum or a minimum."""

    limit: float
    is_at_most: bool = True

    def is_met(self, ratio: float) -> bool:
        """Return whether the ratio meets the goal."""
        return ratio <= self.limit if self.is_at_most else ratio >= self.limit

    def __str__(self) -> str:
        return f"{'at most' if self.is_at_most else 'at least'} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement of both buses. `goal` applies to Palaver's value divided by hcom's."""

    name: str
    unit: str
    n: int
    palaver: float
    hcom: float
    goal: Goal | None = None

    @property
    def ratio(self) -> float:
        """Palaver's value divided by hcom's."""
        return self.palaver / self.hcom


@dataclass(frozen=True, slots=True)
class Growth:
    """One measurement in a small and a big home. `goal` applies to Palaver's big value by its small one."""

    name: str
    unit: str
    n: int
    palaver: tuple[float, float]
    hcom: tuple[float, float] | None
    goal: Goal | None = None

    @property
    def ratio(self) -> float:
        """Palaver's value in the big home divided by that in the small one."""
        return self.palaver[1] / self.palaver[0]


@dataclass(frozen=True, slots=True)
class Amount:
    """A value of Palaver only, with a limit in the same unit."""

    name: str
    unit: str
    value: float
    limit: float


@dataclass(frozen=True, slots=True)
class Findings:
    """All results of one run."""

    machine: str
    subjects: str
    figures: list[Figure] = field(default_factory=list)
    growths: list[Growth] = field(default_factory=list)
    amounts: list[Amount] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def missed(self) -> list[str]:
        """Return the name of every missed goal."""
        ratios: list[Figure | Growth] = [*self.figures, *self.growths]
        missed = [figure.name for figure in ratios if figure.goal and not figure.goal.is_met(figure.ratio)]
        return missed + [amount.name for amount in self.amounts if amount.value > amount.limit]
