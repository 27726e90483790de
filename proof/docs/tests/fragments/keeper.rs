//! docs/keeper.md

fn hold() -> Result<(), Box<dyn std::error::Error>> {
    use std::time::Duration;
    use wakeful_awake::{KeeperClient, keeper_protocol};

    let keeper = KeeperClient::connect(keeper_protocol::SOCKET.as_ref())?;
    keeper.hold(&[2, 3], Duration::ZERO)?; // sends, and does not wait
    // … a burst of work that must not wait for these two CPUs …
    keeper.release()?;
    Ok(())
}
