//! Handles a request for another protocol: asks a backend on a separate connection. If both sides
//! agree, the connections become a tunnel.

use std::pin::pin;

use http::header::CONNECTION;
use http::request::Parts;
use http::{HeaderValue, Request, Response};
use wakeful_http::client::UpgradeAnswer;
use wakeful_http::layers::bound::Held;
use wakeful_http::upgrade::{self, OnUpgrade, Upgraded};

use super::attempts::Attempts;
use super::backends::Exchange;
use super::headers::{Asked, BadResponse, Client, Question};
use super::request_body::BufferedRequest;
use super::response_body::ProxyBody;
use super::service::{Proxy, Trouble};
use super::silence::within;
use super::tunnel::{Place, Tunnel};
use crate::log;

impl Proxy {
    /// Handles the upgrade. `parts` is the head for the backend.
    pub(super) async fn upgrade(
        &self,
        client: &Client,
        asked: Asked,
        parts: Parts,
    ) -> Response<ProxyBody> {
        let version = parts.version;
        self.ask_for_upgrade(asked, parts).await.unwrap_or_else(|trouble| {
            let mut response = self.answer(client, version, &trouble);
            // The connection closes after every answer except 101; see `Question::refused`.
            if asked == Asked::Upgrade {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            response
        })
    }

    /// Waits until another connection to a backend may be in use, and takes the place of a tunnel.
    /// Requests that only wait take none, or they would use them up while there is no tunnel.
    async fn enter(&self) -> Result<(Place, Option<Held>), Trouble> {
        if !self.tunnels.has_place() {
            return Err(Trouble::TooManyUpgrades);
        }
        let held = self.may_connect().await?;
        let place = self.tunnels.enter().ok_or(Trouble::TooManyUpgrades)?;
        Ok((place, held))
    }

    async fn ask_for_upgrade(
        &self,
        asked: Asked,
        parts: Parts,
    ) -> Result<Response<ProxyBody>, Trouble> {
        let question = Question::of(&parts, asked).ok_or(Trouble::BadGateway)?;
        let mut request = Request::from_parts(parts, BufferedRequest::none());
        let client = upgrade::on(&mut request);
        let (place, mut held) = self.enter().await?;
        let mut place = Some(place);
        let mut attempts = Attempts::new(self.attempts);
        let mut last = Trouble::NoBackend;
        while let Some(mut exchange) = self.choose(&mut attempts, &last) {
            (exchange.place, exchange.held) = (place.take(), held.take());
            if attempts.is_retry() {
                self.counts.retried.add(1);
            }
            let progress = request.body().progress();
            progress.begin();
            let answered = {
                let watch = |awaited| progress.awaits(awaited);
                let asked = pin!(exchange.host().upgrade_watched(request, watch));
                within(self.silence, &progress, asked).await
            };
            let failure = match answered {
                Some(Ok(answer)) => return self.answered(&question, client, exchange, answer),
                Some(Err(failure)) => failure,
                None => return Err(self.timed_out(&exchange)),
            };
            (place, held) = (exchange.place.take(), exchange.held.take());
            let goes_on = attempts.goes_on(exchange.backend(), &failure.error);
            last = self.failed(&exchange, &progress, failure.error);
            match failure.request {
                Some(untouched) if goes_on => request = *untouched,
                _ => break,
            }
        }
        Err(last)
    }

    fn answered(
        &self,
        question: &Question,
        client: OnUpgrade,
        exchange: Exchange,
        answer: UpgradeAnswer,
    ) -> Result<Response<ProxyBody>, Trouble> {
        let bad = |exchange: Exchange, bad: BadResponse| {
            if question.may_be_clients_doing(bad) {
                exchange.answered();
                log::log!(debug, backend = %exchange.host().target(), error = %bad, "no upgrade");
            } else {
                exchange.failed(&bad);
            }
            Trouble::BadGateway
        };
        match answer {
            UpgradeAnswer::Switched(response, backend) => {
                let (mut parts, ()) = response.into_parts();
                if let Err(wrong) = question.switched(&mut parts) {
                    return Err(bad(exchange, wrong));
                }
                exchange.succeeded();
                self.open(client, backend, exchange, question.is_websocket());
                Ok(Response::from_parts(parts, ProxyBody::text("")))
            }
            UpgradeAnswer::Ordinary(response) => {
                let (mut parts, body) = response.into_parts();
                if let Err(wrong) = question.refused(&mut parts) {
                    return Err(bad(exchange, wrong));
                }
                exchange.answered();
                let body = ProxyBody::read(
                    body,
                    exchange,
                    BufferedRequest::none().progress(),
                    self.ahead.clone(),
                );
                Ok(Response::from_parts(parts, body.map_err(|_| Trouble::BadGateway)?))
            }
        }
    }

    /// Carries bytes between the client and the backend, when the client has its answer.
    fn open(&self, client: OnUpgrade, backend: Upgraded, exchange: Exchange, is_websocket: bool) {
        let (settings, counts) = (self.tunnels.clone(), self.counts.clone());
        wakeful::spawn(async move {
            let client = match client.await {
                Ok(client) => client,
                Err(error) => {
                    return log::log!(debug, %error, "an upgrade failed: no tunnel was opened");
                }
            };
            counts.tunnels.add(1);
            let ended = Tunnel::new(client, backend, is_websocket, settings).run().await;
            counts.tunnels.add(-1);
            log::log!(debug, backend = %exchange.host().target(), how = %ended, "a tunnel ended");
        })
        .detach();
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use wakeful_http::layers::bound::Bound;

    use super::super::{Counts, ProxyOptions, descriptors, members, of_a_loop};
    use super::*;
    use crate::proxy::headers::Pseudonym;

    #[test]
    fn only_a_request_that_may_connect_takes_the_place_of_a_tunnel() {
        wakeful::block_on(async {
            let options = ProxyOptions::new([]).max_tunnels(1);
            let counts = std::sync::Arc::<Counts>::default();
            let members = members(&options, &counts).unwrap();
            let idle = descriptors::Idle { limit: None, loops: 1, wanted: 0 };
            let proxy = of_a_loop(&options, members, idle, &counts, Pseudonym::unique());
            let in_use = Bound::new(1, || 1);
            let proxy = Proxy { in_use: Some(in_use.clone()), ..proxy };
            let mut cx = Context::from_waker(Waker::noop());

            let other = in_use.try_take(1).unwrap();
            let (mut first, mut second) = (Box::pin(proxy.enter()), Box::pin(proxy.enter()));
            assert!(first.as_mut().poll(&mut cx).is_pending());
            assert!(second.as_mut().poll(&mut cx).is_pending(), "no tunnel is open");
            drop(other);
            let tunnel = first.await.unwrap_or_else(|_| panic!("there is a place"));
            // Nobody waits for a connection if there is no place.
            assert!(matches!(proxy.enter().await, Err(Trouble::TooManyUpgrades)));
            assert!(second.as_mut().poll(&mut cx).is_pending());
            drop(tunnel);
            assert!(second.await.is_ok());
        });
    }
}
