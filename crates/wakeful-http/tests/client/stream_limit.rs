//! The server's limit of streams, which it may announce late, in parts, and anew. The frames are
//! written by hand.

use std::time::Duration;

use super::*;

/// In this time the client reads what was sent to it. (If not, a test shows less.)
const MOMENT: Duration = Duration::from_millis(50);

/// After this time the client does not wait for settings any more.
const LATE: Duration = Duration::from_millis(1200);

/// The header of SETTINGS whose payload is one setting.
const SETTINGS: [u8; 9] = [0, 0, 6, 4, 0, 0, 0, 0, 0];

/// The payload of SETTINGS with the limit.
fn limit(streams: u8) -> [u8; 6] {
    [0, 3, 0, 0, 0, streams]
}

/// Reads until `streams` requests have come, and answers them.
async fn answers(stream: &mut TcpStream, streams: usize) {
    let (mut frames, mut buf, mut asked) = (Vec::new(), vec![0; 1 << 16], 0);
    while asked < streams {
        let read = stream.read(&mut buf).await.unwrap();
        assert!(read > 0, "only {asked} requests have come");
        frames.extend_from_slice(&buf[..read]);
        asked = requests(&frames);
    }
    for number in 0..streams {
        // HEADERS that end the stream; `:status: 200` of the static table.
        let id = u8::try_from(2 * number + 1).unwrap();
        stream.write_all(&[0, 0, 1, 1, 5, 0, 0, 0, id, 0x88]).await.unwrap();
    }
    until_closed(stream).await;
}

/// The number of frames of HEADERS after the preface.
pub(super) fn requests(bytes: &[u8]) -> usize {
    let (mut bytes, mut found) = (bytes.get(24..).unwrap_or_default(), 0);
    while let [a, b, c, kind, rest @ ..] = bytes {
        let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
        let Some(next) = rest.get(5 + length..) else { break };
        found += usize::from(*kind == 1);
        bytes = next;
    }
    found
}

/// A client whose requests wait for a stream until the test ends.
fn one_connection(addr: SocketAddr) -> (Client, Host<Full<Bytes>>) {
    http2(Client::builder().max_connections(1).queue_timeout(GUARD), addr)
}

async fn are_answered(host: &Host<Full<Bytes>>, requests: usize) {
    let sent = (0..requests).map(|_| host.send(get("/")));
    for response in futures_util::future::join_all(sent).await {
        assert!(response.unwrap().status().is_success());
    }
}

/// The client reads the first part alone.
#[test]
fn a_limit_that_comes_in_two_parts_is_awaited_and_known() {
    on_a_loop(async {
        // A client that waits longer may make another connection, if it is allowed to.
        for (pause, connections) in [(MOMENT, 3), (LATE, 1)] {
            let addr = scripted(move |_, mut stream| async move {
                stream.write_all(&SETTINGS).await.unwrap();
                wakeful::time::sleep(pause).await;
                stream.write_all(&limit(100)).await.unwrap();
                answers(&mut stream, 3).await;
            })
            .await;
            let settings = Client::builder().max_connections(connections).queue_timeout(GUARD);
            let (client, host) = http2(settings, addr);
            are_answered(&host, 3).await;
            assert_eq!(client.counts().opened(), 1);
        }
    });
}

#[test]
fn a_limit_of_one_in_two_parts_lets_the_next_request_have_another_connection() {
    on_a_loop(async {
        let addr = scripted(async |_, mut stream| {
            stream.write_all(&SETTINGS).await.unwrap();
            wakeful::time::sleep(MOMENT).await;
            stream.write_all(&limit(1)).await.unwrap();
            answers(&mut stream, 1).await;
        })
        .await;
        let (client, host) = http2(Client::builder().max_connections(2), addr);
        are_answered(&host, 2).await;
        assert_eq!(client.counts().opened(), 2);
    });
}

/// h2 applies the settings when it can write its answer to them. The first request fills the
/// kernel's buffers.
#[test]
fn a_limit_that_comes_while_nothing_can_be_written_is_known() {
    on_a_loop(async {
        let addr = scripted(async |_, mut stream| {
            wakeful::time::sleep(MOMENT).await;
            stream.write_all(&[SETTINGS.as_slice(), &limit(100)].concat()).await.unwrap();
            wakeful::time::sleep(LATE).await;
            answers(&mut stream, 3).await;
        })
        .await;
        let (client, host) = one_connection(addr);
        let mut large = get("/");
        let value = vec![b'x'; 8 << 20];
        large.headers_mut().insert("large", value.try_into().unwrap());
        let (large, ()) =
            futures_util::future::join(host.send(large), are_answered(&host, 2)).await;
        assert!(large.unwrap().status().is_success());
        assert_eq!(client.counts().waited(), 2);
    });
}

/// The last of these limits comes when the client has read the others.
async fn raises(stream: &mut TcpStream, limits: [u8; 3]) {
    for streams in limits {
        stream.write_all(&SETTINGS).await.unwrap();
        stream.write_all(&limit(streams)).await.unwrap();
        wakeful::time::sleep(MOMENT).await;
    }
}

#[test]
fn a_server_that_raises_its_limit_gets_the_requests_that_wait() {
    on_a_loop(async {
        for at_first in [0, 1] {
            let addr = scripted(move |_, mut stream| async move {
                raises(&mut stream, [at_first, at_first, 100]).await;
                answers(&mut stream, 3).await;
            })
            .await;
            let (client, host) = one_connection(addr);
            are_answered(&host, 3).await;
            assert_eq!(client.counts().waited(), 2);
        }
    });
}

#[test]
fn a_limit_that_was_raised_while_nobody_waited_is_known_to_the_next_requests() {
    on_a_loop(async {
        let addr = scripted(async |_, mut stream| {
            raises(&mut stream, [1, 1, 100]).await;
            answers(&mut stream, 3).await;
        })
        .await;
        let (_client, host) = one_connection(addr);
        let late = async {
            wakeful::time::sleep(4 * MOMENT).await;
            are_answered(&host, 2).await;
        };
        futures_util::future::join(are_answered(&host, 1), late).await;
    });
}
