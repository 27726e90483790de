use harness::Program;
use tokio::process::Command;
use tokio::task::JoinSet;

harness::on_both!("routeguide", all_kinds_of_calls_are_answered);

async fn all_kinds_of_calls_are_answered(program: Program) {
    let service = program.start().await;
    let addr = service.addr().to_string();
    let mut clients = JoinSet::new();
    for number in 0..6 {
        // Clients on Tokio, and ones on a loop with Tokio as its guest.
        let client = match number % 2 {
            0 => env!("CARGO_BIN_EXE_routeguide-client-tokio"),
            _ => env!("CARGO_BIN_EXE_routeguide-client"),
        };
        let mut client = Command::new(client);
        client.env("ADDR", &addr).env("NUMBER", number.to_string()).kill_on_drop(true);
        clients.spawn(async move {
            let output = tokio::time::timeout(harness::GUARD, client.output()).await;
            let output = output.expect("the client ends").unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "client {number}: {}\n{stderr}", output.status);
        });
        let addr = addr.clone();
        clients.spawn(async move { routeguide::client::run(&addr, 100 + number).await.unwrap() });
    }
    clients.join_all().await;

    // A call that is open when the service ends does not hold it up.
    let mut guide = {
        let channel = tonic::transport::Channel::from_shared(service.url("")).unwrap();
        routeguide::proto::guide_client::GuideClient::new(channel.connect().await.unwrap())
    };
    let (sender, notes) = tokio::sync::mpsc::channel(1);
    let notes = tokio_stream::wrappers::ReceiverStream::new(notes);
    let mut open = guide.notes(notes).await.unwrap().into_inner();
    let on_wakeful = service.on_wakeful();
    service.end().await;
    let end = tokio::time::timeout(harness::GUARD, open.message()).await;
    assert!(!on_wakeful || end.expect("the call ends").is_err());
    drop(sender);
}
