//! Adapts a tower service to hyper's trait.
//!
//! hyper-util has such an adapter, too, but it stores the request until the first poll of the
//! answer, and only then asks whether the service is ready. Here a service that is ready at once,
//! like axum's, is called at once, so its requests are moved once less.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use hyper::service::Service as HyperService;
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::foreign_code::Contained;

/// Each request uses a clone of the service.
#[derive(Clone)]
pub(super) struct TowerService<S>(pub(super) S);

impl<S, R> HyperService<R> for TowerService<S>
where
    S: Service<R> + Clone,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Called<S, R>;

    #[inline(always)]
    fn call(&self, request: R) -> Called<S, R> {
        // If the service panics, its drop may panic, too.
        let mut service = Contained::new(self.0.clone());
        // If the service is not ready, the first poll of the answer asks again, with that task's
        // waker.
        match service.poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(())) => Called::Serving { future: service.call(request) },
            Poll::Ready(Err(error)) => Called::Failed { error: Some(error) },
            Poll::Pending => Called::Waiting { service, request: Some(request) },
        }
    }
}

pin_project! {
    /// A tower service's answer.
    #[project = CalledProjection]
    pub enum Called<S: Service<R>, R> {
        // The service was not ready.
        Waiting { service: Contained<S>, request: Option<R> },
        Serving { #[pin] future: S::Future },
        // The service's readiness failed.
        Failed { error: Option<S::Error> },
    }
}

impl<S: Service<R>, R> Future for Called<S, R> {
    type Output = Result<S::Response, S::Error>;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let CalledProjection::Waiting { service, request } = self.as_mut().project() {
            ready!(service.poll_ready(cx))?;
            let future = service.call(request.take().expect("it was not called before"));
            self.set(Self::Serving { future });
        }
        match self.project() {
            CalledProjection::Serving { future } => future.poll(cx),
            CalledProjection::Failed { error } => {
                Poll::Ready(Err(error.take().expect("polled after its end")))
            }
            CalledProjection::Waiting { .. } => unreachable!("it was called above"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::pin::pin;
    use std::rc::Rc;
    use std::sync::Arc;

    use super::*;
    use crate::foreign_code::Wakes;

    #[derive(Default)]
    struct Shared {
        readiness: Cell<Option<Result<(), &'static str>>>,
        asked_by: RefCell<Option<Waker>>,
        calls: Cell<u32>,
    }

    /// A service that is as ready as the test says.
    #[derive(Clone, Default)]
    struct Doubles(Rc<Shared>);

    impl Service<u32> for Doubles {
        type Response = u32;
        type Error = &'static str;
        type Future = std::future::Ready<Result<u32, &'static str>>;

        fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
            self.0.asked_by.replace(Some(cx.waker().clone()));
            self.0.readiness.get().map_or(Poll::Pending, Poll::Ready)
        }

        fn call(&mut self, request: u32) -> Self::Future {
            self.0.calls.set(self.0.calls.get() + 1);
            std::future::ready(Ok(2 * request))
        }
    }

    #[test]
    fn a_service_that_is_ready_is_called_at_once() {
        let doubles = Doubles::default();
        doubles.0.readiness.set(Some(Ok(())));
        let answer = pin!(TowerService(doubles.clone()).call(21));
        assert_eq!(doubles.0.calls.get(), 1);
        assert_eq!(answer.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(42)));
    }

    #[test]
    fn a_service_that_is_not_ready_wakes_who_polls_the_answer() {
        let doubles = Doubles::default();
        let mut answer = pin!(TowerService(doubles.clone()).call(21));
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(wakes.clone());
        let mut cx = Context::from_waker(&waker);
        assert_eq!(answer.as_mut().poll(&mut cx), Poll::Pending);
        doubles.0.readiness.set(Some(Ok(())));
        doubles.0.asked_by.take().unwrap().wake();
        assert_eq!((wakes.count(), doubles.0.calls.get()), (1, 0));
        assert_eq!(answer.poll(&mut cx), Poll::Ready(Ok(42)));
    }

    #[test]
    fn the_error_of_a_service_that_is_not_ready_any_more_is_the_answer() {
        for is_known_at_the_call in [true, false] {
            let doubles = Doubles::default();
            let readiness = Some(Err("it has ended"));
            if is_known_at_the_call {
                doubles.0.readiness.set(readiness);
            }
            let answer = pin!(TowerService(doubles.clone()).call(21));
            doubles.0.readiness.set(readiness);
            let polled = answer.poll(&mut Context::from_waker(Waker::noop()));
            assert_eq!(polled, Poll::Ready(Err("it has ended")));
            assert_eq!(doubles.0.calls.get(), 0);
        }
    }
}
