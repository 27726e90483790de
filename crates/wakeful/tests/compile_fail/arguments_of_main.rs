//! The clock of a program is not paused by its attribute, but by a setting.

#[wakeful::main(start_paused)]
async fn paused() {}

#[wakeful::main(settings)]
async fn unknown() {}

fn main() {}
