//! The energy that processor packages used, from RAPL. Guests do not have RAPL, and elsewhere only
//! root can read it.

use std::fs;
use std::path::Path;

pub(super) const DOMAINS: &str = "/sys/class/powercap";

/// The counter of a package, in microjoules. It begins again at 0 when it exceeds its range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Package {
    domain: String,
    used: u64,
    range: u64,
}

/// Reads the counters of whole packages. Their parts are left out, because they would count twice.
pub(super) fn read(root: &Path) -> Vec<Package> {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let package = |entry: fs::DirEntry| {
        let domain = entry.file_name().into_string().ok()?;
        let number = domain.strip_prefix("intel-rapl:")?;
        let is_whole = number.parse::<u32>().is_ok();
        let of = |file: &str| fs::read_to_string(entry.path().join(file)).ok();
        let count = |file| of(file)?.trim().parse().ok();
        let is_package = is_whole && of("name")?.starts_with("package");
        let (used, range) = (count("energy_uj")?, count("max_energy_range_uj")?);
        is_package.then_some(Package { domain, used, range })
    };
    entries.filter_map(package).collect()
}

/// Returns the energy that all packages have used since. `None` if there are no counters.
pub(super) fn joules(now: &[Package], before: &[Package]) -> Option<f64> {
    let used = now.iter().filter_map(|now| {
        let before = before.iter().find(|before| before.domain == now.domain)?;
        let wrapped = if now.used < before.used { now.range } else { 0 };
        Some((now.used + wrapped).saturating_sub(before.used) as f64 / 1e6)
    });
    used.reduce(|sum, one| sum + one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn packages_are_added_and_begin_anew() {
        let scratch = Scratch::new().unwrap();
        let put = |domain: &str, name: &str, used: u64| {
            let dir = scratch.path().join(domain);
            fs::create_dir_all(&dir).unwrap();
            for (file, text) in [
                ("name", name.to_owned()),
                ("energy_uj", used.to_string()),
                ("max_energy_range_uj", "9000000".to_owned()),
            ] {
                fs::write(dir.join(file), text + "\n").unwrap();
            }
        };
        assert_eq!(joules(&read(scratch.path()), &[]), None);
        put("intel-rapl:0", "package-0", 1_000_000);
        put("intel-rapl:1", "package-1", 8_000_000);
        put("intel-rapl:0:0", "core", 500_000);
        put("intel-rapl:2", "psys", 500_000);
        let before = read(scratch.path());
        assert_eq!(before.len(), 2);
        put("intel-rapl:0", "package-0", 3_500_000);
        put("intel-rapl:1", "package-1", 500_000);
        let used = joules(&read(scratch.path()), &before).unwrap();
        assert!((used - 4.0).abs() < 1e-9, "{used}");
    }
}
