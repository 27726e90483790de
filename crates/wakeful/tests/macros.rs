//! `#[wakeful::main]` and `#[wakeful::test]`: an async function becomes a plain one that runs on a
//! loop of its own.

use std::rc::Rc;

/// Doc comments, arguments and a result are kept.
#[wakeful::main]
async fn helper(number: u32, text: &str) -> std::io::Result<String> {
    let shared = Rc::new(number);
    let theirs = shared.clone();
    let doubled = wakeful::spawn(async move { *theirs * 2 }).await.expect("no panic");
    wakeful::time::sleep(std::time::Duration::from_micros(10)).await;
    if doubled == 0 {
        return Err(std::io::Error::other("nothing to double"));
    }
    Ok(format!("{text} {doubled}"))
}

#[wakeful::main]
async fn generic<T>(value: T) -> T
where
    T: Clone + 'static,
{
    let copy = value.clone();
    wakeful::spawn(async move { copy }).await.expect("no panic")
}

#[test]
fn main_makes_a_plain_function() {
    assert_eq!(helper(21, "doubled:").unwrap(), "doubled: 42");
    assert_eq!(helper(0, "").unwrap_err().to_string(), "nothing to double");
    assert_eq!(generic("value"), "value");
}

#[wakeful::test]
async fn test_runs_within_a_loop() {
    assert!(wakeful::LoopHandle::current().metrics().turns <= 1);
    wakeful::task::yield_now().await;
}

#[wakeful::test]
async fn test_may_return_a_result() -> std::io::Result<()> {
    wakeful::spawn(async {}).await?;
    Ok(())
}

#[wakeful::test]
#[should_panic(expected = "kept")]
async fn test_keeps_other_attributes() {
    wakeful::task::yield_now().await;
    panic!("kept");
}

#[wakeful::test]
async fn test_keeps_attributes_at_the_top_of_its_body() {
    #![deny(unused_variables)]
    #![allow(unreachable_code)]
    return;
    unreachable!();
}

#[cfg(feature = "test-util")]
#[wakeful::test(start_paused)]
async fn test_takes_start_paused_as_an_argument() -> Result<(), wakeful::JoinError> {
    let (start, hour) = (wakeful::time::now(), std::time::Duration::from_secs(3600));
    wakeful::spawn(wakeful::time::sleep(hour)).await?;
    assert_eq!(wakeful::time::now() - start, hour);
    Ok(())
}
