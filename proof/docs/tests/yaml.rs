//! YAML on the pages is what Prometheus and Kubernetes take. (That each metric in it exists is a
//! test of wakeful-cli: `metrics`.)

#![allow(dead_code)] // The fields are only read from the text.

use std::collections::BTreeMap;
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
    #[serde(default)]
    static_configs: Vec<Targets>,
    #[serde(default)]
    kubernetes_sd_configs: Vec<Discovery>,
    #[serde(default)]
    relabel_configs: Vec<Relabel>,
    #[serde(default)]
    metric_relabel_configs: Vec<Relabel>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Targets {
    targets: Vec<SocketAddr>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Discovery {
    role: Role,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Role {
    Pod,
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

/// A file of rules.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    name: String,
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    alert: String,
    expr: String,
    #[serde(rename = "for")]
    lasts: Option<String>,
}

/// A part of a container in a manifest.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Container {
    env: Vec<Variable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Variable {
    name: String,
    value: Option<String>,
    value_from: Option<BTreeMap<String, Key>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Key {
    name: String,
    key: String,
}

/// What is wrong with it.
fn wrong(text: &str) -> Option<serde_yaml_ng::Error> {
    match text.split(':').next() {
        Some("groups") => serde_yaml_ng::from_str::<Rules>(text).err(),
        Some("env") => serde_yaml_ng::from_str::<Container>(text).err(),
        _ => serde_yaml_ng::from_str::<Configuration>(text).err(),
    }
}

#[test]
fn each_block_is_a_part_of_a_configuration() {
    let blocks = blocks("yaml");
    assert!(!blocks.is_empty());
    for block in blocks {
        let wrong = wrong(&block.text);
        assert!(wrong.is_none(), "{}: {}", block.place, wrong.unwrap());
    }
}

#[test]
fn what_nobody_reads_is_refused() {
    for text in ["groups: [{name: x, rule: []}]", "env: [{nam: x}]", "scrape_config: []"] {
        assert!(wrong(text).is_some(), "{text}");
    }
}
