//! A group's number from its name.

use std::io;

const FILE: &str = "/etc/group";

/// The number of a group in `/etc/group`. `name` may also be the number itself, which is needed for
/// groups from elsewhere (LDAP).
///
/// # Errors
/// There is no such group.
pub(super) fn id(name: &str) -> Result<u32, String> {
    id_by(std::fs::read(FILE), name)
}

/// The file may be missing, for example in a container, and its bytes need not be UTF-8.
fn id_by(groups: io::Result<Vec<u8>>, name: &str) -> Result<u32, String> {
    let of_name = groups.map(|groups| id_in(&String::from_utf8_lossy(&groups), name));
    match (of_name, name.parse()) {
        (Ok(Some(id)), _) | (_, Ok(id)) => Ok(id),
        (Ok(None), Err(_)) => {
            Err(format!("there is no group {name} (`groupadd --system {name}` makes it)"))
        }
        (Err(error), Err(_)) => Err(format!("{FILE}: {error}")),
    }
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
        let missing = || Err(io::ErrorKind::NotFound.into());
        assert_eq!(id_by(missing(), "998"), Ok(998));
        assert!(id_by(missing(), "wakeful").unwrap_err().starts_with("/etc/group: "));
        let not_utf_8 = || Ok(b"caf\xe9:x:7:\nwakeful:x:998:\n".to_vec());
        assert_eq!(id_by(not_utf_8(), "54323"), Ok(54_323));
        assert_eq!(id_by(not_utf_8(), "wakeful"), Ok(998));
        assert!(id("no such group").unwrap_err().contains("there is no group no such group"));
    }
}
