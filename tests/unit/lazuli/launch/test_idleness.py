import pytest

from lazuli.launch.idleness import Idleness


class Server:
    """A clock, and what a server has used by then."""

    def __init__(self):
        self.now, self.cpu, self.read = 0.0, 5.0, 0
        self.idleness = Idleness(lambda: (self.cpu, self.read), 30.0, lambda: self.now)

    def after(self, seconds, cpu=0.0, read=0):
        """What is said once so much time has passed and so much was used."""
        self.now, self.cpu, self.read = self.now + seconds, self.cpu + cpu, self.read + read
        return self.idleness.is_too_long()


def test_nothing_for_too_long():
    server = Server()
    assert not server.after(29.9)
    assert server.after(1.1)


def test_looking_around_is_nothing():
    server = Server()
    assert not any(server.after(1.0, cpu=0.005) for _ in range(29))
    assert server.after(1.0, cpu=0.005)


@pytest.mark.parametrize("used", [{"cpu": 0.3}, {"cpu": -2.0}, {"read": 2 << 20}, {"read": -(2 << 20)}])
def test_work_begins_the_time_anew(used):
    server = Server()
    assert not server.after(20.0)
    assert not server.after(5.0, **used)
    assert not server.after(29.0)
    assert server.after(2.0)


def test_slow_work_is_work():
    server = Server()
    assert not any(server.after(1.0, cpu=0.01) for _ in range(100))
