//! Who owns what, as the types say it: what belongs to a loop is neither `Send` nor `Sync`, and how
//! others reach the loop is both. Checked by the compiler; the tests below only name it.

use wakeful::accept::{Draining, Listener, SharedListener};
use wakeful::net::{
    DetachedListener, DetachedStream, Incoming, OwnedReadHalf, OwnedWriteHalf, Stream, TcpListener,
    TcpSocket, TcpStream, UdpSocket, UnixListener, UnixStream,
};
use wakeful::signal::Signals;
use wakeful::{EventLoop, Hook, JoinHandle, LoopGroup, LoopHandle};

use crate::backend::Backend;

on_every_backend! {
    what_belongs_to_a_loop_is_neither_send_nor_sync,
    how_others_reach_a_loop_is_send_and_sync,
}

/// Does not compile if the type has the trait: then two implementations give the name, and none is
/// meant.
macro_rules! is_not {
    ($trait:ident: $($type:ty),+ $(,)?) => { $({
        trait AmbiguousIf<Why> {
            fn has_it_not() {}
        }
        struct ItHas;
        impl<T: ?Sized> AmbiguousIf<()> for T {}
        impl<T: ?Sized + $trait> AmbiguousIf<ItHas> for T {}
        <$type as AmbiguousIf<_>>::has_it_not();
    })+ };
}

fn what_belongs_to_a_loop_is_neither_send_nor_sync<B: Backend>() {
    is_not!(Send: TcpStream, TcpListener, UnixStream, UnixListener, UdpSocket, Stream);
    is_not!(Sync: TcpStream, TcpListener, UnixStream, UnixListener, UdpSocket, Stream);
    is_not!(Send: OwnedReadHalf, OwnedWriteHalf, Listener, Draining, EventLoop, Hook, Signals);
    is_not!(Sync: OwnedReadHalf, OwnedWriteHalf, Listener, Draining, EventLoop, Hook, Signals);
    #[cfg(feature = "quinn-udp")]
    {
        is_not!(Send: wakeful::net::BatchUdpSocket);
        is_not!(Sync: wakeful::net::BatchUdpSocket);
    }
    is_not!(Send: Incoming<'_, TcpStream>);
    is_not!(Sync: Incoming<'_, TcpStream>);
}

fn how_others_reach_a_loop_is_send_and_sync<B: Backend>() {
    fn is<T: Send + Sync + 'static>() {}
    fn is_send<T: Send + 'static>() {}
    is_send::<LoopGroup>();
    is::<LoopHandle>();
    is::<SharedListener>();
    is::<DetachedStream>();
    is::<DetachedListener>();
    is::<TcpSocket>();
    is::<JoinHandle<String>>();
}
