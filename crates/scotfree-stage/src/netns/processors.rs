//! Which processor a host's programs run on, where hosts are to share none, as separate machines do.

use crate::trouble::Trouble;
use std::fs;
use std::path::Path;

const STATUS: &str = "/proc/self/status";

/// The number of the `n`th processor, counted from 0 among those that this process may use, round and round.
pub(super) fn nth(n: usize) -> Result<String, Trouble> {
    let status =
        fs::read_to_string(STATUS).map_err(|error| Trouble::file("read", Path::new(STATUS), &error))?;
    let allowed = allowed(&status).ok_or_else(|| {
        let tried = format!("find the processors that may be used ({STATUS})");
        Trouble::new(tried, "there is no list of them", "name no `processor` in the topology's file")
    })?;
    Ok(allowed[n % allowed.len()].to_string())
}

/// The processors of the line `Cpus_allowed_list: 0-1,4`; none is no list.
fn allowed(status: &str) -> Option<Vec<usize>> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let mut processors = Vec::new();
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        processors.extend(first.parse().ok()?..=last.parse::<usize>().ok()?);
    }
    (!processors.is_empty()).then_some(processors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_single_processors_are_read() {
        let status = "Name:\tscot\nCpus_allowed:\t33\nCpus_allowed_list:\t0-1,4\nMems_allowed:\t1\n";
        assert_eq!(allowed(status), Some(vec![0, 1, 4]));
        assert_eq!(allowed("Cpus_allowed_list:\t7"), Some(vec![7]));
        for broken in ["Name:\tscot\n", "Cpus_allowed_list:\t\n", "Cpus_allowed_list:\t0-x\n"] {
            assert_eq!(allowed(broken), None, "{broken:?}");
        }
    }

    #[test]
    fn more_hosts_than_processors_take_turns() {
        let status = fs::read_to_string(STATUS).expect("it can be read");
        let count = allowed(&status).expect("there is a list").len();
        let first = nth(0).expect("there is one");
        assert_eq!(nth(count).expect("there is one"), first);
        assert!((1..count).all(|n| nth(n).expect("there is one") != first));
    }
}
