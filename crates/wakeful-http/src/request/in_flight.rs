//! What a request holds as long as it is in flight.

use std::rc::Rc;
use std::task::Waker;

use http::{Method, Uri};
use wakeful::metrics::name_slow_work;

use crate::connection::body_progress::Progress;
use crate::connection::deadlines::Watch;
use crate::connection::protocol::Protocol;
use crate::connection::requests::{Key, Kind, Request};
use crate::counts::Refusal;
use crate::limits::rate::Waiting;
use crate::panics;

/// See the module.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) watch: Rc<Watch>,
    pub(crate) key: Key,
}

impl InFlight {
    pub(crate) fn new(
        watch: Rc<Watch>,
        method: &Method,
        uri: &Uri,
        kind: Kind,
        body: Option<Progress>,
    ) -> Self {
        let number = watch.count_request();
        let request = Request {
            number,
            body,
            reading: Waiting::default(),
            silent_since: None,
            begun: None,
            is_free: kind == Kind::Free,
            is_responding: false,
            is_held_up: true,
            held_up_since: None,
            verdict: None,
            waker: None,
        };
        let place = watch.requests.borrow_mut().insert(request);
        let key = Key { place, number };
        watch.called.set(Some(key));
        watch.names.set(place, method, uri);
        Self { watch, key }
    }

    fn with<R>(&self, use_it: impl FnOnce(&mut Request) -> R) -> R {
        use_it(&mut self.watch.requests.borrow_mut()[self.key.place])
    }

    /// What to answer instead of what the service would.
    pub(crate) fn verdict(&self) -> Option<Refusal> {
        self.with(|request| {
            let is_too_large = request.body.as_ref().is_some_and(Progress::is_too_large);
            request.verdict.or(is_too_large.then_some(Refusal::BodyTooLarge))
        })
    }

    /// The service was called or polled for it, or its response's body was.
    #[inline]
    pub(crate) fn worked(&self) {
        name_slow_work(|| self.watch.names.get(self.key.place));
    }

    /// Its response's body was asked for more. Who has some is asked again as soon as there is room
    /// for that.
    pub(crate) fn asked(&self, has_some: bool) {
        if self.watch.protocol == Protocol::Http2 {
            self.with(|request| request.is_held_up = has_some);
        }
    }

    /// Its response begins.
    pub(crate) fn responds(&self) {
        self.with(|request| request.is_responding = true);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let request = self.watch.requests.borrow_mut().try_remove(self.key.place);
        drop(request);
        self.watch.local.end_request();
        self.watch.local.counts().request_ends();
    }
}

impl Watch {
    /// Is the request to end though its response has begun?
    pub(crate) fn is_aborted(&self, key: Key) -> bool {
        let requests = self.requests.borrow();
        let request = requests.get(key.place).filter(|request| request.number == key.number);
        request.is_some_and(Request::is_aborted)
    }

    /// The connection is gone, and with it the streams that its requests would be answered on.
    pub(crate) fn is_gone(&self) {
        self.gone.set(true);
        let wakers: Vec<_> = {
            let mut requests = self.requests.borrow_mut();
            requests.iter_mut().filter_map(|(_, request)| request.waker.take()).collect()
        };
        wakers.into_iter().for_each(panics::wake);
    }

    /// Who is woken when something is decided about the request.
    pub(crate) fn wakes(&self, key: Key, waker: &Waker) {
        let is_known = |request: &Request| {
            let known = request.waker.as_ref();
            known.is_some_and(|known| known.will_wake(waker))
        };
        if self.requests.borrow().get(key.place).is_none_or(is_known) {
            return;
        }
        // A waker's clone and drop may be anybody's code: nothing is borrowed meanwhile.
        let waker = waker.clone();
        let mut requests = self.requests.borrow_mut();
        let request = requests.get_mut(key.place).filter(|request| request.number == key.number);
        let old = match request {
            Some(request) => request.waker.replace(waker),
            None => Some(waker),
        };
        drop(requests);
        panics::discard(old);
    }
}
