//! Edge emulation: a program under the limits of a small machine, by the kernel's control groups of version 1 or 2,
//! whichever this machine has.
//!
//! Invariant: a program starts only when every limit that was asked for is in force; a limit that cannot be is an
//! error that names what is missing. What was made for a program is removed with all that runs in it.
//!
//! What the limits are, and are not:
//!
//! - *Memory* is what the program's processes hold, the page cache of what they read with it; there is no swap. Pages of
//!   files that others have read before are used free of charge, and without a disk: see [`forget_files`].
//! - *Processors* are a share of this machine's. The kernel gives it out in slices: a program uses up its quota in the
//!   first part of a period and stands still for the rest. The period is as short as it can be, 10 ms; means over seconds
//!   are meaningful, the time of one short step is not. The share is that of all threads together: one thread may use
//!   it up alone, where on the small machine it has one slow core.
//! - *Disk rates* hold for each disk by itself, in slices of some 20 to 100 ms, and for what reaches the disk: reads
//!   that the page cache answers do not count. Under version 1 writes count only when they are made past the page
//!   cache, or synced by the program itself; the kernel writes the rest in its own name.

mod disk;
mod foreground;
mod group;
mod hierarchy;
mod profile;
mod quantity;
mod settings;
mod usage;

pub use disk::{disks_of, Disk};
pub use foreground::{run_foreground, Ended};
pub use group::{forget_files, sweep, Group};
pub use hierarchy::{available, Availability};
pub use profile::{Limits, Profile};
pub use quantity::{Bytes, BytesPerSecond, Processors};
pub use usage::Usage;
