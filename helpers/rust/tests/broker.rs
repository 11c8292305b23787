use ottla_test::Broker;
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(10);

/// ApiVersions v0, by hand: a client without another crate.
fn api_versions(bootstrap: &str) -> usize {
    let mut stream = TcpStream::connect(bootstrap).unwrap();
    stream.write_all(&[0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 7, 255, 255]).unwrap();
    let mut size = [0; 4];
    stream.read_exact(&mut size).unwrap();
    let mut answer = vec![0; u32::from_be_bytes(size) as usize];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[..6], [0, 0, 0, 7, 0, 0]);
    answer.len()
}

#[test]
fn a_broker_answers_and_is_steered() {
    let broker = Broker::start(&["--topic", "orders:2"]);
    assert!(api_versions(broker.bootstrap()) > 100);
    broker.wait_for_request("ApiVersions", PATIENCE);
    broker.append("orders", &["a", "b"]);
    assert_eq!(broker.lag("billing", "orders"), 2);
    assert_eq!(broker.wait_for_records("orders", 2, PATIENCE)[1].value, json!("b"));
    let state = broker.snapshot();
    broker.append("orders", &["c"]);
    broker.restore(state);
    assert_eq!(broker.records("orders").len(), 2);
    broker.create_topic("t", 1, json!({"retention.ms": "1000"}));
    assert!(broker.add_fault("delay", json!({"api": "Produce", "ms": 1})) > 0);
    broker.clear_faults();
    broker.advance(Duration::from_secs(86_400));
    broker.reset();
    assert!(broker.ask("GET", "/topics/nope/records", json!(null)).unwrap_err().contains("there is no topic 'nope'"));
}

#[test]
fn mistakes_are_explained() {
    let why = Broker::try_start(&["--topic", "a:many"]).unwrap_err();
    assert!(why.contains("--topic takes"), "{why}");
}
