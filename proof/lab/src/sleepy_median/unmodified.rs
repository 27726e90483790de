//! Common programs without changes: redis, nginx and Node, each alone and under `wakeful awake`.
//! They answer with 1 KiB.

use std::path::Path;

use wakeful_load::internals::bench::Load;

use super::cases::Case;
use super::loads;
use super::nginx::{self, NGINX};
use crate::contender::{Contender, Cpus};
use crate::lab::LabError;
use crate::probe::{Probe, ReadyProbe, Source};

pub(super) const REDIS: &str = "redis-server";
/// The same program under `wakeful awake`.
pub(super) const REDIS_AWAKE: &str = "redis-server, awake";
const NGINX_AWAKE: &str = "nginx, awake";
const NODE: &str = "node";
const NODE_AWAKE: &str = "node, awake";

/// Programs of the distribution besides [`nginx`], and the packages that contain them.
const INSTALLED: [(&str, &str); 2] = [(REDIS, "redis-server"), (NODE, "nodejs")];

/// Returns the programs that the lab has to find. They are servers, so none of them is run as a
/// probe.
pub(super) fn programs(part: &'static str) -> impl Iterator<Item = Probe> {
    INSTALLED.into_iter().map(move |(program, package)| Probe {
        name: program.to_owned(),
        part,
        peer: Some(program),
        program,
        source: Source::Installed { package },
        ..Probe::default()
    })
}

/// Returns the cases of the programs that are in `there`, alone and under the program `wakeful`.
/// The frames of `load` become requests in each program's protocol. `scratch` is for nginx's files.
pub(super) fn cases(
    there: &[ReadyProbe],
    wakeful: &Path,
    load: &Load,
    scratch: &Path,
) -> Result<impl Iterator<Item = Case>, LabError> {
    let (resp, http) = (loads::resp(load)?, loads::http(load, "/")?);
    let path = |program: &str| {
        let ready = there.iter().find(|ready| ready.probe.program == program);
        ready.map(|ready| ready.path.as_path())
    };
    let all = [
        (path(REDIS).map(redis), REDIS_AWAKE, resp),
        (path(NGINX).map(|nginx| nginx_alone(nginx, scratch)), NGINX_AWAKE, http.clone()),
        (path(NODE).map(node), NODE_AWAKE, http),
    ];
    Ok(all.into_iter().flat_map(move |(alone, awake, load)| {
        let held = alone.clone().map(|alone| alone.awake(wakeful, awake));
        alone.into_iter().chain(held).map(move |contender| Case::new(contender, &load))
    }))
}

/// Redis keeps its data only in memory.
fn redis(program: &Path) -> Contender {
    let words = ["--port", "{port}", "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
    Contender::new(REDIS, Cpus::One, program, &words)
}

fn nginx_alone(program: &Path, scratch: &Path) -> Contender {
    let body = "a".repeat(loads::BYTES);
    let server =
        format!("  server {{ listen {{addr}}; location / {{ return 200 \"{body}\"; }} }}\n");
    let argv = nginx::argv(program, scratch, &server);
    let words: Vec<&str> = argv[1..].iter().map(String::as_str).collect();
    Contender::new(NGINX, Cpus::One, Path::new(&argv[0]), &words)
}

/// Node would close connections that are idle for 5 s, as they are at 10 requests per second.
fn node(program: &Path) -> Contender {
    let bytes = loads::BYTES;
    let script = format!(
        "const body = Buffer.alloc({bytes}, 'a'); \
         const server = require('http').createServer((_, response) => response.end(body)); \
         server.keepAliveTimeout = 0; server.listen(process.argv[1], '127.0.0.1');"
    );
    Contender::new(NODE, Cpus::One, program, &["-e", &script, "{port}"])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wakeful_load::internals::servers::Server;
    use wakeful_load::{Plan, Target};

    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn each_that_is_installed_answers_what_it_is_asked_and_the_others_are_no_cases() {
        let path = std::env::var_os("PATH").unwrap();
        let programs = programs("awake").chain([nginx::program("awake")]);
        let there: Vec<ReadyProbe> = programs
            .filter_map(|probe| {
                let mut files = std::env::split_paths(&path).map(|dir| dir.join(probe.program));
                let path = files.find(|file| file.is_file())?;
                Some(ReadyProbe { probe, path })
            })
            .collect();
        let plan = Plan::new(Target::Unix("/".into())).rate(500.0).connections(4);
        let plan = plan.warm_up(Duration::from_millis(50)).duration(Duration::from_millis(200));
        let load = Load { plan, slow_clients: 0 };
        let scratch = Scratch::new().unwrap();
        let all = cases(&there, Path::new("wakeful"), &load, scratch.path()).unwrap();
        let all: Vec<Case> = all.collect();
        assert_eq!(all.len(), 2 * there.len());
        for alone in all.chunks(2).map(|pair| &pair[0]) {
            let server = Server::start(&alone.contender.server, None, Duration::from_secs(20));
            let server = server.unwrap();
            let target = server.addr().parse::<Target>().unwrap();
            let measured = alone.load.plan.clone().target(target).run().unwrap();
            assert!(measured.recording.answered > 0, "{}: {measured:?}", alone.name);
            assert_eq!(measured.first_failure, None, "{}", alone.name);
        }
        assert_eq!(cases(&[], Path::new("wakeful"), &load, scratch.path()).unwrap().count(), 0);
    }
}
