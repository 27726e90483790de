//! What a server's connections say on the wire when who they were upgraded for drops them.

use wakeful::net::Stream;

use super::rewound::Rewound;
use crate::tls::TlsStream;
use crate::upgrade::Io;

/// Its end says all.
impl Io for Stream {}

impl<IO: Io> Io for Rewound<IO> {
    fn say_goodbye(&mut self) {
        self.stream.say_goodbye();
    }
}

impl<IO: Io> Io for TlsStream<IO> {
    fn say_goodbye(&mut self) {
        Self::say_goodbye(self);
    }
}
