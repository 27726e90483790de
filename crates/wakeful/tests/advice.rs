//! A panic of a Tokio type that has no runtime is logged with what to do. A process of its own, because the log is the process's.

use std::sync::Mutex;

use tracing::field::{Field, Visit};

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Log;

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, _: &Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!("{value:?} "));
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        LINES.lock().unwrap().push(text.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn a_panic_for_want_of_a_tokio_runtime_is_logged_with_what_to_do() {
    tracing::subscriber::set_global_default(Log).unwrap();
    let advice = || {
        let lines = LINES.lock().unwrap();
        lines.iter().filter(|line| line.contains("wakeful::time")).count()
    };
    wakeful::block_on(async {
        assert!(wakeful::spawn(async { panic!("an ordinary one") }).await.is_err());
        assert_eq!(advice(), 0);
        let wanting = async {
            panic!(
                "there is no reactor running, must be called from the context of a Tokio 1.x runtime"
            )
        };
        assert!(wakeful::spawn(wanting).await.is_err());
        assert_eq!(advice(), 1);
        // Of many, one line a second.
        for _ in 0..100 {
            let wanting = async { panic!("must be called from the context of a Tokio runtime") };
            assert!(wakeful::spawn(wanting).await.is_err());
        }
        assert!(advice() < 50);
    });
    assert!(LINES.lock().unwrap().iter().any(|line| line.contains("no reactor running")));
}
