//! What a server's upgraded connection sends when the code that it was upgraded for drops it.

use wakeful::net::Stream;

use super::liveness::Liveness;
use super::rewound::Rewound;
use crate::tls::TlsStream;
use crate::upgrade::Io;

/// A plain stream sends nothing: its end is enough.
impl Io for Stream {
    fn unsent(&self) -> usize {
        Liveness::unsent(self)
    }

    fn abort(&mut self) {
        self.resets_at_close();
    }
}

impl<IO: Io> Io for Rewound<IO> {
    fn say_goodbye(&mut self) {
        self.stream.say_goodbye();
    }

    fn forgo_goodbye(&mut self) {
        self.stream.forgo_goodbye();
    }

    fn require_close_notify(&mut self) {
        self.stream.require_close_notify();
    }

    fn unsent(&self) -> usize {
        Io::unsent(&self.stream)
    }

    fn abort(&mut self) {
        self.stream.abort();
    }
}

impl<IO: Io> Io for TlsStream<IO> {
    fn say_goodbye(&mut self) {
        Self::say_goodbye(self);
    }

    fn forgo_goodbye(&mut self) {
        Self::forgo_goodbye(self);
    }

    fn require_close_notify(&mut self) {
        Self::require_close_notify(self);
    }

    fn unsent(&self) -> usize {
        Io::unsent(self.get_ref())
    }
}
