"""FastStream: the application's own broker object, on a broker of the test's own."""

import pytest
from faststream.confluent import KafkaBroker


@pytest.mark.asyncio
async def test_an_order_is_paid(kafka):
    orders, paid = kafka.topic("orders"), kafka.topic("paid")
    broker = KafkaBroker(kafka.bootstrap)

    @broker.publisher(str(paid))
    @broker.subscriber(str(orders), group_id=str(kafka.group()), auto_offset_reset="earliest")
    async def pay(order: dict) -> dict:
        return {"id": order["id"], "paid": True}

    async with broker:
        await broker.start()
        orders.append([{"id": 7}])
        record = await paid.wait_for_async(timeout=20)
    assert record.json == {"id": 7, "paid": True}
