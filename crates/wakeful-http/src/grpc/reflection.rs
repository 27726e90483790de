//! Server reflection (`grpc.reflection.v1` and `v1alpha`): it lets grpcurl and similar tools call a
//! service without its proto file.
//!
//! tonic-reflection's own service spawns a task on a tokio runtime for each client. So only its
//! message types are used here. An answer depends only on its question, so the service maps a
//! client's stream of questions to a stream of answers, without a task of its own.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_core::Stream;
use prost_reflect::{DescriptorError, DescriptorPool, FileDescriptor};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_reflection::pb;

/// How many bytes a question may have. It is a name, which an answer may repeat several times.
const LONGEST_QUESTION: usize = 16 * 1024;

/// The error of [`Reflection::of`]: the descriptors cannot be read, or are inconsistent.
#[derive(Debug, thiserror::Error)]
#[error("the file descriptor set {number} cannot be used: {source}")]
pub struct InvalidDescriptors {
    number: usize,
    source: DescriptorError,
}

/// The descriptors that clients can ask for. A clone is cheap.
#[derive(Debug, Clone)]
pub struct Reflection {
    known: Arc<Known>,
}

#[derive(Debug)]
struct Known {
    pool: DescriptorPool,
    services: Vec<String>,
    /// The encoded files, by name.
    files: HashMap<String, Bytes>,
    /// For each full name, the file that contains it.
    symbols: HashMap<String, Bytes>,
}

impl Reflection {
    /// Makes a reflection from encoded `FileDescriptorSet`s, which must include their imports. Both
    /// versions of the reflection service, and the health service, are included automatically.
    ///
    /// # Errors
    /// One of the sets is not a `FileDescriptorSet`, or lacks an import.
    pub fn of<'a>(sets: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, InvalidDescriptors> {
        let mut pool = DescriptorPool::new();
        let well_known = [
            pb::v1::FILE_DESCRIPTOR_SET,
            pb::v1alpha::FILE_DESCRIPTOR_SET,
            tonic_health::pb::FILE_DESCRIPTOR_SET,
        ];
        for (number, set) in sets.into_iter().chain(well_known).enumerate() {
            pool.decode_file_descriptor_set(set)
                .map_err(|source| InvalidDescriptors { number: number + 1, source })?;
        }
        Ok(Self { known: Arc::new(Known::of(pool)) })
    }

    /// Returns the service `grpc.reflection.v1.ServerReflection`.
    #[must_use]
    pub fn v1(
        &self,
    ) -> pb::v1::server_reflection_server::ServerReflectionServer<
        impl pb::v1::server_reflection_server::ServerReflection + use<>,
    > {
        pb::v1::server_reflection_server::ServerReflectionServer::new(self.clone())
            .max_decoding_message_size(LONGEST_QUESTION)
    }

    /// Returns the service `grpc.reflection.v1alpha.ServerReflection`, for older clients.
    #[must_use]
    pub fn v1alpha(
        &self,
    ) -> pb::v1alpha::server_reflection_server::ServerReflectionServer<
        impl pb::v1alpha::server_reflection_server::ServerReflection + use<>,
    > {
        pb::v1alpha::server_reflection_server::ServerReflectionServer::new(self.clone())
            .max_decoding_message_size(LONGEST_QUESTION)
    }
}

impl Known {
    fn of(pool: DescriptorPool) -> Self {
        let files: HashMap<_, _> = pool
            .files()
            .map(|file| (file.name().to_owned(), Bytes::from(file.encode_to_vec())))
            .collect();
        let mut symbols = HashMap::new();
        let mut enter = |name: &str, file: FileDescriptor| {
            symbols.insert(name.to_owned(), files[file.name()].clone());
        };
        for message in pool.all_messages() {
            enter(message.full_name(), message.parent_file());
            message.fields().for_each(|field| enter(field.full_name(), field.parent_file()));
            message.oneofs().for_each(|oneof| enter(oneof.full_name(), oneof.parent_file()));
        }
        for kind in pool.all_enums() {
            enter(kind.full_name(), kind.parent_file());
            kind.values().for_each(|value| enter(value.full_name(), kind.parent_file()));
        }
        for extension in pool.all_extensions() {
            enter(extension.full_name(), extension.parent_file());
        }
        for service in pool.services() {
            enter(service.full_name(), service.parent_file());
            service.methods().for_each(|method| enter(method.full_name(), service.parent_file()));
        }
        let services = pool.services().map(|service| service.full_name().to_owned()).collect();
        Self { pool, services, files, symbols }
    }

    fn file(&self, name: &str) -> Result<Bytes, String> {
        self.files.get(name).cloned().ok_or_else(|| format!("no file {name:?} is known"))
    }

    fn symbol(&self, name: &str) -> Result<Bytes, String> {
        self.symbols.get(name).cloned().ok_or_else(|| format!("no symbol {name:?} is known"))
    }

    fn extension(&self, of: &str, number: i32) -> Result<Bytes, String> {
        let message = self.pool.get_message_by_name(of);
        let number_of_field = u32::try_from(number).ok();
        message
            .zip(number_of_field)
            .and_then(|(message, number)| message.get_extension(number))
            .and_then(|extension| self.files.get(extension.parent_file().name()).cloned())
            .ok_or_else(|| format!("no extension {number} of {of:?} is known"))
    }

    fn extension_numbers(&self, of: &str) -> Result<Vec<i32>, String> {
        let message = self.pool.get_message_by_name(of);
        let message = message.ok_or_else(|| format!("no message {of:?} is known"))?;
        Ok(message.extensions().filter_map(|e| i32::try_from(e.number()).ok()).collect())
    }
}

/// The answers to a client's questions. Each question is answered as the client reads the answers.
struct Answers<Q, A> {
    questions: Streaming<Q>,
    known: Arc<Known>,
    answer: fn(&Known, Q) -> Result<A, Status>,
}

impl<Q, A> Stream for Answers<Q, A> {
    type Item = Result<A, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let question = Pin::new(&mut self.questions).poll_next(cx);
        question.map(|question| Some(question?.and_then(|q| (self.answer)(&self.known, q))))
    }
}

/// The two versions differ only in their names.
macro_rules! version {
    ($version:ident) => {
        mod $version {
            use super::*;
            use pb::$version::server_reflection_request::MessageRequest;
            use pb::$version::server_reflection_response::MessageResponse;
            use pb::$version::server_reflection_server::ServerReflection;
            use pb::$version::{
                ErrorResponse, ExtensionNumberResponse, FileDescriptorResponse,
                ListServiceResponse, ServerReflectionRequest, ServerReflectionResponse,
                ServiceResponse,
            };

            #[tonic::async_trait]
            impl ServerReflection for Reflection {
                type ServerReflectionInfoStream =
                    Pin<Box<dyn Stream<Item = Result<ServerReflectionResponse, Status>> + Send>>;

                async fn server_reflection_info(
                    &self,
                    request: Request<Streaming<ServerReflectionRequest>>,
                ) -> Result<Response<Self::ServerReflectionInfoStream>, Status> {
                    let (questions, known) = (request.into_inner(), self.known.clone());
                    Ok(Response::new(Box::pin(Answers { questions, known, answer })))
                }
            }

            fn answer(
                known: &Known,
                question: ServerReflectionRequest,
            ) -> Result<ServerReflectionResponse, Status> {
                use MessageRequest as Ask;
                let of_file = |file: Bytes| {
                    MessageResponse::FileDescriptorResponse(FileDescriptorResponse {
                        file_descriptor_proto: vec![file.into()],
                    })
                };
                let found = match &question.message_request {
                    None => return Err(Status::invalid_argument("the request asks for nothing")),
                    Some(Ask::FileByFilename(name)) => known.file(name).map(of_file),
                    Some(Ask::FileContainingSymbol(name)) => known.symbol(name).map(of_file),
                    Some(Ask::FileContainingExtension(asked)) => {
                        let (of, number) = (&asked.containing_type, asked.extension_number);
                        known.extension(of, number).map(of_file)
                    }
                    Some(Ask::AllExtensionNumbersOfType(of)) => {
                        known.extension_numbers(of).map(|extension_number| {
                            MessageResponse::AllExtensionNumbersResponse(ExtensionNumberResponse {
                                base_type_name: of.clone(),
                                extension_number,
                            })
                        })
                    }
                    Some(Ask::ListServices(_)) => {
                        let service = |name: &String| ServiceResponse { name: name.clone() };
                        Ok(MessageResponse::ListServicesResponse(ListServiceResponse {
                            service: known.services.iter().map(service).collect(),
                        }))
                    }
                };
                let response = found.unwrap_or_else(|error_message| {
                    let error_code = Code::NotFound.into();
                    MessageResponse::ErrorResponse(ErrorResponse { error_code, error_message })
                });
                Ok(ServerReflectionResponse {
                    valid_host: question.host.clone(),
                    original_request: Some(question),
                    message_response: Some(response),
                })
            }
        }
    };
}

version!(v1);
version!(v1alpha);
