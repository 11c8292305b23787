"""Mixed and filling loads, each for a moment, on a broker that the test starts."""

import pytest

from ottla.bench import payloads
from ottla.bench.lines.mixed import fairness, growth
from ottla.bench.lines.topics import new_topic
from ottla.bench.load import drive
from ottla.bench.loads.beside import cleaned_up_to, first_dirty
from ottla.bench.loads.fill import stamped
from ottla.bench.targets import OttlaMaker
from ottla.errors import NotLeaderOrFollower
from ottla.records.batch import batches
from ottla.wire.messages import ProduceResponse

SMALL = {"record_bytes": 100, "batch_bytes": 1000}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    maker = OttlaMaker("ottla", tmp_path_factory.mktemp("data"), 24700)
    running = maker.with_settings("quick-cleaner", {"log.cleaner.backoff.ms": "10"}).start()
    yield running
    running.stop()


def test_many_producers_are_all_acknowledged(broker):
    limits = {"limit_seconds": 0.4, "limit_bytes": 10_000_000, "pid": broker.pid}
    done = drive(broker, "crowd", topic=new_topic(broker, 3), pairs=3, **SMALL, **limits)
    assert len(done["produced"]) == len(done["consumed"]) == 3
    assert min(done["produced"]) > 0 and done["records"] >= sum(done["consumed"])
    assert len(done["memory_mb"]) >= 4


def test_a_crowd_stops_at_its_limit_of_bytes(broker):
    limits = {"limit_seconds": 30.0, "limit_bytes": 5_000}
    done = drive(broker, "crowd", topic=new_topic(broker, 2), pairs=2, **SMALL, **limits)
    assert done.seconds < 5 and done["memory_mb"] == []


def test_small_requests_are_timed_while_large_ones_run(broker):
    options = {"connections": 2, "rate": 200, "batch_bytes": 100_000, "limit_bytes": 10**9, "limit_seconds": 0.3}
    done = drive(broker, "beside", topic=new_topic(broker, 3), **options)
    assert len(done["latencies"]) >= 2 and done["bytes"] > 100_000


def test_a_timestamp_lookup_finds_the_record_that_has_it(broker):
    name = new_topic(broker, 1)
    filled = drive(broker, "fill_stamped", topic=name, limit_bytes=200_000, **SMALL)
    assert filled["batches"] > 100
    asked = {"batches": filled["batches"], "first_ms": filled["first_ms"], **SMALL}
    done = drive(broker, "lookup_time", topic=name, requests=20, **asked)
    assert len(done["latencies"]) == 20
    with pytest.raises(RuntimeError, match="was found at offset"):
        drive(broker, "lookup_time", topic=new_topic(broker, 1), requests=1, **asked)


@pytest.mark.parametrize("kind", ["heartbeat", "commit"])
def test_a_heartbeat_among_many_members_is_answered(broker, kind):
    name = new_topic(broker, 1)
    options = {"group": f"g-{name}", "members": 3, "kind": kind, "limit_seconds": 0.1}
    assert drive(broker, "member_requests", topic=name, **options)["requests"] > 0


def test_all_consumers_that_wait_are_woken(broker):
    woken = drive(broker, "waking", topic=new_topic(broker, 1), consumers=3, rounds=2)
    assert len(woken["first"]) == len(woken["last"]) == 2
    assert all(0 < first <= last for first, last in zip(woken["first"], woken["last"], strict=True))


def test_a_topic_that_becomes_compacted_is_compacted(broker):
    configs = {"segment.bytes": str(2**20), "min.cleanable.dirty.ratio": "0.01"}
    with broker.client() as client:
        client.create_topics(["dirty"], 1, configs)
    size = {"record_bytes": 100, "batch_bytes": 1000, "limit_bytes": 9_000_000}
    drive(broker, "fill_keyed", topic="dirty", codec="lz4", keys=500, **size)
    watched = {"dirty_topic": "dirty", "folder": str(broker.folder), "pid": broker.pid, "limit_seconds": 30.0}
    done = drive(broker, "compacting", topic=new_topic(broker, 1), connections=1, rate=100, **watched)
    assert done["latencies"] and done["added_mb"] >= 0
    assert cleaned_up_to(broker.folder, "dirty") == first_dirty(broker.folder, "dirty") > 0


def test_stamped_batches_are_sound_and_a_millisecond_apart():
    batch = payloads.batch(100, 1000, "none")
    stamps = []
    for request in stamped("t", batch, 1_000, 3):
        (found,) = batches(bytes(request)[request.index(batch.data[12:17]) - 12 :], 0, len(batch.data))
        assert found.crc_ok()
        stamps.append((found.base_timestamp, found.max_timestamp))
    assert stamps == [(1_000, 1_000), (1_001, 1_001), (1_002, 1_002)]


def test_the_error_of_a_produce_answer_is_found_without_decoding():
    topic = ProduceResponse.TopicProduceResponse
    partition = ProduceResponse.PartitionProduceResponse

    def answer(code):
        body = ProduceResponse(
            responses=[topic(name="some-topic", partition_responses=[partition(index=7, error_code=code)])]
        )
        return bytes(9) + body.encode(payloads.PRODUCE_VERSION)  # length, correlation id, no tags

    payloads.check_produced(answer(0), "some-topic")
    with pytest.raises(NotLeaderOrFollower):
        payloads.check_produced(answer(6), "some-topic")


def test_fairness_is_the_slowest_against_the_median():
    assert fairness([100, 50, 100, 120]) == 0.5
    assert fairness([7, 7, 7]) == 1.0


def test_growth_leaves_the_warm_up_out():
    assert growth([1.0] * 10 + [40.0] * 30) == 1.0
    assert growth([40.0] * 20 + [50.0] * 10 + [60.0] * 10) == 1.5
    assert growth([1.0, 2.0, 2.0, 3.0]) == 1.5


def test_the_cleaner_reports_its_progress(tmp_path):
    assert cleaned_up_to(tmp_path, "t") == 0
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "cleaner-offset-checkpoint").write_text("0\n2\nt2 0 5\nt 0 1234\n")
    assert cleaned_up_to(tmp_path, "t") == 1234


@pytest.mark.parametrize("kind", ["fetch", "metadata", "offsets"])
def test_a_request_is_repeated_for_the_given_time(broker, kind):
    done = drive(broker, "asking", topic=new_topic(broker, 1), kind=kind, limit_seconds=0.1)
    assert done["requests"] >= 5


def test_each_producer_of_many_sends_its_share(broker):
    limits = {"limit_seconds": 60.0, "limit_bytes": 10**9, "records_each": 20}
    done = drive(broker, "crowd", topic=new_topic(broker, 3), pairs=3, record_bytes=100, batch_bytes=1, **limits)
    assert done["records"] == 60
