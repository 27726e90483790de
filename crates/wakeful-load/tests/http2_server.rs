//! The HTTP/2 conversation with a server that others have written, through memory.

use bytes::Bytes;
use http::{Request, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use wakeful_load::Template;
use wakeful_load::internals::protocol::{Answer, Conversation, Http2, Outcome};

/// What both sides may have under way; enough that neither waits for the other to read.
const PIPE: usize = 16 << 20;

/// Which statuses the server gives, by the request's order.
const STATUSES: [u16; 6] = [200, 404, 204, 503, 302, 418];

fn run(server: &h2::server::Builder, template: &Template, requests: u64) -> Vec<Answer> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (client, peer) = tokio::io::duplex(PIPE);
    let (server, body) = (server.clone(), template.get_body().to_vec());
    runtime.block_on(async {
        let served = tokio::spawn(serve(server, peer, body));
        let mut answers = ask(client, template, requests).await;
        assert_eq!(served.await.unwrap(), requests);
        answers.sort_unstable_by_key(|answer| answer.key);
        answers
    })
}

/// Answers every request whose body is the one expected; returns how many those were.
async fn serve(builder: h2::server::Builder, peer: DuplexStream, body: Vec<u8>) -> u64 {
    let mut connection = builder.handshake::<_, Bytes>(peer).await.unwrap();
    let mut tasks = Vec::new();
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let body = body.clone();
        tasks.push(tokio::spawn(async move {
            let order = request.body().stream_id().as_u32() / 2;
            assert_eq!(request.headers()["x-sent"], "as it was");
            assert_eq!(take_body(request).await, body);
            let status = STATUSES[order as usize % STATUSES.len()];
            // Fields that come again, fields that never do, and fields too long to stay in the
            // table.
            let response = Response::builder()
                .status(status)
                .header("server", "the same each time")
                .header("x-order", order)
                .header("content-length", if order % 2 == 0 { order } else { 0 })
                .header("x-length", "~^|".repeat(order as usize % 700));
            let response = response.body(()).unwrap();
            let mut stream = respond.send_response(response, order % 2 == 1).unwrap();
            if order % 2 == 0 {
                stream.send_data(vec![b'x'; order as usize].into(), true).unwrap();
            }
        }));
    }
    for task in &mut tasks {
        task.await.unwrap();
    }
    tasks.len() as u64
}

async fn take_body(request: Request<h2::RecvStream>) -> Vec<u8> {
    let (mut body, mut bytes) = (request.into_body(), Vec::new());
    while let Some(part) = body.data().await {
        let part = part.unwrap();
        body.flow_control().release_capacity(part.len()).unwrap();
        bytes.extend_from_slice(&part);
    }
    bytes
}

/// Plays the generator: asks whenever it may, until all is answered.
async fn ask(mut pipe: DuplexStream, template: &Template, requests: u64) -> Vec<Answer> {
    let mut conversation = Http2::new(template).unwrap();
    let (mut input, mut out, mut answers) = (Vec::new(), Vec::new(), Vec::new());
    let mut asked = 0;
    conversation.open(&mut out);
    while (answers.len() as u64) < requests {
        while asked < requests && conversation.may_request() {
            assert_eq!(conversation.request(&mut out), asked);
            asked += 1;
        }
        pipe.write_all(&out).await.unwrap();
        out.clear();
        assert_ne!(pipe.read_buf(&mut input).await.unwrap(), 0, "the server has hung up");
        let taken = conversation.receive(&input, &mut out, &mut answers).unwrap();
        input.drain(..taken);
    }
    pipe.write_all(&out).await.unwrap();
    answers
}

fn template(body: usize) -> Template {
    Template::http("POST", "localhost", "/a?b").header("X-Sent", "as it was").body_of_size(body)
}

fn expect(answers: &[Answer], requests: u64) {
    assert!(answers.iter().map(|answer| answer.key).eq(0..requests));
    for answer in answers {
        let status = STATUSES[answer.key as usize % STATUSES.len()];
        let expected = if status < 400 { Outcome::Success } else { Outcome::Status(status) };
        assert_eq!(answer.outcome, expected, "request {}", answer.key);
    }
}

#[test]
fn every_answer_finds_its_request() {
    expect(&run(&h2::server::Builder::new(), &template(0), 2000), 2000);
}

#[test]
fn few_streams_at_a_time_are_enough() {
    let mut server = h2::server::Builder::new();
    server.max_concurrent_streams(3);
    expect(&run(&server, &template(10), 500), 500);
}

#[test]
fn bodies_arrive_whole_through_small_windows() {
    let mut server = h2::server::Builder::new();
    server.initial_window_size(1000).initial_connection_window_size(70_000);
    expect(&run(&server, &template(5000), 100), 100);
    let mut server = h2::server::Builder::new();
    server.max_frame_size(30_000).max_concurrent_streams(7);
    expect(&run(&server, &template(200_000), 40), 40);
}

#[test]
fn a_server_that_goes_away_answers_what_it_took() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (mut client, peer) = tokio::io::duplex(PIPE);
    runtime.block_on(async {
        let served = tokio::spawn(async move {
            let mut connection = h2::server::handshake(peer).await.unwrap();
            let (_, mut respond) = connection.accept().await.unwrap().unwrap();
            let mut stream = respond.send_response(Response::new(()), false).unwrap();
            stream.send_data(Bytes::from_static(b"last"), true).unwrap();
            connection.graceful_shutdown();
            while connection.accept().await.is_some() {}
        });
        let mut conversation = Http2::new(&template(0)).unwrap();
        let (mut input, mut out, mut answers) = (Vec::new(), Vec::new(), Vec::new());
        conversation.open(&mut out);
        loop {
            if conversation.may_request() && answers.is_empty() {
                conversation.request(&mut out);
            }
            client.write_all(&out).await.unwrap();
            out.clear();
            if client.read_buf(&mut input).await.unwrap() == 0 {
                break;
            }
            let taken = conversation.receive(&input, &mut out, &mut answers).unwrap();
            input.drain(..taken);
        }
        served.await.unwrap();
        assert!(conversation.is_closing() && !conversation.may_request());
        assert_eq!(answers[0], Answer { key: 0, outcome: Outcome::Success });
    });
}
