//! docs/own-service.md: the program, as the test `own_service` runs it. Of sqlx it has what needs
//! no database: a pool that is opened by Tokio's timers, and so needs Tokio on its loop.

pub(crate) mod sqlx {
    pub(crate) mod postgres {
        use std::io;
        use std::time::Duration;

        #[derive(Debug, Clone)]
        pub(crate) struct PgPool(String);

        pub(crate) struct PgPoolOptions;

        impl PgPoolOptions {
            pub(crate) fn new() -> Self {
                Self
            }

            pub(crate) fn max_connections(self, _: u32) -> Self {
                self
            }

            pub(crate) async fn connect(self, url: &str) -> io::Result<PgPool> {
                tokio::time::sleep(Duration::from_millis(1)).await;
                match url.strip_prefix("postgres://") {
                    Some(name) => Ok(PgPool(name.to_owned())),
                    None => Err(io::Error::other(format!("{url} is no database"))),
                }
            }
        }

        pub(crate) struct QueryScalar;

        impl QueryScalar {
            pub(crate) fn bind(self, _: i64) -> Self {
                self
            }

            pub(crate) async fn fetch_optional(self, pool: &PgPool) -> io::Result<Option<String>> {
                tokio::time::sleep(Duration::from_millis(1)).await;
                Ok(Some(format!("a note of {}\n", pool.0)))
            }
        }
    }

    pub(crate) fn query_scalar(_: &str) -> postgres::QueryScalar {
        postgres::QueryScalar
    }
}

use std::cell::OnceCell;
use std::error::Error;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use std::{env, io};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use sqlx::postgres::{PgPool, PgPoolOptions};
use wakeful::accept::{Descriptors, SharedListener};
use wakeful::log::{FlushOnDrop, LossyWriter, report_panics};
use wakeful::signal::{SIGHUP, Signals};
use wakeful::{EventLoop, IdlePolicy, LoopGroup, PerLoop};
use wakeful_http::access_log::{AccessLog, Destination, Format, Query};
use wakeful_http::observe::Observe;
use wakeful_http::{DrainPlan, Limits, Running, Server};
use wakeful_prometheus::{TextSum, register_access_log, register_log, register_server};
use wakeful_workers::{Master, Reports, Role, Said};

const PRE_DRAIN: Duration = Duration::from_secs(5);
const GRACE: Duration = Duration::from_secs(20);

fn main() -> Result<ExitCode, Box<dyn Error>> {
    start_log();
    Descriptors::raise_limit()?;

    let parks = EventLoop::builder().idle(IdlePolicy::Park);
    let group = LoopGroup::builder().loops(1).event_loop(parks).tokio();
    let master = Master::new(group.clone())
        .listen([setting("LISTEN")?.parse()?])
        .admin([setting("ADMIN")?.parse()?])
        .workers(2)
        .pid_file(env::var_os("PID_FILE").map(Into::into))
        .pre_drain(PRE_DRAIN)
        .drain_timeout(PRE_DRAIN + GRACE + Duration::from_secs(5));
    let mut worker = match master.run()? {
        Role::Worker(worker) => worker,
        Role::Ended(code) => return Ok(code),
    };

    let _flush = start_log_thread();
    let group = group.heartbeats(worker.heartbeats()).sibling(worker.sibling());
    let server = Server::from_listeners(worker.listeners()?).group(group);
    let admin = worker.admin_listeners()?;
    // If a worker is killed just when the kernel has woken it, another one answers.
    admin.iter().for_each(SharedListener::wake_every_loop);
    let admin = Server::from_listeners(admin);
    let (url, reports) = (setting("DATABASE_URL")?, worker.reports());
    let drained = worker.serve(
        || {
            let log = access_log()?;
            let running = start(server, url, &log)?;
            let (operators, metrics) = operators(admin, &running, reports, log)?;
            Ok((running, operators, metrics))
        },
        |(running, ..)| running.failure(),
        |(running, operators, metrics)| {
            if metrics.reports.is_served_elsewhere().unwrap_or(false) {
                let _ = operators.shutdown(Duration::from_secs(1)); // Others answer operators.
            }
            let aborted = running.drain(DrainPlan::new().pre_drain(PRE_DRAIN).grace(GRACE))?;
            metrics.reports.publish(|| metrics.said())?; // The next worker adds these counts.
            io::Result::Ok(aborted)
        },
    )?;
    drained.transpose()?;
    Ok(ExitCode::SUCCESS)
}

fn setting(name: &str) -> io::Result<String> {
    env::var(name).map_err(|error| io::Error::other(format!("{name}: {error}")))
}

/// The log of a process that may have threads. The master has none of its own.
static LOG: OnceLock<LossyWriter> = OnceLock::new();

fn start_log() {
    let masters = LossyWriter::without_thread(io::stderr());
    report_panics(&masters);
    let log = tracing_subscriber::fmt().with_ansi(false).log_internal_errors(false);
    log.with_writer(move || LOG.get().unwrap_or(&masters).clone()).init();
}

fn start_log_thread() -> FlushOnDrop {
    let log = LOG.get_or_init(|| LossyWriter::new(io::stderr()));
    report_panics(log);
    log.flush_on_drop(Duration::from_secs(1))
}

/// The pool of each loop: empty until the loop has opened it.
type Pools = PerLoop<OnceCell<PgPool>>;

fn start(server: Server, url: String, log: &AccessLog) -> io::Result<Running> {
    let limits = Limits::new()
        .max_connections(2_000)
        .max_header_size(16 * 1024)
        .max_requests(64)
        .max_body(1 << 20)
        .request_timeout(Duration::from_secs(10)); // shorter than GRACE
    let pools: Pools = PerLoop::new(OnceCell::new);
    let app = Router::new().route("/notes/{id}", get(note)).with_state(pools.clone());
    server
        .limits(limits)
        .observe(Observe::new().access_log(log.clone()))
        .on_each_loop(move || {
            let (pools, url) = (pools.get(), url.clone());
            async move {
                let pool = PgPoolOptions::new().max_connections(5).connect(&url).await;
                pools.set(pool.map_err(io::Error::other)?).expect("opened once");
                Ok(())
            }
        })
        .start(app)
}

/// A line of JSON for each request: on standard output, or in a file. HUP opens the file again.
fn access_log() -> io::Result<AccessLog> {
    let file = env::var_os("ACCESS_LOG").map(|path| Destination::File(path.into()));
    let log = AccessLog::new(Format::Json, file.unwrap_or(Destination::Stdout), Query::Omit)?;
    let (mut signals, reopened) = (Signals::new(&[SIGHUP])?, log.clone());
    wakeful::spawn(async move {
        while signals.recv().await.is_ok() {
            reopened.reopen();
        }
    })
    .detach();
    Ok(log)
}

async fn note(State(pools): State<Pools>, Path(id): Path<i64>) -> Result<String, StatusCode> {
    let pool = pools.with(|pool| pool.get().cloned()).expect("opened before the loop accepts");
    let note = sqlx::query_scalar("SELECT text FROM notes WHERE id = $1").bind(id);
    match note.fetch_optional(&pool).await {
        Ok(Some(text)) => Ok(text),
        Ok(None) => Err(StatusCode::NOT_FOUND),
        Err(_) => Err(StatusCode::SERVICE_UNAVAILABLE),
    }
}

/// Pages for operators. A request there reaches any worker, which answers for all of them.
fn operators(
    admin: Server,
    running: &Running,
    reports: Reports,
    log: AccessLog,
) -> io::Result<(Running, Arc<Metrics>)> {
    let metrics = Arc::new(Metrics::of(running, reports.clone(), log)?);
    let (answers, asked) = (metrics.clone(), metrics.clone());
    wakeful::spawn(reports.answer(move || answers.said())?).detach();
    let readiness = running.readiness();
    let readyz = async move || {
        if readiness.is_ready() || reports.is_served_by_others().unwrap_or(false) {
            (StatusCode::OK, "ready\n")
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, "draining\n")
        }
    };
    let pages = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(async move || asked.page().await));
    let parks = EventLoop::builder().idle(IdlePolicy::Park);
    let operators = admin.group(LoopGroup::builder().loops(1).event_loop(parks)).start(pages)?;
    Ok((operators, metrics))
}

struct Metrics {
    registry: Registry,
    reports: Reports,
    /// The counts of earlier workers in this worker's place, so that the sum never falls.
    earlier: String,
}

impl Metrics {
    fn of(running: &Running, reports: Reports, log: AccessLog) -> io::Result<Self> {
        let mut registry = Registry::default();
        register_server(&mut registry, running);
        register_access_log(&mut registry, log);
        if let Some(log) = LOG.get() {
            register_log(&mut registry, log.clone());
        }
        let left = reports.left_by_predecessor()?;
        let mut earlier = TextSum::new();
        earlier.add_counters(&left.earlier);
        earlier.add_counters(&left.own);
        Ok(Self { registry, reports, earlier: earlier.to_string() })
    }

    fn said(&self) -> Said {
        let mut own = String::new();
        encode(&mut own, &self.registry).expect("a String takes all that is written");
        Said { own, earlier: self.earlier.clone() }
    }

    async fn page(&self) -> Response {
        let reports = self.reports.clone();
        let asked = async move { reports.collect(Duration::from_secs(1)).await };
        let Ok(reports) = wakeful::on_this_loop(asked).await else {
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        };
        let mut sum = TextSum::new();
        for report in reports {
            sum.add_counters(&report.said.earlier);
            match report.worker {
                Some(_) => sum.add(&report.said.own),
                None => sum.add_counters(&report.said.own),
            }
        }
        let kind = "application/openmetrics-text; version=1.0.0";
        ([(CONTENT_TYPE, kind)], sum.to_string()).into_response()
    }
}

pub(crate) fn run() -> Result<ExitCode, Box<dyn Error>> {
    main()
}
