//! The name that the compiler prints where a value of a loop would leave it.

use std::marker::PhantomData;

/// Appears in compiler errors about a value of a loop that cannot be sent to another thread.
///
/// ```text
/// error: future cannot be sent between threads safely
/// help: within `…`, the trait `Send` is not implemented for
/// `*const BelongsToOneLoop_UseOnThisLoop`
/// ```
///
/// A socket of [`net`](crate::net), or a client of `wakeful-http`, belongs to the loop that made
/// it. It is neither `Send` nor `Sync`, nor is a future that holds it across an `await`. If a
/// framework requires `Send` futures (as axum and tonic do for handlers), wrap the future in
/// [`on_this_loop`](crate::on_this_loop):
///
/// ```
/// use wakeful::net::TcpStream;
///
/// fn is_send<T: Send>(value: T) -> T {
///     value
/// }
///
/// async fn handler(addr: std::net::SocketAddr) -> std::io::Result<Vec<u8>> {
///     wakeful::on_this_loop(async move {
///         let mut stream = TcpStream::connect(addr).await?;
///         let mut answer = vec![0; 64];
///         let read = stream.read(&mut answer).await?;
///         answer.truncate(read);
///         Ok(answer)
///     })
///     .await
/// }
///
/// let _ = is_send(handler(([127, 0, 0, 1], 80).into()));
/// ```
///
/// Without it, this does not compile:
///
/// ```compile_fail
/// # fn is_send<T: Send>(value: T) -> T { value }
/// use wakeful::net::TcpStream;
///
/// async fn handler(addr: std::net::SocketAddr) -> std::io::Result<()> {
///     let mut stream = TcpStream::connect(addr).await?;
///     stream.write_all(b"hello").await
/// }
///
/// let _ = is_send(handler(([127, 0, 0, 1], 80).into()));
/// ```
///
/// [`PerLoop`](crate::PerLoop) gives each loop a value of its own,
/// [`LoopBound`](crate::LoopBound) keeps one in a type that is `Send`, and
/// [`TcpStream::detach`](crate::net::TcpStream::detach) takes a connection off its loop.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy)]
pub enum BelongsToOneLoop_UseOnThisLoop {}

/// For a type that belongs to one loop. It should be the first field, so that the compiler names it
/// first in its error.
pub(crate) type OfOneLoop = PhantomData<*const BelongsToOneLoop_UseOnThisLoop>;
