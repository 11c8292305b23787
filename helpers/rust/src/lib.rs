//! A Kafka broker of your own in tests: Ottla, in a child process, in memory, on a free port.
//!
//! ```no_run
//! let broker = ottla_test::Broker::start(&["--topic", "orders:3"]);
//! broker.append("orders", &["a", "b"]);
//! // … run your client on broker.bootstrap() …
//! broker.wait_until_caught_up("billing", "orders", std::time::Duration::from_secs(5));
//! ```
//!
//! It needs Python with ottla (`pip install ottla`). The command is `ottla`, or what `$OTTLA_COMMAND` says. Methods panic
//! with what is wrong, as assertions do; `try_start` and `ask` return it.

use serde_json::{json, Value};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A record as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub partition: i64,
    pub offset: i64,
    pub timestamp: i64,
    /// Text, or `{"base64": "…"}` for other bytes; null where there is none.
    pub key: Value,
    pub value: Value,
}

/// A running broker. It ends when it is dropped.
#[derive(Debug)]
pub struct Broker {
    child: Child,
    ready: Value,
}

impl Broker {
    /// Start one and wait until it is ready; `options` are those of `ottla serve`.
    pub fn start(options: &[&str]) -> Broker {
        Broker::try_start(options).unwrap_or_else(|why| panic!("{why}"))
    }

    pub fn try_start(options: &[&str]) -> Result<Broker, String> {
        let named = std::env::var("OTTLA_COMMAND").unwrap_or_else(|_| "ottla".into());
        let mut words = named.split_whitespace();
        let program = words.next().unwrap_or("ottla");
        let mut child = Command::new(program)
            .args(words)
            .args(["serve", "--ephemeral", "--port", "0", "--control", "0", "--json", "--no-console"])
            .args(["--preset", "test", "--exit-with-parent", "--log-level", "WARNING"])
            .args(options)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|why| format!("cannot run {program}: {why} (pip install ottla, or set OTTLA_COMMAND)"))?;
        let mut line = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut line).map_err(|why| why.to_string())?;
        let mut stderr = child.stderr.take().expect("it is piped");
        if line.is_empty() {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            let _ = child.wait();
            return Err(format!("the broker did not start: {}", text.trim()));
        }
        // Read what the broker logs: with a full pipe it would stop and wait.
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        let ready = serde_json::from_str(&line).map_err(|why| why.to_string())?;
        Ok(Broker { child, ready })
    }

    /// The address for `bootstrap.servers`.
    pub fn bootstrap(&self) -> &str {
        self.ready["bootstrap"].as_str().expect("it is in the line")
    }

    /// The URL of the HTTP endpoint that the methods below use.
    pub fn control_url(&self) -> &str {
        self.ready["control"].as_str().expect("it is in the line")
    }

    /// What clients need where `--tls` or `--user` is given: `protocol`, `ca_file` and `client_config`.
    pub fn security(&self) -> &Value {
        &self.ready["security"]
    }

    pub fn create_topic(&self, name: &str, partitions: u32, config: Value) {
        self.must("POST", &format!("/topics/{name}"), json!({"partitions": partitions, "config": config}));
    }

    /// Write records without a client.
    pub fn append(&self, topic: &str, values: &[&str]) {
        self.must("POST", &format!("/topics/{topic}/records"), json!({ "records": values }));
    }

    /// What a read_committed consumer sees.
    pub fn records(&self, topic: &str) -> Vec<Record> {
        records(self.must("GET", &format!("/topics/{topic}/records"), Value::Null))
    }

    /// Block until a topic has these many records.
    pub fn wait_for_records(&self, topic: &str, count: usize, timeout: Duration) -> Vec<Record> {
        let body = json!({"count": count, "timeout": timeout.as_secs_f64()});
        records(self.must("POST", &format!("/topics/{topic}/wait"), body))
    }

    /// How many records of a topic a group has still to read.
    pub fn lag(&self, group: &str, topic: &str) -> i64 {
        self.must("GET", &format!("/groups/{group}/lag?of={topic}"), Value::Null)["lag"].as_i64().unwrap_or(-1)
    }

    /// Block until a group has these many members and all have their partitions.
    pub fn wait_until_stable(&self, group: &str, members: usize, timeout: Duration) {
        let body = json!({"members": members, "timeout": timeout.as_secs_f64()});
        self.must("POST", &format!("/groups/{group}/wait_until_stable"), body);
    }

    /// Block until a group has read and committed all of a topic.
    pub fn wait_until_caught_up(&self, group: &str, topic: &str, timeout: Duration) {
        let body = json!({"of": topic, "timeout": timeout.as_secs_f64()});
        self.must("POST", &format!("/groups/{group}/wait_until_caught_up"), body);
    }

    /// Block until a client sent such a request, by Kafka's name of the API: `Fetch`.
    pub fn wait_for_request(&self, api: &str, timeout: Duration) {
        self.must("POST", "/requests/wait", json!({"api": api, "timeout": timeout.as_secs_f64()}));
    }

    /// Make the broker misbehave; returns the number of the fault. docs/faults.md lists kinds and options.
    pub fn add_fault(&self, kind: &str, mut options: Value) -> i64 {
        options["kind"] = kind.into();
        self.must("POST", "/faults", options)["id"].as_i64().unwrap_or(-1)
    }

    pub fn clear_faults(&self) {
        self.must("DELETE", "/faults", Value::Null);
    }

    /// Move the broker's clock; what falls due happens before this returns.
    pub fn advance(&self, duration: Duration) {
        self.must("POST", "/clock/advance", json!({"ms": duration.as_millis() as u64}));
    }

    /// Remove all topics, groups and faults.
    pub fn reset(&self) {
        self.must("POST", "/reset", Value::Null);
    }

    /// Keep the state now, for `restore`.
    pub fn snapshot(&self) -> i64 {
        self.must("POST", "/snapshots", Value::Null)["snapshot"].as_i64().unwrap_or(-1)
    }

    /// Go back to a snapshot; clients connect again.
    pub fn restore(&self, snapshot: i64) {
        self.must("POST", &format!("/snapshots/{snapshot}/restore"), Value::Null);
    }

    fn must(&self, method: &str, path: &str, body: Value) -> Value {
        self.ask(method, path, body).unwrap_or_else(|why| panic!("{why}"))
    }

    /// Any request of the control endpoint; names in paths must be percent-encoded where that is needed.
    pub fn ask(&self, method: &str, path: &str, body: Value) -> Result<Value, String> {
        let address = self.control_url().trim_start_matches("http://");
        let content = if body.is_null() { String::new() } else { body.to_string() };
        let mut stream = TcpStream::connect(address).map_err(|why| why.to_string())?;
        let head = format!("{method} {path} HTTP/1.0\r\nHost: {address}\r\nContent-Length: {}\r\n\r\n", content.len());
        stream.write_all((head + &content).as_bytes()).map_err(|why| why.to_string())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map_err(|why| why.to_string())?;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or("no answer")?;
        let found: Value = serde_json::from_str(body).map_err(|why| why.to_string())?;
        match head.split(' ').nth(1) {
            Some(status) if status < "400" => Ok(found),
            _ => Err(format!("{method} {path}: {}", found["error"].as_str().unwrap_or(body))),
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn records(answer: Value) -> Vec<Record> {
    let number = |value: &Value| value.as_i64().unwrap_or(-1);
    let all = answer.as_array().cloned().unwrap_or_default();
    all.iter()
        .map(|each| Record {
            partition: number(&each["partition"]),
            offset: number(&each["offset"]),
            timestamp: number(&each["timestamp"]),
            key: each["key"].clone(),
            value: each["value"].clone(),
        })
        .collect()
}
