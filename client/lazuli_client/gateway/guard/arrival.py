"""The body of a request while it arrives: how large it may be, and the place among those under way that it then takes.

Takes ASGI's `receive`, returns one with limits. Who sends slowly holds no place: only what is whole takes one.
"""

from collections.abc import Mapping

from starlette.types import Message, Receive

from lazuli_client.gateway.errors import overloaded, too_large

# Of the largest bodies that are allowed, as many as may be on their way at a time.
_ARRIVING_BODIES = 64


class Places:
    """What requests take of a process."""

    def __init__(self, most: int, most_body_bytes: int) -> None:
        """Allow so many requests whose bodies are whole, and bodies of so many bytes."""
        self.most = most
        self.most_body_bytes = most_body_bytes
        self.taken = 0
        self.arriving_bytes = 0


class Arrival:
    """The body of one request."""

    def __init__(self, receive: Receive, places: Places) -> None:
        """Wrap the `receive` of a request."""
        self._receive = receive
        self._places = places
        self._bytes = 0
        self._is_whole = False

    def check_announced(self, headers: Mapping[bytes, bytes]) -> None:
        """Refuse a body that says that it is too large.

        Raises:
            ApiError: With 413.
        """
        announced = headers.get(b"content-length", b"")
        if announced.isdigit() and int(announced) > self._places.most_body_bytes:
            raise self._too_large()

    async def receive(self) -> Message:
        """The next piece; with the last one, the request takes its place.

        Raises:
            ApiError: With 413 if there is more than is allowed, with 429 if too much is under way.
        """
        message = await self._receive()
        if self._is_whole or message["type"] != "http.request":
            return message
        if message.get("more_body", False):
            self._count(len(message["body"]))
        elif self._bytes + len(message.get("body", b"")) > self._places.most_body_bytes:
            raise self._too_large()
        else:
            self._take_place()
        return message

    def end(self) -> None:
        """Give back what the request took; it is over."""
        if self._is_whole:
            self._places.taken -= 1
        else:
            self._places.arriving_bytes -= self._bytes

    def _count(self, size: int) -> None:
        places = self._places
        self._bytes += size
        places.arriving_bytes += size
        if self._bytes > places.most_body_bytes:
            raise self._too_large()
        if places.arriving_bytes > _ARRIVING_BODIES * places.most_body_bytes:
            raise overloaded("too many large bodies are on their way; try again")

    def _take_place(self) -> None:
        places = self._places
        if places.taken >= places.most:
            raise overloaded(f"{places.most} requests are under way already; try again")
        places.taken += 1
        places.arriving_bytes -= self._bytes
        self._is_whole = True

    def _too_large(self) -> Exception:
        return too_large(f"the body has more than the {self._places.most_body_bytes} bytes that are allowed")
