//! The README's echo server, on one loop: `cargo run --release -p wakeful-rt --example echo`.

use wakeful::net::TcpListener;

#[wakeful::main]
async fn main() -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:7000").await?;
    loop {
        let (mut stream, _) = listener.accept().await?;
        wakeful::spawn(async move {
            let mut buf = vec![0; 16 * 1024];
            while let Ok(read @ 1..) = stream.read(&mut buf).await {
                if stream.write_all(&buf[..read]).await.is_err() {
                    break;
                }
            }
        })
        .detach();
    }
}
