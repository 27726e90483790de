//! The flags of `wakeful load` that say what a request is.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use wakeful_load::{Protocol, Requests, Template};

use super::input_files::read_body;
use crate::numbers::whole;
use crate::usage::Refusal;

/// The defaults. Giving them explicitly is no error, even with a protocol that does not use them.
const COMMAND: &str = "ECHO";
const KEYS: u64 = 1;
/// The default size in bytes.
const SIZE: u32 = 1024;

#[derive(Debug, Args)]
pub(super) struct Request {
    /// The protocol. h2: HTTP/2 with prior knowledge. grpc: unary calls over it, of the method
    /// --path (/package.Service/Method), with the encoded message --body or --body-file. frames: 4
    /// bytes of length, big-endian, then a payload, as `wakeful serve echo` answers.
    #[arg(long, value_enum, default_value = "http1")]
    protocol: ProtocolName,

    /// HTTP: the method.
    #[arg(long, default_value = "GET")]
    method: String,

    /// HTTP: path and query [default: the path of ADDR, or /].
    #[arg(long)]
    path: Option<String>,

    /// HTTP: a header. May be repeated.
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE", value_parser = header)]
    headers: Vec<(String, String)>,

    /// HTTP: the request's body.
    #[arg(long, conflicts_with = "body_file")]
    body: Option<String>,

    /// HTTP: a regular file with the request's body, of at most 256 MiB.
    #[arg(long, value_name = "FILE")]
    body_file: Option<PathBuf>,

    /// RESP: the command and its first arguments; the last argument is a payload of --size bytes.
    /// {key} stands for a key below --keys, in 12 digits. May be repeated: then --mix draws one of
    /// them for each request, and the report also has each by itself.
    #[arg(long = "command", value_name = "COMMAND", default_value = COMMAND)]
    resp_commands: Vec<String>,

    /// RESP: how frequent each --command is, for example 3:1 [default: all the same].
    #[arg(long, value_name = "N:N…", value_delimiter = ':', value_parser = whole(0..=1_000_000_u32))]
    mix: Vec<u32>,

    /// RESP: how many keys {key} stands for.
    #[arg(long, value_name = "N", default_value_t = KEYS, value_parser = keys)]
    pub(super) keys: u64,

    /// Frames and RESP: bytes of payload. One number for each --command, or one for all; 0 for
    /// commands without a payload, as `GET {key}`.
    #[arg(long, value_name = "BYTES,…", value_delimiter = ',', default_values_t = [SIZE], value_parser = whole::<u32>(0..=16 << 20))]
    size: Vec<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ProtocolName {
    Http1,
    H2,
    Grpc,
    Frames,
    Resp,
}

impl Request {
    pub(super) fn protocol(&self) -> Protocol {
        match self.protocol {
            ProtocolName::Http1 => Protocol::Http1,
            ProtocolName::H2 | ProtocolName::Grpc => Protocol::Http2,
            ProtocolName::Frames => Protocol::Frames,
            ProtocolName::Resp => Protocol::Resp,
        }
    }

    /// The request, or the first of several commands. `url_path` is that of the server's address.
    pub(super) fn template(
        &self,
        url_path: Option<String>,
        authority: &str,
    ) -> Result<Template, Refusal> {
        Ok(match self.protocol {
            ProtocolName::Frames => {
                Template::of_size(self.sizes(1).map_err(Refusal::WrongUsage)?[0])
            }
            ProtocolName::Resp => {
                // `mix` has the other commands.
                let sizes = self.sizes(self.resp_commands.len());
                let size = sizes.map_err(Refusal::WrongUsage)?[0];
                Template::command(&self.resp_commands[0]).body_of_size(size)
            }
            ProtocolName::Http1 | ProtocolName::H2 => {
                let path = self.path.clone().or(url_path).unwrap_or_else(|| "/".to_owned());
                let template = Template::http(&self.method, authority, &path);
                self.with_headers(template.body(self.body()?))
            }
            ProtocolName::Grpc => {
                let path = self.path.clone().or(url_path);
                let path = path.ok_or_else(|| {
                    let missing = "--protocol grpc needs --path /package.Service/Method";
                    Refusal::WrongUsage(missing.to_owned())
                })?;
                self.with_headers(Template::grpc(authority, &path, &self.body()?))
            }
        })
    }

    fn body(&self) -> Result<Vec<u8>, Refusal> {
        match (&self.body, &self.body_file) {
            (Some(text), _) => Ok(text.clone().into_bytes()),
            (None, Some(file)) => {
                let body = read_body(file);
                body.map_err(|problem| Refusal::Error(format!("{}: {problem}", file.display())))
            }
            (None, None) => Ok(Vec::new()),
        }
    }

    /// The payload sizes of `commands` commands.
    fn sizes(&self, commands: usize) -> Result<Vec<usize>, String> {
        match self.size[..] {
            [size] => Ok(vec![size as usize; commands]),
            _ if self.size.len() == commands => {
                Ok(self.size.iter().map(|size| *size as usize).collect())
            }
            _ => Err(format!(
                "--size has {} sizes for {commands} requests: one for each, or one for all",
                self.size.len()
            )),
        }
    }

    fn with_headers(&self, template: Template) -> Template {
        self.headers.iter().fold(template, |template, (name, value)| template.header(name, value))
    }

    /// # Errors
    /// Names an option that no request of this protocol uses.
    pub(super) fn check(&self) -> Result<(), String> {
        let is_resp = self.protocol == ProtocolName::Resp;
        let is_http = !is_resp && self.protocol != ProtocolName::Frames;
        let unused = [
            ("--command", !is_resp && self.resp_commands != [COMMAND], "resp"),
            ("--keys", !is_resp && self.keys != KEYS, "resp"),
            ("--size", is_http && self.size != [SIZE], "frames or resp"),
            ("--path", !is_http && self.path.is_some(), "http1, h2 or grpc"),
            ("--header", !is_http && !self.headers.is_empty(), "http1, h2 or grpc"),
            ("--body", !is_http && self.body.is_some(), "http1, h2 or grpc"),
            ("--body-file", !is_http && self.body_file.is_some(), "http1, h2 or grpc"),
        ];
        match unused.into_iter().find(|(_, is_unused, _)| *is_unused) {
            Some((option, _, protocols)) => Err(format!("{option} needs --protocol {protocols}")),
            None => Ok(()),
        }
    }

    /// The requests, if there are several commands.
    pub(super) fn mix(&self) -> Result<Option<Requests>, String> {
        let commands = &self.resp_commands;
        if self.protocol != ProtocolName::Resp || commands.len() == 1 {
            return match self.mix[..] {
                [] => Ok(None),
                _ => Err("--mix needs --protocol resp and several --command".to_owned()),
            };
        }
        let weights = if self.mix.is_empty() { vec![1; commands.len()] } else { self.mix.clone() };
        if weights.len() != commands.len() || weights.iter().all(|weight| *weight == 0) {
            return Err(format!(
                "--mix needs a number for each of the {} commands, and one above 0",
                commands.len()
            ));
        }
        let sizes = self.sizes(commands.len())?;
        let commands = commands.iter().zip(weights).zip(sizes).map(|((command, weight), size)| {
            (command, weight, Template::command(command).body_of_size(size))
        });
        Requests::mix(commands).map(Some).map_err(|error| error.to_string())
    }
}

fn keys(text: &str) -> Result<u64, String> {
    let keys = text.parse().ok().filter(|keys| (1..=1_000_000_000_000).contains(keys));
    keys.ok_or_else(|| "expected a whole number from 1 to 1000000000000".to_owned())
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("expected NAME: VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}
