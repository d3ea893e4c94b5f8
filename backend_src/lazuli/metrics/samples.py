"""What a metric is, and its value at one time.

Takes and returns plain values. Knows nothing of who measures or who publishes.
"""

from dataclasses import dataclass

COUNTER = "counter"
GAUGE = "gauge"
Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Family:
    """A metric: all of its values have one name.

    Attributes:
        name: As Prometheus will know it.
        kind: `counter` or `gauge`.
        description: One sentence.
    """

    name: str
    kind: str
    description: str

    def sample(self, value: float, **labels: str) -> "Sample":
        """A value of it."""
        return Sample(self, tuple(labels.items()), value)


@dataclass(frozen=True, slots=True)
class Sample:
    """A value of a metric at one time.

    Attributes:
        family: The metric.
        labels: What tells it from others of the family.
        value: Since the start for a counter, now for a gauge.
    """

    family: Family
    labels: Labels
    value: float


def counter(name: str, description: str) -> Family:
    """A metric that only grows."""
    return Family(name, COUNTER, description)


def gauge(name: str, description: str) -> Family:
    """A metric that goes up and down."""
    return Family(name, GAUGE, description)
