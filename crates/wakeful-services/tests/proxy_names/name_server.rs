//! A name server that says what a test tells it to, and a network where it is the only one.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::{env, fs, thread};

/// Set in a test that runs in a network of its own.
const ALONE: &str = "WAKEFUL_TEST_ALONE";

const RESOLVER: &str = "127.0.0.1:53";
const ADDRESS: u16 = 1;
const ADDRESS_OF_VERSION_6: u16 = 28;

/// Runs `test`, which is this test program's test `name`, in a network and with name servers of its
/// own. Real look-ups ask the server that it gets. `options`: those of `resolv.conf`.
pub(crate) fn with_names(name: &str, options: &str, test: impl FnOnce(&NameServer)) {
    if env::var_os(ALONE).is_some() {
        return test(&NameServer::start());
    }
    let directory = env::temp_dir().join(format!("wakeful-names-{}-{name}", std::process::id()));
    fs::create_dir(&directory).unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let resolv =
        file("resolv.conf", &format!("nameserver 127.0.0.1\nsearch .\noptions {options}\n"));
    let nsswitch = file("nsswitch.conf", "hosts: dns\n");
    let alone = |command: &[&str]| {
        let script = "ip link set lo up && mount --bind \"$0\" /etc/resolv.conf \
                      && mount --bind \"$1\" /etc/nsswitch.conf && shift && exec \"$@\"";
        let mut unshare = Command::new("unshare");
        unshare.args(["--net", "--mount", "sh", "-c", script]).args([&resolv, &nsswitch]);
        unshare.args(command).env(ALONE, "1");
        unshare
    };
    let is_possible = alone(&["true"]).output().is_ok_and(|output| output.status.success());
    let program = env::current_exe().unwrap();
    let program = program.to_str().unwrap();
    let ended =
        is_possible.then(|| alone(&[program, "--exact", name, "--nocapture"]).status().unwrap());
    fs::remove_dir_all(&directory).unwrap();
    match ended {
        Some(status) => assert!(status.success(), "in its own network: {status}"),
        None => eprintln!("skipped: there can be no network of its own (unshare, ip, mount, root)"),
    }
}

/// Answers all questions alike, whatever the name.
#[derive(Clone)]
pub(crate) struct NameServer {
    socket: Arc<UdpSocket>,
    state: Arc<Mutex<State>>,
}

struct State {
    says: Says,
    /// What was asked while it was silent.
    held: Vec<(Vec<u8>, SocketAddr)>,
    asked: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Says {
    These(Vec<IpAddr>),
    /// There is no such name.
    Unknown,
    /// It cannot say.
    Failure,
    /// It cannot say whether there is an address of version 4, and there is none of version 6.
    HalfOfAFailure,
    /// Nothing, until it is told something else.
    Nothing,
}

impl NameServer {
    fn start() -> Self {
        let socket = Arc::new(UdpSocket::bind(RESOLVER).unwrap());
        let state = State { says: Says::Unknown, held: Vec::new(), asked: 0 };
        let this = Self { socket, state: Arc::new(Mutex::new(state)) };
        let server = this.clone();
        thread::spawn(move || {
            let mut buf = [0; 512];
            loop {
                let (read, from) = server.socket.recv_from(&mut buf).unwrap();
                server.asked(buf[..read].to_vec(), from);
            }
        });
        this
    }

    fn asked(&self, question: Vec<u8>, from: SocketAddr) {
        let mut state = self.state.lock().unwrap();
        state.asked += u64::from(kind(&question) == ADDRESS);
        match &state.says {
            Says::Nothing => state.held.push((question, from)),
            says => self.answer(&question, from, says),
        }
    }

    pub(crate) fn says(&self, says: Says) {
        let mut state = self.state.lock().unwrap();
        for (question, from) in state.held.split_off(0) {
            self.answer(&question, from, &says);
        }
        state.says = says;
    }

    pub(crate) fn says_these(&self, addrs: &[&str]) {
        self.says(Says::These(addrs.iter().map(|addr| addr.parse().unwrap()).collect()));
    }

    /// How often an address was asked for. (Each look-up also asks for one of version 6.)
    pub(crate) fn asked_for_addresses(&self) -> u64 {
        self.state.lock().unwrap().asked
    }

    /// How many questions it has not answered yet.
    pub(crate) fn holds(&self) -> usize {
        self.state.lock().unwrap().held.len()
    }

    fn answer(&self, question: &[u8], to: SocketAddr, says: &Says) {
        let kind = kind(question);
        let (code, addrs) = match says {
            Says::These(addrs) => (0, addrs.as_slice()),
            Says::HalfOfAFailure if kind != ADDRESS => (0, &[][..]),
            Says::Failure | Says::HalfOfAFailure => (2, &[][..]),
            Says::Unknown => (3, &[][..]),
            Says::Nothing => return,
        };
        let of_kind = |addr: &&IpAddr| addr.is_ipv4() == (kind == ADDRESS);
        let is_known = [ADDRESS, ADDRESS_OF_VERSION_6].contains(&kind);
        let addrs: Vec<_> = addrs.iter().filter(of_kind).filter(|_| is_known).collect();
        // RFC 1035, 4.1: a response with recursion, as many answers, and the question again.
        let mut answer = question[..2].to_vec();
        answer.extend([0x81, 0x80 | code, 0, 1, 0, u8::try_from(addrs.len()).unwrap(), 0, 0, 0, 0]);
        answer.extend(&question[12..end_of_name(question) + 4]);
        for addr in addrs {
            let data = match addr {
                IpAddr::V4(addr) => addr.octets().to_vec(),
                IpAddr::V6(addr) => addr.octets().to_vec(),
            };
            // The name of the question, of this kind, of the Internet, not to be kept.
            answer.extend([0xc0, 12]);
            answer.extend(kind.to_be_bytes());
            answer.extend([0, 1, 0, 0, 0, 0, 0, u8::try_from(data.len()).unwrap()]);
            answer.extend(data);
        }
        self.socket.send_to(&answer, to).unwrap();
    }
}

fn kind(question: &[u8]) -> u16 {
    let end = end_of_name(question);
    u16::from_be_bytes([question[end], question[end + 1]])
}

/// Where the first name of a message ends.
fn end_of_name(message: &[u8]) -> usize {
    let mut at = 12;
    while message[at] != 0 {
        at += 1 + usize::from(message[at]);
    }
    at + 1
}
