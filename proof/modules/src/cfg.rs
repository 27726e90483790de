//! Which code is left out: what is compiled for tests or models only.

use syn::punctuated::Punctuated;
use syn::{Attribute, Meta, Token};

/// Whether a condition holds for the product. `None`: for some builds of it.
fn holds(condition: &Meta) -> Option<bool> {
    if let Meta::Path(name) = condition {
        let is_for_tests = ["test", "wakeful_loom", "fuzzing", "miri", "doctest"];
        return is_for_tests.iter().any(|test| name.is_ident(test)).then_some(false);
    }
    let Meta::List(list) = condition else { return None };
    let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).ok()?;
    let mut parts = parts.iter().map(holds);
    if list.path.is_ident("not") {
        parts.next().flatten().map(|holds| !holds)
    } else if list.path.is_ident("all") {
        parts
            .try_fold(true, |all, part| match part {
                Some(false) => Err(false),
                Some(true) => Ok(all),
                None => Ok(false),
            })
            .map_or(Some(false), |all| all.then_some(true))
    } else {
        let parts: Vec<_> = parts.collect();
        if parts.contains(&Some(true)) {
            return Some(true);
        }
        parts.iter().all(|part| *part == Some(false)).then_some(false)
    }
}

/// Is the item with these attributes part of the product?
pub(crate) fn is_product(attributes: &[Attribute]) -> bool {
    !attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || (attribute.path().is_ident("cfg")
                && attribute.parse_args::<Meta>().is_ok_and(|meta| holds(&meta) == Some(false)))
    })
}
