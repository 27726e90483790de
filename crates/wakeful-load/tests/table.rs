//! The table of runs fits a terminal, and says what is absent and what is not valid.

use wakeful_load::Run;
use wakeful_load::internals::{
    results::Results,
    table::{self, Style},
};

#[path = "../examples/sample-report/sample.rs"]
mod sample;

fn with(change: impl Fn(&mut Run)) -> Results {
    let mut results = sample::results();
    results.runs.iter_mut().for_each(change);
    results
}

#[test]
fn it_fits_a_hundred_columns() {
    let results = with(|run| run.server = run.server.chars().take(16).collect());
    let text = table::runs(&results, Style::Terminal);
    let rows = text.lines().take(results.runs.len() + 2);
    for row in rows {
        assert!(row.chars().count() <= 100, "{} columns: {row}", row.chars().count());
    }
}

#[test]
fn a_percentile_that_cannot_be_told_is_a_dash_and_the_dash_is_explained() {
    let results = with(|run| run.response.p999 = None);
    let text = table::runs(&results, Style::Terminal);
    let row = text.lines().find(|line| line.starts_with("wakeful ")).unwrap();
    assert_eq!(row.split_whitespace().nth(5), Some("-"), "{row}");
    assert!(text.contains("fewer than 100 samples"));
}

#[test]
fn cpu_is_a_share_and_microseconds_a_request() {
    let results = with(|run| {
        let cpu = run.cpu.get_or_insert_default();
        (cpu.user, cpu.system, cpu.share) = (1.0, 3.0, 0.4);
        run.answered = 1_000_000;
    });
    let text = table::runs(&results, Style::Terminal);
    let row = text.lines().find(|line| line.starts_with("wakeful ")).unwrap();
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells[8..], ["40.0%", "4.00", "yes"], "{row}");
}

#[test]
fn what_is_not_valid_says_so_and_why() {
    let text = table::runs(&sample::results(), Style::Terminal);
    assert_eq!(text.lines().filter(|line| line.ends_with("INVALID")).count(), 3);
    assert!(text.contains("INVALID: smol at 1,000/s: Send lag"));
}

#[test]
fn markdown_keeps_its_columns_whatever_a_name_is() {
    let results = with(|run| run.server = "a|b<c>&\u{1b}[0m\n| d".to_owned());
    let text = table::runs(&results, Style::Markdown);
    for row in text.lines().take(results.runs.len() + 2) {
        let row = row.replace("\\|", "");
        assert_eq!(row.matches('|').count(), 12, "{row}");
    }
    assert!(text.contains("a\\|b&lt;c>&amp;"));
    assert!(!text.contains('\u{1b}'));
}

#[test]
fn no_runs_are_a_header() {
    let mut results = sample::results();
    results.runs.clear();
    for style in [Style::Terminal, Style::Markdown] {
        assert!(table::runs(&results, style).contains("p99.9"));
    }
    results.comparisons.clear();
    results.claims.clear();
    assert!(table::comparisons(&results, Style::Terminal).contains("verdict"));
    assert!(table::claims(&results, Style::Markdown).contains("claim"));
}

#[test]
fn tables_that_are_not_runs_are_printed_with_title_spread_and_note() {
    let mut results = sample::results();
    let text = table::tables(&results, Style::Terminal);
    assert!(text.starts_with("Made-up figures that are not runs\n\ncontender"), "{text}");
    assert!(text.contains("52.0 µs (48.0 to 61.0)"), "{text}");
    assert!(text.contains("3.50 s (2.00 to 5.00)") && text.contains("12,345"), "{text}");
    assert!(text.trim_end().ends_with("what they do not."), "{text}");
    let markdown = table::tables(&results, Style::Markdown);
    for row in markdown.lines().filter(|line| line.starts_with('|')) {
        assert_eq!(row.replace("\\|", "").matches('|').count(), 5, "{row}");
    }
    results.tables.clear();
    assert_eq!(table::tables(&results, Style::Terminal), "");
}

#[test]
fn results_of_before_there_were_tables_are_read() {
    let mut json = serde_json::to_value(sample::results()).unwrap();
    let again: Results = serde_json::from_value(json.clone()).unwrap();
    assert_eq!(again.tables, sample::results().tables);
    json.as_object_mut().unwrap().remove("tables");
    let old: Results = serde_json::from_value(json).unwrap();
    assert!(old.tables.is_empty());
}
