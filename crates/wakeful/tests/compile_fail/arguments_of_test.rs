//! What `#[wakeful::test]` does not know is refused where it stands.

#[wakeful::test(paused)]
async fn unknown() {}

#[wakeful::test(start_paused, tokio, start_paused)]
async fn twice() {}

#[wakeful::test(start_paused = true)]
async fn with_a_value() {}

#[wakeful::test(tokio start_paused)]
async fn without_a_comma() {}

#[wakeful::test(start_paused)]
fn not_async() {}

#[wakeful::test(start_paused)]
async fn with_arguments(_: u32) {}

fn main() {}
