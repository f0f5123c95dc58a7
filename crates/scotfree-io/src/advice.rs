//! What to do next about errors of the system that users meet.
//!
//! Invariant: the advice fits the error: nobody is sent to look for a process when the address is not there.

use std::io;

/// What to do about an address at which nobody could listen.
pub fn after_listening(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "see who has it: ss -tulpn; end that, or give another address",
        io::ErrorKind::AddrNotAvailable => {
            "this machine has no such address; see those that it has: ip -brief address"
        }
        io::ErrorKind::PermissionDenied => "give a port from 1024 on, or run as root",
        _ => "give another address",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_fits_the_error() {
        let advice = |kind: io::ErrorKind| after_listening(&kind.into());
        assert!(advice(io::ErrorKind::AddrInUse).contains("ss -tulpn"));
        assert!(advice(io::ErrorKind::AddrNotAvailable).contains("no such address"));
        assert!(advice(io::ErrorKind::PermissionDenied).contains("1024"));
    }
}
