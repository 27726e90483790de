//! quinn on a wakeful loop: a server that sends back what it gets, and a client of it. `runtime.rs`
//! is what it takes.

mod runtime;

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::PrivatePkcs8KeyDer;
use quinn::{ClientConfig, Connection, Endpoint, EndpointConfig, ServerConfig};
use wakeful::LoopHandle;

use self::runtime::Wakeful;

const MEBIBYTE: usize = 1 << 20;

#[wakeful::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let certificate = made.cert.der().clone();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let config = ServerConfig::with_single_cert(vec![certificate.clone()], key.into())?;
    let server = endpoint(Some(config))?;
    let server_addr = server.local_addr()?;
    let serving = wakeful::spawn(async move {
        while let Some(incoming) = server.accept().await {
            let connection = incoming.await?;
            println!("server: {} is connected", connection.remote_address());
            wakeful::spawn(echo(connection)).detach();
        }
        Ok::<_, quinn::ConnectionError>(())
    });

    let mut roots = RootCertStore::empty();
    roots.add(certificate)?;
    let client = endpoint(None)?;
    let config = ClientConfig::with_root_certificates(Arc::new(roots))?;
    let connection = client.connect_with(config, server_addr, "localhost")?.await?;
    let (mut send, mut receive) = connection.open_bi().await?;
    wakeful::spawn(async move {
        send.write_all(&vec![42; MEBIBYTE]).await?;
        send.finish()?;
        Ok::<_, Box<dyn Error>>(())
    })
    .detach();
    let answer = receive.read_to_end(MEBIBYTE).await?;
    println!("client: {} bytes came back", answer.len());
    connection.close(0_u8.into(), b"that was all");
    client.wait_idle().await;
    serving.abort();
    Ok(())
}

fn endpoint(server: Option<ServerConfig>) -> std::io::Result<Endpoint> {
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let socket = UdpSocket::bind(any_port)?;
    let runtime = Arc::new(Wakeful(LoopHandle::current()));
    Endpoint::new(EndpointConfig::default(), server, socket, runtime)
}

async fn echo(connection: Connection) -> Result<(), Box<dyn Error>> {
    while let Ok((mut send, mut receive)) = connection.accept_bi().await {
        while let Some(chunk) = receive.read_chunk(usize::MAX, true).await? {
            send.write_chunk(chunk.bytes).await?;
        }
        send.finish()?;
    }
    Ok(())
}
