//! The two classes of work: high priority, which runs first, and normal.

/// The priority of work on a loop. Everything is [`Normal`](Self::Normal) by default.
///
/// [`High`](Self::High) is for the few things that must be on time when the rest is late: health
/// checks, control traffic, a heartbeat. Tasks have a priority ([`spawn_with`](crate::spawn_with),
/// [`LoopHandle::spawn_with`](crate::LoopHandle::spawn_with)), and so do closures
/// ([`LoopHandle::post_with`](crate::LoopHandle::post_with)) and sockets (`set_priority`, as in
/// [`TcpStream::set_priority`](crate::net::TcpStream::set_priority)). Set it for all parts of a
/// service, because each kind has its own phase of [a turn](crate::EventLoop#a-turn). The priority
/// of a task is chosen when it is spawned. It is not inherited, except by a connection that a
/// high-priority listener accepts.
///
/// * A ready high-priority task runs in the next turn at the latest, before all normal ones,
///   however many they are.
/// * It cannot starve normal tasks: while normal ones are ready, high-priority ones use at most
///   half of a turn's [`task_budget`](crate::EventLoopBuilder::task_budget). They never run eight
///   polls in a row, so even a turn that is out of time runs a normal one. With Tokio as a guest,
///   the tasks of a turn share Tokio's budget of operations. If high-priority tasks use all of it,
///   a normal task comes first in the next turn. If that one also uses all of it, the ready
///   high-priority tasks run one turn later.
/// * Timers and callbacks have no priority. Due timers expire in the order of their deadlines, up
///   to [`timer_budget`](crate::EventLoopBuilder::timer_budget) of them per turn. The task that
///   waits for a timer then runs with its own priority.
/// * A loop without high-priority sockets has no extra cost. A loop with such sockets makes a
///   second system call in each turn in which one of them is ready, or in which a whole
///   [`io_batch`](crate::EventLoopBuilder::io_batch) of events is ready.
///   [`LoopMetrics::waits`](crate::LoopMetrics::waits) counts only the first system call.
/// * No loop can bound a single poll: while one task computes, no other task runs.
///
/// This health check is answered within a turn or two, whatever else the loop does:
///
/// ```
/// use wakeful::Priority;
/// use wakeful::net::{TcpListener, TcpStream};
///
/// # fn main() -> std::io::Result<()> {
/// wakeful::block_on(async {
///     let listener = TcpListener::bind("127.0.0.1:0").await?;
///     let addr = listener.local_addr()?;
///     listener.set_priority(Priority::High)?; // and so are the connections that it accepts
///     let health = wakeful::spawn_with(Priority::High, async move {
///         while let Ok((mut stream, _)) = listener.accept().await {
///             let answer = async move { stream.write_all(b"ok").await };
///             wakeful::spawn_with(Priority::High, answer).detach();
///         }
///     });
///
///     // A flood: a thousand tasks that are always ready.
///     for _ in 0..1_000 {
///         wakeful::spawn(async {
///             loop {
///                 wakeful::task::yield_now().await;
///             }
///         })
///         .detach();
///     }
///     let mut check = TcpStream::connect(addr).await?;
///     let mut buf = [0; 2];
///     assert_eq!(check.read(&mut buf).await?, 2);
///     health.abort();
///     Ok(())
/// })
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Priority {
    /// Runs in the order in which it became ready.
    #[default]
    Normal,
    /// Runs before normal work, for up to half of a turn.
    High,
}
