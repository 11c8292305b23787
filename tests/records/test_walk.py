"""The walk over records: it agrees with the decoder on every payload, with any mix of runs and single records."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import InvalidRecord
from ottla.records.batch import Record, encode_record
from ottla.records.record import decode_records, encode_varint, read_varint, spans
from ottla.records.walk import HEADERS_CHECKED_MAX, MIN_RUN, RUN_BACKOFF, keyed, spans_at, walk


def payload(rows):
    """Rows of (timestamp delta, offset delta, key, value, headers)."""
    return b"".join(encode_record(Record(0, 0, k, v, h), offset, ts) for ts, offset, k, v, h in rows)


def uniform(count, size=20, step=0, key=b"key", start=0):
    return [(start + n * step, n, key, b"v" * size, ()) for n in range(count)]


def reference(data, count):
    records = list(decode_records(data, count, 0, 0, None))
    times = [record.timestamp for record in records]
    nulls = [n for n, record in enumerate(records) if record.key is None]
    return max(times), min(times), nulls, [record.offset for record in records] == list(range(count))


def check(data, count):
    """The walk and the decoder give the same answer, or both refuse."""
    try:
        highest, lowest, nulls, sequential = reference(data, count)
    except InvalidRecord:
        with pytest.raises(InvalidRecord):
            walk(data, count)
        with pytest.raises(InvalidRecord):
            walk(data, count, check_sequence=False)
        return
    walked = walk(data, count)
    assert (walked.max_delta, walked.null_keys, walked.sequential) == (highest, nulls, sequential)
    assert walked.min_delta <= lowest
    assert walked.min_delta == lowest or lowest > 0
    found, records = keyed(data, count), list(decode_records(data, count, 0, 0, None))
    assert found.offset_deltas == [record.offset for record in records]
    assert found.keys == [record.key for record in records]
    assert found.tombstones == [n for n, record in enumerate(records) if record.value is None]
    if found.offset_deltas == sorted(set(found.offset_deltas)):
        for wanted in (found.offset_deltas[::3], found.offset_deltas[-1:], []):
            assert spans_at(data, count, wanted) == [span for span in spans(data, count) if span[5] in wanted]
    for wrong in (count - 1, count + 1):
        with pytest.raises(InvalidRecord):
            keyed(data, wrong)
        with pytest.raises(InvalidRecord):
            spans_at(data, wrong, [0])


octets = st.none() | st.sampled_from([b"", b"k", b"key", b"x" * 64, b"x" * 200])
stretch = st.tuples(
    st.integers(1, 90),
    octets,
    octets,
    st.sampled_from([0, 1, 7, 60, 100, 9000, -1]),
    st.sampled_from([(), (), (), [("h", b"1")]]),
    st.integers(0, 1 << 22),
)


@given(st.lists(stretch, min_size=1, max_size=4))
@settings(deadline=None, max_examples=80)
def test_mixes_of_runs(stretches):
    rows = []
    for count, key, value, step, headers, start in stretches:
        rows += [(start + n * step, len(rows) + n, key, value, headers) for n in range(count)]
    check(payload(rows), len(rows))


@given(st.integers(MIN_RUN, 200), st.integers(0, 130), st.data())
@settings(deadline=None, max_examples=80)
def test_a_changed_byte_gives_the_same_result_as_in_the_decoder(count, size, data):
    body = bytearray(payload(uniform(count, size, data.draw(st.integers(0, 3)))))
    for _ in range(data.draw(st.integers(1, 2))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    check(bytes(body), count)


@given(st.integers(1, 40), st.integers(-3, 3))
def test_wrong_counts(count, off_by):
    data = payload(uniform(count))
    if off_by == 0:
        check(data, count)
    elif count + off_by > 0:
        with pytest.raises(InvalidRecord):
            walk(data, count + off_by)


def test_truncation_at_every_byte():
    data = payload(uniform(20))
    for cut in range(len(data)):
        with pytest.raises(InvalidRecord):
            walk(data[:cut], 20)
        with pytest.raises(InvalidRecord):
            walk(data + data[:1] + bytes(cut), 20)


def test_a_count_that_cannot_fit_costs_nothing():
    with pytest.raises(InvalidRecord):
        walk(b"\x0c\0\0\0\x01\x01\0", 2_000_000_000)


@pytest.mark.parametrize("count", [63, 64, 65, 8191, 8192, 8193, 9000])
def test_runs_across_the_widths_of_offset_deltas(count):
    check(payload(uniform(count, 3, 1)), count)


@pytest.mark.parametrize("start", [0, 63, 64, 8190, 8192, 1 << 20, 1 << 27, 1 << 40])
@pytest.mark.parametrize("step", [0, 1, 3])
def test_runs_across_the_widths_of_timestamp_deltas(start, step):
    check(payload(uniform(100, 3, step, start=start)), 100)


def test_timestamps_that_go_back_and_forth():
    rows = [((n * 37) % 300, n, None, b"v" * 10, ()) for n in range(300)]
    check(payload(rows), 300)
    rows = [((n * 37) % 300 - 150, n, None, b"v" * 10, ()) for n in range(300)]
    check(payload(rows), 300)
    rows = [((n * 13) % 50, n, None, b"v" * 10, ()) for n in range(64)]
    check(payload(rows), 64)


@pytest.mark.parametrize("wrong", [0, 5, 63, 64, 70, 199])
def test_offsets_out_of_sequence_inside_a_run(wrong):
    rows = uniform(200)
    near = 64 if wrong >= 64 else 1
    rows[wrong] = (0, near + 100 if wrong >= 64 else near, b"key", b"v" * 20, ())
    walked = walk(payload(rows), 200)
    assert walked.sequential == (rows[wrong][1] == wrong)
    check(payload(rows), 200)


def test_few_records_need_no_copy():
    data = memoryview(bytearray(payload(uniform(MIN_RUN - 1))))
    assert walk(data, MIN_RUN - 1) == walk(bytes(data), MIN_RUN - 1)
    data = memoryview(bytearray(payload(uniform(MIN_RUN + RUN_BACKOFF))))
    assert walk(data, MIN_RUN + RUN_BACKOFF) == walk(bytes(data), MIN_RUN + RUN_BACKOFF)


def test_wide_values():
    rows = [(0, n, b"k" * 70, b"v" * 20_000, [("name", None)] * (n % 2)) for n in range(12)]
    check(payload(rows), 12)
    rows = [(0, n, b"k" * 9000, b"v" * 20_000, ()) for n in range(12)]
    check(payload(rows), 12)


def with_empty_headers(count, key=b"k"):
    """One record with this many headers, without names and values."""
    body = b"\0\0\0" + encode_varint(len(key)) + key + b"\x01" + encode_varint(count) + b"\0\x01" * count
    return encode_varint(len(body)) + body


def counted_reads(monkeypatch, data, count=1):
    """Walk, and return the result and how many varints were read one by one."""
    reads = 0

    def read(data, position):
        nonlocal reads
        reads += 1
        return read_varint(data, position)

    monkeypatch.setattr("ottla.records.walk.read_varint", read)
    return walk(data, count), reads


@pytest.mark.parametrize("headers", [HEADERS_CHECKED_MAX - 1, HEADERS_CHECKED_MAX, 2_000_000])
def test_the_number_of_headers_that_are_read_is_bounded(monkeypatch, headers):
    """Two million empty headers are 4 KB on the wire with gzip: the walk does not read each of them."""
    walked, reads = counted_reads(monkeypatch, with_empty_headers(headers))
    assert walked[:4] == (0, 0, [], True)
    assert walked.saw_all_headers == (headers <= HEADERS_CHECKED_MAX)
    assert reads <= 2 * HEADERS_CHECKED_MAX + 10


def test_headers_are_counted_over_the_whole_batch(monkeypatch):
    """Many records with a few headers each are bounded too; offset deltas are all 0, so this is not a sequence."""
    count, headers = 500, 100
    data = with_empty_headers(headers) * count
    walked, reads = counted_reads(monkeypatch, data, count)
    assert not walked.saw_all_headers
    assert reads <= 2 * HEADERS_CHECKED_MAX + 5 * count


def test_headers_beyond_the_cap_must_still_fit():
    data = bytearray(with_empty_headers(HEADERS_CHECKED_MAX + 100))
    size = len(data)
    cut = bytes(data[: size - 150])
    body = cut[cut.index(b"\0\0\0") :]
    with pytest.raises(InvalidRecord, match="cannot hold"):
        walk(encode_varint(len(body)) + body, 1)
