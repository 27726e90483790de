//! YAML on the pages is what Prometheus takes. (That each metric in it exists is a test of
//! wakeful-cli: `metrics`.)

#![allow(dead_code)] // The fields are only read from the text.

use std::net::SocketAddr;

use doc_pages::blocks;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Configuration {
    scrape_configs: Vec<Job>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Job {
    job_name: String,
    static_configs: Vec<Targets>,
    metric_relabel_configs: Vec<Relabel>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Targets {
    targets: Vec<SocketAddr>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Relabel {
    source_labels: Vec<String>,
    regex: String,
    action: Action,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Action {
    Drop,
    Keep,
}

#[test]
fn each_block_is_a_configuration_of_prometheus() {
    let blocks = blocks("yaml");
    assert!(!blocks.is_empty());
    for block in blocks {
        let read = serde_yaml_ng::from_str::<Configuration>(&block.text);
        assert!(read.is_ok(), "{}: {}", block.place, read.err().unwrap());
    }
}
