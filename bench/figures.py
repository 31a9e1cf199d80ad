"""What was found, as values: figures with their goals, and the sentences around them. Pure."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Goal:
    """What a ratio must be: at most, or at least, a limit."""

    limit: float
    is_at_most: bool = True

    def is_met(self, ratio: float) -> bool:
        """Say whether the ratio is good enough."""
        return ratio <= self.limit if self.is_at_most else ratio >= self.limit

    def __str__(self) -> str:
        return f"{'at most' if self.is_at_most else 'at least'} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One thing both buses do. `goal` is for Palaver's value divided by hcom's."""

    name: str
    unit: str
    n: int
    palaver: float
    hcom: float
    goal: Goal | None = None

    @property
    def ratio(self) -> float:
        """Palaver's value in hcom's."""
        return self.palaver / self.hcom


@dataclass(frozen=True, slots=True)
class Growth:
    """One thing done in a small home and in a big one. `goal` is for Palaver's big value by its small one."""

    name: str
    unit: str
    n: int
    palaver: tuple[float, float]
    hcom: tuple[float, float] | None
    goal: Goal | None = None

    @property
    def ratio(self) -> float:
        """How much the big home costs Palaver."""
        return self.palaver[1] / self.palaver[0]


@dataclass(frozen=True, slots=True)
class Amount:
    """A value of Palaver's alone, with a limit in the same unit."""

    name: str
    unit: str
    value: float
    limit: float


@dataclass(frozen=True, slots=True)
class Findings:
    """A whole run."""

    machine: str
    subjects: str
    figures: list[Figure] = field(default_factory=list)
    growths: list[Growth] = field(default_factory=list)
    amounts: list[Amount] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def missed(self) -> list[str]:
        """Name every goal that was not reached."""
        ratios: list[Figure | Growth] = [*self.figures, *self.growths]
        missed = [figure.name for figure in ratios if figure.goal and not figure.goal.is_met(figure.ratio)]
        return missed + [amount.name for amount in self.amounts if amount.value > amount.limit]
