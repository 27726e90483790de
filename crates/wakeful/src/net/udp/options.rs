//! Options of the socket: broadcast, time to live, multicast. `socket2` has the others.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

use socket2::SockRef;

use super::UdpSocket;

impl UdpSocket {
    /// Sets `SO_BROADCAST`: may datagrams go to broadcast addresses?
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

    /// Sets how many routers a datagram may pass (`IP_TTL`, by IPv4). The default is the system's
    /// (`net.ipv4.ip_default_ttl`).
    ///
    /// # Errors
    /// `EINVAL`: not 1 to 255. Kernel errors.
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

    /// Joins a multicast group. `interface` is the address of one of this host's interfaces;
    /// `0.0.0.0` leaves the choice to the kernel.
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
    /// `ENODEV`: no such interface. `EADDRINUSE`: it has joined already. Kernel errors.
    pub fn join_multicast_v4(&self, group: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        self.options().join_multicast_v4(&group, &interface)
    }

    /// Joins a multicast group of IPv6. `interface` is the index of an interface; 0 leaves the
    /// choice to the kernel.
    ///
    /// # Errors
    /// The same as for [`join_multicast_v4`](Self::join_multicast_v4).
    pub fn join_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.options().join_multicast_v6(group, interface)
    }

    /// Leaves a group that was joined with the same arguments.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL`: it was not joined. Kernel errors.
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

    /// Sets the interface, by its address, from which multicast leaves.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn set_multicast_if_v4(&self, interface: Ipv4Addr) -> io::Result<()> {
        self.options().set_multicast_if_v4(&interface)
    }

    /// Returns the interface from which multicast leaves; `0.0.0.0` is the kernel's choice.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn multicast_if_v4(&self) -> io::Result<Ipv4Addr> {
        self.options().multicast_if_v4()
    }

    /// Sets the interface, by its index, from which multicast of IPv6 leaves.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn set_multicast_if_v6(&self, interface: u32) -> io::Result<()> {
        self.options().set_multicast_if_v6(interface)
    }

    /// Returns the interface from which multicast of IPv6 leaves; 0 is the kernel's choice.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn multicast_if_v6(&self) -> io::Result<u32> {
        self.options().multicast_if_v6()
    }

    /// Sets how many routers multicast may pass (`IP_MULTICAST_TTL`). The default is 1: none.
    ///
    /// # Errors
    /// `EINVAL`: over 255. Kernel errors.
    pub fn set_multicast_ttl_v4(&self, ttl: u32) -> io::Result<()> {
        self.options().set_multicast_ttl_v4(ttl)
    }

    /// Returns how many routers multicast may pass.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn multicast_ttl_v4(&self) -> io::Result<u32> {
        self.options().multicast_ttl_v4()
    }

    /// Sets how many routers multicast of IPv6 may pass. The default is 1: none.
    ///
    /// # Errors
    /// `EINVAL`: over 255. Kernel errors.
    pub fn set_multicast_hops_v6(&self, hops: u32) -> io::Result<()> {
        self.options().set_multicast_hops_v6(hops)
    }

    /// Returns how many routers multicast of IPv6 may pass.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn multicast_hops_v6(&self) -> io::Result<u32> {
        self.options().multicast_hops_v6()
    }

    /// Sets whether this host's members of a group see what is sent here. The default is that they
    /// do.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn set_multicast_loop_v4(&self, loops: bool) -> io::Result<()> {
        self.options().set_multicast_loop_v4(loops)
    }

    /// Do this host's members of a group see what is sent here?
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

    /// Do this host's members of a group of IPv6 see what is sent here?
    ///
    /// # Errors
    /// Kernel errors.
    pub fn multicast_loop_v6(&self) -> io::Result<bool> {
        self.options().multicast_loop_v6()
    }

    /// Takes the error that is pending on the socket (`SO_ERROR`), which the next operation would
    /// return.
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
