"""Conversion between formats. The vectors are batches that Apache Kafka 3.9.1 stored, and its answers to Fetch 1 and 2
for them."""

import base64
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import UnsupportedCompressionType
from ottla.records.batch import LOG_APPEND_TIME, Record, build_batch, end_transaction_marker, pack_batch
from ottla.records.compression import GZIP, LZ4, SNAPPY, ZSTD, compress
from ottla.records.conversion import down_convert
from ottla.records.legacy import any_batches, build_message_set
from ottla.records.record import encode_varint

NOW = 1_700_000_000_000
octets = st.none() | st.binary(max_size=50)
rows = st.lists(st.tuples(st.integers(0, 2**40), octets, octets), min_size=1, max_size=15)

# Four batches of three records with headers: none, gzip, snappy, lz4.
STORED = base64.b85decode(
    "000000000000016000000ytxU=>Px#0006200E)ml(cIA00E)ml(cRC|NsC0|NsC0|NsC0{{R300~!DT00L_Sb}#}0XaX@B00II6"
    "YXo*N0s?3PF&Y2_1OjUWb}|A2XaX?+0000000093003eD00002bw+}z0096100IC20ioiQv}*tW0ioiQv~B<Y|NsC0|NsC0|NsC0"
    "00003ABzY80000000Wa^U|?X%W+^jZV#;7Llwx3F0`Ux?JQfxZ&j`!|0B?_%ASwU=00000000001^@s6YybcN00Kyt4gdfG00002"
    "0004@;*_*&0004@;*_*)|NsC0|NsC0|NsC0|Nj6000V+kPC-ymSpWb4009610096104FL$8UO$Q0&4_zFaiQ-0x=o@0s;XJ05J^?"
    "ECd7sYXo*O0s?3PF#rGn000002><{9X8-^I00Q6u7VQ87000020004@;*_*&0004@;*_*)|NsC0|NsC0|NsC0|Nj6000RUfO&DN6"
    "f+qj~0Pq7E00002YXo*M0s?3PF&Y2@0uBHZF%AI01Ox(W1a>k40%!s;00000"
)
# Cut short by Kafka at the stored size: each ends within or before the last wrapper.
FETCHED = {
    0: base64.b85decode(
        "00000000000000H7FT4k0000000C<N0007ZFaQ7m000000RR915n)hNCjbBd0004N00002b};||0000000IC201^0E1)Tr@00001"
        "YXATM0(LS000000000F5002&~ESgII0ssI1{{R30Kp%?;000000094EU;qPVAQlu0PuU3OF=hh^rZNMF90LnTGBF@T9a+*4D#;3x"
        "{1M4I7g^E>0FIz9eOCYg00000000002mk;8Y0tYvH2?zt|Ns90003KpQ%*rpP+0%~0003100031002i<000RAAO-*c01*~fWU&Pg"
        "906+p0007ZFa-?=000L89SmVmR3`-x4IKb61q}!Q00;pcK=@e&od5s;0004N00002b}|3}0000001E&B0AsVA5a<8{|NsC000010"
        "1R_lsU_cs10000I0097z2><{95f)cuu@3-&0c!vN00MR}4FE6z016!dKw(f+Ck+4u9RLwA4FE6z01F)eK=@e&oecnx00C<N0007Z"
        "G5`Po0RR90|NsC0{{R30Jpcdz00000000000000000000000000000000000"
    ),
    1: base64.b85decode(
        "00000000000000P!^xV70RR910ioiQv}*tW00C<N0007ZFaQ7m000000RR918NgOUkO2Sy00E)ml(cLB0004N00002b};||00000"
        "00IC202#viUPS=_0004@;*_*)00001YXATM0(LS000000000F5003ccT;Ul30RR92q2iRZZU6uO{{R30OCO5}000000094EV1NV3"
        "!zX8TG6ETl3m;9{k_}>j2&OUvr~;6j<bg2f32;R@2t|faMNA+?hknJm!WHEr6d3^kOMcd|ZvX%Q00000000080001XyB~T40RjL3"
        "0ioiQv~B<Y|Nj600APYsPC-ymSpWb4009610096108DQH02u)|8N<n%i2(or00E)ml(cIB2>}HN0(LMBBmo={8NgOUkO2t=B>-$0"
        "B>*uEB_IL-000@n`d&p9B`j?K0004N00002b}|3}0000001E&B0CbLHC6NIG0004@;*_*)|NsC0000191R_lsU_gRT0000M0098-"
        "02#x{nu!4b0004@;*_*&2><{E05bx1FeCr~8~{)mz*a+$2><~l02XW|0247K"
    ),
}


def as_records(values, base=0):
    return [Record(base + n, timestamp, key, value) for n, (timestamp, key, value) in enumerate(values)]


def read(data):
    return [record for batch in any_batches(data) for record in batch.records()]


def shape(data):
    return [(b.magic, b.last_offset, b.codec, b.max_timestamp, list(b.records())) for b in any_batches(data)]


@pytest.mark.parametrize("magic", [0, 1])
def test_down_conversion_is_that_of_kafka(magic):
    ours = down_convert(STORED, magic)
    theirs = shape(FETCHED[magic])
    assert len(theirs) >= 5
    assert shape(ours)[: len(theirs)] == theirs
    # The uncompressed part is the same to the byte.
    plain_size = sum(batch.size for batch in list(any_batches(ours))[:3])
    assert ours[:plain_size] == FETCHED[magic][:plain_size]


@given(rows, st.sampled_from((0, 1)), st.sampled_from((0, GZIP, SNAPPY, LZ4)), st.integers(0, 2**40))
@settings(deadline=None, max_examples=50)
def test_down_conversion_keeps_offsets_codec_and_all_fields_of_the_format(values, magic, codec, base):
    records = as_records(values, base)
    with_headers = [record._replace(headers=[("h", b"1")]) for record in records]
    data = down_convert(build_batch(with_headers, base, codec), magic)
    expected = records if magic else [record._replace(timestamp=-1) for record in records]
    assert read(data) == expected
    assert {batch.codec for batch in any_batches(data)} == {codec}
    assert {batch.magic for batch in any_batches(data)} == {magic}


def test_records_below_the_fetch_offset_go_only_from_uncompressed_batches():
    records = as_records([(NOW, b"k", b"v")] * 4)
    assert [r.offset for r in read(down_convert(build_batch(records), 1, first_offset=2))] == [2, 3]
    assert [r.offset for r in read(down_convert(build_batch(records, codec=GZIP), 1, first_offset=2))] == [0, 1, 2, 3]
    assert down_convert(build_batch(records), 1, first_offset=9) == b""


def test_control_batches_are_dropped_and_zstd_is_refused():
    marker = end_transaction_marker(True, 0, producer_id=1, producer_epoch=0, timestamp_ms=NOW)
    data = build_batch(as_records([(NOW, b"k", b"v")]))
    assert read(down_convert(marker + data + marker, 1)) == read(data)
    assert down_convert(marker + data, 2) == marker + data
    with pytest.raises(UnsupportedCompressionType):
        down_convert(build_batch(as_records([(NOW, b"k", b"v")]), codec=ZSTD), 1)


def test_the_append_time_is_kept():
    records = as_records([(NOW, b"a", b"1"), (NOW + 5, b"b", b"2")])
    for codec in (0, GZIP):
        data = down_convert(build_batch(records, codec=codec, append_time_ms=NOW + 100), 1)
        assert {batch.timestamp_type for batch in any_batches(data)} == {LOG_APPEND_TIME}
        assert {record.timestamp for record in read(data)} == {NOW + 100}
    assert {record.timestamp for record in read(down_convert(build_batch(records, append_time_ms=NOW), 0))} == {-1}


def test_old_formats_pass_through_and_are_converted_further_down():
    records = as_records([(NOW, b"a", b"1")])
    one = build_message_set(records, 1)
    zero = build_message_set(records, 0)
    assert down_convert(one + zero, 1) == one + zero
    assert down_convert(one, 0) == zero


def test_a_partial_batch_is_left_out():
    data = build_batch(as_records([(NOW, b"a", b"1")]))
    assert len(list(any_batches(down_convert(data + data[:-1], 1)))) == 1


def test_headers_are_not_built_to_be_dropped():
    """A record with two million empty headers, 4 KB on the wire, does not cost an old fetch gigabytes."""
    headers = 2_000_000
    body = b"\0\0\0\x02k\x02v" + encode_varint(headers) + b"\0\x01" * headers
    batch = pack_batch(
        compress(GZIP, encode_varint(len(body)) + body),
        1,
        base_offset=0,
        leader_epoch=0,
        attributes=GZIP,
        last_offset_delta=0,
        base_timestamp=5,
        max_timestamp=5,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
    )
    assert len(batch) < 5000
    tracemalloc.start()
    converted = down_convert(batch, 1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [(r.key, r.value) for r in read(converted)] == [(b"k", b"v")]
    assert peak < 5 * len(body)
