"""Faust: an agent on the test's own event loop."""

import asyncio

import faust
import pytest


@pytest.mark.asyncio
async def test_words_are_shouted(kafka):
    words, shouted = kafka.topic("words"), kafka.topic("shouted")
    app = faust.App(
        kafka.name("shouter"),
        broker=f"kafka://{kafka.bootstrap}",
        store="memory://",
        web_enabled=False,
        topic_allow_declare=False,
        topic_disable_leader=True,
        consumer_auto_offset_reset="earliest",
        value_serializer="raw",
    )
    source, target = app.topic(str(words)), app.topic(str(shouted))

    @app.agent(source)
    async def shout(stream):
        async for word in stream:
            await target.send(value=word.upper())

    words.append(["hello"])
    app.finalize()
    await app.start()
    try:
        record = await shouted.wait_for_async(timeout=30)
    finally:
        await asyncio.wait_for(app.stop(), 30)
    assert record.text == "HELLO"
