//! Which sockets of a port get new connections.
//!
//! With `SO_REUSEPORT` the kernel chooses one of a port's sockets by a hash. A program of the
//! classic BPF can choose instead (`SO_ATTACH_REUSEPORT_CBPF`, Linux 4.6; it needs no privilege).
//! It returns a number: the place of a socket in the kernel's list (`net/core/sock_reuseport.c`).
//! The program here takes one of the given places at random. A random choice is as good as a hash,
//! because the kernel asks for the first segment of a connection only: the later ones belong to the
//! socket that was chosen. (With SYN cookies it asks again for the last segment of the handshake.)

use std::ops::Range;

use libc::sock_filter;

/// The maximum number of runs. A program begins with two instructions, and each run of places takes
/// three. The kernel allows 4,096 instructions (`BPF_MAXINSNS`), and before Linux 6.8 what fits
/// into `net.core.optmem_max`, 20,480 bytes: some 2,550 instructions of 8 bytes.
const MOST_RUNS: usize = 800;

/// Makes a program that chooses one of `places`, which must be ascending, at random.
pub(crate) fn choose_among(places: impl IntoIterator<Item = usize>) -> Vec<sock_filter> {
    let mut runs = runs(places);
    // If a port has more holes than that, the sockets after them get nothing for a while.
    runs.truncate(MOST_RUNS);
    let all = runs.iter().map(Range::len).sum();
    let mut program = vec![
        // The register is a random number.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, RANDOM),
        statement(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, number(all)),
    ];
    let mut before = 0;
    for run in runs {
        // The register counts the places of all runs that were passed. The socket's number also
        // counts the holes.
        let end = before + run.len();
        if end < all {
            let is_after = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
            program.push(sock_filter { jt: 2, ..statement(is_after, number(end)) });
        }
        let add = libc::BPF_ALU | libc::BPF_ADD | libc::BPF_K;
        program.push(statement(add, number(run.start - before)));
        program.push(statement(libc::BPF_RET | RETURNS_REGISTER, 0));
        before = end;
    }
    program
}

/// Loads a random number instead of a part of the segment.
const RANDOM: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_RANDOM).cast_unsigned();

/// `BPF_A` of linux/filter.h.
const RETURNS_REGISTER: u32 = 0x10;

fn statement(code: u32, k: u32) -> sock_filter {
    // The constants have at most 8 bits.
    sock_filter { code: u16::try_from(code).unwrap_or(0), jt: 0, jf: 0, k }
}

/// A port has fewer sockets than that, because their number has 16 bits.
fn number(places: usize) -> u32 {
    u32::try_from(places).unwrap_or(u32::MAX)
}

fn runs(places: impl IntoIterator<Item = usize>) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for place in places {
        match runs.last_mut() {
            Some(run) if run.end == place => run.end += 1,
            _ => runs.push(place..place + 1),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::TcpStream;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use wakeful::accept::SharedListener;

    use super::*;
    use crate::sys;

    /// A port with this many sockets, in the kernel's order.
    fn port(sockets: usize) -> Vec<SharedListener> {
        let first = SharedListener::bind_first(&"127.0.0.1:0".parse().unwrap(), []).unwrap();
        let others: Vec<_> = (1..sockets).map(|_| first.bind_again().unwrap()).collect();
        [first].into_iter().chain(others).collect()
    }

    /// Which sockets have got some of 200 connections.
    fn chosen(port: &[SharedListener]) -> Vec<usize> {
        let addr = port[0].socket_addr().unwrap();
        let clients: Vec<_> = (0..200).map(|_| TcpStream::connect(addr).unwrap()).collect();
        let has_some = |listener: &SharedListener| {
            let mut fd = [PollFd::new(listener, PollFlags::IN)];
            poll(&mut fd, Some(&Timespec::default())).unwrap() > 0
        };
        let chosen = (0..port.len()).filter(|place| has_some(&port[*place])).collect();
        for listener in port {
            let listener = std::net::TcpListener::from(
                std::os::fd::AsFd::as_fd(listener).try_clone_to_owned().unwrap(),
            );
            listener.set_nonblocking(true).unwrap();
            while listener
                .accept()
                .map_err(|error| assert_eq!(error.kind(), ErrorKind::WouldBlock))
                .is_ok()
            {}
        }
        drop(clients);
        chosen
    }

    #[test]
    fn connections_go_to_the_given_places_of_a_port_and_to_no_others() {
        let port = port(9);
        let all: Vec<_> = (0..9).collect();
        assert_eq!(chosen(&port), all);
        for places in [&[0][..], &[8], &[0, 1, 2], &[1, 2, 5, 8], &[0, 2, 4, 6, 8], &all] {
            let program = choose_among(places.iter().copied());
            sys::steer(&port[0], &program).unwrap();
            assert_eq!(chosen(&port), places);
        }
        sys::steer(&port[0], &choose_among([3])).unwrap();
        sys::stop_steering(&port[4]).unwrap();
        assert_eq!(chosen(&port), all);
    }

    #[test]
    fn a_port_with_a_hole_at_every_second_place_has_a_program_that_the_kernel_takes() {
        let port = port(2);
        sys::steer(&port[0], &choose_among((0..5_000).map(|place| 2 * place))).unwrap();
    }
}
