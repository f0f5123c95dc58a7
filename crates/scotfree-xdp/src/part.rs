//! How a function's part in the kernel begins: a remedy hands out one constant, and a list of them is all that a shell
//! knows.

use crate::error::KernelError;
use crate::kernel::Kernel;
use scotfree_device::{Base, DeviceEffects, Function, KernelPart};
use std::sync::Arc;

/// A part that can begin.
#[derive(Debug, Clone, Copy)]
pub struct PartMaker {
    /// The name of the function whose part it is.
    pub function: &'static str,
    /// Begins it, with the kernel's numbers of the ports in the order in which the device counts them.
    pub start: StartPart,
}

/// Begins a part.
pub type StartPart = fn(
    &Arc<Kernel>,
    &[u32],
    &mut Base,
    &mut dyn Function,
    &mut DeviceEffects,
) -> Result<Box<dyn KernelPart>, KernelError>;
