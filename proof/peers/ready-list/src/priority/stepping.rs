//! Stops a thread before any instruction of a function, whoever wrote it. The processor's trap flag
//! raises SIGTRAP after each instruction, and the handler counts. Libraries need no hooks for this.
//! It works only on x86-64.

#![allow(unsafe_code)] // A signal handler, and the one flag that the processor has for this.

#[cfg(target_arch = "x86_64")]
pub use self::x86_64::{instructions, stepped};

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::arch::asm;
    use std::mem;
    use std::ptr;
    use std::sync::Once;
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::SeqCst;

    use crate::priority::gate;

    static COUNT: AtomicU64 = AtomicU64::new(0);
    static TARGET: AtomicU64 = AtomicU64::new(u64::MAX);
    static HANDLER: Once = Once::new();

    /// The trap flag, in the flags register.
    const TRAP: i64 = 0x100;

    extern "C" fn trapped(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
        if COUNT.fetch_add(1, SeqCst) != TARGET.load(SeqCst) {
            return;
        }
        gate::stop_here();
        let context = context.cast::<libc::ucontext_t>();
        // SAFETY: the kernel passes a ucontext to a handler with SA_SIGINFO. With the flag cleared,
        // the rest runs at full speed.
        unsafe { (*context).uc_mcontext.gregs[libc::REG_EFL as usize] &= !TRAP };
    }

    fn install() {
        HANDLER.call_once(|| {
            // SAFETY: zero is a valid value for every field.
            let mut action: libc::sigaction = unsafe { mem::zeroed() };
            action.sa_sigaction = trapped as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            // SAFETY: the handler is async-signal-safe. The call fails only for wrong arguments,
            // and these are right.
            unsafe { libc::sigaction(libc::SIGTRAP, &raw const action, ptr::null_mut()) };
        });
    }

    /// Runs `f` instruction by instruction, and stops at the gate after the instruction with this
    /// number, counted from 0. Only one thread at a time may call it.
    #[inline(never)]
    pub fn stepped(number: u64, f: impl FnOnce()) {
        install();
        COUNT.store(0, SeqCst);
        TARGET.store(number, SeqCst);
        // SAFETY: it sets the trap flag, for which there is a handler. Afterwards the stack is as
        // before.
        unsafe { asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq") };
        f();
        // SAFETY: as above; clears it.
        unsafe { asm!("pushfq", "and qword ptr [rsp], -257", "popfq") };
    }

    /// Returns how many instructions `f` has.
    pub fn instructions(f: impl FnOnce()) -> u64 {
        stepped(u64::MAX, f);
        COUNT.load(SeqCst)
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub fn stepped(_: u64, f: impl FnOnce()) {
    f();
}

#[cfg(not(target_arch = "x86_64"))]
pub fn instructions(f: impl FnOnce()) -> u64 {
    f();
    0
}

/// Returns whether this works on this machine.
pub fn check() -> Result<(), String> {
    if cfg!(target_arch = "x86_64") {
        Ok(())
    } else {
        Err("stopping at any instruction needs x86-64's trap flag".to_owned())
    }
}
