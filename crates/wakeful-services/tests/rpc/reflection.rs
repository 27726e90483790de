//! Reflection answers what grpcurl and others ask, in both versions.

use tonic::Code;
use tonic_reflection::pb::{v1, v1alpha};
use wakeful_http::grpc::Reflection;
use wakeful_services::rpc::RpcOptions;

use super::channel::*;

/// All questions in one stream, and their answers.
macro_rules! ask {
    ($version:ident, $addr:expr, [$($question:expr),* $(,)?]) => {
        client(async {
            use $version::server_reflection_client::ServerReflectionClient;
            use $version::ServerReflectionRequest;
            let channel = Channel::to($addr).await;
            let mut reflection = ServerReflectionClient::with_origin(channel.clone(), channel.origin());
            let (sender, questions) = async_channel::unbounded();
            $(
                let message_request = Some($question);
                sender.try_send(ServerReflectionRequest { host: "h".to_owned(), message_request }).unwrap();
            )*
            sender.close();
            let answers = reflection.server_reflection_info(questions).await.unwrap();
            let mut answers = answers.into_inner();
            let mut all = Vec::new();
            while let Some(answer) = answers.message().await.unwrap() {
                assert_eq!(answer.valid_host, "h");
                all.push(answer.message_response.unwrap());
            }
            all
        })
    };
}

macro_rules! version {
    ($version:ident, $name:ident) => {
        #[test]
        fn $name() {
            use $version::server_reflection_request::MessageRequest as Ask;
            use $version::server_reflection_response::MessageResponse as Told;
            let running = service(&RpcOptions::default());
            let echo = "wakeful.echo.v1.Echo";
            let extension = $version::ExtensionRequest {
                containing_type: format!("{echo}Request"),
                extension_number: 7,
            };
            let answers = ask!(
                $version,
                addr(&running),
                [
                    Ask::ListServices(String::new()),
                    Ask::FileContainingSymbol(echo.to_owned()),
                    Ask::FileContainingSymbol(format!("{echo}.BidiStream")),
                    Ask::FileContainingSymbol(format!("{echo}Request.payload")),
                    Ask::FileByFilename("wakeful/echo/v1/echo.proto".to_owned()),
                    Ask::AllExtensionNumbersOfType(format!("{echo}Request")),
                    Ask::FileContainingExtension(extension),
                    Ask::FileByFilename("missing.proto".to_owned()),
                    Ask::FileContainingSymbol("wakeful.Missing".to_owned()),
                ]
            );
            let Told::ListServicesResponse(services) = &answers[0] else { panic!("{answers:?}") };
            let names: Vec<_> = services.service.iter().map(|s| s.name.as_str()).collect();
            for name in [
                echo,
                "grpc.health.v1.Health",
                "grpc.reflection.v1.ServerReflection",
                "grpc.reflection.v1alpha.ServerReflection",
            ] {
                assert!(names.contains(&name), "{names:?}");
            }
            let Told::FileDescriptorResponse(file) = &answers[1] else { panic!("{answers:?}") };
            let text = String::from_utf8_lossy(&file.file_descriptor_proto[0]);
            assert!(text.contains("BidiStream") && text.contains("interval_ms"));
            for answer in &answers[2..=4] {
                assert_eq!(*answer, answers[1]);
            }
            let Told::AllExtensionNumbersResponse(none) = &answers[5] else { panic!() };
            assert!(none.extension_number.is_empty());
            for (answer, message) in answers[6..].iter().zip([
                "no extension 7 of \"wakeful.echo.v1.EchoRequest\" is known",
                "no file \"missing.proto\" is known",
                "no symbol \"wakeful.Missing\" is known",
            ]) {
                let Told::ErrorResponse(error) = answer else { panic!("{answers:?}") };
                assert_eq!(error.error_code, i32::from(Code::NotFound));
                assert_eq!(error.error_message, message);
            }
            assert_eq!(running.shutdown(GUARD).unwrap(), 0);
        }
    };
}

version!(v1, version_1_answers_every_question);
version!(v1alpha, version_1alpha_answers_every_question);

#[test]
fn descriptors_that_are_none_are_refused_by_number() {
    let error = Reflection::of([&[][..], b"nonsense"]).unwrap_err().to_string();
    assert!(error.starts_with("the file descriptor set 2 cannot be used: "), "{error}");
}
