//! The answer for a file that does not exist.

use http::{HeaderMap, Method, Response, StatusCode, header};

use super::body::FileBody;
use super::open_files::Place;
use super::serve_file::ServeFile;

/// A file, and how the response says that it is another file.
#[derive(Debug, Clone)]
pub(super) struct Otherwise {
    file: ServeFile,
    says: Says,
}

#[derive(Debug, Clone, Copy)]
enum Says {
    Found,
    NotFound,
}

impl Otherwise {
    pub(super) fn found(file: ServeFile) -> Self {
        Self { file, says: Says::Found }
    }

    pub(super) fn not_found(file: ServeFile) -> Self {
        Self { file, says: Says::NotFound }
    }

    /// Makes the response. This blocks.
    pub(super) fn answer(
        &self,
        method: &Method,
        headers: &HeaderMap,
        place: &mut Place,
    ) -> Response<FileBody> {
        if matches!(self.says, Says::Found) {
            return self.file.answer(method, headers, place);
        }
        // Conditions and ranges apply to the file that the path names, which does not exist (RFC
        // 9110, 13.2.1 and 14.2).
        let mut asked = HeaderMap::new();
        for value in headers.get_all(header::ACCEPT_ENCODING) {
            asked.append(header::ACCEPT_ENCODING, value.clone());
        }
        let mut response = self.file.answer(method, &asked, place);
        if response.status() == StatusCode::OK {
            *response.status_mut() = StatusCode::NOT_FOUND;
            // These headers would be those of the other file.
            for name in [header::ETAG, header::LAST_MODIFIED, header::ACCEPT_RANGES] {
                response.headers_mut().remove(name);
            }
        }
        response
    }
}
