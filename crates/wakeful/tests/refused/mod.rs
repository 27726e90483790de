//! A seccomp filter that refuses a system call.
#![allow(unsafe_code)] // `prctl`.

use std::io;

/// From now on the kernel answers this thread's `call` by EPERM.
pub(crate) fn refuse(call: libc::c_long) -> io::Result<()> {
    install(&mut [load(NUMBER), only_if(call, 1), refusal(), allowance()])
}

/// The same for calls with this first argument, if it is one of 32 bits.
#[allow(dead_code, reason = "not every binary needs it")]
pub(crate) fn refuse_of(call: libc::c_long, first: u32) -> io::Result<()> {
    let is_first = only_if(libc::c_long::from(first), 1);
    install(&mut [load(NUMBER), only_if(call, 3), load(FIRST), is_first, refusal(), allowance()])
}

/// Where a filter finds a call's number, and the lower half of its first argument.
const NUMBER: u32 = 0;
const FIRST: u32 = if cfg!(target_endian = "little") { 16 } else { 20 };

fn statement(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

fn load(at: u32) -> libc::sock_filter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at)
}

/// If what was loaded is not `wanted`, this many statements are skipped.
fn only_if(wanted: libc::c_long, skipped: u8) -> libc::sock_filter {
    let equals = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    libc::sock_filter { jf: skipped, ..statement(equals, u32::try_from(wanted).unwrap()) }
}

fn refusal() -> libc::sock_filter {
    statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32)
}

fn allowance() -> libc::sock_filter {
    statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW)
}

fn install(filter: &mut [libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the kernel reads the program and its statements, which live until it has.
    let refused = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) != 0
    };
    if refused { Err(io::Error::last_os_error()) } else { Ok(()) }
}
