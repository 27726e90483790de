//! Whose socket listens at an address of this machine.

use std::fs;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::Path;

/// The state of a listening socket in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// The process that listens at `HOST:PORT` or `unix:PATH` in this network namespace. The first one
/// if several share the socket; `None` if it is on another machine, or belongs to somebody whose
/// descriptors we may not see.
pub(super) fn owner(addr: &str) -> Option<u32> {
    socket_at(addr).and_then(holder)
}

/// The number of the socket that listens there.
pub(super) fn socket_at(addr: &str) -> Option<u64> {
    if let Some(path) = addr.strip_prefix("unix:") {
        return unix_inode(path);
    }
    let addr = addr.to_socket_addrs().ok()?.next()?;
    // Only an address that we could bind is one of this machine.
    std::net::UdpSocket::bind((addr.ip(), 0)).ok()?;
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
    tables.into_iter().flatten().find_map(|table| tcp_inode(&table, addr))
}

/// The first process that has a socket.
pub(super) fn holder(socket: u64) -> Option<u32> {
    let name = format!("socket:[{socket}]");
    let mut processes: Vec<u32> = numbers("/proc").collect();
    processes.sort_unstable();
    processes.into_iter().find(|pid| {
        let fds = format!("/proc/{pid}/fd");
        let mut links = numbers(&fds).map(|fd| fs::read_link(format!("{fds}/{fd}")));
        links.any(|link| link.is_ok_and(|link| link.as_os_str() == name.as_str()))
    })
}

fn tcp_inode(table: &str, addr: SocketAddr) -> Option<u64> {
    let ip = hexadecimal(addr.ip());
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_whitespace();
        let (host, port) = fields.nth(1)?.rsplit_once(':')?;
        let is_there = host == ip || host.bytes().all(|byte| byte == b'0');
        let is_it = is_there
            && u16::from_str_radix(port, 16) == Ok(addr.port())
            && fields.nth(1)? == LISTEN;
        is_it.then(|| fields.nth(5)?.parse().ok()).flatten()
    })
}

/// As the tables have it: words of 32 bits in the machine's order.
fn hexadecimal(ip: IpAddr) -> String {
    let octets = match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let words = octets.as_chunks::<4>().0.iter();
    words.map(|word| format!("{:08X}", u32::from_ne_bytes(*word))).collect()
}

fn unix_inode(path: &str) -> Option<u64> {
    let table = fs::read_to_string("/proc/net/unix").ok()?;
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        (fields.get(7) == Some(&path)).then(|| fields[6].parse().ok()).flatten()
    })
}

fn numbers(dir: impl AsRef<Path>) -> impl Iterator<Item = u32> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_listeners_are_ours() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        assert_eq!(owner(&addr), Some(std::process::id()));
        drop(listener);
        assert_eq!(owner(&addr), None);
    }

    #[test]
    fn unix_sockets_have_owners_too() {
        let path = std::env::temp_dir().join(format!("wakeful-owner-{}", std::process::id()));
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert_eq!(owner(&format!("unix:{}", path.display())), Some(std::process::id()));
        drop(listener);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn other_machines_are_nobodys_here() {
        assert_eq!(owner("192.0.2.1:80"), None);
        assert_eq!(owner("nonsense"), None);
    }

    #[test]
    fn the_line_of_a_table_is_taken_apart() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
                     0: 0100007F:1E61 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1234 1 0\n";
        let inode = |addr: &str| tcp_inode(table, addr.parse().unwrap());
        assert_eq!(inode("127.0.0.1:7777"), Some(1234));
        assert_eq!(inode("127.0.0.1:7778"), None);
        assert_eq!(inode("127.0.0.2:7777"), None, "somebody else's");
    }
}
