import logging

import pytest

from lazuli.buckets import Bucket, BucketTable
from lazuli.graph import GraphCache
from lazuli.graph_keeper import GraphKeeper
from lazuli.graph_profile import GraphProfile, ProfileFile

CAPTURE_S = 0.03
LAUNCH_S = 1e-3


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


class FakeStepper:
    """A capture takes 30 ms; a replay 1 us a token; to launch an eager run, 1 ms."""

    def __init__(self, clock, capture="idle", max_tokens=16384):
        table = BucketTable(max_tokens=max_tokens, max_sequences=512, max_seqlen=8192)
        self.graphs = GraphCache(table, capture=capture, max_graphs=200, max_bytes=1 << 30)
        self.clock = clock
        self.dummies, self.captured = [], []
        self.broken = set()
        self.started = False  # from then on others may step

    def run_dummy(self, bucket):
        assert not self.captured, "kernels are loaded before anything is captured"
        self.dummies.append(bucket)

    def capture(self, bucket, *, give_way=False):
        assert give_way is self.started
        self.clock.now += CAPTURE_S
        self.captured.append(bucket)
        if bucket in self.broken:
            self.graphs.bar(bucket)
            return False
        self.graphs.store(bucket, "graph", 1, 0)
        return True

    def limit(self, max_tokens):
        self.graphs.limit(max_tokens)

    def time_launch(self, bucket):
        return LAUNCH_S

    def time_replay(self, bucket):
        assert bucket in self.graphs
        return bucket.num_tokens * 1e-6


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def file(tmp_path):
    return ProfileFile(tmp_path, "model", {})


@pytest.fixture
def make(clock, file):
    def make(max_tokens=None, start_s=10.0, busy_share=0.01, **stepper):
        fake = FakeStepper(clock, **stepper)
        return fake, GraphKeeper(fake, file, max_tokens=max_tokens, start_s=start_s, busy_share=busy_share, clock=clock)

    return make


def ask(stepper, tokens, times=1):
    for _ in range(times):
        stepper.graphs.choose(Bucket(tokens, 1, tokens))
    return stepper.graphs.table.find(Bucket(tokens, 1, tokens))


class TestStart:
    def test_kernels_are_loaded_first_and_the_coarse_graphs_are_there_at_the_end(self, make):
        stepper, keeper = make()
        keeper.start()
        table = stepper.graphs.table
        assert {bucket.num_tokens for bucket in stepper.dummies} == {1 << power for power in range(4, 15)}
        assert stepper.dummies[0].num_tokens == 16384
        assert all(bucket in stepper.graphs for bucket in table.coarse)
        assert stepper.graphs.next_waiting() is None

    def test_the_largest_comes_first(self, make):
        stepper, keeper = make(max_tokens=16384)
        keeper.start()
        assert stepper.captured[0].num_tokens == 16384
        assert len(stepper.captured) == len(set(stepper.captured))

    def test_the_inflection_is_measured_and_kept(self, make, file):
        stepper, keeper = make()
        keeper.start()
        assert stepper.graphs.table.max_tokens == 8192
        assert file.load().inflection == 8192
        stepper, keeper = make()
        stepper.time_launch = stepper.time_replay = None  # not to be called again
        keeper.start()
        assert stepper.graphs.table.max_tokens == 8192

    def test_a_number_that_was_given_wins_and_the_measured_one_is_kept(self, make, file):
        file.save(GraphProfile(4096, {}))
        stepper, keeper = make(max_tokens=16384)
        keeper.start()
        keeper.close()
        assert stepper.graphs.table.max_tokens == 16384
        assert file.load().inflection == 4096

    def test_a_size_that_cannot_be_captured_is_measured_as_eager(self, make):
        stepper, keeper = make()
        stepper.broken = {bucket for bucket in stepper.graphs.table.buckets if bucket.num_tokens == 2048}
        stepper.time_launch = lambda bucket: bucket.num_tokens * 1e-7
        keeper.start()
        assert stepper.graphs.table.max_tokens == 1024

    def test_a_small_budget_is_not_measured(self, make):
        stepper, keeper = make(max_tokens=None)
        stepper.graphs.limit(512)
        stepper.time_launch = None
        keeper.start()
        assert stepper.graphs.table.max_tokens == 512

    def test_time_runs_out_the_most_used_are_there_and_the_rest_waits(self, make, file):
        used = [Bucket(1152, 4, 1152), Bucket(320, 40, 320), Bucket(144, 1, 144)]
        file.save(GraphProfile(8192, {used[0]: 9, used[1]: 50, used[2]: 20}))
        stepper, keeper = make(start_s=3.5 * CAPTURE_S)
        assert set(used) <= set(stepper.graphs.table.buckets)
        keeper.start()
        assert stepper.captured[1:] == [used[1], used[2], used[0]]
        assert stepper.graphs.next_waiting() is not None
        stepper.started = True
        while keeper.use_idle_time(quiet=True):
            pass
        assert all(bucket in stepper.graphs for bucket in stepper.graphs.table.coarse)

    def test_buckets_of_another_table_are_passed_over(self, make, file):
        file.save(GraphProfile(8192, {Bucket(1000, 7, 900): 9, Bucket(16384, 64, 8192): 9}))
        stepper, keeper = make()
        keeper.start()
        assert set(stepper.captured) <= set(stepper.graphs.table.buckets)

    def test_a_broken_profile_is_no_obstacle(self, make, file):
        file.path.parent.mkdir(parents=True)
        file.path.write_text("{")
        stepper, keeper = make()
        keeper.start()
        assert len(stepper.graphs) > 10


class TestIdle:
    @pytest.fixture
    def started(self, make):
        stepper, keeper = make()
        keeper.start()
        stepper.captured.clear()
        stepper.started = True
        return stepper, keeper

    def test_quiet_captures_all_one_by_one(self, started):
        stepper, keeper = started
        wanted = [ask(stepper, 150, 3), ask(stepper, 330, 2), ask(stepper, 1100, 1)]
        assert [keeper.use_idle_time(quiet=True) for _ in range(3)] == [True, True, False]
        assert stepper.captured == wanted
        assert keeper.use_idle_time(quiet=True) is False

    def test_while_requests_come_it_keeps_to_its_share(self, started, clock):
        stepper, keeper = started
        for tokens in (150, 170, 190, 210, 230):
            ask(stepper, tokens, 2)
        begin = clock.now
        for _ in range(1000):  # 10 s
            clock.now = max(clock.now, begin) + 0.01
            keeper.use_idle_time(quiet=False)
        assert 3 <= len(stepper.captured) <= 4
        assert len(set(stepper.captured)) == len(stepper.captured)

    def test_and_to_what_was_asked_for_twice(self, started):
        stepper, keeper = started
        bucket = ask(stepper, 150)
        assert keeper.use_idle_time(quiet=False) is True
        assert stepper.captured == []
        ask(stepper, 150)
        keeper.use_idle_time(quiet=False)
        assert stepper.captured == [bucket]

    def test_one_that_fails_is_not_tried_again(self, started):
        stepper, keeper = started
        bucket = ask(stepper, 150)
        stepper.broken = {bucket}
        assert keeper.use_idle_time(quiet=True) is False
        ask(stepper, 150)
        assert keeper.use_idle_time(quiet=True) is False
        assert stepper.captured == [bucket]

    def test_the_lazy_way_leaves_it_to_the_steps(self, make):
        stepper, keeper = make(capture="lazy")
        keeper.start()
        stepper.captured.clear()
        ask(stepper, 150)
        assert keeper.use_idle_time(quiet=True) is False
        assert stepper.captured == []


class TestProfile:
    def test_what_was_asked_for_is_kept_at_the_end(self, make, file):
        stepper, keeper = make()
        keeper.start()
        bucket = ask(stepper, 150, 7)
        keeper.close()
        assert file.load().hits == {bucket: 7}

    def test_the_next_start_captures_it(self, make):
        stepper, keeper = make()
        keeper.start()
        bucket = ask(stepper, 150, 7)
        keeper.close()
        stepper, keeper = make()
        keeper.start()
        assert bucket in stepper.graphs

    def test_what_is_no_longer_used_fades(self, make, file):
        old, now = Bucket(144, 1, 144), Bucket(160, 1, 160)
        file.save(GraphProfile(8192, {old: 3, now: 100}))
        for _ in range(2):
            stepper, keeper = make()
            keeper.start()
            ask(stepper, 160, 60)
            keeper.close()
        assert file.load().hits == {now: 115}

    def test_starts_without_requests_forget_nothing(self, make, file):
        file.save(GraphProfile(8192, {Bucket(144, 1, 144): 8}))
        for _ in range(3):
            _, keeper = make()
            keeper.start()
            keeper.close()
        assert file.load().hits == {Bucket(144, 1, 144): 8}

    def test_a_process_without_requests_does_not_overwrite_what_another_one_wrote(self, make, file):
        file.save(GraphProfile(8192, {Bucket(144, 1, 144): 8}))
        _, keeper = make()
        keeper.start()
        file.save(GraphProfile(8192, {Bucket(160, 1, 160): 5}))
        keeper.close()
        assert file.load().hits == {Bucket(160, 1, 160): 5}

    def test_it_is_written_in_quiet_times_but_not_often(self, make, file, clock):
        stepper, keeper = make(max_tokens=16384)
        keeper.start()
        ask(stepper, 128)
        assert keeper.use_idle_time(quiet=True) is False  # too early
        assert not file.path.exists()
        clock.now += 61
        assert keeper.use_idle_time(quiet=False) is True
        assert not file.path.exists()
        assert keeper.use_idle_time(quiet=True) is False
        assert file.load().hits == {ask(stepper, 128): 1}
        assert keeper.use_idle_time(quiet=True) is False

    def test_saving_twice_counts_once(self, make, file):
        file.save(GraphProfile(8192, {Bucket(128, 1, 128): 10}))
        stepper, keeper = make()
        keeper.start()
        bucket = ask(stepper, 128, 4)
        keeper.save()
        ask(stepper, 128, 1)
        keeper.save()
        assert file.load().hits[bucket] == 5 + 5

    def test_counters_are_logged_at_the_end(self, make, caplog):
        stepper, keeper = make()
        keeper.start()
        ask(stepper, 128, 4)
        with caplog.at_level(logging.INFO):
            keeper.close()
        assert "replayed 4" in caplog.text
