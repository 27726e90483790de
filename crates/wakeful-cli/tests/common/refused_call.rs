//! System calls that are refused, as in a container.

use std::io;

/// From now on the kernel answers this process's `call` by EPERM.
pub(crate) fn refuse(call: libc::c_long) -> io::Result<()> {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let equals = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let mut filter = [
        // The number of the call is what a filter is given first.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        libc::sock_filter { jf: 1, ..statement(equals, call as u32) },
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the kernel reads the program and its statements, which live until it has.
    let refused = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) != 0
    };
    if refused { Err(io::Error::last_os_error()) } else { Ok(()) }
}
