//! The programs run on a frame by themselves, for tests.
//!
//! Invariant: the frame meets the same tables as one that comes in by a port.

use super::{Kernel, Programs, PROGRAM_EGRESS_ALONE, PROGRAM_INGRESS};
use crate::error::{bpf, KernelError};
use libbpf_rs::{MapCore, MapFlags, ProgramInput};

/// How long frames are at most, with reserve.
const FRAME_BYTES_MAX: usize = 2_048;

impl Kernel {
    /// Runs the ingress program on a frame that came in by `ifindex`.
    pub fn test_ingress(&self, frame: &[u8], ifindex: u32) -> Result<TestRun, KernelError> {
        self.test_run(PROGRAM_INGRESS, frame, ifindex)
    }

    /// Runs the program that makes an acknowledgement of a stamped request's clone.
    pub fn test_egress(&self, frame: &[u8], ifindex: u32) -> Result<TestRun, KernelError> {
        self.test_run(PROGRAM_EGRESS_ALONE, frame, ifindex)
    }

    /// What stands under a key of a table of the programs'.
    pub fn test_value(&self, table: &str, key: &[u8]) -> Result<Option<Vec<u8>>, KernelError> {
        let Programs::Loaded(object) = &self.programs else { panic!("tests load the programs themselves") };
        let table = object.maps().find(|map| map.name() == table).expect("the object has this table");
        table.lookup(key, MapFlags::ANY).map_err(bpf("reading a table"))
    }

    fn test_run(&self, name: &str, frame: &[u8], ifindex: u32) -> Result<TestRun, KernelError> {
        let Programs::Loaded(object) = &self.programs else { panic!("tests load the programs themselves") };
        let program = object.progs_mut().find(|program| program.name() == name);
        let program = program.expect("the object has this program");
        // struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex.
        let context = [0, frame.len() as u32, 0, ifindex, 0, 0_u32];
        let mut context: Vec<u8> = context.iter().flat_map(|word| word.to_ne_bytes()).collect();
        // An answer may be longer than its request.
        let mut out = vec![0; frame.len() + FRAME_BYTES_MAX];
        let input = ProgramInput {
            context_in: Some(&mut context),
            data_in: Some(frame),
            data_out: Some(&mut out),
            ..ProgramInput::default()
        };
        let output = program.test_run(input).map_err(bpf(format!("running {name} on a frame")))?;
        let frame = output.data.map(|data| data.to_vec()).unwrap_or_default();
        Ok(TestRun { verdict: output.return_value, frame })
    }
}

/// What a program made of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestRun {
    /// Its verdict (`XDP_ABORTED` 0, `XDP_DROP` 1, `XDP_PASS` 2, `XDP_TX` 3, `XDP_REDIRECT` 4).
    pub verdict: u32,
    /// The frame as the program left it.
    pub frame: Vec<u8>,
}
