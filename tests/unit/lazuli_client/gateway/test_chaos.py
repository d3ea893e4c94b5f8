"""Many requests of all sizes while servers break, hang and refuse: none lost, none doubled, order kept."""

import asyncio
import random

import numpy as np

from lazuli_client.errors import ConnectionFailedError, UnavailableError

ADDRESSES = ("dies:1", "hangs:2", "full:3", "well:4")


class Trouble:
    """What the servers do, by what is on."""

    def __init__(self):
        self.is_on = False
        self.chance = random.Random(7)
        self.go_on = asyncio.Event()

    async def __call__(self, wire, request, is_probe):
        await asyncio.sleep(self.chance.random() * 0.002)
        if not self.is_on:
            return
        match wire.address:
            case "dies:1":
                raise ConnectionFailedError("Socket closed")
            case "hangs:2":
                await self.go_on.wait()
            case "full:3":
                if not is_probe and self.chance.random() < 0.7:
                    raise UnavailableError("Exceeds maximum queue size")


async def test_no_request_is_lost_or_doubled(gateway, fake):
    trouble, chance = Trouble(), random.Random(3)
    sizes = [1, 1, 1, 2, 5, 40, 150]
    texts = [
        [f"{number} {row} " + "x" * chance.randrange(30) for row in range(chance.choice(sizes))]
        for number in range(300)
    ]
    settings = {"chunk_tokens": 200, "bulk_tokens": 400, "query_tokens": 50, "queue_s": 10.0, "probe_timeout_s": 0.2}
    async with gateway(trouble, replicas=ADDRESSES, **settings) as app:

        async def ask(number):
            await asyncio.sleep(number * 0.004)
            if number == 60:
                trouble.is_on = True
            if number == 220:
                trouble.is_on = False
                trouble.go_on.set()
            answer = await app.post("/v1/embeddings", {"model": "embed", "input": texts[number]})
            assert answer.status == 200, answer.body
            data = answer.json()["data"]
            assert [one["index"] for one in data] == list(range(len(texts[number])))
            found = np.array([one["embedding"] for one in data], np.float32)
            assert found.tolist() == [fake.vector(text).tolist() for text in texts[number]]

        await asyncio.gather(*map(ask, range(300)))
        for _ in range(100):
            if len(app.gateway.pool.fit()) == 4:
                break
            await asyncio.sleep(0.05)
        assert len(app.gateway.pool.fit()) == 4
        assert [replica.outstanding_tokens for replica in app.gateway.pool.replicas] == [0] * 4
        assert all(wire.requests for wire in app.wires.values())
