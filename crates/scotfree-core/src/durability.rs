//! What "durable" means: each level names the failure it survives (design.md section 4).

use core::fmt;

/// What a persistence domain honestly survives, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Survives {
    /// The death of any process, not of the host.
    ProcessCrash,
    /// The restart of the host, as battery-backed or persistent memory does.
    HostCrash,
    /// Loss of power.
    PowerLoss,
}

/// The durability that a request asks for and that an acknowledgement grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Durability {
    /// As the server alone gives it.
    #[default]
    None,
    /// In the memory of the number of devices that the request names.
    Ram,
    /// On stable storage of a device.
    Disk,
    /// Both.
    RamAndDisk,
}

impl Durability {
    /// The code on the wire.
    pub const fn code(self) -> u8 {
        match self {
            Durability::None => 0,
            Durability::Ram => 1,
            Durability::Disk => 2,
            Durability::RamAndDisk => 3,
        }
    }

    /// The durability of a wire code, if it is one.
    pub const fn from_code(code: u8) -> Option<Durability> {
        match code {
            0 => Some(Durability::None),
            1 => Some(Durability::Ram),
            2 => Some(Durability::Disk),
            3 => Some(Durability::RamAndDisk),
            _ => None,
        }
    }

    /// Both.
    #[must_use]
    pub const fn with(self, other: Durability) -> Durability {
        Durability::from_bits(self.code() | other.code())
    }

    /// What is left of it without `other`.
    #[must_use]
    pub const fn without(self, other: Durability) -> Durability {
        Durability::from_bits(self.code() & !other.code())
    }

    const fn from_bits(bits: u8) -> Durability {
        match bits & 3 {
            0 => Durability::None,
            1 => Durability::Ram,
            2 => Durability::Disk,
            _ => Durability::RamAndDisk,
        }
    }

    /// Whether a log entry with `self` serves a request that asked for `asked`.
    pub const fn satisfies(self, asked: Durability) -> bool {
        // The codes are a bit set: ram = 1, disk = 2.
        self.code() & asked.code() == asked.code()
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Durability::None => "none",
            Durability::Ram => "ram",
            Durability::Disk => "disk",
            Durability::RamAndDisk => "ram+disk",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_trip() {
        for code in 0..4 {
            let durability = Durability::from_code(code).expect("0 to 3 are codes");
            assert_eq!(durability.code(), code);
        }
        assert_eq!(Durability::from_code(4), None);
    }

    #[test]
    fn ram_does_not_satisfy_disk() {
        assert!(!Durability::Ram.satisfies(Durability::Disk));
        assert!(Durability::RamAndDisk.satisfies(Durability::Disk));
        assert!(Durability::None.satisfies(Durability::None));
        assert_eq!(Durability::Ram.with(Durability::Disk), Durability::RamAndDisk);
        assert_eq!(Durability::RamAndDisk.without(Durability::Ram), Durability::Disk);
    }
}
