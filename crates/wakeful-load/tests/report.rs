//! The report is well-formed, needs nothing else, hides nothing, and takes no name for markup.

use roxmltree::{Document, ParsingOptions};
use wakeful_load::internals::{
    format, report,
    results::Results,
    table::{self, Style},
};
use wakeful_load::{Percentiles, Run, Validity};

#[path = "../examples/sample-report/sample.rs"]
mod sample;

/// A page is XML too, and [`roxmltree`] is strict about it.
fn parsed(page: &str) -> Document<'_> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    Document::parse_with_options(page, options).unwrap_or_else(|error| panic!("{error}\n{page}"))
}

fn page(results: &Results) -> String {
    let page = report::html(results).unwrap();
    parsed(&page);
    parsed(&report::readme_plot(results).unwrap());
    page
}

fn count(document: &Document<'_>, tag: &str) -> usize {
    document.descendants().filter(|node| node.has_tag_name(tag)).count()
}

/// The first runs of the sample and nothing else.
fn few(runs: usize) -> Results {
    let mut results = sample::results();
    results.runs.truncate(runs);
    results.comparisons.clear();
    results.tables.clear();
    results.tradeoffs.clear();
    results.claims.clear();
    results.notes.clear();
    results
}

#[test]
fn every_plot_is_well_formed_and_says_what_it_shows() {
    let page = page(&sample::results());
    let document = parsed(&page);
    let plots = document.descendants().filter(|node| {
        node.has_tag_name("svg") && node.attribute("class").unwrap().starts_with("plot")
    });
    let mut seen = 0;
    for plot in plots {
        seen += 1;
        let text = &page[plot.range()];
        let plot = parsed(text);
        for tag in ["title", "desc", "text"] {
            assert!(count(&plot, tag) > 0, "no <{tag}> in {text}");
        }
        // Colours are the style sheet's, else they would not follow the scheme.
        assert!(!text.contains("=\"#"), "{text}");
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
    // Percentiles, two rates, CPU, a setting, the frontier at each rate and comparisons in two
    // sizes each, and a timeline for each run.
    assert_eq!(seen, (4 + 2 + 1 + 1 + 4 + 2) * 2 + 99);
}

#[test]
fn every_figure_has_its_table() {
    let page = page(&sample::results());
    let document = parsed(&page);
    let figures = document.descendants().filter(|node| node.has_tag_name("figure"));
    for figure in figures {
        assert!(figure.descendants().any(|node| node.has_tag_name("table")));
    }
}

#[test]
fn tables_need_no_runs() {
    let mut results = few(0);
    results.floor = None;
    results.tables = sample::results().tables;
    let page = page(&results);
    let document = parsed(&page);
    assert!(page.contains("52.0 µs (48.0 to 61.0)") && page.contains("&#60;what&#62;"), "{page}");
    assert!(!page.contains("Nothing was measured"), "{page}");
    assert_eq!(count(&document, "table"), 1);
}

#[test]
fn it_needs_nothing_else() {
    let page = page(&sample::results());
    let document = parsed(&page);
    for tag in ["script", "link", "img", "iframe", "object", "use", "image"] {
        assert_eq!(count(&document, tag), 0, "<{tag}>");
    }
    for node in document.descendants() {
        for attribute in node.attributes() {
            let name = attribute.name();
            assert!(!name.starts_with("on") && name != "src" && name != "href", "{name}");
        }
    }
    assert!(!page.contains("url(") && !page.contains("@import"));
}

#[test]
fn ids_are_unique_and_references_lead_somewhere() {
    let page = page(&sample::results());
    let document = parsed(&page);
    let mut ids: Vec<&str> =
        document.descendants().filter_map(|node| node.attribute("id")).collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all);
    for labels in document.descendants().filter_map(|node| node.attribute("aria-labelledby")) {
        assert!(labels.split(' ').all(|id| ids.binary_search(&id).is_ok()), "{labels}");
    }
}

#[test]
fn no_text_is_taken_for_markup() {
    let evil = "</title></style><script>alert(1)</script>&\"' fill=\"#E10000\" \u{0}\u{1b}]]>";
    let mut results = few(30);
    for run in &mut results.runs {
        run.server = format!("{evil}{}", run.server);
        run.schedule = evil.to_owned();
        run.validity = Validity::Invalid { reasons: vec![evil.to_owned()], up_to: None };
    }
    let with = sample::results();
    results.comparisons = with.comparisons;
    results.claims = with.claims;
    for comparison in &mut results.comparisons {
        comparison.a = evil.to_owned();
        for metric in &mut comparison.metrics {
            metric.name = evil.to_owned();
            metric.verdict = evil.to_owned();
        }
    }
    for claim in &mut results.claims {
        claim.claim = evil.to_owned();
        claim.measured = evil.to_owned();
    }
    results.title = evil.to_owned();
    results.command = evil.to_owned();
    results.notes = vec![evil.to_owned()];
    results.machine.cpu = evil.to_owned();
    results.machine.mitigations = vec![evil.to_owned()];
    let page = page(&results);
    let document = parsed(&page);
    assert_eq!(count(&document, "script"), 0);
    let shown = evil.replace(['\u{0}', '\u{1b}'], "\u{fffd}");
    let heading = document.descendants().find(|node| node.has_tag_name("h1")).unwrap();
    assert_eq!(heading.text(), Some(shown.as_str()));
}

#[test]
fn invalid_runs_are_marked_wherever_they_are() {
    let mut results = few(2);
    for run in &mut results.runs {
        run.validity = Validity::Invalid { reasons: vec!["It was noisy.".to_owned()], up_to: None };
    }
    let page = page(&results);
    assert!(page.contains("✗ INVALID: 2 of 2 runs"));
    assert!(page.contains("It was noisy."));
    assert!(!page.contains("✓"));
    let labels = page.matches(" ✗\n</text>").count();
    assert!(labels >= 4, "{labels} labels");
}

#[test]
fn one_run_is_a_report() {
    let page = page(&few(1));
    assert!(page.contains("✓ VALID: 1 run<"));
    assert!(!page.contains("against rate</h2>"));
    assert!(page.contains("CPU of the servers"));
}

#[test]
fn no_run_is_a_report() {
    let mut results = few(0);
    results.floor = None;
    let page = page(&results);
    assert!(page.contains("Nothing was measured"));
    assert_eq!(count(&parsed(&page), "svg"), 0);
    let plot = report::readme_plot(&results).unwrap();
    assert!(plot.contains("Nothing was measured at a given rate."));
}

#[test]
fn figures_that_cannot_be_are_survived() {
    let mut results = few(99);
    let odd = [0.0, f64::NAN, f64::INFINITY, -1.0, 1e300];
    for (run, odd) in results.runs.iter_mut().zip(odd.into_iter().cycle()) {
        run.rate = Some(odd);
        run.throughput = odd;
        run.steal = odd;
        run.response.mean = odd;
        run.response.curve = vec![(odd, u64::MAX)];
        run.timeline.iter_mut().for_each(|interval| interval.start = odd);
        if let Some(cpu) = &mut run.cpu {
            cpu.share = odd;
        }
    }
    results.comparisons = sample::results().comparisons;
    for metric in results.comparisons.iter_mut().flat_map(|one| &mut one.metrics).zip(odd) {
        metric.0.ratio = metric.1;
        metric.0.low = metric.1;
        metric.0.noise = Some((metric.1, metric.1, metric.1));
    }
    page(&results);
}

#[test]
fn closed_loops_and_processes_that_are_not_known_have_their_place() {
    let mut results = few(3);
    for run in &mut results.runs {
        run.rate = None;
        run.schedule = "closed".to_owned();
        run.cpu = None;
        run.timeline.clear();
        run.response = Percentiles::default();
    }
    let page = page(&results);
    assert!(page.contains("closed loop") && page.contains("not known"));
}

#[test]
fn the_readme_plot_follows_the_scheme_and_names_each_server() {
    let results = sample::results();
    let plot = report::readme_plot(&results).unwrap();
    assert!(plot.contains("prefers-color-scheme: dark"));
    let document = parsed(&plot);
    let root = document.root_element();
    assert_eq!((root.attribute("width"), root.attribute("height")), (Some("900"), Some("480")));
    let texts: Vec<&str> = document
        .descendants()
        .filter(|node| node.has_tag_name("text"))
        .filter_map(|node| node.text())
        .map(str::trim)
        .collect();
    for run in &results.runs {
        let start: String = run.server.chars().take(20).collect();
        assert!(texts.iter().any(|text| text.starts_with(&start)), "{start} in {texts:?}");
    }
}

/// The texts of an SVG, which has to be well-formed.
fn texts(svg: &str) -> Vec<String> {
    let document = parsed(svg);
    let texts = document.descendants().filter(|node| node.has_tag_name("text"));
    texts.filter_map(|node| node.text()).map(|text| text.trim().to_owned()).collect()
}

#[test]
fn the_frontier_has_each_rate_and_names_each_server() {
    let results = sample::results();
    let plot = report::frontier_plot(&results).unwrap().unwrap();
    let texts = texts(&plot);
    let stands = |run: &&Run| run.validity == Validity::Valid && run.cpu.is_some();
    for run in results.runs.iter().filter(stands) {
        let rate = format!("p50 against CPU at {}", format::rate(run.rate.unwrap()));
        assert!(texts.contains(&rate), "{rate} in {texts:?}");
        let name: String = run.server.chars().take(20).collect();
        assert!(texts.iter().any(|text| text.contains(&name)), "{name} in {texts:?}");
    }
}

#[test]
fn what_is_saturated_is_named_so_and_has_no_place_at_the_frontier() {
    let mut results = sample::results();
    let most = results.runs.iter().filter_map(|run| run.rate).fold(0.0, f64::max);
    for run in results.runs.iter_mut().filter(|run| run.rate == Some(most)) {
        run.saturated = true;
        run.validity = Validity::Invalid { reasons: vec!["saturated".to_owned()], up_to: None };
    }
    let at_most = format!("p50 against CPU at {}", format::rate(most));
    let plot = report::frontier_plot(&results).unwrap().unwrap();
    assert!(!texts(&plot).contains(&at_most));
    let page = page(&results);
    assert!(page.contains("VALID") && page.contains("saturated at") && !page.contains(&at_most));
    let by_rate = table::by_rate(&results, 5_000.0, Style::Terminal);
    let throughput = format!("({})", format::rate(results.runs.last().unwrap().throughput));
    assert!(by_rate.contains(&throughput), "{by_rate}");
}

#[test]
fn a_setting_is_drawn_with_all_its_values() {
    let results = sample::results();
    let tradeoff = &results.tradeoffs[0];
    let texts = texts(&report::tradeoff_plot(tradeoff).unwrap());
    for label in ["cap 0", "cap 0.3", "cap 0.5", "cap 1"] {
        assert!(texts.iter().any(|text| text == label), "{label} in {texts:?}");
    }
    assert!(page(&results).contains("A made-up setting, &#60;from&#62;"));
}

#[test]
fn two_servers_are_no_frontier() {
    let mut results = sample::results();
    let names: Vec<String> = results.runs.iter().take(2).map(|run| run.server.clone()).collect();
    results.runs.retain(|run| names.contains(&run.server));
    assert!(report::frontier_plot(&results).unwrap().is_none());
}

#[test]
fn equal_results_make_equal_files() {
    assert_eq!(page(&sample::results()), page(&sample::results()));
}
