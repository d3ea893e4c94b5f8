"""Work for somebody who may go away.

Takes a coroutine and the connection, returns its result; gives it up when the connection is closed. The chunks that a
server has are answered all the same; those that wait are not sent any more.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive

Result = TypeVar("Result")


async def while_connected(work: Coroutine[Any, Any, Result], receive: Receive) -> Result:
    """Do the work.

    Args:
        work: What to do.
        receive: Of the connection, whose body was read to its end.

    Raises:
        ClientDisconnect: If nobody is there any more.
    """
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
