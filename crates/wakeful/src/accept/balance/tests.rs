use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use super::share::HALF_LIFE;
use super::*;
use crate::accept::{ConnectionServer, Serving, SharedListener};
use crate::group::{LoopGroup, LoopGroupBuilder, Targets};
use crate::net::TcpStream;
use crate::{EventLoopBuilder, IdlePolicy, block_on};

fn parking() -> EventLoopBuilder {
    EventLoopBuilder::default().idle(IdlePolicy::Park)
}

/// A server that counts connections by loop; each stays open until its client closes it.
fn counting(group: LoopGroupBuilder, loops: usize) -> (Serving, Arc<Vec<AtomicUsize>>) {
    let listener = SharedListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let counts: Arc<Vec<_>> = Arc::new((0..loops).map(|_| AtomicUsize::new(0)).collect());
    let (seen, next) = (counts.clone(), AtomicUsize::new(0));
    let server = ConnectionServer::new(vec![listener]).group(group.loops(loops));
    let serving = server
        .start(move || {
            let (seen, number) = (seen.clone(), next.fetch_add(1, Ordering::Relaxed));
            move |mut connection| {
                seen[number].fetch_add(1, Ordering::Relaxed);
                async move {
                    let mut buf = [0; 8];
                    while let Ok(read @ 1..) = connection.stream.read(&mut buf).await {
                        if connection.stream.write_all(&buf[..read]).await.is_err() {
                            break;
                        }
                    }
                }
            }
        })
        .unwrap();
    (serving, counts)
}

async fn connect(serving: &Serving) -> TcpStream {
    let addr = serving.local_addrs()[0].to_string();
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.write_all(b"x").await.unwrap();
    assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 1);
    stream
}

fn read(counts: &[AtomicUsize]) -> Vec<usize> {
    counts.iter().map(|count| count.load(Ordering::Relaxed)).collect()
}

#[test]
fn connections_that_stay_are_spread_evenly() {
    let (serving, counts) = counting(LoopGroup::builder().spread().event_loop(parking()), 4);
    block_on(async {
        let mut open = Vec::new();
        for _ in 0..80 {
            open.push(connect(&serving).await);
        }
    });
    let counts = read(&counts);
    let most = counts.iter().max().unwrap();
    assert!(*most <= 25, "20 each, and at most a quarter more: {counts:?}");
    serving.shutdown(Duration::from_secs(5)).unwrap();
}

#[test]
fn connections_that_go_at_once_are_spread_evenly() {
    let (serving, counts) = counting(LoopGroup::builder().spread().event_loop(parking()), 4);
    block_on(async {
        for _ in 0..200 {
            drop(connect(&serving).await);
        }
    });
    let counts = read(&counts);
    let most = counts.iter().max().unwrap();
    assert!(*most <= 62, "50 each, and at most a quarter more: {counts:?}");
    serving.shutdown(Duration::from_secs(5)).unwrap();
}

#[test]
fn light_load_stays_on_one_loop() {
    // It would have to be busy all the time to be too much, as on a machine that is.
    let targets = Targets { utilisation: 0.95, least: 1 };
    let group = LoopGroup::builder().concentrate(targets).event_loop(parking());
    let (serving, counts) = counting(group, 4);
    block_on(async {
        let mut open = Vec::new();
        for _ in 0..20 {
            open.push(connect(&serving).await);
        }
    });
    let counts = read(&counts);
    assert_eq!(counts, [20, 0, 0, 0]);
    serving.shutdown(Duration::from_secs(5)).unwrap();
}

#[test]
fn where_the_only_active_loop_ends_another_one_accepts() {
    let (serving, counts) = counting(LoopGroup::builder().event_loop(parking()), 3);
    block_on(async {
        drop(connect(&serving).await);
        serving.handles()[0].stop();
        // Gone, with its listener.
        while serving.handles()[0].run(|| ()).is_ok() {
            crate::time::sleep(Duration::from_millis(1)).await;
        }
        drop(connect(&serving).await);
    });
    let counts = read(&counts);
    assert_eq!((counts[0], counts[1] + counts[2]), (1, 1));
    serving.shutdown(Duration::from_secs(5)).unwrap();
}

#[test]
fn what_was_accepted_counts_half_after_its_half_life() {
    let share = Share::default();
    (0..8).for_each(|_| share.note(0));
    assert!((share.recent(0) - 8.0).abs() < 0.01);
    let later = HALF_LIFE;
    assert!((share.recent(later) - 4.0).abs() < 0.1, "{}", share.recent(later));
    assert!(share.recent(100 * later) < 0.01);
    // Another loop's clock may be a little behind.
    share.note(later);
    assert!(share.recent(later - 2_000_000) > 4.0);
}
