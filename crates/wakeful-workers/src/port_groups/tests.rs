use std::net::{SocketAddr, TcpListener, TcpStream};
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::net::sockopt::{set_socket_linger, socket_acceptconn};
use rustix::net::{Shutdown, shutdown};
use socket2::SockRef;

use super::*;
use crate::{sys, systemd};

fn any() -> [ListenAddr; 1] {
    ["127.0.0.1:0".parse().unwrap()]
}

fn groups(workers: usize, loops: usize) -> PortGroups {
    PortGroups::open(&any(), (workers, loops), &mut Vec::new()).unwrap()
}

fn addr(groups: &PortGroups) -> SocketAddr {
    groups.groups[0].members[0].socket.socket_addr().unwrap()
}

/// Accepts what waits at this socket: the addresses of the clients.
fn accept_from(socket: &SharedListener) -> Vec<SocketAddr> {
    let listener = TcpListener::from(socket.as_fd().try_clone_to_owned().unwrap());
    listener.set_nonblocking(true).unwrap();
    std::iter::from_fn(|| Some(listener.accept().ok()?.1)).collect()
}

/// Accepts what waits at this socket.
fn accept_all(socket: &SharedListener) -> usize {
    accept_from(socket).len()
}

/// As `ss -K` does.
fn shut_down(socket: &SharedListener) {
    shutdown(socket, Shutdown::Read).unwrap();
}

/// Does a filter, or the least TTL where filters are not permitted, keep clients out?
fn is_out_of_reach(socket: impl AsFd) -> bool {
    sys::least_ttl(&socket) == 255 || SockRef::from(&socket).detach_filter().is_ok()
}

/// Which slots have got some of 200 connections.
fn chosen(groups: &PortGroups) -> Vec<usize> {
    let clients: Vec<_> =
        (0..200).map(|_| TcpStream::connect(addr(groups)).expect("refused")).collect();
    let mut waiting: BTreeSet<_> =
        clients.iter().map(|client| client.local_addr().unwrap()).collect();
    let (mut chosen, since) = (BTreeSet::new(), Instant::now());
    // On a busy machine the kernel may be late with the last handshakes.
    while !waiting.is_empty() && since.elapsed() < Duration::from_secs(1) {
        for member in &groups.groups[0].members {
            for client in accept_from(&member.socket) {
                // Clients of before may wait there, too.
                chosen.extend(waiting.remove(&client).then_some(member.slot));
            }
        }
    }
    chosen.into_iter().collect()
}

fn slots(groups: &PortGroups) -> Vec<usize> {
    groups.groups[0].members.iter().map(|member| member.slot).collect()
}

#[test]
fn a_new_place_gets_connections_when_it_is_admitted() {
    for first in [1, 2] {
        let mut groups = groups(first, 2);
        let before: Vec<_> = (0..2 * first).collect();
        groups.make(first, first + 1).unwrap();
        assert_eq!(groups.for_worker(first).unwrap().len(), 2);
        assert_eq!(chosen(&groups), before);
        groups.admit(first);
        assert_eq!(chosen(&groups), (0..2 * first + 2).collect::<Vec<_>>());
    }
}

#[test]
fn clients_go_elsewhere_while_a_place_has_no_worker() {
    let mut groups = groups(3, 1);
    let waiting: Vec<_> =
        (0..200).map(|_| TcpStream::connect(addr(&groups)).expect("refused")).collect();
    groups.avoid(1);
    // Connections that wait there are not lost.
    assert!(accept_all(groups.sockets_of(1).next().unwrap()) > 0);
    groups.sockets_of(0).chain(groups.sockets_of(2)).for_each(|socket| _ = accept_all(socket));
    drop(waiting);
    assert_eq!(chosen(&groups), [0, 2]);
    groups.avoid(0);
    assert_eq!(chosen(&groups), [2]);
    // There is nowhere else.
    groups.avoid(2);
    assert_eq!(chosen(&groups), [2]);
    groups.admit(0);
    groups.admit(1);
    assert_eq!(chosen(&groups), [0, 1, 2]);
}

#[test]
fn a_place_that_leaves_while_an_upgrade_fails_settles_again_and_then_closes() {
    let mut groups = groups(2, 1);
    let mut now = Instant::now();
    groups.retire(1, now);
    now += UNTIL_BACKLOG_IS_EMPTY;
    assert_eq!(groups.look(now, |_| Inside::Nobody), []);
    now += LINGER;
    // The new master has let clients in there.
    groups.sockets_of(1).for_each(|socket| sys::let_in_again(socket).unwrap());
    groups.steer_again(Vec::new(), now);
    assert_eq!((groups.look(now, |_| Inside::Nobody), slots(&groups)), (vec![], vec![0, 1]));
    now += UNTIL_BACKLOG_IS_EMPTY;
    assert_eq!((groups.look(now, |_| Inside::Nobody), slots(&groups)), (vec![], vec![0, 1]));
    now += LINGER;
    assert_eq!((groups.look(now, |_| Inside::Nobody), slots(&groups)), (vec![], vec![0]));
}

/// So there is no list before the second one.
#[test]
fn the_only_socket_of_a_port_gets_all_until_another_one_is_admitted() {
    let mut groups = groups(1, 1);
    groups.make(1, 2).unwrap();
    assert_eq!(chosen(&groups), [0]);
    groups.admit(1);
    assert_eq!(chosen(&groups), [0, 1]);
}

#[test]
fn places_that_leave_get_nothing_and_close_when_nobody_waits_there() {
    let mut groups = groups(5, 1);
    let mut now = Instant::now();
    let waiting: Vec<_> =
        (0..200).map(|_| TcpStream::connect(addr(&groups)).expect("refused")).collect();
    groups.retire(2, now);
    // Connections wait in the first two places, which continue.
    groups.sockets_of(0).chain(groups.sockets_of(1)).for_each(|socket| {
        assert!(accept_all(socket) > 0);
    });
    assert_eq!(chosen_but_waiting(&groups), [0, 1]);
    // Their workers have a moment.
    assert!(groups.look(now, |_| Inside::Draining).is_empty());
    now += UNTIL_BACKLOG_IS_EMPTY;
    assert_eq!(groups.look(now, |_| Inside::Draining), [2, 3, 4]);
    // And so have those that are started for what waits.
    let is_three = |place| if place == 3 { Inside::Accepting } else { Inside::Nobody };
    now += UNTIL_BACKLOG_IS_EMPTY;
    assert_eq!(groups.look(now, is_three), [2, 4]);
    assert!(groups.watched(|_| Inside::Nobody).is_empty());
    let places = [2, 3, 4];
    assert!(
        places.iter().all(|place| groups.sockets_of(*place).map(accept_all).sum::<usize>() > 0)
    );
    now += UNTIL_BACKLOG_IS_EMPTY;
    assert!(groups.look(now, |_| Inside::Nobody).is_empty());
    assert_eq!(groups.watched(|_| Inside::Nobody).len(), 3);
    assert_eq!(groups.next_at(|_| Inside::Nobody), Some(now + LINGER));
    assert_eq!(chosen(&groups), [0, 1]);
    now += LINGER;
    // One that drains may still look at its own.
    let is_four = |place| if place == 4 { Inside::Draining } else { Inside::Nobody };
    assert!(groups.look(now, is_four).is_empty());
    assert_eq!(slots(&groups), [0, 1, 4]);
    assert_eq!(chosen(&groups), [0, 1]);
    now += LINGER;
    assert!(groups.look(now, |_| Inside::Nobody).is_empty());
    assert_eq!(slots(&groups), [0, 1]);
    assert_eq!(chosen(&groups), [0, 1]);
    assert!(!groups.groups[0].is_steered);
    drop(waiting);
}

/// Returns the places that get new connections, except those at which connections were already
/// waiting: these stay there.
fn chosen_but_waiting(groups: &PortGroups) -> Vec<usize> {
    let queued = |member: &Member| {
        let addr = member.socket.socket_addr().unwrap();
        (addr, is_waited_at(member.socket.as_fd()))
    };
    let before: Vec<_> = groups.groups[0].members.iter().map(queued).collect();
    let clients: Vec<_> =
        (0..200).map(|_| TcpStream::connect(addr(groups)).expect("refused")).collect();
    let members = groups.groups[0].members.iter().zip(before);
    let got = members
        .filter(|(member, (_, was_waited_at))| !was_waited_at && accept_all(&member.socket) > 0);
    let chosen = got.map(|(member, _)| member.slot).collect();
    drop(clients);
    chosen
}

#[test]
fn wherever_one_closes_the_open_ones_get_connections_and_no_others() {
    // In the list 3 takes the place of 1, and then 2 is in the middle.
    for order in [[1, 2], [2, 1], [1, 3], [3, 1], [2, 3], [3, 2]] {
        let mut groups = groups(4, 1);
        let open: Vec<_> = (0..4).filter(|slot| !order.contains(slot)).collect();
        // A worker of a predecessor may have them for longer.
        let _held: Vec<_> = (0..4).map(|place| groups.for_worker(place).unwrap()).collect();
        groups.groups[0].change(|member| member.is_open = !order.contains(&member.slot));
        assert_eq!(chosen(&groups), open);
        for slot in order {
            let place = slots(&groups).iter().position(|one| *one == slot).unwrap();
            groups.groups[0].take_out(place);
            // Before the program knows.
            let chosen_at_once = chosen(&groups);
            assert!(chosen_at_once.iter().all(|slot| open.contains(slot)), "{chosen_at_once:?}");
            groups.groups[0].steer();
            assert_eq!(chosen(&groups), open, "{order:?}");
        }
    }
}

/// Makes two places, of which the second is about to close.
fn about_to_close() -> PortGroups {
    let mut groups = groups(2, 1);
    let now = Instant::now();
    groups.retire(1, now);
    assert!(groups.look(now + UNTIL_BACKLOG_IS_EMPTY, |_| Inside::Nobody).is_empty());
    // A filter is there.
    assert!(groups.groups[0].members[1].may_be_filtered);
    groups
}

#[test]
fn a_place_that_is_wanted_again_before_it_has_closed_keeps_its_sockets() {
    let later = Instant::now() + 2 * LINGER;
    let wants_again: [fn(&mut PortGroups); 3] = [
        // A worker is started; there is one already, for what waits there; none can be had yet.
        |groups| groups.make(1, 2).unwrap(),
        |_| (),
        |groups| groups.retire(2, Instant::now()),
    ];
    for (number, want_again) in wants_again.into_iter().enumerate() {
        let mut groups = about_to_close();
        want_again(&mut groups);
        if number != 1 {
            assert!(groups.look(later, |_| Inside::Nobody).is_empty());
            assert_eq!(slots(&groups), [0, 1]);
        }
        assert_eq!(chosen(&groups), [0]);
        groups.admit(1);
        assert_eq!(chosen(&groups), [0, 1]);
        assert!(groups.look(later, |_| Inside::Nobody).is_empty());
        assert_eq!(slots(&groups), [0, 1]);
    }
}

#[test]
fn a_successor_that_wants_a_place_that_is_about_to_close_gets_connections_there() {
    let old = about_to_close();
    let mut new = PortGroups::open(&any(), (2, 1), &mut old.for_successor().unwrap()).unwrap();
    new.take_charge(2, Instant::now());
    assert_eq!(chosen(&new), [0, 1]);
}

#[test]
fn a_successor_has_the_sockets_in_their_order_and_its_own_get_nothing_before_it_is_in_charge() {
    let mut old = groups(3, 1);
    // One is gone already, so that the order is not that of the numbers.
    old.groups[0].close(|slot| slot == 1);
    let mut inherited = old.for_successor().unwrap();
    assert_eq!(slots(&old), [0, 2]);
    let new = PortGroups::open(&any(), (4, 1), &mut inherited).unwrap();
    assert!(inherited.is_empty());
    assert_eq!(slots(&new), [0, 2, 1, 3]);
    assert_eq!(addr(&new), addr(&old));
    assert_eq!(chosen(&new), [0, 2]);
    // It is killed, and its workers have their sockets for longer.
    let made: Vec<_> = new.made_here().map(|socket| socket.try_clone_to_owned().unwrap()).collect();
    let held = new.for_worker(3).unwrap();
    drop(new);
    old.steer_again(made, Instant::now());
    assert_eq!(socket_acceptconn(&held[0]), Ok(false));
    // While it stopped, no client came in.
    assert!(is_out_of_reach(&held[0]));
    assert_eq!(chosen(&old), [0, 2]);
    // So the next socket has the place in the list that this master believes.
    old.make(3, 4).unwrap();
    old.admit(3);
    assert_eq!((chosen(&old), slots(&old)), (vec![0, 2, 3], vec![0, 2, 3]));
    // The next one does not, and has fewer workers.
    let mut inherited = old.for_successor().unwrap();
    let mut new = PortGroups::open(&any(), (2, 1), &mut inherited).unwrap();
    assert_eq!(chosen(&new), [0, 2, 3]);
    new.take_charge(2, Instant::now());
    old.clear();
    assert_eq!(chosen(&new), [0, 1]);
}

/// A later address is in use.
#[test]
fn a_successor_that_cannot_open_all_its_sockets_stops_those_that_it_has_made() {
    let old = groups(1, 1);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let addrs = [any()[0].clone(), taken.local_addr().unwrap().into()];
    while_clients_connect(addr(&old), || {
        for _ in 0..200 {
            let mut inherited = old.for_successor().unwrap();
            PortGroups::open(&addrs, (5, 1), &mut inherited).unwrap_err();
            accept_all(&old.groups[0].members[0].socket);
        }
    });
    assert_eq!(chosen(&old), [0]);
}

#[test]
fn a_successor_lets_nobody_into_a_place_that_leaves_before_it_is_in_charge() {
    let mut old = groups(2, 1);
    old.retire(1, Instant::now());
    let mut new = PortGroups::open(&any(), (3, 1), &mut old.for_successor().unwrap()).unwrap();
    assert_eq!(chosen(&new), [0]);
    new.take_charge(3, Instant::now());
    assert_eq!(chosen(&new), [0, 1, 2]);
}

#[test]
fn a_successor_that_starts_workers_lets_nobody_in_while_its_predecessor_ends() {
    let old = groups(2, 1);
    let mut new = PortGroups::open(&any(), (2, 1), &mut old.for_successor().unwrap()).unwrap();
    old.let_nobody_in();
    new.make(0, 2).unwrap();
    new.make(1, 2).unwrap();
    for _ in 0..8 {
        let client = TcpStream::connect_timeout(&addr(&old), Duration::from_millis(20));
        assert_eq!(client.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    }
    assert!(old.waited_at().is_empty());
    new.take_charge(2, Instant::now());
    assert_eq!(chosen(&new), [0, 1]);
}

#[test]
fn a_successor_has_the_sockets_of_each_address_though_the_kernel_chose_the_ports() {
    let [one] = any();
    let listen = [one.clone(), one];
    let old = PortGroups::open(&listen, (2, 1), &mut Vec::new()).unwrap();
    let mut inherited = old.for_successor().unwrap();
    let new = PortGroups::open(&listen, (2, 1), &mut inherited).unwrap();
    assert!(inherited.is_empty());
    let addrs = |groups: &PortGroups| groups.addrs().cloned().collect::<Vec<_>>();
    assert_eq!(addrs(&new), addrs(&old));
    assert_eq!(new.groups.iter().map(|group| group.members.len()).collect::<Vec<_>>(), [2, 2]);
}

#[test]
fn a_place_that_a_predecessor_had_for_fewer_loops_has_one_for_each_of_them() {
    let old = groups(3, 1);
    let mut inherited = old.for_successor().unwrap();
    let new = PortGroups::open(&any(), (1, 2), &mut inherited).unwrap();
    for place in 0..2 {
        assert_eq!(new.for_worker(place).unwrap().len(), 2);
    }
}

#[test]
fn a_socket_that_somebody_shuts_down_listens_again_in_its_new_place() {
    let mut groups = groups(4, 1);
    shut_down(&groups.groups[0].members[1].socket);
    groups.listen_again();
    assert_eq!(slots(&groups), [0, 3, 2, 1]);
    assert_eq!(chosen(&groups), [0, 1, 2, 3]);
    groups.retire(2, Instant::now());
    assert_eq!(chosen(&groups), [0, 1]);
}

/// The worker of the socket dies, so the master steers before it makes the socket listen again.
#[test]
fn a_socket_that_somebody_shuts_down_listens_again_after_its_worker_is_dead() {
    for dead in 0..3 {
        let mut groups = groups(3, 1);
        shut_down(&groups.groups[0].members[dead].socket);
        groups.avoid(dead);
        let others: Vec<_> = (0..3).filter(|place| *place != dead).collect();
        assert_eq!(chosen(&groups), others);
        groups.listen_again();
        assert!(groups.sockets_of(dead).all(|one| !has_stopped(one.as_fd())), "{dead}");
        groups.admit(dead);
        assert_eq!(chosen(&groups), [0, 1, 2]);
        groups.avoid(dead);
        assert_eq!(chosen(&groups), others);
    }
}

/// Its worker lives, serves another address, and accepts no more here.
#[test]
fn a_socket_that_somebody_shuts_down_listens_again_for_a_new_worker_in_its_place_only() {
    let mut groups = groups(3, 1);
    for place in [0, 2] {
        shut_down(&groups.groups[0].members[place].socket);
    }
    groups.listen_again_at(2);
    groups.admit(2);
    assert_eq!(chosen(&groups), [1, 2]);
    groups.listen_again_at(0);
    groups.admit(0);
    assert_eq!(chosen(&groups), [0, 1, 2]);
}

/// The kernel's list has no place for it.
#[test]
fn while_a_socket_is_shut_down_connections_go_to_the_open_ones_of_the_others() {
    for stopped in 0..3 {
        let mut groups = groups(3, 1);
        shut_down(&groups.groups[0].members[stopped].socket);
        let others: Vec<_> = (0..3).filter(|place| *place != stopped).collect();
        groups.make(3, 5).unwrap();
        groups.make(4, 5).unwrap();
        assert_eq!(chosen(&groups), others);
        groups.admit(4);
        let and_four: Vec<_> = others.iter().copied().chain([4]).collect();
        assert_eq!(chosen(&groups), and_four);
        groups.groups[0].close(|slot| slot == 4);
        assert_eq!(chosen(&groups), others);
        groups.groups[0].close(|slot| slot == stopped);
        groups.admit(3);
        assert_eq!(chosen(&groups), others.into_iter().chain([3]).collect::<Vec<_>>());
    }
}

#[test]
fn the_only_socket_that_a_service_manager_kept_is_the_first_one() {
    let kept = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen: ListenAddr = kept.local_addr().unwrap().into();
    let waiting = TcpStream::connect(kept.local_addr().unwrap()).unwrap();
    let mut inherited = vec![(systemd::kept_name(&listen.to_string()), OwnedFd::from(kept))];
    let mut groups = PortGroups::open(&[listen], (2, 1), &mut inherited).unwrap();
    assert_eq!(accept_all(&groups.groups[0].members[0].socket), 1);
    groups.take_charge(2, Instant::now());
    assert_eq!(chosen(&groups), [0, 1]);
    drop(waiting);
}

/// Clients that connect again and again while `act` runs. None is refused.
fn while_clients_connect(addr: SocketAddr, act: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let clients = [(); 2].map(|()| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let client = TcpStream::connect(addr).expect("refused");
                    // Without a TIME_WAIT: the kernel's table for them gets full. Then a new client
                    // has the port of one that is not accepted yet, and is reset.
                    set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
                }
            })
        });
        let outcome = panic::catch_unwind(AssertUnwindSafe(act));
        stop.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|panic| panic::resume_unwind(panic));
        clients.into_iter().for_each(|client| client.join().unwrap());
    });
}

/// At no moment from the bind on: a connection there would be reset when the successor fails.
#[test]
fn clients_that_connect_while_a_successor_fails_come_to_its_predecessor_only() {
    for first in [1, 2] {
        let mut old = groups(first, 1);
        let addr = addr(&old);
        while_clients_connect(addr, || {
            for round in 0..100 {
                let mut inherited = old.for_successor().unwrap();
                let mut new = PortGroups::open(&any(), (5, 1), &mut inherited).unwrap();
                (0..5).for_each(|place| new.make(place, 5).unwrap());
                let own = |groups: &PortGroups| -> usize {
                    let own = groups.groups[0].members.iter().skip(first);
                    own.map(|member| accept_all(&member.socket)).sum()
                };
                assert_eq!(own(&new), 0, "{first}, {round}");
                let copy = |socket: BorrowedFd<'_>| socket.try_clone_to_owned().unwrap();
                let made = new.made_here().map(copy).collect();
                // Its workers have them for longer.
                let lingering = if round % 2 == 0 {
                    drop(new);
                    None
                } else {
                    Some(new)
                };
                old.steer_again(made, Instant::now());
                assert_eq!(lingering.as_ref().map_or(0, own), 0, "{first}, {round}");
                (0..first)
                    .for_each(|place| old.sockets_of(place).for_each(|one| _ = accept_all(one)));
            }
        });
        assert_eq!(chosen(&old), (0..first).collect::<Vec<_>>());
    }
}

/// At no moment while sockets come and go.
#[test]
fn clients_that_connect_all_the_time_come_to_open_sockets_only() {
    let mut groups = groups(2, 1);
    let addr = addr(&groups);
    let count_at = |groups: &PortGroups, places: &[usize]| -> usize {
        places.iter().flat_map(|place| groups.sockets_of(*place)).map(accept_all).sum()
    };
    while_clients_connect(addr, || {
        for round in 0..200 {
            // Of the new ones the last one opens, and the others close before it does.
            for place in 2..6 {
                groups.make(place, 6).unwrap();
            }
            assert_eq!(count_at(&groups, &[2, 3, 4, 5]), 0, "{round}");
            groups.admit(5);
            for closing in 2..5 {
                groups.groups[0].close(|slot| slot == closing);
                assert_eq!(count_at(&groups, &[2, 3, 4]), 0, "{round}");
            }
            groups.retire(2, Instant::now());
            count_at(&groups, &[0, 1, 5]);
            groups.groups[0].close(|slot| slot == 5);
            groups.leaving.clear();
        }
    });
}
