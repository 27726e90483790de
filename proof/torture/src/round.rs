//! A round: a group of loops is started, tortured, and shut down, either drained or while work goes
//! on. Then nothing may be left of it.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use fastrand::Rng;
use wakeful::accept::SharedListener;
use wakeful::net::ListenAddr;
use wakeful::{EventLoop, IdlePolicy, JoinHandle, LoopGroup, LoopHandle};

use crate::connections::{accept, blocking, connect};
use crate::hostile::acts::Stage;
use crate::hostile::limits::{FewDescriptors, Pids};
use crate::hostile::{Chosen, Kind as Fault, log, panics, server, stop, wakers};
use crate::ledger::{Account, Ledger, lock};
use crate::options::Options;
use crate::world::{Delivery, Kind, World};

/// If nothing has moved for this long, whatever waits will wait for ever. A connection that is not
/// stuck moves every few milliseconds.
const STUCK: Duration = Duration::from_secs(60);

/// The open descriptors, and what they are.
pub(crate) type Descriptors = BTreeMap<String, PathBuf>;

/// Streams that a thread is carrying.
type Couriers = Mutex<mpsc::Receiver<Delivery>>;

/// Runs one round of about `length`. After it, the same descriptors must be open as in `before`.
/// What is wrong is a fault in the ledger.
///
/// # Errors
///
/// When the round could not begin.
pub(crate) fn run(
    ledger: &Arc<Ledger>,
    options: &Options,
    pids: Option<&Pids>,
    before: &Descriptors,
    seed: u64,
    length: Duration,
) -> io::Result<()> {
    let mut random = Rng::with_seed(seed);
    let drains = random.u8(..4) > 0;
    let without = if options.without_faults { Fault::value_variants() } else { &options.without };
    let chosen = Chosen::new(without, &mut random);
    log::set_hostile(chosen.has(Fault::Log));
    let result = torture(ledger, options, pids, &chosen, &mut random, length, drains);
    log::set_hostile(false);
    result?;
    ledger.close_all();
    if let Some(difference) = new_descriptors(before)? {
        ledger.fault(difference);
    }
    Ok(())
}

/// Returns which descriptors are open now and were not before, or the other way round. The idle
/// policy surveys the machine once per process, and has a descriptor for some milliseconds then. So
/// this waits for a while before it reports.
fn new_descriptors(before: &Descriptors) -> io::Result<Option<String>> {
    let begun = Instant::now();
    loop {
        let now = descriptors()?;
        if now == *before {
            return Ok(None);
        }
        if begun.elapsed() > Duration::from_secs(10) {
            return Ok(Some(format!("open were {before:?}, and behind the round {now:?}")));
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn torture(
    ledger: &Arc<Ledger>,
    options: &Options,
    pids: Option<&Pids>,
    chosen: &Chosen,
    random: &mut Rng,
    length: Duration,
    drains: bool,
) -> io::Result<()> {
    let settings = EventLoop::builder()
        .idle(if random.bool() { IdlePolicy::Park } else { IdlePolicy::ADAPTIVE })
        .io_batch(1 + random.usize(..64))
        .task_budget(random.u32(2..64))
        .cooperative_budget(random.u32(1..128))
        .turn_budget(Duration::from_micros(random.u64(..1_000)));
    let group = LoopGroup::builder()
        .loops(options.loops.get().into())
        .name("tortured")
        .event_loop(settings)
        .build()?;
    for handle in group.handles() {
        inject(handle, options, random);
    }
    let socket = std::env::temp_dir().join(format!(
        "wakeful-torture-{}-{:x}",
        std::process::id(),
        random.u32(..)
    ));
    let listeners = [
        SharedListener::bind(&ListenAddr::Tcp((Ipv4Addr::UNSPECIFIED, 0).into()))?,
        SharedListener::bind(&ListenAddr::Unix(socket.clone()))?,
    ];
    let port = listeners[0].socket_addr().map_or(0, |addr| addr.port());
    let (couriers, received) = mpsc::channel();
    let world = Arc::new(World::new(
        ledger.clone(),
        group.handles().to_vec(),
        (port, socket),
        couriers,
        random.u64(..),
    ));
    let stage = Stage::new(world.loops.clone(), ledger, &world.is_cut);
    let accepting = listen(&world, &listeners)?;
    drop(listeners);

    let hostile = match chosen.has(Fault::Handlers) {
        true => Some(server::Hostile::start(random)?),
        false => None,
    };
    let (hostile, visitor) = hostile.unzip();
    let over = AtomicBool::new(false);
    let received: Couriers = Mutex::new(received);
    thread::scope(|scope| {
        if let Some(visitor) = &visitor {
            scope.spawn(|| visitor.visit(ledger, &over));
        }
        let threads: Vec<_> = (0..options.threads.get())
            .map(|_| {
                let random = Rng::with_seed(random.u64(..));
                let (world, stage, received, over) = (&world, &stage, &received, &over);
                scope.spawn(move || meddle(world, stage, received, over, options, chosen, random))
            })
            .collect();
        press(&world, pids, chosen, random, length);
        over.store(true, Relaxed);
        stage.end();
        if drains {
            drain(ledger, &received, &world, random);
        } else {
            world.is_cut.store(true, Relaxed);
            ledger.break_all();
            // A thread may be blocked until its peer goes on.
            while !threads.iter().all(thread::ScopedJoinHandle::is_finished) {
                courier(&received, &world, random);
                thread::sleep(Duration::from_millis(1));
            }
        }
        for thread in threads {
            if thread.join().is_err() {
                ledger.fault("a thread panicked".to_owned());
            }
        }
    });
    if !drains {
        // This includes what the threads opened last.
        ledger.break_all();
    }
    accepting.iter().for_each(JoinHandle::abort);
    drop(accepting);
    let panics: u64 = group.handles().iter().map(|handle| handle.metrics().panics).sum();
    let ordered = panics::ordered();
    if panics > ordered {
        ledger.fault(format!("{panics} panics were counted, and {ordered} ordered"));
    }
    let grace = if drains { Duration::from_secs(10) } else { Duration::ZERO };
    if let Err(error) = group.shutdown(grace) {
        ledger.fault(error.to_string());
    }
    if let Some(hostile) = hostile {
        hostile.end(ledger);
    }
    Ok(())
}

/// Lets a round run for its length. For parts of it the process is short of resources.
fn press(world: &World, pids: Option<&Pids>, chosen: &Chosen, random: &mut Rng, length: Duration) {
    let totals = &world.ledger.totals;
    let part = length / 4;
    thread::sleep(part);
    if chosen.has(Fault::Descriptors) {
        let few = FewDescriptors::more_than_open(random.u64(..20));
        totals.short_of_descriptors.fetch_add(1, Relaxed);
        thread::sleep(part);
        drop(few);
    }
    if chosen.has(Fault::Stop) && stop::stop_for(random.u64(1..300)) {
        totals.stops.fetch_add(1, Relaxed);
    }
    if chosen.has(Fault::Threads)
        && let Some(pids) = pids
        && pids.limit().is_ok()
    {
        totals.short_of_threads.fetch_add(1, Relaxed);
        block_on_each_loop(world);
        pids.lift();
    }
    thread::sleep(part);
}

/// Starts a blocking call on each loop. At the thread limit it ends too: it is done, or it fails.
fn block_on_each_loop(world: &World) {
    let (ended, all_ended) = mpsc::channel();
    for handle in &world.loops {
        world.ledger.totals.blocking_calls.fetch_add(1, Relaxed);
        let ended = ended.clone();
        let task = handle.spawn(move || async move {
            let _ = wakeful::task::spawn_blocking(|| 7).await;
            // Nobody waits any more.
            let _ = ended.send(());
        });
        task.expect("the loop runs").detach();
    }
    drop(ended);
    for _ in &world.loops {
        if all_ended.recv_timeout(Duration::from_secs(10)).is_err() {
            let text = "at the thread limit a blocking call neither ends nor fails";
            return world.ledger.fault(text.to_owned());
        }
    }
}

/// Makes each loop accept from each listener.
fn listen(world: &Arc<World>, listeners: &[SharedListener]) -> io::Result<Vec<JoinHandle<()>>> {
    let mut accepting = Vec::new();
    for (handle, listener) in
        world.loops.iter().flat_map(|handle| listeners.iter().map(move |l| (handle, l)))
    {
        let (world, listener) = (world.clone(), listener.clone());
        let task = handle.spawn(move || async move {
            match listener.attach() {
                Ok(attached) => accept(world, attached).await,
                Err(error) => world.ledger.fault(format!("attach the listener: {error}")),
            }
        });
        accepting.push(task.map_err(|_| io::Error::other("a loop ended at once"))?);
    }
    Ok(accepting)
}

/// Waits until everything that was opened is closed.
fn drain(ledger: &Ledger, couriers: &Couriers, world: &Arc<World>, random: &mut Rng) {
    let mut last = (ledger.progress(), Instant::now());
    let mut shown = false;
    while ledger.in_use() > 0 {
        courier(couriers, world, random);
        thread::sleep(Duration::from_millis(1));
        let progress = ledger.progress();
        if progress != last.0 {
            last = (progress, Instant::now());
            continue;
        }
        let quiet = last.1.elapsed();
        if quiet > STUCK {
            ledger.fault(format!("{} ends wait for ever", ledger.in_use()));
            ledger.break_all();
            return;
        }
        if quiet > STUCK / 6 && !std::mem::replace(&mut shown, true) {
            eprintln!("nothing has moved for {} s; open are:", quiet.as_secs());
            ledger.open_accounts().iter().take(10).for_each(|account| eprintln!("  {account}"));
        }
    }
}

/// The work of a thread that has no loop.
fn meddle(
    world: &Arc<World>,
    stage: &Arc<Stage>,
    couriers: &Couriers,
    over: &AtomicBool,
    options: &Options,
    chosen: &Chosen,
    mut random: Rng,
) {
    let mut opened: Vec<(Arc<Account>, JoinHandle<()>)> = Vec::new();
    while !over.load(Relaxed) {
        if chosen.has(Fault::Acts) && random.bool() {
            stage.act_from_outside();
        }
        let full = world.ledger.in_use() >= 2 * options.connections;
        match random.u8(..16) {
            0..8 if full => thread::sleep(Duration::from_micros(200)),
            0..8 => {
                let kind = match random.u8(..8) {
                    0..4 => Kind::Tcp,
                    4..6 => Kind::Unix,
                    _ => Kind::Pair,
                };
                let account = world.open(kind);
                let (shared, opens) = (world.clone(), account.clone());
                let target = &world.loops[random.usize(..world.loops.len())];
                match target.spawn(move || connect(shared, opens, kind)) {
                    Ok(task) if random.u8(..8) == 0 => opened.push((account, task)),
                    Ok(task) => task.detach(),
                    Err(_) => world.ledger.fault("a loop ended by itself".to_owned()),
                }
            }
            8 if !full => blocking(world, &mut random),
            9..12 => courier(couriers, world, &mut random),
            12 => world.loops[random.usize(..world.loops.len())].wake(),
            13 => {
                let target = &world.loops[random.usize(..world.loops.len())];
                if !target.post_and_wait(|| 40 + 2).is_ok_and(|sum| sum == 42) {
                    world.ledger.fault("post_and_wait has no answer".to_owned());
                }
            }
            14 if !opened.is_empty() => {
                let (account, task) = opened.swap_remove(random.usize(..opened.len()));
                if random.bool() {
                    account.is_broken_on_purpose();
                    world.ledger.totals.aborts.fetch_add(1, Relaxed);
                    task.abort();
                }
            }
            15 if chosen.has(Fault::Panics) && random.bool() => {
                panics::throw(world, &world.loops[random.usize(..world.loops.len())], &mut random);
            }
            15 if chosen.has(Fault::Wakers) => {
                wakers::lend(world, &world.loops[random.usize(..world.loops.len())], &mut random);
            }
            _ => thread::sleep(Duration::from_micros(random.u64(..500))),
        }
    }
}

/// Delivers a stream that is on its way to a loop.
fn courier(couriers: &Couriers, world: &World, random: &mut Rng) {
    let Ok(deliver) = lock(couriers).try_recv() else { return };
    world.ledger.totals.detached_on_a_thread.fetch_add(1, Relaxed);
    if random.u8(..4) == 0 {
        thread::sleep(Duration::from_micros(random.u64(..500)));
    }
    deliver(random.usize(..world.loops.len()));
}

#[cfg(feature = "faults")]
fn inject(handle: &LoopHandle, options: &Options, random: &mut Rng) {
    if options.without_faults {
        return;
    }
    let seed = random.u64(..);
    let faults = wakeful::faults::Faults {
        short: random.u32(2..30),
        would_block: random.u32(4..60),
        interrupted: random.u32(4..60),
        reset: random.u32(200..10_000),
    };
    // The injection ends with the loop's thread.
    let _ = handle.post_and_wait(move || wakeful::faults::inject(seed, faults));
}

#[cfg(not(feature = "faults"))]
fn inject(_: &LoopHandle, _: &Options, _: &mut Rng) {}

/// Returns what is open in this process.
pub(crate) fn descriptors() -> io::Result<Descriptors> {
    let mut open = BTreeMap::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        // The descriptor of this listing itself is gone after it.
        if let Ok(target) = std::fs::read_link(entry.path()) {
            open.insert(entry.file_name().to_string_lossy().into_owned(), target);
        }
    }
    open.retain(|_, target| !target.starts_with("/proc"));
    Ok(open)
}
