use std::io;
use std::time::Duration;

use super::tcp::TcpStream;
use crate::sys::socket_options;

/// What the kernel knows about a TCP connection (`TCP_INFO`, tcp(7)), at the moment of
/// [`TcpStream::tcp_info`].
///
/// A field that an older kernel does not know is 0. Some fields count segments, the kernel's unit.
/// A segment has up to [`send_mss`](Self::send_mss) bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TcpInfo {
    /// The state of the connection.
    pub state: TcpState,
    /// The smoothed round-trip time, or zero if it has not been measured yet.
    pub rtt: Duration,
    /// How much the round-trip time varies (the mean deviation).
    pub rtt_variance: Duration,
    /// The shortest round-trip time of the last minutes (`net.ipv4.tcp_min_rtt_wlen`), or zero if
    /// it has not been measured yet.
    pub min_rtt: Duration,
    /// How long an acknowledgement may take before a segment is sent again.
    pub retransmission_timeout: Duration,
    /// How many times the oldest unacknowledged segment was sent again without an answer. If it is
    /// above 0, the peer is silent now.
    pub retransmits: u8,
    /// Segments that were sent again, since the connection began.
    pub total_retransmitted: u32,
    /// Segments that were sent and are not acknowledged yet.
    pub unacknowledged: u32,
    /// Unacknowledged segments that the kernel considers lost.
    pub lost: u32,
    /// How many segments congestion control allows in flight at once.
    pub congestion_window: u32,
    /// The size of the congestion window, in segments, above which the window grows only slowly.
    pub slow_start_threshold: u32,
    /// The largest segment that is sent, in bytes.
    pub send_mss: u32,
    /// The largest segment that was received, in bytes (an estimate).
    pub recv_mss: u32,
    /// The largest packet that the path accepts, in bytes.
    pub path_mtu: u32,
    /// Bytes that were sent, including those that were sent again.
    pub bytes_sent: u64,
    /// Bytes that were sent again.
    pub bytes_retransmitted: u64,
    /// Bytes that the peer has acknowledged.
    pub bytes_acknowledged: u64,
    /// Bytes that the peer has sent.
    pub bytes_received: u64,
    /// Bytes that were written but not sent yet.
    pub bytes_not_sent: u32,
    /// The rate at which bytes were recently delivered, in bytes per second.
    pub delivery_rate: u64,
    /// The time since data was last sent, accurate to about a millisecond.
    pub since_last_sent: Duration,
    /// The time since data was last received, accurate to about a millisecond.
    pub since_last_received: Duration,
}

/// The state of a TCP connection (RFC 9293, 3.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TcpState {
    /// Both sides may send.
    Established,
    /// This side has asked for a connection.
    SynSent,
    /// The other side has asked for a connection, and has not confirmed this side's answer yet.
    SynReceived,
    /// This side has ended, and the other side has not acknowledged that yet.
    FinWait1,
    /// This side has ended, and the other side has acknowledged that.
    FinWait2,
    /// Both sides have ended, and late segments may still arrive.
    TimeWait,
    /// There is no connection: none was asked for, or it is gone.
    Closed,
    /// The other side has ended, and this side has not.
    CloseWait,
    /// The other side has ended, then this side. The other side has not acknowledged this side's
    /// end yet.
    LastAck,
    /// The socket is a listener.
    Listen,
    /// Both sides have ended at the same time. The other side has not acknowledged this side's end
    /// yet.
    Closing,
    /// A state that this version of the crate does not know.
    Unknown,
}

impl TcpState {
    /// The numbers are those of the kernel's `include/net/tcp_states.h`.
    fn of(number: u8) -> Self {
        match number {
            1 => Self::Established,
            2 => Self::SynSent,
            3 | 12 => Self::SynReceived,
            4 => Self::FinWait1,
            5 => Self::FinWait2,
            6 => Self::TimeWait,
            7 => Self::Closed,
            8 => Self::CloseWait,
            9 => Self::LastAck,
            10 => Self::Listen,
            11 => Self::Closing,
            _ => Self::Unknown,
        }
    }
}

impl TcpInfo {
    fn of(info: &libc::tcp_info) -> Self {
        let micros = |micros: u32| Duration::from_micros(micros.into());
        let millis = |millis: u32| Duration::from_millis(millis.into());
        Self {
            state: TcpState::of(info.tcpi_state),
            rtt: micros(info.tcpi_rtt),
            rtt_variance: micros(info.tcpi_rttvar),
            // This number means that the kernel has measured nothing.
            min_rtt: if info.tcpi_min_rtt == u32::MAX {
                Duration::ZERO
            } else {
                micros(info.tcpi_min_rtt)
            },
            retransmission_timeout: micros(info.tcpi_rto),
            retransmits: info.tcpi_retransmits,
            total_retransmitted: info.tcpi_total_retrans,
            unacknowledged: info.tcpi_unacked,
            lost: info.tcpi_lost,
            congestion_window: info.tcpi_snd_cwnd,
            slow_start_threshold: info.tcpi_snd_ssthresh,
            send_mss: info.tcpi_snd_mss,
            recv_mss: info.tcpi_rcv_mss,
            path_mtu: info.tcpi_pmtu,
            bytes_sent: info.tcpi_bytes_sent,
            bytes_retransmitted: info.tcpi_bytes_retrans,
            bytes_acknowledged: info.tcpi_bytes_acked,
            bytes_received: info.tcpi_bytes_received,
            bytes_not_sent: info.tcpi_notsent_bytes,
            delivery_rate: info.tcpi_delivery_rate,
            since_last_sent: millis(info.tcpi_last_data_sent),
            since_last_received: millis(info.tcpi_last_data_recv),
        }
    }
}

impl TcpStream {
    /// Returns what the kernel knows about the connection, with one system call.
    ///
    /// ```
    /// # async fn slow(stream: &wakeful::net::TcpStream) -> std::io::Result<bool> {
    /// let info = stream.tcp_info()?;
    /// Ok(info.rtt > std::time::Duration::from_millis(200) || info.lost > 0)
    /// # }
    /// ```
    ///
    /// # Errors
    /// Kernel errors.
    pub fn tcp_info(&self) -> io::Result<TcpInfo> {
        socket_options::tcp_info(self).map(|info| TcpInfo::of(&info))
    }
}
