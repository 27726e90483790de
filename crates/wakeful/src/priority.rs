//! The two classes of work: what is looked at first, and the rest.

/// What a loop looks at first. Everything is [`Normal`](Self::Normal) unless it was asked to be
/// otherwise.
///
/// [`High`](Self::High) is for the little that must be on time when the rest is late: health
/// checks, control traffic, a heartbeat. It is a class of tasks ([`spawn_with`](crate::spawn_with),
/// [`LoopHandle::spawn_with`](crate::LoopHandle::spawn_with)), of closures
/// ([`LoopHandle::post_with`](crate::LoopHandle::post_with)) and of sockets (`set_priority`, as
/// [`TcpStream::set_priority`](crate::net::TcpStream::set_priority)); a service wants it for all
/// that it consists of, because each is looked at in its own phase of [a
/// turn](crate::EventLoop#a-turn). A task's class is chosen when it is spawned. Nothing inherits
/// it, but a connection that a high listener accepts.
///
/// * A high task that is ready runs in the next turn at the latest, in front of all normal ones,
///   however many they are.
/// * It cannot starve them: high ones run at most half of a turn's
///   [`task_budget`](crate::EventLoopBuilder::task_budget) while normal ones are ready, and never
///   eight polls in a row, so that a turn without time left runs a normal one too.
/// * Timers and callbacks have no class. A timer that is due is expired in the order of the
///   deadlines, up to [`timer_budget`](crate::EventLoopBuilder::timer_budget) of them a turn; the
///   task that waits for it then runs by its own class.
/// * A loop without high sockets pays for none. One that has some asks the kernel a second time in
///   turns in which one of them is ready, or a whole
///   [`io_batch`](crate::EventLoopBuilder::io_batch) is;
///   [`LoopMetrics::waits`](crate::LoopMetrics::waits) counts the first question only.
/// * What no loop can bound is a single poll: while one task computes, nobody else runs.
///
/// A health check that is answered within a turn or two, whatever else the loop does:
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
    /// In the order in which it became ready.
    #[default]
    Normal,
    /// In front of what is normal, for up to half of a turn.
    High,
}
