//! A group's number from its name.

/// The number of a group in `/etc/group`. `name` may also be the number itself, which is needed for
/// groups from elsewhere (LDAP).
///
/// # Errors
/// There is no such group.
pub(super) fn id(name: &str) -> Result<u32, String> {
    let groups = std::fs::read_to_string("/etc/group");
    let groups = groups.map_err(|error| format!("/etc/group: {error}"))?;
    id_in(&groups, name)
        .or_else(|| name.parse().ok())
        .ok_or_else(|| format!("there is no group {name} (`groupadd --system {name}` makes it)"))
}

fn id_in(groups: &str, name: &str) -> Option<u32> {
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        let id = (fields.next()? == name).then(|| fields.nth(1))??;
        id.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_found_by_its_whole_name() {
        let groups = "root:x:0:\nbroken\nwakeful-no:x:7:\nwakeful:x:998:nginx,redis\n";
        assert_eq!(id_in(groups, "wakeful"), Some(998));
        assert_eq!(id_in(groups, "wake"), None);
        assert_eq!(id_in(groups, ""), None);
    }

    #[test]
    fn a_number_is_one_itself() {
        assert_eq!(id("54323"), Ok(54_323));
        assert!(id("no such group").unwrap_err().contains("there is no group no such group"));
    }
}
