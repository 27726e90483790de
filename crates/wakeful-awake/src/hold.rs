//! Holds CPUs for another process, if that gains anything.

use std::io;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use crate::back_off::BackOff;
use crate::fork_gate::{Gated, Place};
use crate::keeper_client::KeeperError;
use crate::keeper_protocol::{SOCKET_VARIABLE, socket_path};
use crate::kept_hold::KeptHold;
use crate::latency_device::{self, OpenError};
use crate::machine::{LargeMachine, check_share};
use crate::wake_cost::Gain;

/// After a no, the measurement is repeated after the first time, and then after twice as long, up
/// to the second.
const AGAIN: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(3600));

/// The settings that say which CPUs are held, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HoldSettings {
    tolerated: Duration,
    whole_machine: bool,
    cpus: Option<Vec<usize>>,
}

impl HoldSettings {
    /// Returns the defaults: held CPUs enter no idle state. Without a keeper, CPUs are held only if
    /// this process may use most of the machine ([`check_share`]).
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how long a held CPU may take to leave its idle state (default 0: it polls). The time is
    /// rounded down to whole microseconds. On a machine with shallow idle states, tolerating a
    /// microsecond or two saves power.
    #[must_use]
    pub fn tolerated(mut self, latency: Duration) -> Self {
        self.tolerated = latency;
        self
    }

    /// Holds all CPUs of the machine, even if it is large or shared.
    #[must_use]
    pub fn whole_machine(mut self) -> Self {
        self.whole_machine = true;
        self
    }

    /// Holds these CPUs instead of those on which the process ran recently, for example to include
    /// the CPU that serves the network card's interrupts. This needs a keeper.
    #[must_use]
    pub fn cpus(mut self, cpus: impl IntoIterator<Item = usize>) -> Self {
        let mut cpus: Vec<usize> = cpus.into_iter().collect();
        cpus.sort_unstable();
        cpus.dedup();
        self.cpus = Some(cpus);
        self
    }
}

/// The reason why CPUs cannot be held.
#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    /// No keeper runs, and the device may not be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The machine has more than four CPUs, or this thread may run on fewer than half of the
    /// machine's CPUs.
    #[error("{0}. To hold them all: `--hold machine` (in code HoldSettings::whole_machine())")]
    Large(#[from] LargeMachine),
    /// The machine has a keeper, which this process cannot use, and the device may not be used
    /// either.
    #[error(transparent)]
    Keeper(KeeperError),
    /// Single CPUs were requested, and there is no keeper.
    #[error("only a keeper can hold single CPUs: {0}")]
    NoKeeper(#[source] KeeperError),
    /// Single CPUs were requested, and this process may not use a keeper.
    #[error(
        "only a keeper can hold single CPUs, and the environment variable {SOCKET_VARIABLE} is \
         empty"
    )]
    KeeperOff,
}

/// A hold for another process. It ends with this value, and with this process. See the
/// [module](self).
#[derive(Debug)]
pub(crate) struct Hold {
    means: Means,
    tolerated: Duration,
    /// The CPUs that the user chose, instead of those that are used.
    cpus: Option<Vec<usize>>,
    /// Why nothing was held at the last attempt.
    why_not: Option<String>,
    held_since: Option<Instant>,
    held: Duration,
}

#[derive(Debug)]
enum Means {
    /// Only the CPUs that are used, by the machine's keeper.
    Keeper(KeptHold),
    /// All CPUs, by the kernel's device.
    Device(Device),
}

#[derive(Debug)]
struct Device {
    fd: Gated<OwnedFd>,
    measured: Measured,
    /// Set with the device only, because a keeper checks by itself.
    back_off: BackOff,
}

#[derive(Debug)]
enum Measured {
    NotYet,
    Gains(Gain),
    /// When the measurement is repeated, and the pause after that.
    Useless(Gain, Instant, Duration),
    /// The measurement failed, for this reason. The times are as above.
    Failed(String, Instant, Duration),
    /// Another program held the CPUs already, and joining a hold costs nothing. It may let go, so
    /// at this time, and at the next traffic, it is looked at again.
    Joins(Instant),
}

impl Hold {
    /// Holds by the machine's keeper, if one runs, and otherwise by the device. Nothing is held
    /// yet.
    pub(crate) fn open(settings: HoldSettings, place: Option<Place>) -> Result<Self, HoldError> {
        let means = match socket_path().map(|path| KeptHold::connect(path, place)) {
            Some(Ok(kept)) => Means::Keeper(kept),
            Some(Err(error)) if settings.cpus.is_some() => return Err(HoldError::NoKeeper(error)),
            None if settings.cpus.is_some() => return Err(HoldError::KeeperOff),
            Some(Err(KeeperError::Missing(_))) | None => {
                Means::Device(Device::open(&settings, place)?)
            }
            // A keeper is there, and should be used, so its error is the one to return.
            Some(Err(error)) => match Device::open(&settings, place) {
                Ok(device) => Means::Device(device),
                Err(_) => return Err(HoldError::Keeper(error)),
            },
        };
        Ok(Self {
            means,
            tolerated: settings.tolerated,
            cpus: settings.cpus,
            why_not: None,
            held_since: None,
            held: Duration::ZERO,
        })
    }

    /// Holds from now on, unless that gains nothing, or the power or the CPU time is needed
    /// elsewhere. A keeper holds the CPUs that are used, or those that were chosen. The device
    /// holds all CPUs, and measures before the first hold, for some 60 ms. Must be called again and
    /// again while there is traffic.
    pub(crate) fn begin(&mut self, used: &[usize]) -> io::Result<()> {
        if let Means::Device(device) = &mut self.means {
            let reluctance = device.back_off.look(Instant::now());
            self.why_not = reluctance.map(|reluctance| reluctance.to_string());
            if self.why_not.is_some() {
                return self.end();
            }
            if matches!(device.measured, Measured::Joins(again) if Instant::now() >= again) {
                // Other programs' holds are seen only without this one.
                self.end()?;
            }
        }
        let cpus = self.cpus.as_deref().unwrap_or(used);
        match &mut self.means {
            Means::Keeper(kept) if !cpus.is_empty() => {
                self.why_not = kept.hold(cpus, self.tolerated).err();
                let is_held = kept.is_held();
                self.count(is_held);
            }
            Means::Keeper(_) => {}
            Means::Device(device) if self.held_since.is_none() => {
                device.measure(|device| Gain::measure(device))?;
                match &device.measured {
                    Measured::Useless(..) => {}
                    Measured::Failed(reason, ..) => self.why_not = Some(reason.clone()),
                    Measured::NotYet | Measured::Gains(_) | Measured::Joins(_) => {
                        latency_device::hold(&*device.fd, self.tolerated)?;
                        self.count(true);
                    }
                }
            }
            Means::Device(_) => {}
        }
        Ok(())
    }

    pub(crate) fn end(&mut self) -> io::Result<()> {
        if self.is_held() {
            self.count(false);
            match &mut self.means {
                Means::Keeper(kept) => {
                    kept.release();
                }
                Means::Device(device) => latency_device::release(&*device.fd)?,
            }
        }
        Ok(())
    }

    fn count(&mut self, is_held: bool) {
        match (self.held_since, is_held) {
            (None, true) => self.held_since = Some(Instant::now()),
            (Some(since), false) => {
                self.held += since.elapsed();
                self.held_since = None;
            }
            _ => {}
        }
    }

    pub(crate) fn is_held(&self) -> bool {
        self.held_since.is_some()
    }

    /// The total time of holds.
    pub(crate) fn held_time(&self) -> Duration {
        self.held + self.held_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Why nothing is held although there is traffic.
    pub(crate) fn why_not(&self) -> Option<&str> {
        self.why_not.as_deref()
    }

    /// The last measurement. (A keeper measures by itself.)
    pub(crate) fn gain(&self) -> Option<Gain> {
        match &self.means {
            Means::Device(Device {
                measured: Measured::Gains(gain) | Measured::Useless(gain, ..),
                ..
            }) => Some(*gain),
            Means::Device(_) | Means::Keeper(_) => None,
        }
    }
}

impl Device {
    fn open(settings: &HoldSettings, place: Option<Place>) -> Result<Self, HoldError> {
        if !settings.whole_machine {
            check_share()?;
        }
        let fd = Gated::open(place, latency_device::open)?;
        Ok(Self { fd, measured: Measured::NotYet, back_off: BackOff::new() })
    }

    /// A measurement that fails is repeated later. It may fail because the CPUs that this process
    /// may use change meanwhile, or because no thread or descriptor is left for a moment.
    ///
    /// # Errors
    /// The device refuses.
    fn measure(
        &mut self,
        measure: impl FnOnce(&OwnedFd) -> io::Result<Gain> + Send,
    ) -> io::Result<()> {
        let pause = match self.measured {
            Measured::NotYet | Measured::Joins(_) => AGAIN.0,
            Measured::Useless(_, again, pause) | Measured::Failed(_, again, pause)
                if Instant::now() >= again =>
            {
                pause
            }
            _ => return Ok(()),
        };
        if latency_device::in_force(&*self.fd)? == Some(Duration::ZERO) {
            self.measured = Measured::Joins(Instant::now() + AGAIN.0);
            return Ok(());
        }
        // This runs on a separate thread, because the measurement leaves it pinned.
        let device = &*self.fd;
        let gain = thread::scope(|scope| {
            let measuring = thread::Builder::new().spawn_scoped(scope, || measure(device))?;
            measuring
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("the thread that measures has panicked")))
        });
        let (again, next) = (Instant::now() + pause, (pause * 2).min(AGAIN.1));
        self.measured = match gain {
            Ok(gain) if gain.is_worth_it() => Measured::Gains(gain),
            Ok(gain) => Measured::Useless(gain, again, next),
            Err(error) => {
                // It may have failed within a hold.
                latency_device::release(&*self.fd)?;
                let reason = format!("what is gained cannot be measured: {error}");
                Measured::Failed(reason, again, next)
            }
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::{AtomicU32, Ordering};

    use rustix::io::Errno;

    use super::*;

    const NOBODY: i32 = 2_000_000_000;

    /// A regular file in the device's place, which says that this is in force.
    fn device(in_force: i32) -> Device {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = format!("wakeful-hold-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(path);
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path);
        std::fs::remove_file(&path).unwrap();
        let fd = Gated::open(None, || Ok::<_, OpenError>(file.unwrap().into())).unwrap();
        say(&fd, in_force);
        let back_off = BackOff::of("/nonexistent".into(), "/nonexistent".into());
        Device { fd, measured: Measured::NotYet, back_off }
    }

    fn say(fd: &OwnedFd, in_force: i32) {
        let file = File::from(fd.try_clone().unwrap());
        file.write_all_at(&in_force.to_ne_bytes(), 0).unwrap();
    }

    fn hold(device: Device) -> Hold {
        let (cpus, why_not, held_since) = (None, None, None);
        let (tolerated, held) = (Duration::ZERO, Duration::ZERO);
        Hold { means: Means::Device(device), tolerated, cpus, why_not, held_since, held }
    }

    /// As when the CPUs that the process may use change during the measurement.
    #[test]
    fn a_measurement_that_fails_is_no_error_and_is_repeated_later() {
        let mut device = device(NOBODY);
        let copy = File::from(device.fd.try_clone().unwrap());
        let refused = |_: &OwnedFd| Err(Errno::INVAL.into());
        device.measure(refused).unwrap();
        let mut written = [0; 4];
        copy.read_exact_at(&mut written, 0).unwrap();
        assert_eq!(i32::from_ne_bytes(written), -1, "it is released");
        // It is not measured again at once.
        device.measure(|_| panic!("too early")).unwrap();
        let mut hold = hold(device);
        hold.begin(&[0]).unwrap();
        assert!(!hold.is_held() && hold.gain().is_none());
        let why_not = hold.why_not().unwrap();
        assert!(why_not.contains("cannot be measured: Invalid argument"), "{why_not}");
        // Later it is, and the next pause is longer.
        let Means::Device(device) = &mut hold.means else { unreachable!() };
        let Measured::Failed(_, again, pause) = &mut device.measured else { unreachable!() };
        let before = *pause;
        *again = Instant::now();
        say(&device.fd, NOBODY);
        device.measure(refused).unwrap();
        assert!(matches!(&device.measured, Measured::Failed(_, _, pause) if *pause == 2 * before));
    }

    #[test]
    fn when_the_program_whose_hold_was_joined_lets_go_the_gain_is_measured() {
        for is_next_traffic in [true, false] {
            let mut hold = hold(device(0));
            hold.begin(&[0]).unwrap();
            hold.begin(&[0]).unwrap();
            assert!(hold.is_held() && hold.gain().is_none());
            let Means::Device(device) = &mut hold.means else { unreachable!() };
            say(&device.fd, NOBODY);
            let Measured::Joins(again) = &mut device.measured else { unreachable!() };
            if is_next_traffic {
                hold.end().unwrap();
            } else {
                *again = Instant::now();
            }
            hold.begin(&[0]).unwrap();
            // Whatever it is.
            let gain = hold.gain().expect("it is measured");
            assert_eq!(hold.is_held(), gain.is_worth_it());
        }
    }
}
