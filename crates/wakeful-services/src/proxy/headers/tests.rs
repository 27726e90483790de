use http::request::Parts;
use http::{Request, Response};

use wakeful::net::PeerAddr;
use wakeful_http::{Caller, Security};

use super::*;

fn parts(version: Version, uri: &str, fields: &[(&str, &str)]) -> Parts {
    let mut request = Request::builder().version(version).uri(uri);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

const CLIENT: Caller = Caller {
    peer: PeerAddr::Tcp(std::net::SocketAddr::new(
        std::net::IpAddr::V6(std::net::Ipv6Addr::LOCALHOST),
        9,
    )),
    security: Security::Tls,
};

fn send(mut parts: Parts, forwarded: ForwardedHeaders) -> Result<(Step, Parts), Refusal> {
    let upgrades = Upgrades::Any;
    let pseudonym = Pseudonym::unique();
    let settings = Settings { forwarded, version: HttpVersion::Http1, upgrades, pseudonym };
    to_backend(&mut parts, &Client::new(CLIENT), &settings).map(|step| (step, parts))
}

#[test]
fn the_framing_is_decided_by_what_came() {
    use Framing::*;
    let (cl, te) = ("content-length", "transfer-encoding");
    for (version, fields, expected) in [
        (Version::HTTP_11, &[][..], Ok(None)),
        (Version::HTTP_11, &[(cl, "0")], Ok(Length(0))),
        (Version::HTTP_11, &[(cl, "5"), (cl, "5")], Ok(Length(5))),
        (Version::HTTP_11, &[(te, "chunked")], Ok(Chunked)),
        (Version::HTTP_11, &[(te, "chunked"), (cl, "5")], Err(Refusal::LengthAndCoding)),
        (Version::HTTP_11, &[(cl, "5"), (cl, "6")], Err(Refusal::ContentLength)),
        (Version::HTTP_11, &[(te, "gzip, chunked")], Err(Refusal::UnknownCoding)),
        (Version::HTTP_11, &[(te, "chunked, gzip")], Err(Refusal::TransferEncoding)),
        (Version::HTTP_10, &[(te, "chunked")], Err(Refusal::CodingNotAllowed)),
        (Version::HTTP_10, &[(cl, "5")], Ok(Length(5))),
        (Version::HTTP_2, &[(te, "chunked")], Err(Refusal::ConnectionField)),
        (Version::HTTP_2, &[("connection", "te")], Err(Refusal::ConnectionField)),
        (Version::HTTP_2, &[(cl, "5"), (cl, "6")], Err(Refusal::ContentLength)),
        (Version::HTTP_2, &[(cl, "5")], Ok(Length(5))),
        (Version::HTTP_3, &[], Err(Refusal::Version)),
    ] {
        let mut fields = fields.to_vec();
        fields.push(("host", "x"));
        let step = send(parts(version, "/", &fields), ForwardedHeaders::Keep);
        assert_eq!(
            step.map(|(step, _)| step),
            expected.map(Step::Forward),
            "{version:?} {fields:?}"
        );
    }
}

#[test]
fn an_address_of_ipv6_is_in_brackets_and_quotes_where_it_has_to_be() {
    let came = parts(
        Version::HTTP_11,
        "/",
        &[("host", "[::1]:8080"), ("forwarded", "for=a"), ("forwarded", "for=b")],
    );
    let (_, sent) = send(came, ForwardedHeaders::Append).unwrap();
    assert_eq!(sent.headers["x-forwarded-for"], "::1");
    assert_eq!(
        sent.headers["forwarded"],
        "for=a, for=b, for=\"[::1]\";host=\"[::1]:8080\";proto=https"
    );
    assert_eq!(sent.headers["x-forwarded-proto"], "https");
}

#[test]
fn a_client_without_an_address_is_unknown() {
    let mut sent = parts(Version::HTTP_11, "/", &[("host", "x")]);
    let client = Client::new(Caller { peer: PeerAddr::Unix, security: Security::Plain });
    let (forwarded, upgrades) = (ForwardedHeaders::Replace, Upgrades::Any);
    let pseudonym = Pseudonym::unique();
    let settings = Settings { forwarded, version: HttpVersion::Http1, upgrades, pseudonym };
    to_backend(&mut sent, &client, &settings).unwrap();
    assert_eq!(sent.headers["x-forwarded-for"], "unknown");
    assert_eq!(sent.headers["forwarded"], "for=unknown;host=x;proto=http");
}

#[test]
fn a_response_loses_what_was_for_the_hop_and_its_framing() {
    let response = Response::builder()
        .version(Version::HTTP_10)
        .header("connection", "x-private, close")
        .header("x-private", "1")
        .header("keep-alive", "5")
        .header("proxy-authenticate", "Basic")
        .header("content-length", "5")
        .header("set-cookie", "a=1")
        .header("set-cookie", "b=2");
    let mut parts = response.body(()).unwrap().into_parts().0;
    to_client(&mut parts, &Method::GET).unwrap();
    assert_eq!(parts.version, Version::HTTP_11);
    let mut names: Vec<_> = parts.headers.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["set-cookie", "set-cookie", "via"]);
    assert_eq!(parts.headers["via"], "1.0 wakeful");
}

#[test]
fn trailers_say_nothing_about_framing_routes_and_rights() {
    let mut map = HeaderMap::new();
    for name in [
        "grpc-status",
        "x-sum",
        "content-length",
        "transfer-encoding",
        "host",
        "set-cookie",
        "authorization",
        "connection",
        "trailer",
        "x-forwarded-for",
        "x-forwarded-proto",
        "x-forwarded-host",
        "x-real-ip",
        "forwarded",
        "via",
        "expect",
        "range",
    ] {
        map.insert(name, HeaderValue::from_static("x"));
    }
    let map = trailers(map);
    let mut names: Vec<_> = map.keys().map(http::HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["grpc-status", "x-sum"]);
}

#[test]
fn all_that_a_stranger_says_about_clients_goes() {
    let about = [
        "x-forwarded",
        "x-forwarded-for",
        "x-forwarded-prefix",
        "x-forwarded-ssl",
        "x-forwarded-user",
        "x-forwarded-by",
        "x_forwarded_server",
        "x_forwarded",
        "x-real-ip",
        "x_real_ip",
        "x.real.ip",
        "x+forwarded_for",
        "proxy.authorization",
        "forwarded",
    ];
    let mut fields = vec![("host", "x"), ("x-request-id", "stays")];
    fields.extend(about.map(|name| (name, "forged")));
    let parts = parts(Version::HTTP_11, "/", &fields);
    let (_, sent) = send(parts, ForwardedHeaders::Replace).unwrap();
    assert_eq!(sent.headers["x-request-id"], "stays");
    assert!(sent.headers.values().all(|value| value != "forged"), "{:?}", sent.headers);
}
