//! Options of the socket: broadcast, time to live, multicast. `socket2` has the others.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

use socket2::SockRef;

use super::UdpSocket;

impl UdpSocket {
    /// Sets `SO_BROADCAST`: whether datagrams may be sent to broadcast addresses.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn set_broadcast(&self, broadcast: bool) -> io::Result<()> {
        self.options().set_broadcast(broadcast)
    }

    /// Returns `SO_BROADCAST`.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn broadcast(&self) -> io::Result<bool> {
        self.options().broadcast()
    }

    /// Sets how many routers an IPv4 datagram may pass (`IP_TTL`). The default is the system's
    /// (`net.ipv4.ip_default_ttl`).
    ///
    /// # Errors
    /// `EINVAL`: the number is not from 1 to 255. Kernel errors.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.options().set_ttl_v4(ttl)
    }

    /// Returns how many routers a datagram may pass.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn ttl(&self) -> io::Result<u32> {
        self.options().ttl_v4()
    }

    /// Joins a multicast group. `interface` is the address of one of this host's interfaces. With
    /// `0.0.0.0` the kernel chooses one.
    ///
    /// ```
    /// use std::net::Ipv4Addr;
    /// use wakeful::net::UdpSocket;
    ///
    /// const GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);
    ///
    /// async fn listen_to_mdns() -> std::io::Result<UdpSocket> {
    ///     let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 5353)).await?;
    ///     socket.join_multicast_v4(GROUP, Ipv4Addr::UNSPECIFIED)?;
    ///     Ok(socket)
    /// }
    /// ```
    ///
    /// # Errors
    /// `ENODEV`: there is no such interface. `EADDRINUSE`: the socket has already joined. Kernel
    /// errors.
    pub fn join_multicast_v4(&self, group: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        self.options().join_multicast_v4(&group, &interface)
    }

    /// Joins an IPv6 multicast group. `interface` is the index of an interface. With 0 the kernel
    /// chooses one.
    ///
    /// # Errors
    /// The same as for [`join_multicast_v4`](Self::join_multicast_v4).
    pub fn join_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.options().join_multicast_v6(group, interface)
    }

    /// Leaves a group that was joined with the same arguments.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL`: the socket is not in the group. Kernel errors.
    pub fn leave_multicast_v4(&self, group: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        self.options().leave_multicast_v4(&group, &interface)
    }

    /// Leaves a group that was joined with the same arguments.
    ///
    /// # Errors
    /// The same as for [`leave_multicast_v4`](Self::leave_multicast_v4).
    pub fn leave_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.options().leave_multicast_v6(group, interface)
    }

    /// Sets the interface from which multicast is sent, by its address.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn set_multicast_if_v4(&self, interface: Ipv4Addr) -> io::Result<()> {
        self.options().set_multicast_if_v4(&interface)
    }

    /// Returns the interface from which multicast is sent. `0.0.0.0` means that the kernel chooses.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn multicast_if_v4(&self) -> io::Result<Ipv4Addr> {
        self.options().multicast_if_v4()
    }

    /// Sets the interface from which IPv6 multicast is sent, by its index.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn set_multicast_if_v6(&self, interface: u32) -> io::Result<()> {
        self.options().set_multicast_if_v6(interface)
    }

    /// Returns the interface from which IPv6 multicast is sent. 0 means that the kernel chooses.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn multicast_if_v6(&self) -> io::Result<u32> {
        self.options().multicast_if_v6()
    }

    /// Sets the time to live of multicast (`IP_MULTICAST_TTL`). The default is 1: it passes no
    /// router.
    ///
    /// # Errors
    /// `EINVAL`: the number is over 255. Kernel errors.
    pub fn set_multicast_ttl_v4(&self, ttl: u32) -> io::Result<()> {
        self.options().set_multicast_ttl_v4(ttl)
    }

    /// Returns the time to live of multicast.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn multicast_ttl_v4(&self) -> io::Result<u32> {
        self.options().multicast_ttl_v4()
    }

    /// Sets the hop limit of IPv6 multicast. The default is 1: it passes no router.
    ///
    /// # Errors
    /// `EINVAL`: the number is over 255. Kernel errors.
    pub fn set_multicast_hops_v6(&self, hops: u32) -> io::Result<()> {
        self.options().set_multicast_hops_v6(hops)
    }

    /// Returns the hop limit of IPv6 multicast.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn multicast_hops_v6(&self) -> io::Result<u32> {
        self.options().multicast_hops_v6()
    }

    /// Sets whether members of a group on this host receive multicast that this host sends. By
    /// default they do.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn set_multicast_loop_v4(&self, loops: bool) -> io::Result<()> {
        self.options().set_multicast_loop_v4(loops)
    }

    /// Returns whether members of a group on this host receive multicast that this host sends.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn multicast_loop_v4(&self) -> io::Result<bool> {
        self.options().multicast_loop_v4()
    }

    /// Like [`set_multicast_loop_v4`](Self::set_multicast_loop_v4), for IPv6.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn set_multicast_loop_v6(&self, loops: bool) -> io::Result<()> {
        self.options().set_multicast_loop_v6(loops)
    }

    /// Returns whether members of an IPv6 group on this host receive multicast that this host
    /// sends.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn multicast_loop_v6(&self) -> io::Result<bool> {
        self.options().multicast_loop_v6()
    }

    /// Takes the pending error of the socket (`SO_ERROR`), which the next operation would return.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.options().take_error()
    }

    fn options(&self) -> SockRef<'_> {
        SockRef::from(self.socket.io())
    }
}
