//! What a server's upgraded connection sends when the code that it was upgraded for drops it.

use wakeful::net::Stream;

use super::rewound::Rewound;
use crate::tls::TlsStream;
use crate::upgrade::Io;

/// A plain stream sends nothing: its end is enough.
impl Io for Stream {}

impl<IO: Io> Io for Rewound<IO> {
    fn say_goodbye(&mut self) {
        self.stream.say_goodbye();
    }

    fn forgo_goodbye(&mut self) {
        self.stream.forgo_goodbye();
    }
}

impl<IO: Io> Io for TlsStream<IO> {
    fn say_goodbye(&mut self) {
        Self::say_goodbye(self);
    }

    fn forgo_goodbye(&mut self) {
        Self::forgo_goodbye(self);
    }
}
