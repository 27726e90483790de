//! The state of one connection on its loop, shared by what hyper is given (the io, the service, the
//! executor) and by the driver that polls hyper.
//!
//! Each part belongs to one phase of a request, and keeps its fields to itself: the wait for a
//! request ([`PhaseClock`]), what is in flight ([`RequestTable`]), a request's body ([`LastBody`]),
//! the writing of responses ([`ResponseWrites`], and [`OpenStreams`] for HTTP/2) and the close
//! ([`Closing`]). `deadlines` and `tick` decide what follows from them.

use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;
use std::time::Instant;

use wakeful::accept::{GivesWay, Standing, WhenFull};
use wakeful::time::turn_time;

use super::body_progress::BodyReads;
use super::closing::Closing;
use super::last_body::LastBody;
use super::movable_state::MovableState;
use super::open_streams::OpenStreams;
use super::phase::{Phase, PhaseClock};
use super::protocol::Protocol;
use super::request_table::RequestTable;
use super::reset_ration::ResetRation;
use super::response_writes::ResponseWrites;
use crate::framing::Framing;
use crate::loop_state::LoopState;
use crate::peer::Peer;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    loop_state: Rc<LoopState>,
    protocol: Protocol,
    peer: Peer,
    movable: MovableState,
    requests: RequestTable,
    last_body: LastBody,
    writes: ResponseWrites,
    streams: RefCell<OpenStreams>,
    /// For HTTP/2.
    resets: Option<ResetRation>,
    /// For HTTP/2.
    body_reads: Option<BodyReads>,
    closing: Closing,
    pub(super) clock: PhaseClock,
    /// For HTTP/1, if ambiguous lengths are refused: the framing of what was read on this loop.
    pub(super) framing: Option<RefCell<Framing>>,
    /// For HTTP/1: whether the next flush checks that the client is still there.
    checks_client: Cell<bool>,
    /// For HTTP/1: whether the connection was upgraded to another protocol.
    is_upgraded: Cell<bool>,
}

impl ConnectionState {
    pub(crate) fn new(
        loop_state: Rc<LoopState>,
        protocol: Protocol,
        movable: MovableState,
        peer: Peer,
    ) -> Rc<Self> {
        let framing = match protocol {
            Protocol::Http1 => Framing::wanted(loop_state.limits()),
            Protocol::Http2 => None,
        };
        // Malformed ones are open until their resets are written, and may come with others in one
        // read. They must not take the places of these.
        let http2 = &loop_state.limits().http2;
        let max_streams = http2.max_streams;
        let most_streams = http2.max_error_resets.saturating_add(2 * http2.max_streams as usize);
        // A connection that has come from another loop may have been idle here. Its first request
        // begins to come now.
        let since = if movable.served() == 0 { movable.arrived() } else { wakeful::time::now() };
        let closing = Closing::default();
        if movable.gives_way() {
            closing.begin();
        }
        Rc::new(Self {
            clock: PhaseClock::new(since, movable.served()),
            loop_state,
            protocol,
            peer,
            movable,
            requests: RequestTable::new(protocol),
            last_body: LastBody::default(),
            writes: ResponseWrites::default(),
            streams: RefCell::new(OpenStreams::new(most_streams)),
            resets: (protocol == Protocol::Http2).then(|| ResetRation::new(max_streams)),
            body_reads: (protocol == Protocol::Http2).then(BodyReads::default),
            closing,
            framing,
            checks_client: Cell::new(false),
            is_upgraded: Cell::new(false),
        })
    }

    /// The state that the connections of this loop share.
    pub(crate) fn loop_state(&self) -> &LoopState {
        &self.loop_state
    }

    pub(crate) fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The peer at the other end.
    pub(crate) fn peer(&self) -> Peer {
        self.peer
    }

    /// The part of the state that moves with the connection.
    pub(crate) fn movable(&self) -> &MovableState {
        &self.movable
    }

    /// What is in flight.
    pub(crate) fn requests(&self) -> &RequestTable {
        &self.requests
    }

    /// The body of the last HTTP/1 request that had one.
    pub(crate) fn last_body(&self) -> &LastBody {
        &self.last_body
    }

    /// How responses are written.
    pub(crate) fn writes(&self) -> &ResponseWrites {
        &self.writes
    }

    /// With HTTP/2: the streams whose response is not completely sent. Must not be held while other
    /// code runs.
    pub(crate) fn streams(&self) -> RefMut<'_, OpenStreams> {
        self.streams.borrow_mut()
    }

    /// With HTTP/2: how often a stream may be reset because nobody needs its body.
    pub(crate) fn resets(&self) -> Option<&ResetRation> {
        self.resets.as_ref()
    }

    /// With HTTP/2: how often something was read of a request's body.
    pub(crate) fn body_reads(&self) -> Option<&BodyReads> {
        self.body_reads.as_ref()
    }

    /// Whether the connection is about to close.
    pub(crate) fn closing(&self) -> &Closing {
        &self.closing
    }

    /// Counts one more request, and returns how many there are with it. It may be the last one.
    pub(crate) fn count_request(&self) -> u64 {
        let number = self.movable.one_more();
        let most = self.loop_state.limits().max_requests_per_connection;
        if most.is_some_and(|most| number >= most) {
            self.closing.begin();
        }
        number
    }

    /// The client may send its first request since `begins`, when its TLS handshake ended.
    pub(crate) fn may_ask_since(&self, begins: Instant) {
        self.clock.begins_at(begins);
    }

    /// Something has come that is no request. The wait for another request begins again.
    pub(crate) fn is_idle_since(&self, since: Instant) {
        self.clock.begins_at(since);
    }

    /// With HTTP/1: some of a body has come that is still held after its response. The connection
    /// is busy then. If it closes, it may be idle instead, and waits no longer for that.
    pub(crate) fn is_not_silent(&self) {
        if self.clock.phase() == Phase::Busy {
            self.clock.begins_at(turn_time());
        }
    }

    /// Notes that the connection leaves HTTP. What is read and written from now on does not count
    /// here.
    pub(crate) fn leaves_http(&self) {
        self.is_upgraded.set(true);
    }

    /// Since when nothing is in flight. `None`: something is, or may be.
    pub(crate) fn silent_since(&self) -> Option<Instant> {
        let is_busy =
            self.requests.is_in_flight() || self.writes.is_blocked() || self.is_upgraded.get();
        (!is_busy).then(|| self.clock.since())
    }

    /// Has the next flush check that an HTTP/1 client is still there.
    pub(super) fn check_client(&self) {
        self.checks_client.set(self.protocol == Protocol::Http1);
    }

    /// Returns whether this flush must check that the client is still there. Returns `true` once
    /// for each tick.
    pub(crate) fn takes_client_check(&self) -> bool {
        self.checks_client.take()
    }
}

impl GivesWay for ConnectionState {
    /// A connection stays before its first request. An HTTP/2 connection also stays while requests
    /// are in flight, because its client would need another connection for the next request.
    fn standing(&self) -> Standing {
        match (self.clock.phase(), self.protocol) {
            _ if self.closing.has_begun() => Standing::Stays,
            // In this case the whole connection is asked to close: see `server::replaceable`.
            _ if self.loop_state.limits().when_full == WhenFull::Replace => Standing::Stays,
            (Phase::Idle, _) => Standing::Idle(self.clock.since()),
            (Phase::Busy, Protocol::Http1) => Standing::Busy(self.movable.served()),
            (Phase::First | Phase::Header | Phase::Busy, _) => Standing::Stays,
        }
    }
}
