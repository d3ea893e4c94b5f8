"""A number of users that jumps for a while: calm, a spike, calm again."""

from locust import LoadTestShape

from swarm.traffic import users_at


class Spike(LoadTestShape):
    """Users of a run with a spike.

    Attributes:
        peak: Users in the spike.
    """

    abstract = True  # or else locust would take it for every run

    def __init__(self, users: int, factor: float, seconds: float) -> None:
        """Plan the run.

        Args:
            users: While it is calm.
            factor: How many times as many there are in the spike.
            seconds: Length of the run.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = max(users + 1, round(users * factor))
        self._users = users
        self._seconds = seconds

    def tick(self) -> tuple[int, float] | None:
        """Users now, and how many of them may start in a second: all at once, or it would be no spike."""
        elapsed_s = self.get_run_time()  # type: ignore[no-untyped-call]
        users = users_at(elapsed_s, self._seconds, self._users, self.peak)
        return (users, float(self.peak)) if users else None
