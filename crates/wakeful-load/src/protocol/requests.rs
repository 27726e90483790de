//! The requests of a run: templates that are checked and encoded once for all connections.

use super::{
    AnyConversation, Frames, Http1, Http2, InvalidTemplate, Kind, Protocol, Resp, Template,
};

/// The requests of a run: one template that is repeated, or several that are drawn at random by
/// their weights. They are checked and encoded once, and all connections share the bytes.
///
/// # Examples
///
/// ```
/// use wakeful_load::{Protocol, Requests, Template};
///
/// let template = Template::http("POST", "localhost", "/orders")
///     .header("content-type", "application/json")
///     .body(r#"{"item":7}"#);
/// let orders = Requests::new(Protocol::Http1, &template)?;
/// # Ok::<_, wakeful_load::InvalidTemplate>(())
/// ```
#[derive(Debug, Clone)]
pub struct Requests {
    prototype: AnyConversation,
    kinds: Vec<Kind>,
    in_flight: usize,
}

impl Requests {
    /// Makes the requests of a run from one template, which is repeated.
    ///
    /// # Errors
    /// The template cannot be encoded in this protocol.
    pub fn new(protocol: Protocol, template: &Template) -> Result<Self, InvalidTemplate> {
        let prototype = match protocol {
            Protocol::Frames => AnyConversation::Frames(Frames::new(template)?),
            Protocol::Resp => AnyConversation::Resp(Resp::new(template)?),
            Protocol::Http1 => AnyConversation::Http1(Http1::new(template)?),
            Protocol::Http2 => AnyConversation::Http2(Http2::new(template)?),
        };
        Ok(Self { prototype, kinds: Vec::new(), in_flight: usual_in_flight(protocol) })
    }

    /// Makes the requests of a run from several commands of [`Protocol::Resp`]. Each command has a
    /// name, which the results show, a weight and a template. A command with weight 3 is drawn
    /// three times as often as one with weight 1. A command with weight 0 is never drawn. The
    /// results also have the response times of each command.
    ///
    /// # Errors
    /// There are no commands, or the command of a template consists only of blanks.
    pub fn mix(
        commands: impl IntoIterator<Item = (impl Into<String>, u32, Template)>,
    ) -> Result<Self, InvalidTemplate> {
        let commands = commands.into_iter();
        let (kinds, templates): (_, Vec<Template>) = commands
            .map(|(name, weight, template)| (Kind { name: name.into(), weight }, template))
            .unzip();
        Ok(Self {
            prototype: AnyConversation::Resp(Resp::of_commands(&templates)?),
            kinds,
            in_flight: usual_in_flight(Protocol::Resp),
        })
    }

    /// Returns a conversation for a new connection.
    #[doc(hidden)]
    #[must_use]
    pub fn conversation(&self) -> AnyConversation {
        self.prototype.clone()
    }

    /// Returns the kinds of requests of a [mix](Self::mix), or an empty slice if one template is
    /// repeated.
    pub(crate) fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// Returns how many requests a connection has in flight unless the plan says otherwise.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }
}

/// Returns how many requests real clients of a protocol have in flight on one connection.
fn usual_in_flight(protocol: Protocol) -> usize {
    match protocol {
        // Few clients pipeline requests over HTTP/1.1, and some servers do not support it.
        Protocol::Http1 => 1,
        Protocol::Http2 => 100,
        Protocol::Frames | Protocol::Resp => 64,
    }
}
