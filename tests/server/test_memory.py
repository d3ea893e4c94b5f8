"""The default server fits a small machine."""

from pathlib import Path

from .wire import grpc_infer, stream_parts

LIMIT_BYTES = 2_000_000_000


def test_both_doors_stay_below_two_gigabytes(server, reference):
    """After real work: engines keep the memory of their largest batch."""
    texts = (reference[0] * 4)[:1024]
    grpc_infer(server, texts)
    stream_parts(server, [(texts, {})])
    # Pss shares the pages that several processes map among them.
    resident = sum(_pss_bytes(member.pid) for member in server.process.members())
    assert 0 < resident < LIMIT_BYTES


def _pss_bytes(pid):
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
