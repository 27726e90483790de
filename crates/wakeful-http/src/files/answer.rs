//! Builds the answer for a file. Everything that may block, including the read of the first chunk,
//! is one job on the pool.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri};
use rustix::io::Errno;
use wakeful::log::OncePerSecond;

use super::beneath::Opened;
use super::body::{FileBody, Piece};
use super::conditional::{Validators, Verdict};
use super::encoding;
use super::open_files::{OpenFile, Place};
use super::path::Target;
use super::ranges::{self, Ranges};
use super::settings::{Precompressed, Shared};
use super::version::is_rewritten;
use crate::dates;
use crate::foreign_code;

const INDEX: &[u8] = b"index.html";
/// How often a file that is rewritten meanwhile is looked at.
const ATTEMPTS: usize = 3;

/// Answers a GET or HEAD of `uri`.
pub(super) fn answer(
    shared: &Shared,
    target: Target,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    place: &mut Place,
) -> Response<FileBody> {
    answer_as(shared, target, method, headers, place, || redirect(uri))
}

/// Answers a GET or HEAD of a file that the program has chosen.
pub(super) fn answer_file(
    shared: &Shared,
    target: Target,
    method: &Method,
    headers: &HeaderMap,
    place: &mut Place,
) -> Response<FileBody> {
    answer_as(shared, target, method, headers, place, || plain(StatusCode::NOT_FOUND))
}

/// `of_directory` makes the answer for a directory whose path has no slash at its end.
fn answer_as(
    shared: &Shared,
    target: Target,
    method: &Method,
    headers: &HeaderMap,
    place: &mut Place,
    of_directory: impl FnOnce() -> Response<FileBody>,
) -> Response<FileBody> {
    let name = target.name.clone();
    find(shared, target, headers)
        .and_then(|found| match found {
            Some(found) => {
                place.found();
                respond(shared, found, method, headers, place)
            }
            None => Ok(of_directory()),
        })
        .unwrap_or_else(|error| {
            let status = status_of(&error);
            if status.is_server_error() {
                static LIMIT: OncePerSecond = OncePerSecond::new();
                if let Some(count) = LIMIT.pass() {
                    foreign_code::log!(warn, name = %name.escape_ascii(), %error, count, "a file cannot be served");
                }
            }
            plain(status)
        })
}

struct Found {
    file: File,
    metadata: Metadata,
    name: Vec<u8>,
    encoding: Option<&'static str>,
}

/// `None`: the path is that of a directory, without a slash at its end.
fn find(shared: &Shared, target: Target, headers: &HeaderMap) -> io::Result<Option<Found>> {
    let root = shared.root.open()?;
    let Target { mut name, is_directory } = target;
    if is_directory {
        if !name.is_empty() {
            name.push(b'/');
        }
        name.extend_from_slice(INDEX);
    }
    let file = match root.file(&name) {
        Err(Errno::ACCESS) if !is_directory && root.has_directory(&name) => return Ok(None),
        file => file?,
    };
    let metadata = file.metadata()?;
    if metadata.is_dir() && !is_directory {
        return Ok(None);
    }
    if !metadata.is_file() {
        return Err(Errno::NOENT.into());
    }
    if matches!(shared.precompressed, Precompressed::Offer) {
        for (encoding, suffix) in encoding::accepted(headers) {
            if let Some((file, metadata)) = variant(&root, &name, suffix) {
                return Ok(Some(Found { file, metadata, name, encoding: Some(encoding) }));
            }
        }
    }
    Ok(Some(Found { file, metadata, name, encoding: None }))
}

fn variant(root: &Opened, name: &[u8], suffix: &[u8]) -> Option<(File, Metadata)> {
    let file = root.file(&[name, suffix].concat()).ok()?;
    let metadata = file.metadata().ok().filter(Metadata::is_file)?;
    Some((file, metadata))
}

/// Answers again if the file is rewritten between the look at its metadata and the read.
fn respond(
    shared: &Shared,
    found: Found,
    method: &Method,
    headers: &HeaderMap,
    place: &mut Place,
) -> io::Result<Response<FileBody>> {
    let Found { file, mut metadata, name, encoding } = found;
    let file = Arc::new(OpenFile { file, _place: place.take() });
    let answer = |metadata: &Metadata| {
        respond_once(shared, &file, metadata, (&name, encoding), method, headers)
    };
    for _ in 1..ATTEMPTS {
        match answer(&metadata) {
            Err(error) if is_rewritten(&error) => metadata = file.file.metadata()?,
            answered => return answered,
        }
    }
    answer(&metadata)
}

fn respond_once(
    shared: &Shared,
    file: &Arc<OpenFile>,
    metadata: &Metadata,
    (name, encoding): (&[u8], Option<&'static str>),
    method: &Method,
    headers: &HeaderMap,
) -> io::Result<Response<FileBody>> {
    let validators = Validators::new(metadata, SystemTime::now());
    let mut response = Response::new(FileBody::empty());
    let out = response.headers_mut();
    insert(out, header::ETAG, &validators.etag);
    insert(out, header::LAST_MODIFIED, &dates::of_header(validators.modified));
    if let Some(value) = &shared.cache_control {
        out.insert(header::CACHE_CONTROL, value.clone());
    }
    if matches!(shared.precompressed, Precompressed::Offer) {
        out.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    }
    match validators.check(headers) {
        Verdict::Proceed => {}
        Verdict::NotModified => {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            return Ok(response);
        }
        Verdict::Failed => return Ok(plain(StatusCode::PRECONDITION_FAILED)),
    }
    out.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    out.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if let Some(encoding) = encoding {
        out.insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
    }
    let kind = match &shared.content_type {
        Some(kind) => kind.clone(),
        None => content_type(name),
    };
    let size = metadata.len();
    let ranges = validators.range(method, headers);
    let pieces = match ranges.map_or(Ranges::Whole, |range| ranges::parse(range.as_bytes(), size)) {
        Ranges::Whole => {
            out.insert(header::CONTENT_TYPE, kind);
            vec![Piece::File(0..size)]
        }
        Ranges::Unsatisfiable => {
            let mut response = plain(StatusCode::RANGE_NOT_SATISFIABLE);
            insert(response.headers_mut(), header::CONTENT_RANGE, &format!("bytes */{size}"));
            return Ok(response);
        }
        Ranges::Parts(parts) => {
            let pieces = partial(parts, kind, size, out);
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            pieces
        }
    };
    let length: u64 = pieces.iter().map(Piece::len).sum();
    response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
    if *method != Method::HEAD && length > 0 {
        *response.body_mut() =
            FileBody::read(file, metadata, pieces, shared.chunk_size, &shared.jobs)?;
    }
    Ok(response)
}

/// One part is sent as it is, several parts as `multipart/byteranges` (RFC 9110, 14.6).
fn partial(
    mut parts: Vec<Range<u64>>,
    kind: HeaderValue,
    size: u64,
    out: &mut HeaderMap,
) -> Vec<Piece> {
    let content_range = |part: &Range<u64>| format!("bytes {}-{}/{size}", part.start, part.end - 1);
    if parts.len() == 1 {
        insert(out, header::CONTENT_RANGE, &content_range(&parts[0]));
        out.insert(header::CONTENT_TYPE, kind);
        return parts.drain(..).map(Piece::File).collect();
    }
    // The boundary has 128 random bits, so no file contains it except by chance.
    let boundary = format!("{:032x}", fastrand::u128(..));
    insert(out, header::CONTENT_TYPE, &format!("multipart/byteranges; boundary={boundary}"));
    let mut pieces = Vec::with_capacity(2 * parts.len() + 1);
    let mut before = "";
    for part in parts {
        let range = content_range(&part);
        let mut head = format!("{before}--{boundary}\r\ncontent-type: ").into_bytes();
        head.extend_from_slice(kind.as_bytes());
        head.extend_from_slice(format!("\r\ncontent-range: {range}\r\n\r\n").as_bytes());
        pieces.extend([Piece::Text(head.into()), Piece::File(part)]);
        before = "\r\n";
    }
    pieces.push(Piece::Text(format!("\r\n--{boundary}--\r\n").into()));
    pieces
}

/// Redirects to the directory's own URL. The location is relative, so that it is right after any
/// prefix, and cannot become `//host`.
fn redirect(uri: &Uri) -> Response<FileBody> {
    let last = uri.path().rsplit('/').next().unwrap_or_default();
    let location = match uri.query() {
        Some(query) => format!("./{last}/?{query}"),
        None => format!("./{last}/"),
    };
    let mut response = plain(StatusCode::MOVED_PERMANENTLY);
    insert(response.headers_mut(), header::LOCATION, &location);
    response
}

/// An answer without a file, with its reason as text.
pub(super) fn plain(status: StatusCode) -> Response<FileBody> {
    let reason = status.canonical_reason().unwrap_or_default().to_lowercase();
    let mut response = Response::new(FileBody::of(Bytes::from(reason + "\n")));
    *response.status_mut() = status;
    let out = response.headers_mut();
    out.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        out.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// The content type by the name's extension. Text is assumed to be UTF-8.
fn content_type(name: &[u8]) -> HeaderValue {
    let guess = mime_guess::from_path(Path::new(OsStr::from_bytes(name)));
    let kind = guess.first_raw().unwrap_or("application/octet-stream");
    if !kind.starts_with("text/") {
        return HeaderValue::from_static(kind);
    }
    let kind = HeaderValue::try_from(format!("{kind}; charset=utf-8"));
    kind.unwrap_or(HeaderValue::from_static("text/plain; charset=utf-8"))
}

fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    // The values made here are visible ASCII, and so is a URI.
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

fn status_of(error: &io::Error) -> StatusCode {
    let Some(errno) = Errno::from_io_error(error) else { return StatusCode::INTERNAL_SERVER_ERROR };
    match errno {
        Errno::NOENT
        | Errno::NOTDIR
        | Errno::LOOP
        | Errno::XDEV
        | Errno::NAMETOOLONG
        | Errno::INVAL
        | Errno::NXIO
        | Errno::NODEV => StatusCode::NOT_FOUND,
        Errno::ACCESS | Errno::PERM => StatusCode::FORBIDDEN,
        // No descriptors or memory are left now; or there is a lease, or a directory is being
        // renamed.
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use http_body_util::BodyExt;

    use super::super::beneath::{Root, Way};
    use super::*;

    /// The answer to a GET if the file was rewritten in place after the look at its metadata.
    fn rewritten_meanwhile(headers: &HeaderMap) -> (StatusCode, String, Bytes) {
        let tree = tempfile::tempdir().unwrap();
        let shared = Shared::new(Root::with_way(tree.path(), Way::Trusted).unwrap());
        let path = tree.path().join("file");
        fs::write(&path, "old").unwrap();
        let file = File::open(&path).unwrap();
        // Long ago, so that the time of the change is another one.
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        let metadata = file.metadata().unwrap();
        let found = Found { file, metadata, name: b"file".to_vec(), encoding: None };
        fs::write(&path, "new").unwrap();
        let mut place = shared.open_files.try_enter().unwrap();
        let response = respond(&shared, found, &Method::GET, headers, &mut place).unwrap();
        let (status, tag) = (response.status(), response.headers()[header::ETAG].clone());
        let read = futures_lite::future::block_on(response.into_body().collect());
        (status, tag.to_str().unwrap().to_owned(), read.unwrap().to_bytes())
    }

    fn old_tag() -> String {
        let tree = tempfile::tempdir().unwrap();
        let file = File::create(tree.path().join("file")).unwrap();
        file.set_len(3).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        Validators::new(&file.metadata().unwrap(), SystemTime::now()).etag
    }

    #[test]
    fn a_file_that_is_rewritten_before_its_only_chunk_is_read_is_not_sent_as_the_old_one() {
        let (status, tag, body) = rewritten_meanwhile(&HeaderMap::new());
        assert_eq!((status, &body[..]), (StatusCode::OK, &b"new"[..]));
        assert_ne!(tag, old_tag());
        // A client that resumes its download gets the whole new file.
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, HeaderValue::from_static("bytes=1-1"));
        headers.insert(header::IF_RANGE, HeaderValue::from_str(&old_tag()).unwrap());
        let (status, _, body) = rewritten_meanwhile(&headers);
        assert_eq!((status, &body[..]), (StatusCode::OK, &b"new"[..]));
    }
}
