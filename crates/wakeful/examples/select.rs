//! Which select? That of `futures-util`, or `futures-lite`'s `or`; for time limits
//! `wakeful::time::timeout`.

use std::pin::pin;
use std::time::Duration;

use futures_lite::future;
use futures_util::future::{Either, select};
use wakeful::time::{sleep, timeout};

#[wakeful::main]
async fn main() {
    let (send, receive) = async_channel::bounded(1);
    let sender = wakeful::spawn(async move {
        sleep(Duration::from_millis(2)).await;
        let _ = send.send("the message").await;
    });

    // Whichever is first; the other may continue.
    let message = pin!(receive.recv());
    let tick = pin!(sleep(Duration::from_millis(1)));
    match select(message, tick).await {
        Either::Left((message, _)) => println!("first: {message:?}"),
        Either::Right(((), message)) => {
            println!("first: the timer; then: {:?}", message.await);
        }
    }

    // Both of one type: `or`.
    let slow = async {
        sleep(Duration::from_secs(60)).await;
        "slow"
    };
    println!("won: {}", future::or(slow, async { "fast" }).await);

    // A limit.
    let never = std::future::pending::<()>();
    println!("limit: {}", timeout(Duration::from_millis(1), never).await.expect_err("too slow"));
    sender.await.expect("no panic");
}
