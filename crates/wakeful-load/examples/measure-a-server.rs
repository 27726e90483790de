//! Loads an HTTP server at 5,000 requests a second, and prints its percentiles and the results as
//! JSON: `cargo run --release -p wakeful-load --example measure-a-server`.
//!
//! The server is a thread of this program. With an address as the argument, such as
//! `127.0.0.1:8080`, it is the one there. The run ends early if it takes longer than 10 seconds.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use wakeful_load::{Check, Plan, Protocol, Requests, Template, Validity, Watch};

fn main() -> Result<(), Box<dyn Error>> {
    let server = std::env::args().nth(1).map_or_else(start_server, Ok)?;
    let template = Template::http("GET", "localhost", "/orders/7").header("accept", "*/*");
    let plan = Plan::new(server.parse()?)
        .requests(Requests::new(Protocol::Http1, &template)?)
        .rate(5_000.0)
        .connections(8)
        .warm_up(Duration::from_millis(200))
        .duration(Duration::from_secs(3));
    let mut deadline = Deadline(Instant::now() + Duration::from_secs(10));
    let measurement = plan.run_watched(&mut deadline)?;

    let times = measurement.percentiles();
    for (name, time) in [("p50", times.p50), ("p90", times.p90), ("p99", times.p99)] {
        match time {
            Some(time) => println!("{name}: {:?}", Duration::from_nanos(time)),
            None => println!("{name}: too few requests to tell"),
        }
    }
    match measurement.validity() {
        Validity::Valid => println!("valid"),
        Validity::Invalid { reasons, .. } => println!("invalid: {}", reasons.join("; ")),
    }
    println!("{}", serde_json::to_string_pretty(&measurement.to_run("my server"))?);
    Ok(())
}

/// Ends a run at a time; what was measured until then is kept.
struct Deadline(Instant);

impl Watch for Deadline {
    fn check(&mut self) -> Check {
        if Instant::now() < self.0 { Check::GoOn } else { Check::Interrupted }
    }
}

/// Starts a server and returns its address.
fn start_server() -> std::io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let addr = listener.local_addr()?.to_string();
    thread::spawn(move || {
        for connection in listener.incoming().map_while(Result::ok) {
            thread::spawn(|| answer(connection));
        }
    });
    Ok(addr)
}

/// Answers each request, which comes in one piece here, until the client closes.
fn answer(mut connection: TcpStream) -> std::io::Result<()> {
    connection.set_nodelay(true)?;
    let mut request = [0; 4096];
    while connection.read(&mut request)? > 0 {
        connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")?;
    }
    Ok(())
}
