"""Busy polling: the loop polls the only active connection after several quick requests in a row."""

import socket
from typing import Any

from ottla.server.net.busy_poll import Pace
from ottla.wire.messages import ApiVersionsRequest

ROW = 9  # the first one has no predecessor
AT_ONCE = 0  # arrived before the last answer was sent: the quickest case
MUCH_LATER = 1 << 62


class Looking:
    """Finds that many further requests."""

    def __init__(self, finds: int = 0) -> None:
        self.finds = finds
        self.looked = 0

    def __call__(self, until_ns: int) -> bool:
        self.looked += 1
        self.finds -= 1
        return self.finds >= 0


def row(pace: Pace, connection: object, look: Looking) -> None:
    for _ in range(ROW):
        pace.stay(connection, AT_ONCE, look)
    assert look.looked == 0


def test_the_loop_polls_after_a_row_of_quick_requests() -> None:
    pace, look = Pace(), Looking()
    row(pace, "a", look)
    pace.stay("a", AT_ONCE, look)
    assert look.looked == 1


def test_after_a_failed_poll_only_a_row_of_quick_requests_polls_again() -> None:
    pace, look = Pace(), Looking()
    row(pace, "a", look)
    pace.stay("a", AT_ONCE, look)
    for _ in range(8):
        pace.stay("a", AT_ONCE, look)
        assert look.looked == 1
    pace.stay("a", AT_ONCE, look)
    assert look.looked == 2


def test_slow_or_several_connections_are_not_polled() -> None:
    pace, look = Pace(), Looking()
    for _ in range(3 * ROW):
        pace.stay("a", MUCH_LATER, look)
    for _ in range(3 * ROW):
        pace.stay("a", AT_ONCE, look)
        pace.stay("b", AT_ONCE, look)
    assert look.looked == 0


def test_a_connection_is_alone_after_others_are_quiet() -> None:
    pace, look = Pace(), Looking()
    pace.stay("a", AT_ONCE, look)
    assert pace.is_with_one
    pace.stay("b", MUCH_LATER, look)
    assert not pace.is_with_one
    pace.stay("b", MUCH_LATER, look)
    assert not pace.is_with_one
    pace.stay("a", AT_ONCE, look)
    assert pace.is_with_one


def test_other_connections_get_their_turn() -> None:
    pace, look = Pace(), Looking(finds=1 << 40)
    row(pace, "a", look)
    pace.stay("a", AT_ONCE, look)  # returns, although there is always one more request
    assert look.looked >= 1


def test_requests_are_served_while_polling(run: Any, run_broker: Any) -> None:
    """Requests after an answer are served in order, no matter which code reads them from the socket. So is the end of
    the stream."""

    async def main() -> None:
        async with run_broker() as running:
            running.broker.pace = Pace()
            client, other = await running.connect(), await running.connect()
            for number in range(200):
                assert (await client.call(ApiVersionsRequest(), 0)).error_code == 0
                if number % 50 == 49:
                    for _ in range(5):
                        client.send(ApiVersionsRequest(), 0)
                    assert [(await client.receive()).error_code for _ in range(5)] == [0] * 5
                    assert (await other.call(ApiVersionsRequest(), 0)).error_code == 0
            client.writer.get_extra_info("socket").shutdown(socket.SHUT_WR)
            assert await client.is_closed()

    run(main())
