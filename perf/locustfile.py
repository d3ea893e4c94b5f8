"""Locust users for a live server: people who search, jobs that index, candidates that are reranked.

    .venv/bin/locust -f perf/locustfile.py --headless -u 16 -r 8 -t 30s --host http://127.0.0.1:8000 --shape mixed

`--shape` (or LAZULI_SHAPE) is what is asked for: `query`, `bulk`, `rerank`, `mixed`, or `spike`, where the number of
users jumps fivefold for a fifth of the time. `--protocol` (or LAZULI_PROTOCOL) is `grpc`, `http` or `both`. Texts come
from files, and every answer is checked.

With `--slo-p99-ms`, `--slo-failures` or `--slo-texts-per-s` a run ends with 1 if one is missed. `--results MACHINE`
writes the time of each request to `perf/results/MACHINE/locust.jsonl`. Both work with several processes, too:

    .venv/bin/locust -f perf/locustfile.py --headless ... --processes 2
    .venv/bin/locust -f perf/locustfile.py --headless ... --master --expect-workers 2
    .venv/bin/locust -f perf/locustfile.py --worker --master-host ADDRESS                on each machine
"""

import argparse
import logging
from typing import Any

from grpc.experimental import gevent as grpc_gevent  # type: ignore[import-untyped, unused-ignore]
from locust import events, log
from locust.env import Environment
from locust.runners import MasterRunner, WorkerRunner

from reporting.measurement import write
from swarm import spike
from swarm.goals import Goals, Sample, to_measurements
from swarm.traffic import SHAPES, SPIKE, weights_of
from swarm.users import GRPC, TIMEOUT_S, GrpcBulk, GrpcQuery, GrpcRerank, HttpBulk, HttpQuery, HttpRerank, find_texts

_USERS = (GrpcQuery, HttpQuery, GrpcBulk, HttpBulk, GrpcRerank, HttpRerank)
_KEY = "lazuli_samples"
_DEFAULT_SECONDS = 60
_log = logging.getLogger(__name__)
_EVENTS: Any = events
# Those of this process that nobody has yet; at the master, or where there is just one process, all.
_samples: list[Sample] = []


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options beside locust's own; locust's master tells its workers of them, so all have values that JSON has."""
    add: Any = parser.add_argument_group("lazuli").add_argument
    add("--shape", choices=tuple(SHAPES), default="mixed", env_var="LAZULI_SHAPE", help="what is asked for")
    add("--protocol", choices=("grpc", "http", "both"), default="both", env_var="LAZULI_PROTOCOL", help="how")
    add("--grpc-host", help="host:port of gRPC; by default port 8001 of --host", env_var="LAZULI_GRPC_HOST")
    add("--rerank-model", env_var="LAZULI_RERANK_MODEL", help="its name; `mixed` reranks, too, if it is given")
    add("--queries", nargs="+", help="files of short texts: .jsonl, or a text a line")
    add("--passages", nargs="+", help="files of texts to embed in bulk and to rerank")
    add("--seed", type=int, default=0, help="of the random numbers")
    add("--spike-factor", type=float, default=5.0, help="of --shape spike: times as many users")
    add("--slo-p99-ms", type=float, help="most that p99 may be, of query and rerank; of bulk if there is nothing else")
    add("--slo-failures", type=float, help="share of requests that may fail: 0 where another --slo is given")
    add("--slo-texts-per-s", type=float, help="fewest texts and pairs a second")
    add("--results", metavar="MACHINE", help="write perf/results/MACHINE/locust.jsonl")


def choose_users(environment: Environment, runner: Any, **others: object) -> None:
    """Leave only the users of the shape; a worker keeps all, for its master chooses."""
    grpc_gevent.init_gevent()  # here, as it does not survive a fork
    if isinstance(runner, WorkerRunner):
        return
    # Requests that are under way at the end are waited for, or else the slowest would be missing.
    environment.stop_timeout = environment.stop_timeout or TIMEOUT_S
    options: Any = environment.parsed_options
    find_texts(options)  # or else it would be each user that finds out that there are none
    weights = weights_of(options.shape, options.rerank_model is not None)
    for user in _USERS:
        name = "grpc" if user.__name__.startswith("Grpc") else "http"
        user.weight = weights.get(user.kind, 0) if options.protocol in (name, "both") else 0
    environment.user_classes[:] = chosen = [user for user in environment.user_classes if user.weight]
    needed = sum(user.weight for user in chosen)
    if (options.num_users or 1) < needed and len(chosen) > 1:
        _log.warning("with fewer than %d users, some kinds of request will be rare or missing", needed)
    if options.shape == SPIKE:
        seconds = options.run_time or _DEFAULT_SECONDS
        environment.shape_class = spike.Spike(options.num_users or 1, options.spike_factor, seconds)
        environment.shape_class.runner = runner


def forget(**others: object) -> None:
    """What an earlier run left does not count."""
    _samples.clear()


def keep(request_type: str, name: str, response_time: float, exception: Exception | None, **others: object) -> None:
    """Keep the time of a request: locust itself rounds it."""
    _samples.append(("grpc" if request_type == GRPC else "http", name, response_time, exception is not None))


def hand_over(data: dict[str, Any], **others: object) -> None:
    """A worker gives its samples away."""
    data[_KEY] = list(_samples)
    _samples.clear()


def take_over(data: dict[str, Any], **others: object) -> None:
    """The master collects them."""
    _samples.extend((protocol, name, time_ms, failed) for protocol, name, time_ms, failed in data.get(_KEY, ()))


def judge(environment: Environment, **others: object) -> None:
    """Write the result file, and set the exit status if something was demanded."""
    if isinstance(environment.runner, WorkerRunner):
        return
    options: Any = environment.parsed_options
    total = environment.stats.total
    wall_s = (total.last_request_timestamp or total.start_time) - total.start_time
    if options.results and _samples:
        lines = to_measurements(_samples, wall_s, options.shape, _most_users(environment))
        for line in lines:
            _log.info("%s", line.summary())
        _log.info("wrote %s", write(options.results, "locust", lines))
    goals = Goals(options.slo_p99_ms, options.slo_failures, options.slo_texts_per_s)
    if not goals.any:
        return
    missed = list(goals.missed(_samples, wall_s))
    for reason in missed:
        _log.error("missed: %s", reason)
    if not missed:
        _log.info("all goals are reached by %d requests", len(_samples))
    environment.process_exit_code = int(bool(missed) or _is_incomplete(environment))


def _most_users(environment: Environment) -> int:
    options: Any = environment.parsed_options
    shape = environment.shape_class
    return shape.peak if isinstance(shape, spike.Spike) else int(options.num_users or 1)


def _is_incomplete(environment: Environment) -> bool:
    """Whether a part of the load was missing: a worker that went away, or a user that failed by itself."""
    runner = environment.runner
    lost = isinstance(runner, MasterRunner) and bool(runner.clients.missing)
    return bool(lost or log.unhandled_greenlet_exception or (runner is not None and runner.exceptions))


_EVENTS.init_command_line_parser.add_listener(add_options)
_EVENTS.init.add_listener(choose_users)
_EVENTS.test_start.add_listener(forget)
_EVENTS.request.add_listener(keep)
_EVENTS.report_to_master.add_listener(hand_over)
_EVENTS.worker_report.add_listener(take_over)
_EVENTS.quitting.add_listener(judge)
