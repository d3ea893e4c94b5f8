"""Kills a bulk job at each step of its work, resumes it, and compares the output.

A program, run by `test_job.py`. Each job runs in a forked child that ends itself with `os._exit` just before,
or just after, a call that changes a file or asks the server, as `kill -9` would: nothing is flushed, no
`finally` runs.

    python kill_driver.py FOLDER SUFFIX
"""

import importlib.util
import os
import shutil
import sys
from pathlib import Path

from lazuli_client import LazuliClient, job
from lazuli_client.errors import FileError
from lazuli_client.options import EmbedOptions
from lazuli_client.source import Source

KILLED = 9
REFUSED = 3
ROWS = 11


def load_fakes():
    spec = importlib.util.spec_from_file_location("fakes", Path(__file__).with_name("conftest.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Killer:
    """Counts calls; ends the process at call number `at`."""

    def __init__(self, at):
        self.at, self.count = at, 0

    def step(self):
        self.count += 1
        if self.count == self.at:
            os._exit(KILLED)

    def around(self, function):
        def wrapped(*args, **kwargs):
            self.step()
            result = function(*args, **kwargs)
            self.step()
            return result

        return wrapped


def child(fakes, folder, suffix, at):
    """Run the job; exit 0 if it ended by itself."""
    killer = Killer(at)
    job._PART_ROWS = 4
    for owner, name in (
        (os, "replace"),
        (os, "fsync"),
        (os, "unlink"),
        (os, "rmdir"),
        (shutil, "rmtree"),
        (Path, "touch"),
    ):
        setattr(owner, name, killer.around(getattr(owner, name)))
    job.write = killer.around(job.write)
    transport = fakes.FakeTransport(lambda request: killer.step())
    task = job.Job(Source(folder / "in.txt"), folder / f"out{suffix}", EmbedOptions(truncate="end"), 2)
    with LazuliClient(transport=transport, rows_per_request=2, max_in_flight=1) as client:
        try:
            summary = job.run(task, client)
        except FileError:
            os._exit(REFUSED)
    sent = sum(len(request.rows) for request in transport.requests)
    if summary.texts != ROWS or sent + summary.resumed != ROWS:
        os._exit(1)
    os._exit(0)


def run(*args):
    process = os.fork()
    if process == 0:
        try:
            child(*args)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def fresh(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "in.txt").write_text("".join(f"text {row}\n" for row in range(ROWS)))
    os.utime(folder / "in.txt", ns=(0, 0))


def main():
    base, suffix = Path(sys.argv[1]), sys.argv[2]
    fakes, folder = load_fakes(), base / "job"
    fresh(folder)
    assert run(fakes, folder, suffix, 0) == 0
    whole = (folder / f"out{suffix}").read_bytes()
    stage = 0
    while True:
        stage += 1
        fresh(folder)
        code = run(fakes, folder, suffix, stage)
        if code == 0:
            break
        assert code == KILLED, f"stage {stage}: exit {code}"
        # Once OUT is there and the job's folder is gone, the job is done: then OUT is refused as existing.
        is_done = (folder / f"out{suffix}").exists() and not (folder / f"out{suffix}.parts").exists()
        code = run(fakes, folder, suffix, 0)
        assert code == (REFUSED if is_done else 0), f"stage {stage}: the resume ended with {code}"
        left = sorted(path.name for path in folder.iterdir())
        assert left == ["in.txt", f"out{suffix}"], f"stage {stage}: {left}"
        assert (folder / f"out{suffix}").read_bytes() == whole, f"stage {stage}: the output differs"
    print(stage - 1)


if __name__ == "__main__":
    main()
