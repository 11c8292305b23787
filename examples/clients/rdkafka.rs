//! rdkafka: BOOTSTRAP TOPIC.
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use std::error::Error;
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [bootstrap, topic] = arguments.as_slice() else {
        return Err("usage: round-trip BOOTSTRAP TOPIC".into());
    };

    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .create()?;
    for number in 0..3 {
        let value = format!("hello {number}");
        producer
            .send(BaseRecord::to(topic).key("key").payload(&value))
            .map_err(|(error, _)| error)?;
    }
    producer.flush(Duration::from_secs(30))?;

    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", "readers")
        .set("auto.offset.reset", "earliest")
        .set("enable.auto.commit", "false")
        .create()?;
    consumer.subscribe(&[topic.as_str()])?;
    let mut values = Vec::new();
    for _ in 0..60 {
        if values.len() == 3 {
            break;
        }
        if let Some(message) = consumer.poll(Duration::from_millis(500)) {
            let message = message?;
            values.push(String::from_utf8(
                message.payload().unwrap_or_default().to_vec(),
            )?);
            consumer.commit_message(&message, CommitMode::Sync)?;
        }
    }
    assert_eq!(values, ["hello 0", "hello 1", "hello 2"]);
    println!("ok");
    Ok(())
}
