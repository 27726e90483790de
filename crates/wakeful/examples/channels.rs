//! Which channel? One that is free of a runtime: here `async-channel`, between tasks, and from a
//! thread to a task.

use wakeful::spawn;

#[wakeful::main]
async fn main() {
    let (send, receive) = async_channel::bounded(8);

    // A thread that knows nothing of loops feeds it too; its sends wake the loop.
    let from_thread = send.clone();
    let thread = std::thread::spawn(move || {
        for number in 0..5 {
            from_thread.send_blocking(format!("thread {number}")).expect("the receiver lives");
        }
    });

    let task = spawn(async move {
        for number in 0..5 {
            send.send(format!("task {number}")).await.expect("the receiver lives");
        }
    });

    while let Ok(message) = receive.recv().await {
        println!("{message}");
    }
    task.await.expect("no panic");
    thread.join().expect("no panic");
}
